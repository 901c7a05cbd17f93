"""`ComponentStability` and `Resolution`: which components are identified or stable, why others are not, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, cast

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.errors import InputError
from congruence.formatting import count, percent
from congruence.ica._halves import SAME_AXIS
from congruence.ica._icasso import Clusters
from congruence.ica.components import Components, advice, fewer_than_requested
from congruence.ica.estimator import ICA
from congruence.ica.loadings import Loading
from congruence.ica.profiles import EDGES, ComponentProfile, ComponentProfiles
from congruence.result import Finding, Result, Status

if TYPE_CHECKING:
    from congruence.document import Document

INTERVAL = (0.05, 0.95)
LISTED = 3  # features in the row of a component
SHARE, FEW_COLUMNS = 0.95, 0.1  # of the variance, and of the columns: fewer columns that hold so much differ in scale
UNCORRELATED = 1e-6  # relative difference of column variances from those of the principal axes
FEW_ROWS = 10  # n / (kurtosis + 3) estimates how many rows make up a component; fewer are suspect

# why a component is not identified or not stable
Problem = Literal["single", "gaussian", "start", "not converged", "halves", "uncertain", "resamples"]
REASONS: dict[Problem, str] = {
    "single": "the only direction kept",
    "gaussian": "indistinguishable from Gaussian noise",
    "start": "dependent on the random start",
    "not converged": "not converged",
    "halves": "not found again on disjoint halves of the rows",
    "uncertain": "with too large a standard error of the axis",
    "resamples": "unstable across resamples",
}
ONE_DIRECTION = "Only one direction was kept, so there is no rotation to undo."


@dataclass(frozen=True, eq=False)
class Agreement:
    """|Correlation| over all rows of every component with its partner in other fits: 0 to 1, higher is more stable."""

    restarts: Float  # (restarts, k) same rows, other starts
    bootstrap: Float  # (bootstrap, k) resampled rows or clusters, other starts

    @property
    def restarts_min(self) -> Float:
        """The smallest over restarts, (k,); NaN without restarts."""
        return self.restarts.min(0) if len(self.restarts) else np.full(self.restarts.shape[1], np.nan)

    @property
    def restarts_mean(self) -> Float:
        """The mean over restarts, (k,); NaN without restarts."""
        return self.restarts.mean(0) if len(self.restarts) else np.full(self.restarts.shape[1], np.nan)

    @property
    def median(self) -> Float:
        """The median over the bootstrap, (k,); NaN without one."""
        return self._quantile(0.5)

    @property
    def low(self) -> Float:
        """The lower end of the 90 % percentile interval of the bootstrap, (k,)."""
        return self._quantile(INTERVAL[0])

    @property
    def high(self) -> Float:
        """The upper end of the 90 % percentile interval of the bootstrap, (k,)."""
        return self._quantile(INTERVAL[1])

    @property
    def stable(self) -> Array:
        """Whether a component is reproduced by every restart and by 95 % of the resamples, (k,)."""
        lost = (self.restarts_min < SAME_AXIS) | (self.low < SAME_AXIS)  # NaN is not below
        return np.asarray(~lost)

    def _quantile(self, share: float) -> Float:
        if not len(self.bootstrap):
            return np.full(self.bootstrap.shape[1], np.nan)
        return np.asarray(np.quantile(self.bootstrap, share, axis=0))


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

    @property
    def verdict(self) -> str:
        """How many components are identified or stable, and why the others are not."""
        return " ".join(self.headlines)

    def parts(self) -> dict[str | int, Any]:
        """The rows of the components by name and by number."""
        rows = list(self.rows())
        return {row["component"]: row for row in rows} | dict(enumerate(rows))

    def _rows(self, columns: Mapping[str, Any], problems: list[Problem | None]) -> Iterator[Any]:
        """One row per component, with its name, status and problem first; a column may be None."""
        unknown = ("not converged", "single")
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
        lost = _reasons(self.problems)
        return (_some(int(self.stable.sum()), self.k, "stable"), *([f"Not stable: {lost}."] if lost else []))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Whether every component is stable."""
        sure = int(self.stable.sum())
        number = sure / self.k if self.k else None
        judged = len(self.agreement.bootstrap) > 0  # without a resample, nothing is known of other rows
        status = _status_of_all(sure, self.k) if judged else "unknown"
        evidence = _some(sure, self.k, "stable") if judged else "There are no resamples to judge by."
        return (Finding("stable", "Every component is stable.", status, evidence=evidence, number=number),)

    def rows(self) -> Iterator[StabilityRow]:
        """One row per component."""
        unmixing, agreement, clusters = self.components.unmixing, self.agreement, self.clusters
        columns: dict[str, Any] = {
            "identified": unmixing.identified,
            "restarts_min": agreement.restarts_min,
            "restarts_mean": agreement.restarts_mean,
            "bootstrap_median": agreement.median,
            "low": agreement.low,
            "high": agreement.high,
            "quality": self.quality,
            "cluster_size": None if clusters is None else clusters.size,
            "cluster_shared": None if clusters is None else clusters.shared,
            "sampling_error": unmixing.sampling_error,
            "negentropy": unmixing.negentropy,
            "skewness": unmixing.skewness,
            "kurtosis": unmixing.kurtosis,
            "variance_share": self.variance_share,
        }
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
        from congruence.ica._document import describe_stability

        return describe_stability(self)


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
                returned < SAME_AXIS,
            ],
            ["resamples", "", "gaussian", "not converged", "start", "halves"],
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
        sentences.append(_some(sure, self.k, "identified"))
        if self.stability is not None and sure:
            some = f"{stable} of these {sure} components {'is' if stable == 1 else 'are'}"
            one, every = ("It is" if stable else "It is not"), ("They are" if stable == sure else some)
            sentences.append(f"{one if sure == 1 else every} {self._across}.")
        lost = [problem for problem in self.problems if problem not in (None, "resamples")]
        if lost:
            axes = "These axes" if len(lost) > 1 else "This axis"
            sentences.append(f"Not identified: {_reasons(lost)}. {axes} may be arbitrary.")
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
            status: Status = "unknown" if capped or one else _status_of_all(sure, self.k)
            evidence = ONE_DIRECTION if one else _some(sure, self.k, adjective)
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
        if unmixing.returned is None:
            yield (
                "Components were not checked on disjoint halves of the rows (check=False, --no-check), so axes that "
                "exist on these rows alone may count as identified."
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
            "loadings": [[{"feature": one.feature, "value": one.value} for one in row] for row in self.loadings],
            "edges": EDGES.tolist(),
            "profiles": [profile.to_dict() for profile in self.profiles],
            "stability": stability,
        }

    def document(self) -> Document:
        """Headline, table of components, stability, histograms and extreme rows, and how the components were found."""
        from congruence.ica._document import describe

        return describe(self)


def _holding(share: float, variances: Float) -> int:
    """The fewest of the variances, falling, that hold this share of their sum."""
    return min(int(np.searchsorted(np.cumsum(variances), share * variances.sum()) + 1), len(variances))


def _some(sure: int, k: int, adjective: str) -> str:
    """A sentence such as "3 of 5 components are stable."."""
    if sure == 0:
        return f"No component is {adjective}."
    if k == 1:
        return f"The only component, the first principal axis, is {adjective}."
    if sure == k:
        return f"All {k} components are {adjective}."
    return f"{sure} of {k} components {'is' if sure == 1 else 'are'} {adjective}."


def _status_of_all(sure: int, k: int) -> Status:
    """The status of the claim about all k components when it is true of `sure`."""
    return "holds" if sure == k else "ambiguous" if sure else "fails"


def _reasons(problems: Iterable[Problem | None]) -> str:
    """Why components are not identified or stable: "2 indistinguishable from Gaussian noise, 1 ..."."""
    counts = Counter(problems)
    return ", ".join(f"{counts[problem]} {text}" for problem, text in REASONS.items() if counts[problem])
