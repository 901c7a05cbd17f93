"""Component stability as a document, and what it shares with the document of a resolution."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from congruence import document as doc
from congruence.document import Block, Cell, Column, Figure, Grid, Heading, Section, Table, Text, share
from congruence.formatting import count, number
from congruence.ica._point import SAME_AXIS
from congruence.ica.profiles import EDGES, PROFILED

if TYPE_CHECKING:
    from congruence.ica.results import ComponentStability, Problem, StabilityPoint
    from congruence.result import Status

BADGES: dict[Problem, str] = {
    "single": "only direction",
    "gaussian": "Gaussian",
    "start": "depends on start",
    "not converged": "not converged",
    "unchecked": "too few clusters",
    "halves": "not on both halves",
    "uncertain": "uncertain axis",
    "resamples": "unstable",
}
ERROR = (
    "error",
    "the standard error of an axis, as an angle: how far it would typically turn on other rows of the same kind. With "
    "the check on halves it is estimated from blocks of successive rows, and an axis that a few far rows determine "
    "counts as uncertain, even if its error is small; without, the error assumes independent components and "
    "independent rows, and is too small where they are not. More rows make it smaller.",
)
RESAMPLES = (
    "resamples",
    "the correlation with the same component of a fit on bootstrap resamples of the rows: the median, and below it the "
    f"90 % interval. A component is stable if the interval lies above {SAME_AXIS}. Gaussian components may have high "
    "correlations, since resamples share rows and hence the noise that was fitted.",
)
STARTS = (
    "starts",
    "the smallest correlation with the same component found from another random start; 1 is the same axis.",
)
HALVES = (
    "halves",
    "the smallest correlation between the component and the same component of fits to two disjoint halves of the rows, "
    f"each from its own random start unless a note says otherwise; at least {SAME_AXIS} counts as the same axis.",
)
CHANCE = ("chance", "the same correlation with a random rotation.")
COMPONENT = ("component", "one axis, of mean 0 and variance 1, signed so that its longer tail is positive.")
SHAPE = (
    ("negentropy", "how far from Gaussian, as the contrast measures it; 0 is Gaussian."),
    (
        "kurtosis",
        "above 0: heavy tails, few rows have large values; below 0: flat or bimodal; 0 is that of a Gaussian.",
    ),
    ("skewness", "how much longer the positive tail is than the negative one; 0 is symmetric."),
)


def describe_stability(stability: ComponentStability) -> doc.Document:
    """The document of a component stability."""
    settings = stability.settings
    fits = f"{count(settings['restarts'], 'restart')} and {count(settings['bootstrap'], 'bootstrap resample')}"
    return doc.document_of(
        stability,
        "Which independent components are stable?",
        claim="Are all components stable?",
        remark=f"{settings['n']} rows; {count(stability.k, 'component')}; {fits}",
        sections=tuple(_stability_sections(stability)),
        reading=(
            "The components of all rows are compared with those of fits from other random starts and on bootstrap "
            "resamples of the rows. Components that other fits do not reproduce should not be interpreted."
        ),
        glossary=(
            COMPONENT,
            ("restarts", "the smallest correlation with the same component of a fit from another random start."),
            RESAMPLES,
            CHANCE,
            ("quality", "how compact and isolated the cluster of the component over all fits is (Icasso); 1 is ideal."),
            ERROR,
            *SHAPE[:2],
        ),
        about="",
    )


def _stability_sections(stability: ComponentStability) -> Iterator[Section]:
    drawn, again = len(stability.agreement.bootstrap) > 0, len(stability.agreement.restarts) > 0
    columns = [Column("component", "text"), Column("verdict", "text")]
    columns += [Column("restarts")] * again + [Column("resamples")] * drawn
    columns += [Column("error", brief=not (again and drawn))]
    more = ("quality", "variance", "negentropy", "kurtosis")
    columns += [Column(name, brief=False) for name in more]
    rows: list[tuple[Any, ...]] = [
        (
            row["component"],
            problem_badge(row["status"], row["problem"], "stable"),
            *([fixed_cell(row["restarts_min"], 3)] if again else []),
            *([interval_cell(row["bootstrap_median"], row["low"], row["high"])] if drawn else []),
            angle_cell(row["sampling_error"]),
            row["quality"],
            share(row["variance_share"]),
            *shape_cells(row)[:2],
        )
        for row in stability.rows()
    ]
    blocks = (
        Table("Components", columns, rows, brief=True),
        agreement_figure(stability),
        *curve_blocks(stability.curve),
    )
    yield Section("Which components are stable?", blocks, id="components")
    counts = stability.profile.counts[:PROFILED]
    yield Section("What do the first components look like?", tuple(histogram_blocks(list(counts))), id="profiles")


def agreement_figure(stability: ComponentStability) -> Figure:
    """Agreement on resamples or, where there are none, across restarts."""
    agreement, known = stability.agreement, stability.components.unmixing.identified.tolist()
    middle, low, high = agreement.median, agreement.low, agreement.high
    if not len(agreement.bootstrap):
        middle, low, high = agreement.restarts_mean, agreement.restarts_min, agreement.restarts.max(0)
    data = (middle.tolist(), low.tolist(), high.tolist(), known, stability.chance)
    return Figure("component_agreement", data, wide=True, brief=True)


def curve_blocks(points: Sequence[StabilityPoint]) -> Iterator[Block]:
    """Stability for several numbers of components; nothing without any."""
    if not points:
        return
    rising = sorted(points, key=lambda point: point.n_components)
    columns = [Column(name) for name in ("number", "variance", "not noise", "stable")]
    rows = [(p.n_components, share(p.variance_share), p.identified, p.stable) for p in rising]
    note = "Stable: found from every random start and on the resamples, without the check on disjoint halves."
    table = Table("Stability by number of components", columns, rows, note=note)
    yield Heading("With other numbers of components")
    yield Grid((Figure("component_curve", (rising,)), doc.Group((table,))), "pictures")


def histogram_blocks(counts: Sequence[Any], details: Sequence[str] = ()) -> Iterator[Block]:
    """Histograms of components, with a text below each."""
    yield Text(
        "Filled: histogram of the component in standard deviations; the outermost bars include values beyond. Dashed: "
        "a Gaussian.",
        muted=True,
    )
    bars = [(one, f"ica{i}", EDGES) for i, one in enumerate(counts)]
    below = details or [""] * len(bars)
    figures = [Figure("component_histogram", one, caption=one[1], detail=d) for one, d in zip(bars, below, strict=True)]
    yield Grid(figures, "small")


def problem_badge(status: Status, problem: Problem | None, sure: str) -> Cell:
    """A badge with the reason why a component is not identified or stable."""
    return doc.badge(status, sure if problem is None else BADGES[problem])


def interval_cell(middle: float, low: float, high: float) -> Cell:
    """A value with its interval below it."""
    return Cell(f"{middle:.3f}", middle, below=f"{low:.3f} to {high:.3f}")


def angle_cell(radians: float) -> Cell:
    """An angle in degrees."""
    degrees = math.degrees(radians)
    if math.isnan(degrees):
        return Cell("–", "")
    return Cell(f"{degrees:.1f}°" if degrees <= 90 else "> 90°", degrees)


def shape_cells(row: Any) -> tuple[Cell, Cell, Cell]:
    """Negentropy, kurtosis and skewness."""
    return (
        Cell(number(row["negentropy"], 2), row["negentropy"]),
        fixed_cell(row["kurtosis"], 2),
        fixed_cell(row["skewness"], 2),
    )


def fixed_cell(value: float, digits: int) -> Cell:
    """A number with so many decimals."""
    return Cell(f"{value:.{digits}f}".replace("-", "−"), value)
