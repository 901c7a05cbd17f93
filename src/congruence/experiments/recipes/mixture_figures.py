"""Figures of trainings with a mixture prior: latent spaces beside each other and aligned, and distances of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.experiments.recipes.result import Figure
from congruence.formatting import number
from congruence.mixture.agreement import SpaceAgreement
from congruence.report.figures.spaces import paint_spaces
from congruence.report.figures.svg import HELD_OUT, INK, MUTED, Drawing

SHOWN = 5  # trainings
POINTS = 400  # rows of each


def draw_spaces(found: SpaceAgreement, labels: Array) -> Figure:
    """Draw the codes of some trainings, as they are and carried onto the first."""
    spaces = found.spaces[:SHOWN]
    first = spaces[0].name
    rows = np.linspace(0, len(labels) - 1, min(POINTS, len(labels))).astype(int)
    before = [one.codes[rows, :2] for one in spaces]
    after = [found.aligned(one.name, first)[rows, :2] for one in spaces]

    def paint(figure: Any) -> None:
        paint_spaces(figure, [one.name for one in spaces], [before, after], labels[rows], ("as learned", "aligned"))

    size = (max(460, 190 * len(spaces)), 420)
    label = f"Latent spaces of {len(spaces)} trainings, as learned and after an affine map onto {first}"
    caption = (
        "Codes of the same rows, marked by their cluster. Top: as they were learned. Bottom: after the affine map "
        f"of the prior of a training onto that of {first}; it was fitted without paired rows."
    )
    return Figure("spaces", caption, Drawing(paint, size, key="spaces", label=label))


def draw_distances(found: SpaceAgreement) -> Figure:
    """Draw what is left between priors after the best map, and the MCC of codes, for every ordered pair."""
    pairs = sorted(found.pairs, key=lambda pair: pair.strong)
    at = np.arange(len(pairs))

    def paint(figure: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        left, right = figure.subplots(1, 2)
        known = [pair.affine for pair in found.pairs if pair.affine is not None]
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

    weak, strong = found.spread("weak"), found.spread("strong")
    label = f"Over {len(pairs)} ordered pairs the weak MCC is {number(weak.mean)}, the strong one {number(strong.mean)}"
    caption = "Every ordered pair of trainings. Left: priors, before and after the best affine map found. Right: codes."
    return Figure("pairs", caption, Drawing(paint, (900, 330), key="pairs", label=label))


def draw_mcc(compared: Mapping[str, SpaceAgreement]) -> Figure:
    """Draw strong and weak MCC of every pair, one column for each kind of model."""

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for place, found in enumerate(compared.values()):
            shift = np.linspace(-0.12, 0.12, len(found.pairs))
            for values, away, colour, marker, name in (
                ([pair.strong for pair in found.pairs], -0.2, INK, "s", "strong: without a map"),
                (
                    [pair.weak_held_out for pair in found.pairs],
                    0.2,
                    HELD_OUT,
                    "o",
                    "weak, held out: up to a linear map",
                ),
            ):
                told = name if place == 0 else None
                axes.plot(place + away + shift, values, marker, color=colour, markersize=5, label=told)
        axes.set_xticks(range(len(compared)), list(compared))
        axes.set(ylabel="MCC of codes", ylim=(0, 1.05), xlim=(-0.6, len(compared) - 0.4))
        axes.grid(axis="y")
        figure.legend(loc="outside upper left", ncols=2)

    said = "; ".join(
        f"{name}: strong {number(found.spread('strong').mean)}, weak {number(found.spread('weak').mean)}"
        for name, found in compared.items()
    )
    caption = (
        "Every ordered pair of trainings: codes of test images without a map, and after a linear map fitted on others."
    )
    return Figure("mcc", caption, Drawing(paint, (700, 360), key="mcc", label=f"MCC of pairs. {said}"))
