"""The figures of `mixture-pinwheel`: latent spaces as learned and aligned, and distances of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.experiments.recipes.result import RecipeFigure, draw_figure
from congruence.formatting import number
from congruence.mixture.agreement import SpaceAgreement
from congruence.report.figures.spaces import paint_spaces
from congruence.report.figures.svg import HELD_OUT, INK, MUTED

SHOWN = 5  # trainings
POINTS = 400  # rows of each


def draw_spaces(agreement: SpaceAgreement, labels: Array) -> RecipeFigure:
    """Draw the codes of some trainings, as learned and mapped onto the first."""
    spaces = agreement.spaces[:SHOWN]
    first = spaces[0].name
    rows = np.linspace(0, len(labels) - 1, min(POINTS, len(labels))).astype(int)
    before = [one.codes[rows, :2] for one in spaces]
    after = [agreement.aligned(one.name, first)[rows, :2] for one in spaces]

    def paint(figure: Any) -> None:
        paint_spaces(figure, [one.name for one in spaces], [before, after], labels[rows], ("as learned", "aligned"))

    return draw_figure(
        "spaces",
        paint,
        (max(460, 190 * len(spaces)), 420),
        f"Latent spaces of {len(spaces)} trainings, as learned and after an affine map onto {first}",
        "Codes of the same rows, marked by their cluster. Top: as they were learned. Bottom: after the affine map "
        f"of the prior of a training onto that of {first}; it was fitted without paired rows.",
    )


def draw_distances(agreement: SpaceAgreement) -> RecipeFigure:
    """Draw the distances of priors before and after the best map, and the MCC of codes, for every ordered pair."""
    pairs = sorted(agreement.pairs, key=lambda pair: pair.strong)
    at = np.arange(len(pairs))

    def paint(figure: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        left, right = figure.subplots(1, 2)
        known = [pair.affine for pair in agreement.pairs if pair.affine is not None]
        before = sorted(one.before.distance for one in known)
        for values, colour, marker, name in (
            (before, MUTED, "s", "without a map"),
            (sorted(one.distance for one in known), HELD_OUT, "o", "after the best affine map"),
        ):
            left.plot(np.arange(len(values)) + 1, values, marker, color=colour, label=name)
        left.set(xlabel="ordered pairs, sorted", ylabel="L2 distance of priors", ylim=(0, None))
        left.legend(loc="upper left")
        right.plot(at + 1, [pair.weak for pair in pairs], "o", color=HELD_OUT, label="weak: up to a linear map")
        right.plot(at + 1, [pair.strong for pair in pairs], "s", color=INK, label="strong: without a map")
        right.set(xlabel="ordered pairs, sorted", ylabel="MCC of codes", ylim=(0, 1.25))
        right.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        right.legend(loc="upper left")
        for axes in (left, right):
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))

    weak, strong = agreement.spread("weak"), agreement.spread("strong")
    return draw_figure(
        "pairs",
        paint,
        (900, 330),
        f"Over {len(pairs)} ordered pairs the weak MCC is {number(weak.mean)}, the strong one {number(strong.mean)}",
        "Every ordered pair of trainings. Left: priors, before and after the best affine map found. Right: codes.",
    )
