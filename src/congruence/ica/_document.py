"""Resolutions as documents: components, stability, loadings, extreme rows and convergence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from congruence import document as doc
from congruence.document import Block, Cell, Column, Figure, Grid, Heading, Section, Table, Text, label_cell
from congruence.formatting import count, elided, fixed, percent
from congruence.ica import _stability_document as shared
from congruence.ica._halves import TWO_COMPONENTS_ERROR
from congruence.ica._point import NOISE_ERROR, NOISE_PAIR_ERROR, SAME_AXIS
from congruence.ica.resolution import LISTED
from congruence.tables.columns import PREFIX

if TYPE_CHECKING:
    from congruence.ica.components import Unmixing
    from congruence.ica.profiles import ComponentProfile, ExtremeRow, Loading
    from congruence.ica.resolution import Resolution
    from congruence.ica.results import ComponentStability

LISTED_COLUMNS = 3  # of metadata of extreme rows: the context, and those that explain most of the component
CONTEXT = PREFIX + "context"  # of a token, as `extract` writes it
LISTED_LOADINGS = 8  # features of a component in its figure
LISTED_METADATA = 8  # columns of the table of explained variance
NAMED, CAPTION, SUMMARY = 28, 22, 76  # characters of a feature, of one above a histogram, and of those of a component


LOADING = (
    "loading",
    "the correlation of a column with the component over all rows, from −1 to 1. Its square is the share of the "
    "column's variance that the component explains. Columns with opposite signs change in opposite directions; which "
    "of the two is positive is a convention.",
)
EXPLAINED = (
    "explained",
    "the share of a component's variance between the groups of a metadata column (omega squared; numbers with many "
    "values are cut into deciles): about 0 for groups at random, 1 if the component is constant within groups.",
)


def describe(resolution: Resolution) -> doc.Document:
    """The document of a resolution."""
    measured = resolution.stability
    return doc.document_of(
        resolution,
        f"{resolution.name}: can the rotation be undone without labels?",
        claim="Are all components identified?" if measured is None else "Are all components identified and stable?",
        remark=_remark(resolution),
        sections=tuple(_sections(resolution)),
        reading=(
            "Retraining a model leaves its embedding free to rotate. If the rows are mixtures of independent sources "
            "that are not Gaussian, one set of axes, up to order and sign, separates these sources, and it can be "
            "found from the rows alone: whiten, then rotate until every axis is as far from Gaussian as possible "
            "(Theorem 2 of Nelson et al.). Where sources are Gaussian, all rotations of them are equally good, and no "
            "method can identify their axes."
        ),
        glossary=tuple(_glossary(resolution)),
        about=resolution.name,
    )


def _remark(resolution: Resolution) -> str:
    """Rows, directions and convergence, in brief."""
    unmixing = resolution.components.unmixing
    rows = f"{resolution.n} rows"
    if unmixing.n != resolution.n:
        rows = f"{unmixing.n} of {resolution.n} rows used for the rotation"
    kept = "" if resolution.k == resolution.rank else f", {resolution.k} kept"
    width = f"{resolution.rank} of {resolution.d} directions vary{kept}"
    if resolution.settings.get("whiten") is False:
        width = f"{resolution.d} columns, not whitened{kept}"
    return f"{rows}; {width}; {'converged' if unmixing.converged else 'not converged'} after {_passes(unmixing)}"


def _passes(unmixing: Unmixing) -> str:
    return f"{unmixing.iterations} {'pass' if unmixing.iterations == 1 else 'passes'}"


def _sections(resolution: Resolution) -> Iterator[Section]:
    yield Section("Which components are identified?", tuple(_overview(resolution)), id="components")
    if resolution.stability is not None:
        yield Section("Are they stable on other rows?", tuple(_resampled(resolution.stability)), id="stability")
    if resolution.profiles:
        yield Section("What are the components made of?", tuple(_profiles(resolution)), id="profiles")
        if tables := tuple(_explained(resolution.profiles)):
            yield Section("Which metadata explain them?", tables, id="metadata")
    yield Section("How were they found?", tuple(_convergence(resolution)), id="convergence")


def _overview(resolution: Resolution) -> Iterator[Block]:
    yield Text(
        "Components that are distinguishable from noise come first, each group from the least Gaussian down.",
        muted=True,
    )
    rows, resampled = list(resolution.rows()), resolution.stability is not None
    with_starts = resolution.components.unmixing.agreement is not None
    columns = [Column("component", "text"), Column("verdict", "text")]
    checked = resolution.components.unmixing.returned is not None
    columns += [Column("resamples")] * resampled + [Column("halves")] * checked
    columns += [Column("starts")] * with_starts + [Column("error")]
    columns += [Column("negentropy", brief=False)]
    columns += [Column("kurtosis", brief=not resampled)] + [Column("skewness", brief=False)] * (
        not resampled
    )  # as wide as a page
    sure = "stable" if resampled else "identified"
    cells: list[tuple[Any, ...]] = [
        (
            row["component"],
            shared.problem_badge(row["status"], row["problem"], sure),
            *([shared.interval_cell(row["median"], row["low"], row["high"])] if resampled else []),
            *([shared.fixed_cell(row["returned"], 3)] if row["returned"] is not None else []),
            *([shared.fixed_cell(row["agreement"], 3)] if row["agreement"] is not None else []),
            shared.angle_cell(row["sampling_error"]),
            *shared.shape_cells(row)[: 2 if resampled else 3],
        )
        for row in rows
    ]
    meanings = ["Resamples: median correlation with refits on bootstrap resamples (90 % interval)."] * resampled
    meanings += ["Halves: smallest correlation with fits to two disjoint halves of the rows."] * checked
    meanings += ["Starts: smallest correlation across random starts."] * with_starts
    meanings += ["Error: standard error of the axis."]
    yield Table("Components", columns, cells, brief=True, note=" ".join(meanings))
    if not resampled and resolution.k > 1:
        values, known = [row["negentropy"] for row in rows], [row["identified"] for row in rows]
        yield Figure("component_negentropy", (values, known), wide=True, brief=True)


def _resampled(stability: ComponentStability) -> Iterator[Block]:
    settings = stability.settings
    rows = "the rows" if settings["clusters"] is None else f"the {settings['clusters']} clusters of rows"
    yield Text(
        f"Whitening and rotation were fitted again on {count(settings['bootstrap'], 'bootstrap resample')} of {rows}. "
        "A point is the median correlation of a component with its partner in a resample, and the line is its 90 % "
        "interval; 1 is the same axis."
    )
    yield shared.agreement_figure(stability)
    yield from shared.curve_blocks(stability.curve)


def _profiles(resolution: Resolution) -> Iterator[Block]:
    """Histograms of the first components, and for each of them its loadings and extreme rows."""
    profiles, rows = resolution.profiles, list(resolution.rows())
    loadings = resolution.loadings[: len(profiles)] or ((),) * len(profiles)
    if len(profiles) < resolution.k:
        yield Text(f"The first {len(profiles)} of {resolution.k} components. JSON has the loadings of all.", muted=True)
    yield from shared.histogram_blocks(
        [profile.counts for profile in profiles], [_signed(row[:1], CAPTION) for row in loadings]
    )
    for i, (profile, features) in enumerate(zip(profiles, loadings, strict=True)):
        shown: list[Block] = []
        if features:
            bars = [(one.feature, one.value) for one in features[:LISTED_LOADINGS]]
            shown.append(doc.Group((Heading("Loadings"), Figure("component_loadings", (bars, f"ica{i}")))))
        both = (*profile.highest, *(one for one in reversed(profile.lowest) if one not in profile.highest))
        shown.append(doc.Group((Heading("Highest and lowest rows"), _extremes(both, profile.explained, f"ica{i}"))))
        few = max((m for m in range(1, LISTED + 1) if len(_signed(features[:m])) <= SUMMARY), default=1)
        summary = f"ica{i}: {_signed(features[:few]) or 'extreme rows'}"
        yield doc.Details(summary, (Grid(shown, "halves"),), open=i == 0, status=rows[i]["status"])
    if resolution.loadings:
        named = hasattr(resolution.ica, "feature_names_in_")  # else they are uninformative on a terminal
        columns = (Column("component", "text"), Column("columns with the largest correlations", "text"))
        listed = [(f"ica{i}", _numbered(features[:LISTED])) for i, features in enumerate(resolution.loadings)]
        table = Table("Loadings", columns, listed, sortable=False, brief=named)
        yield doc.Details(f"Largest loadings of {count(resolution.k, 'component')}", (table,))


def _signed(loadings: Sequence[Loading], letters: int = NAMED) -> str:
    """The names of features with the signs of their loadings."""
    names = elided([one.feature for one in loadings], letters)
    return ", ".join(f"{'−' if one.value < 0 else '+'} {name}" for one, name in zip(loadings, names, strict=True))


def _numbered(loadings: Sequence[Loading]) -> str:
    """The names of features with their loadings."""
    names = elided([one.feature for one in loadings], NAMED)
    return ", ".join(f"{name} {fixed(one.value, 2)}" for one, name in zip(loadings, names, strict=True))


def _explained(profiles: Sequence[ComponentProfile]) -> Iterator[Block]:
    """A table of the first components and the metadata columns that explain most of any of them."""
    highest = {name: max(one.explained[name] for one in profiles) for name in profiles[0].explained}
    names = sorted(highest, key=lambda name: -highest[name])[:LISTED_METADATA]
    if not names:
        return
    yield Text(
        "Share of the variance of each component between the groups of a metadata column. Columns that group the rows "
        "in similar ways explain the same part.",
        muted=True,
    )
    titles = elided([name.removeprefix("Metadata_") for name in names], 14)
    rows: list[tuple[Any, ...]] = [
        (f"ica{i}", *(_tinted(one.explained[name]) for name in names)) for i, one in enumerate(profiles)
    ]
    hidden = f"The {len(names)} of {len(highest)} columns that explain most." if len(names) < len(highest) else ""
    columns = (Column("component", "name"), *(Column(title) for title in titles))
    yield Table("Variance explained by metadata", columns, rows, "heat", False, note=hidden)


def _tinted(value: float) -> Cell:
    return Cell(percent(value, digits=2), value, tint=round(0.9 * value, 2))


def _extremes(ends: Sequence[ExtremeRow], explained: Mapping[str, float], name: str) -> Table:
    def importance(column: str) -> float:  # a context is different in every row, so that it explains nothing
        return 1.0 if column == CONTEXT else explained.get(column, 0)

    names = sorted(ends[0].metadata, key=importance, reverse=True)[:LISTED_COLUMNS]
    titles = elided([name.removeprefix("Metadata_") for name in names], 14)
    numeric = [all(isinstance(one.metadata[name], int | float) for one in ends) for name in names]
    columns = [Column("value"), Column("row") if ends[0].id is None else Column("id", "text")]
    columns += [Column(title, "number" if n else "text") for title, n in zip(titles, numeric, strict=True)]
    rows = [
        (
            shared.fixed_cell(one.value, 2),
            one.row if one.id is None else label_cell(one.id),
            *(
                label_cell(one.metadata[name], doc.CONTEXT_LETTERS if name == CONTEXT else doc.LETTERS)
                for name in names
            ),
        )
        for one in ends
    ]
    return Table(f"{name}, highest and lowest rows", columns, rows, sortable=False)


def _convergence(resolution: Resolution) -> Iterator[Block]:
    unmixing, white = resolution.components.unmixing, resolution.components.whitening
    yield Text(f"{directions_sentence(resolution)} {convergence_sentence(resolution)}")
    figures = []
    if resolution.rank:
        spectrum = (white.variances, white.retained)
        figures.append(Figure("variance_spectrum", spectrum, caption="Variance along the principal axes"))
    if unmixing.iterations:
        passes = (unmixing, resolution.settings.get("tol"))
        figures.append(Figure("solver_convergence", passes, caption="Convergence"))
    yield Grid(figures, "halves")


def directions_sentence(resolution: Resolution) -> str:
    """Say in how many directions the rows vary, and how many of these were kept."""
    white = resolution.components.whitening
    if resolution.settings.get("whiten") is False:
        return f"The {resolution.d} columns were used as they are and only rotated."
    flat = resolution.d - resolution.rank
    text = f"The {resolution.n} rows vary in {resolution.rank} of {resolution.d} directions"
    if flat:
        text += f"; the remaining {flat} {'is' if flat == 1 else 'are'} constant or linearly dependent"
    held = float(white.variances[: white.retained].sum() / white.variances.sum())
    if white.retained < resolution.rank:
        return f"{text}. The first {white.retained} were kept, with {percent(held)} of the variance."
    return f"{text}. All that vary were kept."


def convergence_sentence(resolution: Resolution) -> str:
    """Say whether the solver converged, after how many passes over which rows."""
    unmixing = resolution.components.unmixing
    if not unmixing.iterations:
        return "There was nothing to rotate."
    used = f"all {unmixing.n} rows" if unmixing.n == resolution.n else f"{unmixing.n} of {resolution.n} rows"
    passes = f"{_passes(unmixing)} over {used}"
    ends = {
        "converged": f"The solver converged after {passes}.",
        "gaussian": f"After {passes} no component was distinguishable from Gaussian noise.",
        "cap": f"The solver had not converged after {passes}.",
    }
    left = resolution.components.error_left
    if left is None or not math.isfinite(left):
        return ends[unmixing.reason]
    angle = f"{math.degrees(left):.1f}°"
    limit = f"More rows would turn nine in ten identified components by at most {angle} (95 % limit)."
    return f"{ends[unmixing.reason]} {limit}"


def _glossary(resolution: Resolution) -> Iterator[tuple[str, str]]:
    unmixing = resolution.components.unmixing
    criteria = []
    if not math.isnan(unmixing.sampling_error.sum()):
        two = unmixing.k == 2 and unmixing.returned is not None
        total, one = (
            f"{math.degrees(limit):.1f}°" for limit in (NOISE_ERROR, TWO_COMPONENTS_ERROR if two else NOISE_PAIR_ERROR)
        )
        criteria.append(
            f"distinguishable from Gaussian noise (error below {total}, and below {one} towards any one other "
            "component)"
        )
    if unmixing.agreement is not None:
        criteria.append(f"found from every random start (correlation of at least {SAME_AXIS})")
    if unmixing.returned is not None:
        criteria.append(f"found again on disjoint halves of the rows (correlation of at least {SAME_AXIS})")
    judged = ", and ".join(criteria) or "converged; neither noise nor random starts were judged"
    yield shared.COMPONENT
    yield "identified", f"{judged}. The other components are listed and written too, but their axes may be arbitrary."
    if resolution.stability is not None:
        yield from (shared.RESAMPLES, shared.CHANCE)
    if unmixing.returned is not None:
        yield shared.HALVES
    if unmixing.agreement is not None:
        yield shared.STARTS
    yield shared.ERROR
    if resolution.loadings:
        yield LOADING
    if resolution.profiles and resolution.profiles[0].explained:
        yield EXPLAINED
    yield from shared.SHAPE[: 3 if resolution.stability is None else 2]
