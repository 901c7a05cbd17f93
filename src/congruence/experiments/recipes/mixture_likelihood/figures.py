"""The figures of `mixture_likelihood`: slices of the likelihood, and the counterexample of Remark 3.12."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.experiments.recipes.mixture_likelihood.claims import MEANS, SPREAD
from congruence.experiments.recipes.result import RecipeFigure, draw_figure
from congruence.formatting import number
from congruence.report.figures.svg import HELD_OUT, INK, LINEAR, MUTED, SOURCE

if TYPE_CHECKING:
    from congruence.experiments.recipes.mixture_likelihood.run import LikelihoodCase, Remark

SHOWN = 6  # slices
BENT = 4  # of which not convex, where there are


def choose_slices(cases: Sequence[LikelihoodCase]) -> list[tuple[LikelihoodCase, int]]:
    """Slices to show: some with several local minima first, then others, of different parameters if possible."""
    every = [(case, i) for case in cases for i in range(len(case.slices))]
    bent = [one for one in every if one[0].slices[one[1]].valleys > 1]
    plain = [one for one in every if one[0].slices[one[1]].valleys == 1]
    chosen: list[tuple[LikelihoodCase, int]] = []
    for pool, most in ((bent, BENT), (plain, SHOWN), (every, SHOWN)):
        left = [one for one in pool if all(one[0] is not case for case, _ in chosen)]
        while left and len(chosen) < most:
            seen = [case.slices[i].parameter for case, i in chosen]
            one = min(left, key=lambda one: seen.count(one[0].slices[one[1]].parameter))
            chosen.append(one)
            left = [other for other in left if other[0] is not one[0]]
    return chosen


def draw_slices(cases: Sequence[LikelihoodCase]) -> RecipeFigure:
    """Draw the likelihood along single parameters, with the truth and the minimiser."""
    shown = choose_slices(cases)

    def paint(figure: Any) -> None:
        panels = np.ravel(figure.subplots(-(-len(shown) // 3), 3, squeeze=False))
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        for axes, (case, i) in zip(panels, shown, strict=False):
            one = case.slices[i]
            axes.plot(one.values, one.excess, color=HELD_OUT, linewidth=2)
            axes.axvline(one.truth, color=INK, linewidth=1.5, label="the truth")
            least = one.values[one.excess.argmin()]
            axes.axvline(least, color=SOURCE, linewidth=3, dashes=(2, 2), label="the minimiser")
            axes.set(xlabel=one.name, ylim=(-0.05 * float(one.excess.max()), None))
            axes.set_title(f"model {case.number + 1}, J = {case.components}", loc="left")
        panels[0].set_ylabel("excess")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=2)

    same = sum(case.slices[i].excess.argmin() == case.slices[i].at_truth for case, i in shown)
    return draw_figure(
        "slices",
        paint,
        (900, 90 + 230 * -(-len(shown) // 3)),
        f"The negative log-likelihood along {len(shown)} parameters; in {same} the minimiser is the truth",
        "The expected negative log-likelihood, minus that of the truth, when one parameter varies; slices with several "
        "local minima first. Compare the paper's figure 1.",
    )


def draw_remark(remark: Remark) -> RecipeFigure:
    """Draw both priors, and the likelihood along the second mean through |z| and through its halves."""

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        grid = np.linspace(-4, 5, 300)
        for means, colour, dashes, name in ((MEANS[0], INK, (None, None), "P"), (MEANS[1], LINEAR, (4, 2), "P′")):
            bumps = np.exp(-0.5 * ((grid[:, None] - means) / SPREAD) ** 2) / (SPREAD * np.sqrt(2 * np.pi))
            left.plot(grid, bumps.mean(1), color=colour, linewidth=2, dashes=dashes, label=name)
        left.set(xlabel="latent z", ylabel="density", ylim=(0, None))
        left.legend(loc="upper right")
        for one, colour, dashes, name in (
            (remark.folded, HELD_OUT, (None, None), "through |z|"),
            (remark.seen, MUTED, (4, 2), "through both halves"),
        ):
            right.plot(one.values, one.excess, color=colour, linewidth=2, dashes=dashes, label=name)
        right.axvline(remark.folded.truth, color=INK, linewidth=1.5, label="the truth")
        right.set(xlabel="second mean", ylabel="excess", ylim=(-0.05, 1.3 * float(remark.folded.excess.max())))
        right.legend(loc="upper right")

    return draw_figure(
        "remark",
        paint,
        (900, 340),
        f"Remark 3.12: through |z| the likelihoods of the second means {number(remark.folded.rival, 2)} and "
        f"{number(remark.folded.truth, 2)} differ by {number(remark.folded.margin, 2)}",
        "Left: two priors that no affine map relates. Right: the negative log-likelihood along the second mean of P "
        "has two minimisers if only |z| is observed, and one if both halves of it are.",
    )
