"""`Resolution`: which independent components are identified, what they are made of, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict, cast

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.errors import InputError
from congruence.formatting import count, percent
from congruence.ica._halves import NEAR_LIMIT, too_few_for_own_start
from congruence.ica._point import NOISE_ERROR, SAME_AXIS
from congruence.ica._spectral import rows_needed
from congruence.ica.components import Components, advice, fewer_than_requested
from congruence.ica.estimator import ICA
from congruence.ica.profiles import EDGES, ComponentProfile, Loading
from congruence.ica.results import (
    ComponentResult,
    ComponentStability,
    Problem,
    StabilityNumbers,
    reasons_of,
    some_of,
    status_of_all,
)
from congruence.result import Finding, Status, as_data

LISTED = 3  # features in the row of a component
SHARE, FEW_COLUMNS = 0.95, 0.1  # of the variance, and of the columns: fewer columns that hold so much differ in scale
UNCORRELATED = 1e-6  # relative difference of column variances from those of the principal axes
FEW_ROWS = 10  # n / (kurtosis + 3) estimates how many rows make up a component; fewer are suspect
ONE_DIRECTION = "Only one direction was kept, so there is no rotation to undo."


class ComponentRow(TypedDict):
    """A component in JSON. `problem` is the reason why it is not identified or not stable.

    `sampling_error` is in radians; `agreement` is the smallest correlation with the same component of another random
    start, `returned` that with the same component of fits to two disjoint halves of the rows. `feature1` is the column
    with the largest |correlation| with the component, and `loading1` its correlation. With resamples, `median`, `low`
    and `high` are correlations with the same component of fits on these.
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
    returned: float | None
    feature1: str | None
    loading1: float | None
    feature2: str | None
    loading2: float | None
    feature3: str | None
    loading3: float | None
    median: NotRequired[float]
    low: NotRequired[float]
    high: NotRequired[float]
    stable: NotRequired[bool]


class LoadingRow(TypedDict):
    """A column in JSON, with its correlation with a component over all rows."""

    feature: str
    value: float


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
    loadings: list[list[LoadingRow]]
    edges: list[float]
    profiles: list[dict[str, Any]]
    stability: StabilityNumbers | None


@dataclass(frozen=True, eq=False, repr=False)
class Resolution(ComponentResult):
    """The answer to "can the rotation be undone without labels?" for one table.

    ``result.ica`` is the fitted estimator; ``result[0]`` and ``result["ica0"]`` are the row of the first component.
    """

    name: str
    n: int  # rows
    d: int  # columns
    ica: ICA  # fitted by `fit` or `from_components`
    profiles: tuple[ComponentProfile, ...]  # of the first components
    settings: Mapping[str, Any]
    stability: ComponentStability | None = None  # on bootstrap resamples, if requested
    loadings: tuple[tuple[Loading, ...], ...] = ()  # of every component, the largest first
    input_notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.stability is not None and self.stability.components is not self.components:
            raise InputError("stability is that of another fit; use component_stability(..., found=ica.found_)")

    @property
    def components(self) -> Components:  # type: ignore[override]
        """Whitening and rotation."""
        return self.ica.found_

    @property
    def rank(self) -> int:
        """Directions in which the rows vary by more than rounding."""
        return self.components.whitening.rank

    @property
    def identified(self) -> int:
        """How many are distinguishable from noise, agree across starts and, with `check`, return on halves of rows.

        0 where one direction was kept, since no rotation was resolved.
        """
        return int(self._identified.sum())

    @property
    def _identified(self) -> Array:
        return np.asarray(self.components.unmixing.identified & (self.k > 1))

    @property
    def stable(self) -> int:
        """How many identified components are stable across resamples; all of them where rows were not resampled."""
        return self.problems.count(None)

    @property
    def problems(self) -> list[Problem | None]:
        """Why each component is not identified, or not stable across resamples, k; None for the others."""
        unmixing = self.components.unmixing
        if self.k == 1:
            return ["single"]
        agreed, returned = (
            np.ones(self.k) if part is None else part for part in (unmixing.agreement, unmixing.returned)
        )
        unstable = np.zeros(self.k, dtype=bool) if self.stability is None else ~self.stability.agreement.stable
        sure, capped = unmixing.identified, unmixing.reason == "cap"
        unchecked = unmixing.returned is None
        why = np.select(
            [
                sure & unstable,
                sure,
                unmixing.noise,
                np.full(self.k, capped),
                unchecked | (agreed < SAME_AXIS),
                np.isnan(returned),
                returned < SAME_AXIS,
            ],
            ["resamples", "", "gaussian", "not converged", "start", "unchecked", "halves"],
            "uncertain",
        )
        return [cast(Problem, str(text)) if text else None for text in why]

    @property
    def headlines(self) -> tuple[str, ...]:
        """The sentences of the verdict."""
        if self.k == 1:
            return (ONE_DIRECTION,)
        sure, stable = self.identified, self.stable
        sentences = ["ICA did not converge."] if self.components.unmixing.reason == "cap" else []
        sentences.append(some_of(sure, self.k, "identified"))
        if self.stability is not None and sure:
            some = f"{stable} of these {sure} components {'is' if stable == 1 else 'are'}"
            one, every = ("It is" if stable else "It is not"), ("They are" if stable == sure else some)
            sentences.append(f"{one if sure == 1 else every} {self._across}.")
        lost = [problem for problem in self.problems if problem not in (None, "resamples")]
        if lost:
            axes = "These axes" if len(lost) > 1 else "This axis"
            sentences.append(f"Not identified: {reasons_of(lost)}. {axes} may be arbitrary.")
        return tuple(sentences)

    @property
    def _across(self) -> str:
        settings = {} if self.stability is None else self.stability.settings
        return f"stable across {count(settings.get('bootstrap', 0), 'bootstrap resample')}"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Whether every component is identified and, where rows were resampled, stable."""
        capped = self.components.unmixing.reason == "cap"

        def finding(name: str, sure: int, adjective: str) -> Finding:
            one = self.k == 1
            status: Status = "unknown" if capped or one or "unchecked" in self.problems else status_of_all(sure, self.k)
            evidence = ONE_DIRECTION if one else some_of(sure, self.k, adjective)
            number = sure / self.k if self.k > 1 else None
            return Finding(name, f"Every component is {adjective}.", status, number=number, evidence=evidence)

        identified = finding("identified", self.identified, "identified")
        if self.stability is None:
            return (identified,)
        return identified, finding("stable", self.stable, f"identified and {self._across}")

    @property
    def notes(self) -> tuple[str, ...]:
        """What limits the components, and what to do about it."""
        return (*self.input_notes, *self._limits())

    def _limits(self) -> Iterator[str]:
        unmixing = self.components.unmixing
        yield from self._chosen_directions()
        if text := advice(unmixing):
            yield text
        if "start" in self.problems:
            yield (
                "Where components depend on the start, several rotations are nearly equally good. Fewer components or "
                "more rows may resolve them."
            )
        if near := self._near_limit():
            of, are = ("correlation of", "is") if len(near) == 1 else ("correlations of", "are")
            yield (
                f"The {of} {listing(near)} across starts or halves {are} within {NEAR_LIMIT:g} of the limit of "
                f"{SAME_AXIS:g}. Another seed may decide otherwise, and the number of identified components may change."
            )
        if unmixing.returned is None:
            yield (
                "Components were not checked on disjoint halves of the rows (check=False, --no-check), so axes that "
                "exist on these rows alone may count as identified."
            )
        elif too_few_for_own_start(unmixing.n // 2, unmixing.k):
            yield (
                f"A half of the rows is too few to find {unmixing.k} components from a random start "
                f"({count(rows_needed(unmixing.k), 'row')} are needed), so the fits to the halves started from the "
                "components of all rows. That is a weaker check; fewer components or more rows make it a full one."
            )
        if unmixing.agreement is None:
            yield "There was one start, so agreement across starts is unknown; use starts=3 (--starts 3)."
        if np.isnan(unmixing.sampling_error).any():
            yield "The rows are neither whitened nor white, so components were not compared with Gaussian noise."
        few = [f"ica{i}" for i, kurtosis in enumerate(unmixing.kurtosis) if unmixing.n < FEW_ROWS * (kurtosis + 3)]
        if few:
            yield (
                f"Dominated by fewer than {FEW_ROWS} rows: {listing(few)}. These rows may be outliers; look at the "
                "rows with the highest and lowest values."
            )
        if self.stability is not None:
            yield from self.stability.notes

    def _near_limit(self) -> list[str]:
        """The components that are identified or not by a correlation near its limit."""
        unmixing = self.components.unmixing
        known = [part for part in (unmixing.agreement, unmixing.returned) if part is not None]
        if not known or self.k == 1:
            return []
        distance = np.abs(np.min(known, axis=0) - SAME_AXIS)
        decided = [problem in ("gaussian", "not converged", "uncertain") for problem in self.problems]
        near = (distance < NEAR_LIMIT) & (unmixing.sampling_error < NOISE_ERROR) & ~np.array(decided)
        return [f"ica{i}" for i in np.flatnonzero(near)]

    def _chosen_directions(self) -> Iterator[str]:
        """How the number of components came about, where that may not be what was meant."""
        requested = self.settings.get("components")
        if text := fewer_than_requested(requested, self.components):
            yield text
        if self.k == 1 and self.rank > 1:
            yield (
                f"1 of {self.rank} directions that vary was kept (components={requested}): the component is the first "
                "principal axis. ICA needs at least 2 directions; use a larger number or share, or leave "
                "components (--components) out to keep all."
            )
        white = self.components.whitening
        if not self.settings.get("whiten", True) or self.settings.get("standardize"):
            return
        columns = np.sort(np.square(white.scale))[::-1]
        few, directions = (_holding(SHARE, variances) for variances in (columns, white.variances))
        # Principal component scores have large and small columns, too, but these are not units.
        scores = np.allclose(columns[: self.rank], white.variances, rtol=UNCORRELATED)
        if self.d < 3 or few > max(1, FEW_COLUMNS * self.d) or scores:
            return
        held = percent(float(white.variances[:directions].sum() / white.variances.sum()))
        every = "All directions were kept, so this would matter only for a smaller number of components."
        some = "This changes which directions are kept."
        yield (
            f"{directions} of {self.rank} directions {'holds' if directions == 1 else 'hold'} {held} of the variance, "
            f"because {few} of {self.d} columns {'varies' if few == 1 else 'vary'} much more than the others. If "
            "columns have different units, scale each to unit variance with standardize=True (--standardize). "
            f"{every if white.retained == self.rank else some}"
        )

    def rows(self) -> Iterator[ComponentRow]:
        """One row per component, see `ComponentRow`."""
        names = ("negentropy", "kurtosis", "skewness", "sampling_error", "agreement", "returned")
        columns: dict[str, Any] = {"identified": self._identified}
        columns |= {name: getattr(self.components.unmixing, name) for name in names}
        for i in range(LISTED):
            of_each = [row[i] if i < len(row) else None for row in self.loadings] or [None] * self.k
            columns[f"feature{i + 1}"] = [one and one.feature for one in of_each]
            columns[f"loading{i + 1}"] = [one and one.value for one in of_each]
        if self.stability is not None:
            columns |= {name: getattr(self.stability.agreement, name) for name in ("median", "low", "high", "stable")}
        return self._rows(columns, self.problems)

    def numbers(self) -> ResolutionNumbers:
        """Everything but the matrices."""
        white, unmixing = self.components.whitening, self.components.unmixing
        stability = None if self.stability is None else self.stability.numbers()
        if stability is not None and self.stability is not None:
            del stability["profile"]  # the resolution has its own
            stability["settings"] = dict(self.stability.settings)
        return {
            "name": self.name,
            "n": self.n,
            "d": self.d,
            "rank": self.rank,
            "retained": white.retained,
            "rows_used": unmixing.n,
            "error_left": self.components.error_left,
            "identified": self.identified,
            "stable": None if self.stability is None else self.stable,
            "converged": unmixing.converged,
            "reason": cast(Literal["converged", "gaussian", "cap"], unmixing.reason),
            "switched": unmixing.switched,
            "changes": list(unmixing.changes),
            "gradients": list(unmixing.gradients),
            "variances": white.variances.tolist(),
            "components": list(self.rows()),
            "loadings": as_data(self.loadings),
            "edges": EDGES.tolist(),
            "profiles": as_data(self.profiles),
            "stability": stability,
        }


def _holding(share: float, variances: Float) -> int:
    """The fewest of the variances, falling, that hold this share of their sum."""
    return min(int(np.searchsorted(np.cumsum(variances), share * variances.sum()) + 1), len(variances))
