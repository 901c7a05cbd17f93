"""Figures of matched features: largest cosines and chance, and the share that comes back by required cosine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import number, percent
from congruence.report.figures.scales import outline
from congruence.report.figures.svg import ABOVE, HELD_OUT, INK, LINEAR, MUTED, NULL, SOURCE, Drawing, add_hover

if TYPE_CHECKING:
    from congruence.features.feature_match import PairMatch

RUG = 300  # features of the histogram that are marked below it
LINES = ((HELD_OUT, "o"), (LINEAR, "s"), (SOURCE, "^"), (MUTED, "D"))  # colour and marker of each dictionary


def cosine_histogram(pair: PairMatch, source: Any, target: Any) -> Drawing:
    """Draw the distribution of the largest cosine of each feature, and of its largest with a null dictionary.

    A mark below it is one feature, of at most 300 at equal distances in the order of their cosines. `source` and
    `target` are the numbers of the features in their files.
    """
    cosines = pair.nearest_cosine
    marked = np.argsort(cosines, kind="stable")[np.unique(np.linspace(0, len(cosines) - 1, RUG).round().astype(int))]
    null = max(pair.null.maxima.values(), key=lambda values: float(np.quantile(values, 0.9)))
    low = float(min(pair.nearest_cosine.min(), null.min(), 0.0))
    edges = np.linspace(low, 1.0001, 61)

    def paint(axes: Any) -> None:
        for values, colour, name in ((pair.nearest_cosine, HELD_OUT, pair.target), (null, NULL, "null dictionary")):
            heights = 100 * np.histogram(values, edges)[0] / len(values)
            axes.stairs(heights, edges, color=colour, alpha=0.25, fill=True)
            dashes = (None, None) if colour == HELD_OUT else (3, 1.4)
            outline(axes, heights, edges, color=colour, linewidth=1.8, dashes=dashes, label=name)
        axes.axvline(pair.least, color=INK, linewidth=1.5, dashes=(5, 2), label=f"required: {number(pair.least)}")
        depth = -0.05 * axes.get_ylim()[1]
        at = cosines[marked]
        axes.plot(at, [depth] * len(at), "|", color=HELD_OUT, markersize=9, alpha=0.6)
        add_hover(axes, [(x, depth) for x in at], [_feature_text(pair, i, source, target) for i in marked])
        axes.set(xlabel="largest cosine of a feature", ylabel="% of the features")
        axes.set(xlim=(low, 1.0), ylim=(2 * depth, None))
        axes.grid(axis="y")
        axes.legend(**ABOVE, ncols=3)

    summary = f"median {number(float(np.median(pair.nearest_cosine)))}, of a null {number(float(np.median(null)))}"
    label = f"Largest cosine of each feature of {pair.source} with one of {pair.target}: {summary}"
    return Drawing(paint, (462, 300), label=label)


def _feature_text(pair: PairMatch, i: int, source: Any, target: Any) -> str:
    """A feature, its nearest one and its partner."""
    nearest = f"nearest {target[pair.nearest[i]]}, cosine {number(float(pair.nearest_cosine[i]))}"
    matched = f"partner {target[pair.partner[i]]}, cosine {number(float(pair.cosine[i]))}"
    return f"feature {source[i]}\n{nearest}\n{'no partner' if pair.partner[i] < 0 else matched}"


def share_curve(
    curves: Sequence[tuple[str, Sequence[float], Sequence[float]]], levels: Sequence[float], least: float
) -> Drawing:
    """Draw the share of features that are matched with at least a given cosine, and the same share by chance."""

    def paint(axes: Any) -> None:
        for (name, found, _), (colour, marker) in zip(curves, LINES, strict=False):
            axes.plot(levels, 100 * np.array(found), color=colour, marker=marker, markersize=4, linewidth=2, label=name)
        chance = 100 * np.max([one[2] for one in curves], axis=0)
        axes.plot(levels, chance, color=NULL, linewidth=2, dashes=(1, 1.2), label="chance")
        axes.axvline(least, color=INK, linewidth=1.5, dashes=(5, 2))
        axes.set(xlabel="required cosine", ylabel="% of features matched", xlim=(0, 1), ylim=(0, 102))
        axes.grid(axis="y")
        axes.legend(**ABOVE, ncols=3)

    at = int(np.searchsorted(levels, least))
    summary = ", ".join(f"{name} {percent(found[min(at, len(found) - 1)])}" for name, found, _ in curves)
    label = f"Share of features matched by required cosine; at {number(least)}: {summary}"
    return Drawing(paint, (462, 300), label=label)
