"""The claims of Kivva et al. about maximum likelihood and remark 3.12, judged by our numbers, with the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.document import Table
from congruence.experiments.recipes.claims import read_claims, share_of
from congruence.experiments.recipes.result import RecipeFigure, draw_figure, number_table
from congruence.formatting import number, percent
from congruence.mixture.likelihood_minima import ALIKE, REACHED, RESOLUTION
from congruence.report.figures.svg import HELD_OUT, INK, LINEAR, MUTED, SOURCE
from congruence.result import Finding

if TYPE_CHECKING:
    from congruence.experiments.recipes.mixture_likelihood.run import LikelihoodCase, Remark, ShownSlice

MEANS = ((-2.0, -1.0, 3.0), (-2.0, 1.0, 3.0))  # the means of P and P' in Remark 3.12
SPREAD = 0.5  # standard deviation of their components; the remark holds for any

CLAIMS = read_claims("mixture-likelihood")
SHOWN = 6  # slices
BENT = 4  # of which not convex, where there are


def judge(cases: Sequence[LikelihoodCase], remark: Remark) -> tuple[Finding, ...]:
    """Judge the claims of the paper."""
    right = [one for one in cases if one.kind == "right"]
    folded = [one for one in cases if not one.injective]
    wrong = [one for one in cases if one.kind != "right"]
    bent = sum(one.is_bent for one in cases)
    kinds = [
        f"{kind}: in {count_unique(some, 'holds')} of {len(some)}, {count_unique(some, 'ambiguous')} ambiguous"
        for kind in ("one too many", "one too few")
        for some in [[one for one in wrong if one.kind == kind]]
    ]
    return (
        CLAIMS["truth-is-unique"].judge(
            share_of([one.unique for one in cases]),
            evidence=f"Along every parameter in {count_unique(cases, 'holds')} of {len(cases)}; {_margin_text(cases)}",
        ),
        CLAIMS["truth-is-unique-without-injectivity"].judge(
            share_of([one.unique for one in folded]),
            evidence=f"In {count_unique(folded, 'holds')} of {len(folded)} such models; {_margin_text(folded)}",
        ),
        CLAIMS["truth-is-unique-if-misspecified"].judge(
            share_of([one.unique for one in wrong]),
            evidence="; ".join(kinds) + ".",
        ),
        CLAIMS["minimisers-have-the-true-prior"].judge(
            share_of([one.search_status for one in right]), evidence=_search_text(right)
        ),
        CLAIMS["likelihood-is-not-convex"].judge(
            float(bent), evidence=f"{bent} of {len(cases)} models have a slice with more than one local minimum."
        ),
        CLAIMS["remark-3.12"].judge(
            abs(remark.excess),
            remark.apart,
            evidence=f"Through |z| they differ by {number(remark.excess, 2)} in expected log-likelihood, while the "
            f"priors differ by {percent(remark.apart)} of the largest L2 distance after centring and scaling. Through "
            f"both halves of |z|, which together are injective, they differ by {number(remark.seen_excess)}.",
        ),
    )


def count_unique(cases: Sequence[LikelihoodCase], verdict: str) -> int:
    """How many cases have this status of uniqueness."""
    return sum(one.unique == verdict for one in cases)


def _margin_text(cases: Sequence[LikelihoodCase]) -> str:
    """The models whose minimum is not clearly the only one."""
    if not cases:
        return "there was none."
    fails, ambiguous = count_unique(cases, "fails"), [one for one in cases if one.unique == "ambiguous"]
    text = f"the smallest margin is {number(min(one.margin for one in cases), 2)}"
    if ambiguous:
        text += (
            f", and in {len(ambiguous)} it is below {RESOLUTION:g}: a component in a region where no unit is active "
            "has hardly any influence"
        )
    return text + (f"; {fails} fail." if fails else ".")


def _search_text(cases: Sequence[LikelihoodCase]) -> str:
    verdicts = [one.search_status for one in cases if one.search_status is not None]
    text = f"In {verdicts.count('holds')} of {len(verdicts)} models"
    hard = [one for one in cases if one.search_status == "ambiguous"]
    if hard:
        least = min(float(one.excess[one.apart > ALIKE].min()) for one in hard)
        text += (
            f"; in {len(hard)} a search ended at another prior that is worse by less than "
            f"{REACHED:g}, at least by {number(max(least, 0.0), 2)}: more than a million rows are needed to "
            "distinguish them"
        )
    if "unknown" in verdicts:
        text += f"; in {verdicts.count('unknown')} no search reached the likelihood of the truth"
    return text + "."


def headline(cases: Sequence[LikelihoodCase]) -> tuple[str, ...]:
    """How often the truth is the only minimiser."""
    holds, ambiguous = count_unique(cases, "holds"), count_unique(cases, "ambiguous")
    text = f"In {holds} of {len(cases)} models the truth is the only minimiser along every parameter"
    text += f", in {ambiguous} the numbers cannot decide" if ambiguous else ""
    others = len(cases) - holds - ambiguous
    return (text + (f", in {others} it is not." if others else "; none has a better one."),)


def make_tables(cases: Sequence[LikelihoodCase], remark: Remark) -> tuple[Table, ...]:
    """How often the truth is the only minimiser, by kind of model, and the counterexample."""
    groups = [("all", cases)]
    kinds = dict.fromkeys(case.kind for case in cases)
    groups += [(f"J fitted: {kind}", [case for case in cases if case.kind == kind]) for kind in kinds]
    for name, injective in (("injective (F4)", True), ("not injective", False)):
        groups.append((name, [case for case in cases if case.injective is injective]))
    sizes = sorted({case.components for case in cases})
    groups += [(f"J = {j}", [case for case in cases if case.components == j]) for j in sizes]
    rows = [
        (
            name,
            "50 of 50" if name == "all" else None,
            f"{count_unique(some, 'holds')} of {len(some)}",
            count_unique(some, "ambiguous"),
            count_unique(some, "fails"),
            min(one.margin for one in some),
            sum(one.is_bent for one in some),
        )
        for name, some in groups
        if some
    ]
    unique = number_table(
        "How often is the truth the only minimiser?",
        ("models", "unique, paper", "unique, ours", "ambiguous", "not unique", "least margin", "not convex"),
        rows,
        "Unique: along every parameter the truth is the only minimiser of the expected negative log-likelihood.",
    )
    priors = (
        ("difference in expected log-likelihood, through |z|", "0", remark.excess),
        ("the same through both halves of |z|", None, remark.seen_excess),
        ("priors after centring and scaling, relative L2", "not the same", remark.apart),
        ("priors after the best affine map found, L2", "not the same", remark.affine),
    )
    note = "P has the means −2, −1, 3 and P′ the means −2, 1, 3; weights 1/3, standard deviations 0.5."
    return unique, number_table("Remark 3.12", ("what", "paper", "ours"), priors, note)


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


def draw_slices(shown: Sequence[ShownSlice]) -> RecipeFigure:
    """Draw the likelihood along single parameters, with the truth and the minimiser."""

    def paint(figure: Any) -> None:
        panels = np.ravel(figure.subplots(-(-len(shown) // 3), 3, squeeze=False))
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        for axes, case in zip(panels, shown, strict=False):
            one = case.slice
            axes.plot(one.values, one.excess, color=HELD_OUT, linewidth=2)
            axes.axvline(one.truth, color=INK, linewidth=1.5, label="the truth")
            least = one.values[one.excess.argmin()]
            axes.axvline(least, color=SOURCE, linewidth=3, dashes=(2, 2), label="the minimiser")
            axes.set(xlabel=one.name, ylim=(-0.05 * float(one.excess.max()), None))
            axes.set_title(f"model {case.number + 1}, J = {case.components}", loc="left")
        panels[0].set_ylabel("excess")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=2)

    same = sum(case.slice.excess.argmin() == case.slice.at_truth for case in shown)
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
