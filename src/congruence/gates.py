"""Gates: conditions on a result under which a check fails, recorded in the settings of the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from congruence.checks import check_names

if TYPE_CHECKING:
    from congruence.result import Result

R = TypeVar("R", bound="Result")


@dataclasses.dataclass(frozen=True)
class Gate:
    """One condition on one part of a result, and whether this part violates it."""

    name: str  # "status", or the number that is limited, such as similarity.diameter
    of: str  # the pair or the layer
    limit: float | tuple[str, ...]  # a number, or the statuses that are not accepted
    value: float | str
    exceeded: bool
    message: str = dataclasses.field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The gate as an entry of the settings."""
        return {name: getattr(self, name) for name in ("name", "of", "limit", "value", "exceeded")}


def check_statuses(fail_on: Iterable[str], name: str = "--fail-on") -> tuple[str, ...]:
    """The statuses under which a result is not accepted, before any work is done."""
    from congruence.result import STATUSES

    return check_names(name, fail_on, STATUSES)


def status_gates(result: Result, statuses: Sequence[str]) -> list[Gate]:
    """One gate for each finding: for `compare` the pairs, for `layers` the layers of the first run."""
    why = f"which is among --fail-on {','.join(statuses)}"
    found = {finding.name: finding.status for finding in result.findings} or {"result": result.status}
    return [
        Gate("status", name, tuple(statuses), status, status in statuses, f"{name}: the status is {status}, {why}")
        for name, status in (found.items() if statuses else ())
    ]


def record_gates(result: R, gates: Iterable[Gate]) -> R:
    """The result with the gates among its settings; without gates, the result itself."""
    entries = [gate.to_dict() for gate in gates]
    settings = {**result.settings, "gates": entries}
    return cast(R, dataclasses.replace(cast(Any, result), settings=settings)) if entries else result
