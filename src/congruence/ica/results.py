"""`ComponentStability`: which components come back, why others do not; and what it shares with `Resolution`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, cast

import numpy as np

from congruence.arrays import Array, Float
from congruence.ica._icasso import Clusters
from congruence.ica._point import SAME_AXIS
from congruence.ica.components import Components
from congruence.ica.profiles import ComponentProfiles
from congruence.result import Finding, Result, Status

if TYPE_CHECKING:
    from congruence.document import Document

INTERVAL = (0.05, 0.95)

# why a component is not identified or not stable
Problem = Literal["single", "gaussian", "start", "not converged", "unchecked", "halves", "uncertain", "resamples"]
REASONS: dict[Problem, str] = {
    "single": "the only direction kept",
    "gaussian": "indistinguishable from Gaussian noise",
    "start": "dependent on the random start",
    "not converged": "not converged",
    "unchecked": "in too few blocks or clusters of rows to be found again on halves",
    "halves": "not found again on disjoint halves of the rows",
    "uncertain": "with an axis that the rows do not determine well enough",
    "resamples": "unstable across resamples",
}


@dataclass(frozen=True, eq=False)
class Agreement:
    """|Correlation| over all rows of every component with its partner in other fits: 0 to 1, higher is more stable."""

    restarts: Float  # (restarts, k) same rows, other starts
    bootstrap: Float  # (bootstrap, k) resampled rows or clusters, other starts

    @property
    def restarts_min(self) -> Float:
        """The smallest over restarts, (k,); NaN without restarts."""
        return np.asarray(self._known(self.restarts).min(0))

    @property
    def restarts_mean(self) -> Float:
        """The mean over restarts, (k,); NaN without restarts."""
        return np.asarray(self._known(self.restarts).mean(0))

    @property
    def median(self) -> Float:
        """The median over the bootstrap, (k,); NaN without one."""
        return np.asarray(np.quantile(self._known(self.bootstrap), 0.5, axis=0))

    @property
    def low(self) -> Float:
        """The lower end of the 90 % percentile interval of the bootstrap, (k,)."""
        return np.asarray(np.quantile(self._known(self.bootstrap), INTERVAL[0], axis=0))

    @property
    def high(self) -> Float:
        """The upper end of the 90 % percentile interval of the bootstrap, (k,)."""
        return np.asarray(np.quantile(self._known(self.bootstrap), INTERVAL[1], axis=0))

    @property
    def stable(self) -> Array:
        """Whether a component is reproduced by every restart and by 95 % of the resamples, (k,)."""
        lost = (self.restarts_min < SAME_AXIS) | (self.low < SAME_AXIS)  # NaN is not below
        return np.asarray(~lost)

    def _known(self, fits: Float) -> Float:
        return fits if len(fits) else np.full((1, fits.shape[1]), np.nan)


@dataclass(frozen=True)
class StabilityPoint:
    """Stability of the components for one number of components."""

    n_components: int
    variance_share: float  # of the rows, in the directions retained
    identified: int  # components that are distinguishable from noise
    stable: int  # of these, components that are stable
    restarts: float  # mean |correlation| over components and restarts
    bootstrap: float  # median over the bootstrap, mean over components
    chance: float  # mean |correlation| with a random rotation; few components agree well by chance


class StabilityRow(TypedDict):
    """A component in JSON; correlations are absolute values, angles in radians."""

    component: str
    status: Status
    problem: Problem | None
    identified: bool
    restarts_min: float
    restarts_mean: float
    bootstrap_median: float
    low: float
    high: float
    quality: float | None
    cluster_size: int | None
    cluster_shared: bool | None
    sampling_error: float
    negentropy: float
    skewness: float
    kurtosis: float
    variance_share: float


class StabilityNumbers(TypedDict):
    """The numbers of a `ComponentStability` in JSON."""

    components: list[StabilityRow]
    chance: float
    clusters: dict[str, int] | None
    curve: list[dict[str, Any]]
    profile: NotRequired[dict[str, Any]]
    settings: NotRequired[dict[str, Any]]


class ComponentResult(Result):
    """Base of results with one row per component."""

    components: Components

    if TYPE_CHECKING:

        @property
        def headlines(self) -> tuple[str, ...]:
            """The sentences of the verdict."""

    @property
    def k(self) -> int:
        """The number of components."""
        return self.components.unmixing.k

    def parts(self) -> dict[str | int, Any]:
        """The rows of the components by name and by number."""
        rows = list(self.rows())
        return {row["component"]: row for row in rows} | dict(enumerate(rows))

    def _rows(self, columns: Mapping[str, Any], problems: list[Problem | None]) -> Iterator[Any]:
        """One row per component, with its name, status and problem first; a column may be None."""
        unknown = ("not converged", "single", "unchecked")
        status = ["holds" if p is None else "unknown" if p in unknown else "fails" for p in problems]
        start = {"component": [f"ica{i}" for i in range(self.k)], "status": status, "problem": problems}
        arrays = ([None] * self.k if values is None else values for values in columns.values())
        lists = [values if isinstance(values, list) else values.tolist() for values in arrays]
        for row in zip(*start.values(), *lists, strict=True):
            yield dict(zip((*start, *columns), row, strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class ComponentStability(ComponentResult):
    """Which independent components are reproduced from other random starts and on resampled rows.

    A component is stable if it is distinguishable from Gaussian noise and its matched |correlation| is at least 0.9 in
    every restart and at the lower end of the 90 % bootstrap interval. Noise components may have high correlations,
    since resamples share rows and hence the noise that was fitted; on new rows they would not.
    ``stability[0]`` and ``stability["ica0"]`` are the row of the first component.
    """

    components: Components
    agreement: Agreement
    clusters: Clusters | None  # None where there are too many components to cluster, or fewer than two other fits
    chance: float  # mean matched |correlation| with a random rotation
    variance_share: Float  # (k,) of the variance of the rows, per component
    curve: tuple[StabilityPoint, ...]
    profile: ComponentProfiles
    ids: Array | None  # (n,) of the rows, where they have any
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def stable(self) -> Array:
        """Whether each component is distinguishable from noise and reproduced, (k,)."""
        return np.asarray(self.agreement.stable & ~self.components.unmixing.noise)

    @property
    def problems(self) -> list[Problem | None]:
        """Why each component is not stable, k; None for those that are."""
        restarts, resamples = self.agreement.restarts_min < SAME_AXIS, self.agreement.low < SAME_AXIS
        why = np.select([self.components.unmixing.noise, restarts, resamples], ["gaussian", "start", "resamples"], "")
        return [cast(Problem, str(text)) if text else None for text in why]

    @property
    def quality(self) -> Float | None:
        """The quality index of each component's cluster (Himberg et al. 2004), (k,): 1 is compact and isolated."""
        return None if self.clusters is None else self.clusters.quality

    @property
    def headlines(self) -> tuple[str, ...]:
        """The sentences of the verdict."""
        lost = reasons_of(self.problems)
        return (some_of(int(self.stable.sum()), self.k, "stable"), *([f"Not stable: {lost}."] if lost else []))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Whether every component is stable."""
        sure = int(self.stable.sum())
        number = sure / self.k if self.k else None
        judged = len(self.agreement.bootstrap) > 0  # without a resample, nothing is known of other rows
        status = status_of_all(sure, self.k) if judged else "unknown"
        evidence = some_of(sure, self.k, "stable") if judged else "There are no resamples to judge by."
        return (Finding("stable", "Every component is stable.", status, evidence=evidence, number=number),)

    def rows(self) -> Iterator[StabilityRow]:
        """One row per component."""
        unmixing, agreement, clusters = self.components.unmixing, self.agreement, self.clusters
        columns: dict[str, Any] = {"identified": unmixing.identified}
        columns |= {name: getattr(agreement, name) for name in ("restarts_min", "restarts_mean")}
        columns |= {"bootstrap_median": agreement.median, "low": agreement.low, "high": agreement.high}
        columns["quality"] = self.quality
        columns |= {f"cluster_{name}": clusters and getattr(clusters, name) for name in ("size", "shared")}
        of_each = ("sampling_error", "negentropy", "skewness", "kurtosis")
        columns |= {name: getattr(unmixing, name) for name in of_each} | {"variance_share": self.variance_share}
        return self._rows(columns, self.problems)

    def numbers(self) -> StabilityNumbers:
        """Components, curve, and the histograms and extreme rows of all components."""
        clusters = self.clusters
        return {
            "components": list(self.rows()),
            "chance": self.chance,
            "clusters": None if clusters is None else {"runs": clusters.runs, "strays": clusters.strays},
            "curve": [asdict(point) for point in self.curve],
            "profile": self.profile.to_dict(),
        }

    def document(self) -> Document:
        """Table and figure of the components, the curve, and their histograms."""
        from congruence.ica._stability_document import describe_stability

        return describe_stability(self)


def some_of(sure: int, k: int, adjective: str) -> str:
    """A sentence such as "3 of 5 components are stable."."""
    if sure == 0:
        return f"No component is {adjective}."
    if k == 1:
        return f"The only component, the first principal axis, is {adjective}."
    if sure == k:
        return f"All {k} components are {adjective}."
    return f"{sure} of {k} components {'is' if sure == 1 else 'are'} {adjective}."


def status_of_all(sure: int, k: int) -> Status:
    """The status of the claim about all k components when it is true of `sure`."""
    return "holds" if sure == k else "ambiguous" if sure else "fails"


def reasons_of(problems: Iterable[Problem | None]) -> str:
    """Why components are not identified or stable: "2 indistinguishable from Gaussian noise, 1 ..."."""
    counts = Counter(problems)
    return ", ".join(f"{counts[problem]} {text}" for problem, text in REASONS.items() if counts[problem])
