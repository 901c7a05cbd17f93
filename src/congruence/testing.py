"""Checks of embeddings in tests: `assert_congruent` for pytest, `save_baseline`, and fifty sentences to embed.

from congruence.testing import CANARY, assert_congruent

def test_the_embeddings_are_those_of_the_last_release():
    assert_congruent(model.encode(CANARY), "tests/canary.safetensors")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from congruence.align._baseline import save_baseline as save_baseline
from congruence.align._limits import check_gates
from congruence.align._options import CheckOptions
from congruence.gates import record_gates
from congruence.maps._names import GROUPS

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison

__all__ = ["CANARY", "assert_congruent", "save_baseline"]
CANARY = Path(__file__).with_name("canary.txt").read_text(encoding="utf-8").splitlines()


def __dir__() -> list[str]:
    return __all__


def assert_congruent(
    new: Any,
    baseline: Any,
    *,
    fail_above: Mapping[str, float] | None = None,
    fail_on: Sequence[str] | None = None,
    allow_unknown: bool = False,
    **options: Any,
) -> Comparison:
    """Raise an AssertionError, with verdict and numbers, if embeddings changed by more than is allowed.

    Without limits, every status but "holds" fails: the rows must agree up to `allow` and `tolerance`. With limits,
    these decide, and otherwise only the status "unknown" fails.

    Parameters
    ----------
    new : array, table, frame or path
        The embeddings to check.
    baseline : Baseline, or array, table, frame or path
        A file written by `save_baseline`, or the earlier embeddings.
    fail_above : mapping of str to float, optional
        Limits as ``--fail-above`` takes them: ``{"similarity.r2": 0.9}`` (R² is a minimum, all others are maxima).
    fail_on : sequence of str, optional
        The statuses that fail, instead of those above.
    allow_unknown : bool, default False
        Accept the status "unknown".
    **options
        A group of maps and the largest accepted share of chance, such as ``similarity=0.3``; or options of
        `congruence.check`: ``allow``, ``tolerance``, ``id``, ``features``, ...

    Returns
    -------
    Comparison
        The result of `congruence.check`, with the gates among its settings.
    """
    from congruence.align._check import check

    known = {field.name for field in fields(CheckOptions)}
    unknown = [name for name in options if name not in known and name not in GROUPS]
    if unknown:
        raise TypeError(
            f"assert_congruent() got an unexpected keyword argument {unknown[0]!r}; known are the groups "
            f"{', '.join(GROUPS)} and the options {', '.join(sorted(known))}"
        )
    limits = {name: options[name] for name in GROUPS if name in options} | dict(fail_above or {})
    given = CheckOptions(**{name: value for name, value in options.items() if name in known})
    gating = check_gates(given, [f"{name}={limit}" for name, limit in limits.items()], fail_on, allow_unknown)
    result = check(new, baseline, options=gating.options)
    gates = gating.apply(result)
    result = record_gates(result, gates)
    exceeded = [gate for gate in gates if gate.exceeded]
    if exceeded:
        (pair,) = result.pairs
        numbers = [
            f"  {name}: {near.of_chance.mean:.4g} of chance, R² {near.r2.mean:.4f}"
            for name, near in pair.groups.items()
        ]
        why = [f"  {gate.message}" for gate in exceeded]
        lines = [
            f"the embeddings are not those of the baseline (status {result.status}, allow {result.settings['allow']!r})"
        ]
        raise AssertionError(
            "\n".join([*lines, *why, *(f"  {one}" for one in result.headlines), *numbers, *result.notes])
        )
    return result
