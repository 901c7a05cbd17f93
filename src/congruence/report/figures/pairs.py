"""Figures of one pair of runs: errors by group and by row, gains by direction, and both runs in a plane."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.document import label_cell
from congruence.formatting import count, elided, fixed, number, percent
from congruence.maps._names import has_null, ordered_groups
from congruence.report.figures.scales import far_apart, outline, plain_decades
from congruence.report.figures.spaces import COLOURS, MARKERS
from congruence.report.figures.svg import ABOVE, HELD_OUT, INK, LINE, LINEAR, MUTED, NULL, SOURCE, Drawing, add_hover

if TYPE_CHECKING:
    from congruence.align.comparison import Pair
    from congruence.maps.nearness import HeldOut, Nearness

POINTS = 200  # of each run in a plane
LINKS = 50
FAR = 6.0  # interquartile ranges from the middle half; rows beyond would squeeze the others into a corner
SHADES, PARTS = 7, 4  # colours of values, of which the rest share one; and parts of a column of many numbers
MARKED_DIRECTIONS = 80  # with more, marks would overlap
_DISC = {"marker": "o", "markersize": 8, "linewidth": 0, "clip_on": False}
SCORED: dict[str, Any] = {"color": HELD_OUT} | _DISC
IN_SAMPLE: dict[str, Any] = {"color": MUTED, "markerfacecolor": "none", "markeredgewidth": 1.6} | _DISC
BINS = 36
GROUP_WIDTHS = 53.0, 64.0  # names and numbers of a group at size 12: in the fonts of browsers, and in ours
HISTOGRAM = {
    "identity": (MUTED, (5, 2)),
    "similarity": (HELD_OUT, (None, None)),
    "linear": (LINEAR, (6, 1.5, 1.5, 1.5)),
}
CHANCE: dict[str, Any] = {"color": NULL, "linewidth": 2.5, "dashes": (1.6, 0.8)}


def ladder(pair: Pair) -> Drawing:
    """Draw the error that each group leaves, from small to large: held out and in sample, in % of chance.

    Each group's errors are divided by its own null error, so chance is the line at 100 %; below each group are the
    held-out number and R². The held-out mark carries its 95 % interval. Without a null, errors are in % of the target's
    diameter; where the raw difference is then far above everything else, its mark becomes an arrow at the top.
    """
    return groups_ladder(pair.groups, f"from {pair.source} to {pair.target}")


def groups_ladder(groups: Mapping[str, Nearness], about: str) -> Drawing:
    """Draw the ladder of any groups; `about` names the pair in the text for screen readers."""
    names = ordered_groups(groups)
    at = [float(i) + (0.3 if name == "ica" else 0.0) for i, name in enumerate(names)]
    nears, judged = [groups[name] for name in names], has_null(groups.values())
    rungs = [_rung_of(near, judged) for near in nears]
    top = _ladder_top(names, rungs)
    unit = "chance" if judged else "the target's diameter"

    def paint(axes: Any) -> None:
        axes.set(ylabel=f"error, % of {unit}", xlim=(at[0] - 0.45, at[-1] + 0.45), ylim=(0, top))
        axes.grid(axis="y")
        axes.set_xticks(at, [""] * len(at), minor=False)
        axes.tick_params(length=0)
        if judged:
            axes.axhline(100, **CHANCE)
        size = _label_size(axes)
        for x, name, near, rung in zip(at, names, nears, rungs, strict=True):
            _draw_rung(axes, x, rung, top)
            _below(axes, x, -18, name, fontsize=size)
            _below(axes, x, -34, percent(rung.held_out.mean).replace("< ", "<"), weight="bold", fontsize=size)
            if math.isfinite(near.r2.mean):
                _below(axes, x, -50, f"R² {short_r2(near.r2.mean)}", color=MUTED, fontsize=size)
        if names[-1] == "ica" and len(names) > 1:
            axes.axvline((at[-1] + at[-2]) / 2, color=LINE, dashes=(3, 3), linewidth=1)
        _ladder_legend(axes, judged)

    summary = "; ".join(
        f"{name} {percent(rung.held_out.mean)}, R² {fixed(near.r2.mean, 3)}"
        for name, near, rung in zip(names, nears, rungs, strict=True)
    )
    return Drawing(
        paint,
        (535, 346),
        label=f"Held-out error left after the best map of each group, as a share of {unit}, {about}: {summary}",
    )


@dataclass(frozen=True)
class _Rung:
    """The errors of one group, in the unit of the axis."""

    held_out: HeldOut
    in_sample: float
    chance: float


def _rung_of(near: Nearness, judged: bool) -> _Rung:
    if not judged:
        return _Rung(near.held_out, near.mean, math.nan)
    return _Rung(near.of_chance, near.mean / near.null if near.null > 0 else math.nan, 1.0)


def _ladder_top(names: Sequence[str], rungs: Sequence[_Rung]) -> float:
    def highest(only: Sequence[_Rung]) -> float:
        values = [v for one in only for v in (one.held_out.mean, one.held_out.high, one.in_sample, one.chance)]
        return 100 * max((v for v in values if math.isfinite(v)), default=0.0)

    everything = highest(rungs)
    rest = highest([one for name, one in zip(names, rungs, strict=True) if name != "identity"])
    return 1.12 * (rest if everything > 3 * rest > 0 else everything) or 1.0


def _label_size(axes: Any) -> float:
    """The size at which the names of neighbouring groups do not overlap, in points: 12 on a page."""
    low, high = axes.get_xlim()
    room = axes.get_window_extent().width * 72 / axes.figure.dpi / (high - low)
    on_a_page, in_ours = GROUP_WIDTHS
    return 12.0 if room >= on_a_page else max(12 * room / in_ours, 4.0)


def short_r2(value: float) -> str:
    """R² with three decimals, fewer where it is far below 0 and long."""
    return number(value) if value < -1 else fixed(value, 3)


def _below(axes: Any, x: float, depth: float, text: str, **style: Any) -> None:
    # Two annotations, not one of two lines: only single lines are centred by the browser's own font.
    axes.annotate(text, (x, 0), (0, depth), textcoords="offset points", ha="center", **style)


def _draw_rung(axes: Any, x: float, rung: _Rung, top: float) -> None:
    held_out = rung.held_out
    if 100 * held_out.mean > top:
        axes.plot(x, 0.95 * top, "^", color=HELD_OUT, markersize=9)
        return
    axes.plot(x - 0.2, 100 * rung.in_sample, **IN_SAMPLE)
    axes.plot([x, x], [100 * held_out.low, 100 * held_out.high], color=HELD_OUT, linewidth=2.5)
    axes.plot(x, 100 * held_out.mean, **SCORED)


def _ladder_legend(axes: Any, judged: bool) -> None:
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], **SCORED | {"linewidth": 2.5}, label="held out, 95 % interval"),
        Line2D([], [], **IN_SAMPLE, label="in sample"),
        *([Line2D([], [], **CHANCE, label="chance")] if judged else []),
    ]
    axes.legend(handles=marks, **ABOVE, ncols=3)


def planes(pair: Pair, texts: Sequence[str] = (), color: tuple[str, Any] | None = None) -> Drawing:
    """Draw both runs in the target's principal plane, as they are and after the best rotation and scale.

    The panels share their limits unless the source lies far away before it is mapped; then each has its own
    as its title states. Single far rows are left out and counted. Grey lines link some rows of the source with the
    same rows of the target. `texts` are shown at the pointer, and `color` is the name of a column and its values,
    each with an entry for every row of ``pair.plane``.
    """
    plane = pair.plane
    target, before, after = (np.asarray(p, dtype=float)[:POINTS] for p in (plane.target, plane.before, plane.after))
    views = {
        "before": (before, _box(target, before)),
        "after the best rotation and scale": (after, _box(target, after)),
    }
    (_, reach_before), (_, reach_after) = (box for _, box in views.values())
    apart = bool((reach_before > 2 * reach_after).any())
    if not apart:
        views = {title: (source, _box(target, before, after)) for title, (source, _) in views.items()}
    tall = float(np.clip(max(reach[1] / reach[0] for _, (_, reach) in views.values()), 0.45, 1.0))
    far = np.any([_outside(cloud, *box) for source, box in views.values() for cloud in (source, target)], axis=0)
    left_out = f"; {count(int(far.sum()), 'far row')} of {len(target)} outside the frame" if far.any() else ""
    by = f"; colours: {color[0]}" if color else ""
    shades = [("", np.ones(len(target), bool))] if color is None else _shades(np.asarray(color[1])[:POINTS])

    def paint(figure: Any) -> None:
        for axes, (title, (source, box)) in zip(figure.subplots(1, 2), views.items(), strict=True):
            _scatter(axes, source, target, pair, shades)
            _frame(axes, *box, tall)
            for cloud in (target, source) if texts else ():
                add_hover(axes, cloud, texts[:POINTS])
            axes.set_title(f"{title} (zoomed out)" if apart and source is before else title)
        legend = figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2 if not color else 4)
        for text in legend.get_texts():
            text.set_parse_math(False)
        note = f"the target's principal plane, {percent(plane.share)} of its variance{by}{left_out}"
        figure.supxlabel(note, x=0.01, ha="left", fontsize=12, color=MUTED)

    return Drawing(
        paint,
        (800, 400 * tall + 75 + (22 * -(-len(shades) // 4) if color else 0)),
        label=f"Rows of {pair.source} and {pair.target} in the plane of the target, before and after{by}{left_out}",
        panels=True,
    )


def _shades(values: Any) -> list[tuple[str, Any]]:
    """Divide rows into few parts with names: by value or, for a column of many numbers, by its quantiles."""
    if values.dtype.kind in "iuf" and len(np.unique(values)) > SHADES:
        edges = np.unique(np.nanquantile(values, np.linspace(0, 1, PARTS + 1)))
        place = np.clip(np.searchsorted(edges, values, "right") - 1, 0, len(edges) - 2)
        place[np.isnan(values.astype(float))] = -1
        parts = [(_range(values[place == i], edges[i : i + 2]), place == i) for i in range(len(edges) - 1)]
    else:
        words = values.astype(str)
        names, counts = np.unique(words, return_counts=True)
        common = sorted(names[np.argsort(-counts, kind="stable")][:SHADES])
        parts = [(str(name), words == name) for name in common]
    rest = ~np.any([rows for _, rows in parts], axis=0)
    return [*parts, ("other", rest)] if rest.any() else parts


def _range(values: Any, edges: Any) -> str:
    """The name of a part of a column: of integers the least and the largest, so that no value is in two names."""
    low, high = (values.min(), values.max()) if values.dtype.kind in "iu" and len(values) else edges
    ends = dict.fromkeys(label_cell(end).text for end in (low, high))
    return " to ".join(ends)


def _box(*clouds: Any) -> tuple[Any, Any]:
    """Return the centre of a box that holds all points but far ones, with a margin, and its reach along both axes."""
    points = np.concatenate(clouds)
    points = points[np.isfinite(points).all(1)]
    if not len(points):
        return np.zeros(2), np.ones(2)
    first, third = np.quantile(points, [0.25, 0.75], axis=0)
    near = abs(points - (first + third) / 2) <= (FAR + 0.5) * (third - first)
    points = points[near.all(1)] if near.all(1).mean() > 0.9 else points  # else they are a part of their own
    low, high = points.min(0), points.max(0)
    reach = 0.54 * (high - low)
    return (low + high) / 2, np.maximum(reach, 0.05 * reach.max() or 1.0)


def _outside(cloud: Any, centre: Any, reach: Any) -> Any:
    return ~(abs(cloud - centre) <= reach).all(1)


def _frame(axes: Any, centre: Any, reach: Any, tall: float) -> None:
    from matplotlib.ticker import NullLocator

    wide = max(reach[0], reach[1] / tall)  # the same units along both axes
    axes.set_xlim(centre[0] - wide, centre[0] + wide)
    axes.set_ylim(centre[1] - tall * wide, centre[1] + tall * wide)
    axes.set(aspect="equal")
    axes.spines[:].set(visible=True, color=LINE)
    axes.xaxis.set_major_locator(NullLocator())
    axes.yaxis.set_major_locator(NullLocator())


def _scatter(axes: Any, source: Any, target: Any, pair: Pair, shades: Sequence[tuple[str, Any]]) -> None:
    gap = np.full((len(target[:LINKS]), 2), np.nan)
    links = np.stack([source[:LINKS], target[:LINKS], gap], axis=1).reshape(-1, 2)
    axes.plot(*links.T, color=MUTED, linewidth=0.8, alpha=0.7)
    names = elided([f"target {pair.target}", f"source {pair.source}"], 36)
    if len(shades) == 1 and not shades[0][0]:
        axes.plot(*target.T, "o", color=INK, markersize=5, alpha=0.6, markeredgewidth=0, label=names[0])
        axes.plot(*source.T, "x", color=SOURCE, markersize=5, markeredgewidth=1.4, label=names[1])
        return
    axes.plot([], [], "o", color=MUTED, markersize=5, label=f"filled: {names[0]}")
    axes.plot([], [], "o", color=MUTED, markersize=5, markerfacecolor="none", label=f"hollow: {names[1]}")
    for (name, rows), colour, marker in zip(shades, COLOURS, MARKERS, strict=False):
        style = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 0}
        axes.plot(*target[rows].T, alpha=0.6, markeredgewidth=0, label=elided([name], 24)[0], **style)
        axes.plot(*source[rows].T, markerfacecolor="none", markeredgewidth=1.2, **style)


def error_histogram(pair: Pair) -> Drawing:
    """Draw the distribution of the held-out errors of single rows, for identity, similarity and linear if present.

    Errors are in % of chance, the mean null error of the group, which a vertical line marks; without a null, in % of
    the target's diameter. All groups share their bins, the last of which holds all larger errors.
    The x axis is logarithmic where the groups lie too far apart to be seen on one linear axis.
    """
    chosen = [name for name in HISTOGRAM if name in pair.groups] or list(pair.groups)[:1]
    judged = has_null(pair.groups[name] for name in chosen)
    units = {name: pair.groups[name].null if judged else 1.0 for name in chosen}
    samples = {name: 100 * _finite(pair.groups[name].errors / units[name]) for name in chosen}
    samples = {name: errors for name, errors in samples.items() if len(errors)}
    bins, log = _bins(list(samples.values()), 100.0 if judged else math.nan)

    def paint(axes: Any) -> None:
        for name, errors in samples.items():
            colour, dashes = HISTOGRAM.get(name, (HELD_OUT, (None, None)))
            counts = np.histogram(np.clip(errors, bins[0], bins[-1]), bins)[0]
            outline(axes, 100 * counts / len(errors), bins, color=colour, dashes=dashes, linewidth=2, label=name)
        if judged:
            axes.axvline(100, color=NULL, linewidth=2, dashes=(1, 1.2), label="chance")
        axes.set(xscale="log" if log else "linear", xlim=(bins[0], 1.02 * bins[-1]), ylabel="% of rows")
        unit = "chance" if judged else "the target's diameter"
        axes.set_xlabel(f"error of a row, % of {unit}" + (" (log)" if log else ""))
        axes.set_ylim(bottom=0)
        axes.grid(axis="y")
        if log:
            plain_decades(axes.xaxis, bins[0], bins[-1])
        if samples:
            axes.legend(**ABOVE, ncols=2)

    return Drawing(
        paint,
        (388, 330),
        label=f"Histogram of the held-out error of single rows, from {pair.source} to {pair.target}",
    )


def _finite(errors: Any) -> Any:
    errors = np.asarray(errors, dtype=float)
    return errors[np.isfinite(errors)]


def _bins(samples: list[Any], null: float) -> tuple[Any, bool]:
    """Choose common bins, from 0 or, where medians are far apart, logarithmic."""
    tops = [float(np.quantile(sample, 0.995)) for sample in samples] + [null]  # single far rows would hide the others
    top = 1.04 * max((value for value in tops if math.isfinite(value)), default=0.0) or 1.0
    medians = [float(np.median(sample)) for sample in samples] + [null]
    if not far_apart(medians):
        return np.linspace(0, top, BINS + 1), False
    low = max(min(float(np.quantile(sample, 0.01)) for sample in samples), 1e-9 * top)
    return np.geomspace(low, top, BINS + 1), True


def gains(pair: Pair) -> Drawing:
    """Draw the log gain of every tested direction with its 95 % interval, and the margin as a band.

    A log gain of 0 is the scale that all directions have in common; directions are in order of decreasing covariance.
    """
    found = pair.distortion
    assert found is not None
    at, values, half = np.arange(1, found.tested + 1), found.log_gains, 1.96 * found.errors
    reach = 1.08 * max(float(np.max(np.abs(values) + half)), 1.2 * found.margin)
    few = found.tested <= MARKED_DIRECTIONS

    def paint(axes: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        band = f"margin, ±{found.margin:g}"
        axes.axhspan(-found.margin, found.margin, color=LINEAR, alpha=0.16, linewidth=0, label=band)
        axes.axhline(0, color=MUTED, linewidth=1)
        axes.vlines(
            at, values - half, values + half, color=HELD_OUT, linewidth=2 if few else 1, alpha=1 if few else 0.6
        )
        style = {"marker": "o", "linewidth": 0, "markersize": 6 if few else 2.5}
        axes.plot(at, values, color=HELD_OUT, **style, label="log gain, 95 % interval")
        axes.set(xlim=(0.3, found.tested + 0.7), ylim=(-reach, reach), ylabel="log gain (0: the common scale)")
        axes.set_xlabel("tested directions, by decreasing covariance")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.grid(axis="y")
        axes.legend(**ABOVE, ncols=2)

    return Drawing(
        paint,
        (535, 300),
        label=f"Log gains of {found.tested} directions from {pair.source} to {pair.target}: at most "
        f"{number(found.largest, 2)} in size, margin {found.margin:g}",
    )
