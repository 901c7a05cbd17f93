"""`check`: did embeddings change since a baseline was saved? For continuous integration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from congruence.align._allowed import Spread, judge_allowed
from congruence.align._baseline import Baseline, as_baseline, check_policy, remembered, version_notes
from congruence.align._compare import compare_pair
from congruence.align._options import CheckOptions, CompareOptions
from congruence.align._run_statistics import RunStatistics, read_paired, squared_norms, sum_run
from congruence.align.comparison import Comparison, Pair, Run
from congruence.align.verdict import far_rows, summarise
from congruence.arrays import row_chunks, to_numpy
from congruence.checks import check_names
from congruence.formatting import count
from congruence.maps.groups import GROUPS
from congruence.maps.nearness import Protocol
from congruence.options import reading, takes
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.rows.algebra import decomposing_on
from congruence.rows.engine import chunk_bytes
from congruence.tables import Table
from congruence.tables.inputs import read_runs

NULLS = 5  # re-pairings, one for each fold: a quarter of those of `compare`, for the same number of scored rows in each
FIRST = ("identity",)  # the only group that is fitted if the rows did not change


@takes(CheckOptions)
def check(new: Any, baseline: Any, *, options: CheckOptions, progress: Progress | None = None) -> Comparison:
    """Decide whether embeddings changed since a baseline: not at all, by rounding, by a rotation, or really.

    Only what the answer needs is computed: where rows agree without any map, no map is fitted.

    Parameters
    ----------
    new : array, table, frame or path
        The embeddings to check.
    baseline : Baseline, or array, table, frame or path
        What they are compared with: a file written by `save_baseline` (``congruence check --save``), or the
        earlier embeddings themselves. Rows are paired by id where both have ids.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    cluster : array of shape (n,), or name of a metadata column, optional
        Rows of one cluster (patient, plate, document) stay together in folds, null and bootstrap.
    tolerance : float, optional
        The largest share of the baseline's variance that may change in addition to the allowed map; 0.01 unless the
        baseline was saved with another. Rounding to float16 changes about 1e-7, to int8 about 1e-4.

    Returns
    -------
    Comparison
        With one pair, new -> baseline. Its `status` is "holds" if the difference is within `allow` and the tolerance.
        MCC, CKA and neighbour overlap are not computed. ``settings["baseline"]`` holds the number of missing rows.

    Examples
    --------
    >>> import numpy as np
    >>> old = np.random.default_rng(0).normal(size=(300, 3))
    >>> check(old.astype(np.float32), old).status
    'holds'
    >>> check(old[:, ::-1], old).status, check(old[:, ::-1], old, allow="rigid").status
    ('fails', 'holds')
    """
    saved = as_baseline(baseline)
    options = remembered(saved, new, options)
    allow, tolerance, margin = check_policy(options)
    asked = check_names("groups", options.groups, GROUPS, shortcuts={"all": GROUPS}, least=0)
    shared = {name: getattr(options, name) for name in ("cluster", "drop_missing", "rows", "normalize", "seed")}
    settings = CompareOptions(tolerance=tolerance, margin=margin, nulls=NULLS, **shared)
    if saved is None:
        table, rows_before = read_runs([new, baseline], ["new", "baseline"], reading(options))
        kept = Baseline(rows_before, rows_before.n, {}, {})
    else:
        table, kept = read_runs([new], ["new"], reading(options))[0], saved
    runs = {"new": kept.pick(table), "baseline": kept.table}
    inputs, rows, plan, method = read_paired(runs, settings)
    with decomposing_on(method["device"]):
        source, target = (sum_run(name, one, plan) for name, one in zip(inputs.names, rows, strict=True))
        pair = _judge(source, target, tuple({*FIRST, *asked}), allow, plan, settings, progress)
        if pair.verdict.status != "holds" and len(pair.groups) < len(GROUPS):
            pair = _judge(source, target, GROUPS, allow, plan, settings, progress)
    return Comparison(
        runs=[Run(run.name, n, run.rows.d) for run, n in zip((source, target), (table.n, kept.table.n), strict=True)],
        pairs=[pair],
        headlines=summarise([pair]),
        notes=(*inputs.notes, *_notes(kept, table, options.model_name), *pair.notes),
        settings={"allow": allow, "tolerance": tolerance, "margin": margin, "groups": list(pair.groups)}
        | {"baseline": kept.describe(table), "model_name": options.model_name}
        | method
        | recorded(inputs.files),
        ids=inputs.ids,
        id_name=inputs.id_name,
        types=inputs.types,
        metadata=inputs.metadata,
    )


def _judge(
    source: RunStatistics,
    target: RunStatistics,
    groups: tuple[str, ...],
    allow: str,
    plan: Protocol,
    options: CompareOptions,
    progress: Progress | None,
) -> Pair:
    step = Steps(progress, 1 + options.nulls)
    pair = compare_pair(source, target, [g for g in GROUPS if g in groups], (), plan, options, step, brief=True)
    return replace(pair, verdict=judge_allowed(pair, _spread(source, target, plan), allow, options.tolerance))


def _spread(source: RunStatistics, target: RunStatistics, plan: Protocol) -> Spread:
    lengths = target.cached(squared_norms)
    far = far_rows(source.cached(squared_norms), lengths)
    moved = to_numpy(target.rows.take(far)).sum(0)  # by which the mean of the others differs, times their number
    rest = np.delete(lengths, far).sum() - np.square(moved).sum() / max(len(lengths) - len(far), 1)
    return Spread(lengths, plan.unit, far, float(rest), _changed_dimensions(source, target))


def _changed_dimensions(source: RunStatistics, target: RunStatistics) -> float:
    """The share of its variance by which the median dimension of the target changed; NaN for other widths."""
    x, y = source.rows, target.rows
    if x.d != y.d:
        return float("nan")
    shift, left = x.mean - y.mean, np.zeros(y.d)
    for part in row_chunks(y.n, y.d, chunk_bytes(y.device)):
        difference = to_numpy(x.take(part) - y.take(part)) + shift
        left += np.square(difference).sum(0)
    varies = np.diag(target.spread.scatter) > y.n * y.rounding**2
    return float(np.median(left[varies] / np.diag(target.spread.scatter)[varies]))


def _notes(kept: Baseline, new: Table, model_name: str | None) -> list[str]:
    """Notes on the baseline: other numbers of rows, another model, other versions of libraries."""
    notes = []
    if new.d != kept.table.d:
        notes.append(f"new has {new.d} dimensions, the baseline {kept.table.d}; the narrower is padded with zeros.")
    if kept.of > kept.table.n and new.n != kept.of:
        notes.append(f"new has {count(new.n, 'row')}; the baseline was sampled from {kept.of}.")
    if model_name is not None and kept.model_name is not None and model_name != kept.model_name:
        notes.append(f"The model is {model_name}; the baseline is of {kept.model_name}.")
    return notes + version_notes(kept.versions)
