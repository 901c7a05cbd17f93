"""The result of `resolve`: which components are identified, and what the first of them look like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, cast

import numpy as np

from congruence.errors import InputError
from congruence.ica._verdict import Problem, findings, headlines, notes_on
from congruence.ica.components import Components
from congruence.ica.estimator import ICA
from congruence.ica.profile import EDGES, ComponentProfile
from congruence.ica.stabilities import ComponentStability, StabilityNumbers
from congruence.result import Finding, Result, Status

if TYPE_CHECKING:
    from congruence.document import Document


class ComponentRow(TypedDict):
    """A component in JSON. `problem` says why it is not identified or not stable.

    `sampling_error` is in radians; `agreement` is the smallest correlation with the same component of another random
    start. With resamples, `median`, `low` and `high` are correlations with the same component of fits on these.
    """

    component: str
    status: Status
    problem: Problem | None
    identified: bool
    negentropy: float
    kurtosis: float
    skewness: float
    sampling_error: float
    agreement: float | None
    median: NotRequired[float]
    low: NotRequired[float]
    high: NotRequired[float]
    stable: NotRequired[bool]


class ResolutionNumbers(TypedDict):
    """The numbers of a resolution in JSON; angles are in radians."""

    name: str
    n: int
    d: int
    rank: int
    retained: int
    rows_used: int
    error_left: float | None
    identified: int
    stable: int | None
    converged: bool
    reason: Literal["converged", "gaussian", "cap"]
    switched: int | None
    changes: list[float]
    gradients: list[float]
    variances: list[float]
    components: list[ComponentRow]
    edges: list[float]
    profiles: list[dict[str, Any]]
    stability: StabilityNumbers | None


@dataclass(frozen=True, eq=False, repr=False)
class Resolution(Result):
    """The answer to "can the rotation be undone without labels?" for one table.

    ``result.ica`` is the fitted estimator; ``result[0]`` and ``result["ica0"]`` are the row of the first component.
    """

    name: str
    n: int  # rows
    d: int  # columns
    ica: ICA  # fitted by `fit` or `from_components`
    profiles: tuple[ComponentProfile, ...]  # of the first components
    settings: Mapping[str, Any]
    stability: ComponentStability | None = None  # on bootstrap resamples, where that was asked for
    input_notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.stability is not None and self.stability.components is not self.components:
            raise InputError("stability is that of another fit; use component_stability(..., found=ica.found_)")

    @property
    def components(self) -> Components:
        """Whitening and rotation."""
        return self.ica.found_

    @property
    def k(self) -> int:
        """The number of components."""
        return self.components.unmixing.k

    @property
    def rank(self) -> int:
        """Directions in which the rows vary by more than rounding."""
        return self.components.whitening.rank

    @property
    def identified(self) -> int:
        """How many components are distinguishable from noise and agree across random starts."""
        return int(self.components.unmixing.identified.sum())

    @property
    def stable(self) -> int:
        """How many identified components are stable across resamples; all of them where rows were not resampled."""
        return self.problems.count(None)

    @property
    def problems(self) -> list[Problem | None]:
        """Why each component is not identified, or not stable across resamples, k; None for the others."""
        found = self.components.unmixing
        lost = "not converged" if found.reason == "cap" else "start"
        unstable = np.zeros(self.k, dtype=bool) if self.stability is None else ~self.stability.agreement.stable
        why = np.select(
            [found.identified & unstable, found.identified, found.noise], ["resamples", "", "gaussian"], lost
        )
        return [cast(Problem, str(text)) if text else None for text in why]

    @property
    def headlines(self) -> tuple[str, ...]:
        """The sentences of the verdict."""
        return headlines(self)

    @property
    def verdict(self) -> str:
        """How many components are identified, and why the others are not."""
        return " ".join(self.headlines)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Whether every component is identified and, where rows were resampled, stable."""
        return findings(self)

    @property
    def notes(self) -> tuple[str, ...]:
        """What limits the components, and what to do about it."""
        return (*self.input_notes, *notes_on(self))

    def parts(self) -> dict[str | int, ComponentRow]:
        """The rows of the components by name and by number."""
        rows = list(self.rows())
        return {row["component"]: row for row in rows} | dict(enumerate(rows))

    def rows(self) -> Iterator[ComponentRow]:
        """One row per component, see `ComponentRow`."""
        found, problems = self.components.unmixing, self.problems
        columns: dict[str, list[Any]] = {
            "component": [f"ica{i}" for i in range(self.k)],
            "status": [_status(problem) for problem in problems],
            "problem": problems,
        }
        for name in ("identified", "negentropy", "kurtosis", "skewness", "sampling_error", "agreement"):
            values = getattr(found, name)
            columns[name] = [None] * self.k if values is None else values.tolist()
        if self.stability is not None:
            agreement = self.stability.agreement
            columns |= {name: getattr(agreement, name).tolist() for name in ("median", "low", "high", "stable")}
        for row in zip(*columns.values(), strict=True):
            yield cast(ComponentRow, dict(zip(columns, row, strict=True)))

    def numbers(self) -> ResolutionNumbers:
        """Everything but the matrices."""
        white, found = self.components.whitening, self.components.unmixing
        return {
            "name": self.name,
            "n": self.n,
            "d": self.d,
            "rank": self.rank,
            "retained": white.retained,
            "rows_used": found.n,
            "error_left": self.components.error_left,
            "identified": self.identified,
            "stable": None if self.stability is None else self.stable,
            "converged": found.converged,
            "reason": cast(Literal["converged", "gaussian", "cap"], found.reason),
            "switched": found.switched,
            "changes": list(found.changes),
            "gradients": list(found.gradients),
            "variances": white.variances.tolist(),
            "components": list(self.rows()),
            "edges": EDGES.tolist(),
            "profiles": [profile.to_dict() for profile in self.profiles],
            "stability": None if self.stability is None else _without_profile(self.stability),
        }

    def document(self) -> Document:
        """Headline, table of components, stability, histograms and extreme rows, and how the components were found."""
        from congruence.ica._document import describe

        return describe(self)


def _status(problem: Problem | None) -> Status:
    if problem is None:
        return "holds"
    return "unknown" if problem == "not converged" else "fails"


def _without_profile(stability: ComponentStability) -> StabilityNumbers:
    """The numbers without the histograms, which the resolution has."""
    numbers = stability.numbers()
    del numbers["profile"]
    numbers["settings"] = dict(stability.settings)
    return numbers
