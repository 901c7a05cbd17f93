"""Section 4 of Kivva et al., maximum likelihood: is the truth the only minimiser, in 50 random models?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from congruence.document import Table
from congruence.experiments.recipes.mixture_likelihood_figures import draw_remark, draw_slices
from congruence.experiments.recipes.recipe import Job
from congruence.experiments.recipes.relu_likelihoods import (
    Case,
    Counterexample,
    measure_case,
    measure_remark,
    read_case,
)
from congruence.experiments.recipes.result import RecipeResult, number_table, status_of
from congruence.formatting import number, percent
from congruence.mixture.likelihood_minima import ALIKE, REACHED, RESOLUTION
from congruence.result import Finding, combine

EDITION = 1
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"models": 5, "values": 21, "starts": 2},
    "small": {"models": 50, "values": 61, "starts": 4},
    "paper": {"models": 50, "values": 121, "starts": 10},
    "full": {"models": 500, "values": 241, "starts": 20},
}
SAME = 1e-12  # distributions of x whose expected log-likelihoods differ by less are equal

PAPER = {
    "models": 50,
    "unique": 50,
    "statement": "In all our simulations (50 total), the ground truth was the unique minimizer of the negative "
    "log-likelihood.",
    "remark 3.12": "P and P' cannot be transformed into each other by an affine map, but |x| gives them the same law",
}
NOTES = (
    "The paper's appendix J.3.1 was not in the text we had: the distributions of weights, biases and mixtures, the "
    "range of each parameter and the limits are ours. Latents have one dimension, observed through one or two units, "
    "with known noise.",
    "The density of x has a closed form, since the decoder is piecewise affine; only the expectation over x is summed "
    "on a grid. The likelihood is that of infinitely many rows: nothing is sampled.",
    "As in the paper's figure 1, a slice varies one parameter and leaves the others at the truth. A slice can refute "
    "that the truth is the only minimiser, but not prove it: so we also search over all parameters at once.",
    f"A slice is ambiguous if a value away from the truth is worse by at most {RESOLUTION:g}, which a billion rows "
    "could not detect. Theorem 3.9 may still exclude it.",
    f"End points of searches count as minimisers up to {REACHED:g}, and priors as equal if they differ by at most "
    f"{percent(ALIKE)} of the largest L2 distance after centring and scaling.",
    "With one component too many, the truth is represented with its heaviest component split in two. With one too few "
    "no model is the truth: the slices are about the best model found.",
)
TERMS = (
    (
        "negative log-likelihood",
        "its expectation under the truth, minus that of the truth: KL(truth, model), 0 is best.",
    ),
    ("margin", "the least excess of a slice away from the truth; the larger, the clearer the minimum."),
    ("J", "the number of components of the prior."),
    ("injective (F4)", "no two latents decode to the same."),
    ("weakly injective (F2)", "around some observation every one has a single latent; |x| is not weakly injective."),
)


def run(job: Job) -> RecipeResult:
    """Measure all models and the counterexample, and judge what the paper says of them."""
    count, total = job.parameters["models"], job.parameters["models"] + 1
    cases = []
    for i in range(count):
        job.progress("following likelihoods", i, total)
        wishes = {"values": job.parameters["values"], "starts": job.parameters["starts"], "seed": job.seed}
        cases.append(read_case(i, job.parts.get(f"case-{i}", partial(measure_case, i, **wishes)), job.seed))
    job.progress("the counterexample", count, total)
    remark = measure_remark(job.parameters["values"])
    return RecipeResult(
        recipe=job.recipe,
        settings=job.settings,
        headlines=_answer(cases),
        paper=PAPER,
        ours={
            "models": count,
            "unique": _count(cases, "holds"),
            "ambiguous": _count(cases, "ambiguous"),
            "cases": [one.to_dict() for one in cases],
            "remark 3.12": remark.to_dict(),
        },
        findings=judge(cases, remark),
        tables=(_table(cases), _table_of_remark(remark)),
        figures=(draw_slices(cases), draw_remark(remark)),
        notes=NOTES,
        terms=TERMS,
    )


def judge(cases: Sequence[Case], remark: Counterexample) -> tuple[Finding, ...]:
    """Judge what the paper says."""
    right = [one for one in cases if one.kind == "right"]
    folded = [one for one in cases if not one.injective]
    wrong = [one for one in cases if one.kind != "right"]
    bent = sum(any(one.valleys > 1 for one in case.slices) for case in cases)
    return (
        Finding(
            "truth-is-unique",
            "In all of 50 random models the truth is the only minimiser of the negative log-likelihood.",
            combine(one.unique for one in cases),
            number=_count(cases, "holds") / len(cases),
            evidence=f"Along every parameter in {_count(cases, 'holds')} of {len(cases)}; {_in_words(cases)}",
        ),
        Finding(
            "truth-is-unique-without-injectivity",
            "This is also true if the decoder is not injective (F4 fails), as long as it is weakly injective (F2).",
            combine(one.unique for one in folded),
            number=_count(folded, "holds") / len(folded) if folded else None,
            evidence=f"In {_count(folded, 'holds')} of {len(folded)} such models; {_in_words(folded)}",
        ),
        Finding(
            "truth-is-unique-if-misspecified",
            "This is also true if the number of components is misspecified.",
            combine(one.unique for one in wrong),
            number=_count(wrong, "holds") / len(wrong) if wrong else None,
            evidence="; ".join(_of_kind(wrong, kind) for kind in ("one too many", "one too few")) + ".",
        ),
        Finding(
            "minimisers-have-the-true-prior",
            "Over all parameters at once, every minimiser has the true prior up to an affine map (Theorem 3.9a).",
            combine(one.found for one in right if one.found is not None),
            evidence=_searched(right),
        ),
        Finding(
            "likelihood-is-not-convex",
            "The likelihood is not convex.",
            status_of(bent > 0),
            number=bent / len(cases),
            evidence=f"{bent} of {len(cases)} models have a slice with more than one local minimum.",
        ),
        Finding(
            "remark-3.12",
            "Remark 3.12: without weak injectivity, two priors that no affine map relates give the same distribution.",
            status_of(abs(remark.excess) < SAME and remark.apart > ALIKE),
            number=remark.excess,
            evidence=f"Through |z| they differ by {number(remark.excess, 2)} in expected log-likelihood, while the "
            f"priors differ by {percent(remark.apart)} of the largest L2 distance after centring and scaling. Through "
            f"both halves of |z|, which together are injective, they differ by {number(remark.seen_excess)}.",
        ),
    )


def _count(cases: Sequence[Case], verdict: str) -> int:
    return sum(one.unique == verdict for one in cases)


def _in_words(cases: Sequence[Case]) -> str:
    """The models whose minimum is not clearly the only one."""
    if not cases:
        return "there was none."
    fails, ambiguous = _count(cases, "fails"), [one for one in cases if one.unique == "ambiguous"]
    text = f"the smallest margin is {number(min(one.margin for one in cases), 2)}"
    if ambiguous:
        alone = sum(one.units == 1 for one in ambiguous)
        text += (
            f", and in {len(ambiguous)} (with one unit: {alone}) it is below {RESOLUTION:g}: a component in a region "
            "where no unit is active has hardly any influence"
        )
    return text + (f"; {fails} fail." if fails else ".")


def _of_kind(cases: Sequence[Case], kind: str) -> str:
    some = [one for one in cases if one.kind == kind]
    return f"{kind}: in {_count(some, 'holds')} of {len(some)}, {_count(some, 'ambiguous')} ambiguous"


def _searched(cases: Sequence[Case]) -> str:
    verdicts = [one.found for one in cases if one.found is not None]
    text = f"In {verdicts.count('holds')} of {len(verdicts)} models"
    hard = [one for one in cases if one.found == "ambiguous"]
    if hard:
        alone = sum(one.units == 1 for one in hard)
        least = min(float(one.excess[one.apart > ALIKE].min()) for one in hard)
        text += (
            f"; in {len(hard)} (with one unit: {alone}) a search ended at another prior that is worse by less than "
            f"{REACHED:g}, at least by {number(max(least, 0.0), 2)}: more than a million rows are needed to "
            "distinguish them"
        )
    if "unknown" in verdicts:
        text += f"; in {verdicts.count('unknown')} no search reached the likelihood of the truth"
    return text + "."


def _answer(cases: Sequence[Case]) -> tuple[str, ...]:
    holds, ambiguous = _count(cases, "holds"), _count(cases, "ambiguous")
    text = f"In {holds} of {len(cases)} models the truth is the only minimiser along every parameter"
    text += f", in {ambiguous} double precision cannot decide" if ambiguous else ""
    others = len(cases) - holds - ambiguous
    return (text + (f", in {others} it is not." if others else "; none has a better one."),)


def _table(cases: Sequence[Case]) -> Table:
    groups = [("all", cases)]
    groups += [
        (f"J fitted: {kind}", [c for c in cases if c.kind == kind]) for kind in dict.fromkeys(c.kind for c in cases)
    ]
    for said, injective in (("injective (F4)", True), ("not injective", False)):
        groups.append((said, [c for c in cases if c.injective is injective]))
    groups += [(f"J = {j}", [c for c in cases if c.components == j]) for j in sorted({c.components for c in cases})]
    rows = tuple(
        (
            name,
            "50 of 50" if name == "all" else None,
            f"{_count(some, 'holds')} of {len(some)}",
            _count(some, "ambiguous"),
            _count(some, "fails"),
            min(one.margin for one in some),
            sum(any(s.valleys > 1 for s in one.slices) for one in some),
        )
        for name, some in groups
        if some
    )
    head = ("models", "unique, paper", "unique, ours", "ambiguous", "not unique", "least margin", "not convex")
    note = "Unique: along every parameter the truth is the only minimiser of the expected negative log-likelihood."
    return number_table("How often is the truth the only minimiser?", head, rows, note)


def _table_of_remark(remark: Counterexample) -> Table:
    rows = (
        ("difference in expected log-likelihood, through |z|", "0", remark.excess),
        ("the same through both halves of |z|", None, remark.seen_excess),
        ("priors after centring and scaling, relative L2", "not the same", remark.apart),
        ("priors after the best affine map found, L2", "not the same", remark.affine),
    )
    note = "P has the means −2, −1, 3 and P′ the means −2, 1, 3; weights 1/3, standard deviations 0.5."
    return number_table("Remark 3.12", ("what", "paper", "ours"), rows, note)
