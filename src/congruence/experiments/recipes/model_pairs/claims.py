"""The claims of section 4.2, judged by our numbers, with the paper's numbers, the notes and the tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from congruence.align._options import ROWS_FOR_ICA
from congruence.experiments.recipes.claims import Claim, Estimate, over_pairs, read_claims, share_of, subtract
from congruence.experiments.recipes.model_pairs.scores import COLUMNS
from congruence.experiments.recipes.model_pairs.trainings import OTHER_WIDTH
from congruence.formatting import number, percent
from congruence.ica._spectral import rows_needed
from congruence.result import Finding, Status, combine, status_above

KINDS = {"gpt": "GPT-NeoX", "wide": "GPT-NeoX, two widths", "mae": "ViT masked autoencoder"}
KINDS |= {"large": "ViT masked autoencoder, two widths", "resnet": "ResNet-18", "admet": "graph networks (ADMET)"}
SHORT = {"gpt": "language models", "mae": "masked autoencoders", "resnet": "classifiers", "admet": "graph networks"}
PRINTED = {  # Table 1: permutation, rigid with scale, linear, ICA, and the efficiency of ICA
    "gpt": ("Pythia-160M-0, -1", 0.219, 0.150, 0.131, 0.202, 0.25),
    "mae": ("MAE-timm, -original", 0.197, 0.109, 0.036, 0.145, 0.59),
    "large": ("CheXpert-small, -base", 0.218, 0.104, 0.048, 0.175, 0.38),
    "resnet": ("ResNet-18-fc-1, -2", 0.382, 0.206, 0.175, 0.312, 0.40),
}
PAPER = {name: dict(zip((*COLUMNS, "efficiency"), numbers, strict=True)) for name, *numbers in PRINTED.values()}
HEAD = ("permutation", "rigid", "linear", "ICA")
SAME_OUTPUTS = 0.1  # of chance: the premise of the theorems is that two trainings have the same outputs
CLAIMS = read_claims("model-pairs")

FamilyScores = Mapping[str, Mapping[str, Any]]  # of each family
PairScores = Mapping[str, Mapping[str, Any]]  # of each pair, by the names of its models


def pairs_by_kind(scores: FamilyScores) -> dict[str, PairScores]:
    """The pairs of each row of the table; those of two widths are a kind of their own."""
    kinds: dict[str, dict[str, Any]] = {}
    for family, own in scores.items():
        for names, numbers in own["pairs"].items():
            source, target = (name.partition("-")[0] for name in names.split())
            if source not in OTHER_WIDTH.values():
                kinds.setdefault(target if target in OTHER_WIDTH.values() else family, {})[names] = numbers
    return {kind: kinds[kind] for kind in KINDS if kind in kinds}


def in_sample(pairs: PairScores, column: str) -> float:
    """The mean over pairs of an in-sample number."""
    return float(np.mean([one["in_sample"][column] for one in pairs.values()]))


def held_out(pairs: PairScores, column: str) -> float:
    """The mean over pairs of a held-out error, or of the held-out efficiency."""
    if column == "efficiency":
        return float(np.mean([nan_if_none(one["efficiency"]) for one in pairs.values()]))
    return float(np.mean([one["held_out"][column]["held_out"]["mean"] for one in pairs.values()]))


def in_components(one: Mapping[str, Any]) -> tuple[float, float]:
    """The error of matched components, over the diameter of the components, and its null; NaN if not measured."""
    found = one.get("components")
    return (found["held_out"]["mean"], nan_if_none(found["null"])) if found else (float("nan"),) * 2


def rigid_share(permutation: float, rigid: float, linear: float) -> float:
    """The share of what a linear map gains over a permutation that a rigid one gains; NaN where that is nothing."""
    gain = permutation - linear
    return (permutation - rigid) / gain if gain > 0 else float("nan")


def of_null(pairs: PairScores, column: str) -> Estimate:
    """The held-out error as a share of its null, mean over pairs."""
    return _over(pairs, lambda one: _of_null(one, column))


def _over(pairs: PairScores, value: Callable[[Mapping[str, Any]], float]) -> Estimate:
    """The mean over pairs of a value, with its interval over trainings."""
    return over_pairs({(names.split()[0], names.split()[1]): value(one) for names, one in pairs.items()})


def _premise(*kinds: PairScores) -> str:
    """Why claims about pairs cannot be judged: their outputs differ; empty where they do not."""
    worst = float(np.max([nan_if_none(one["outputs_of_chance"]) for pairs in kinds for one in pairs.values()]))
    if worst <= SAME_OUTPUTS:
        return ""
    if worst != worst:
        return "How far outputs differ is undefined for some pairs."
    return f"The premise fails: outputs differ by up to {percent(worst)} of chance; {percent(SAME_OUTPUTS)} is allowed."


def headline(scores: FamilyScores) -> tuple[str, ...]:
    """The error up to a rigid map as a share of its null, for each kind of pair of the same size."""
    shares = [
        f"{SHORT[kind]} {percent(of_null(pairs, 'similarity').value)}"
        for kind, pairs in pairs_by_kind(scores).items()
        if kind in SHORT
    ]
    return (f"Held-out error of two trainings up to a rigid map, of chance: {', '.join(shares)}.",)


def judge(scores: FamilyScores) -> tuple[Finding, ...]:
    """Judge the claims about pairs of models, and our own questions."""
    kinds = pairs_by_kind(scores)
    return (
        _judge_order(kinds),
        _judge_ica(kinds, _few_rows(scores)),
        _judge_language_models(kinds["gpt"]),
        *(_judge_image_models(kind, kinds[kind]) for kind in ("mae", "resnet")),
        _judge_autoencoders(kinds),
        _judge_widths(kinds["large"], kinds["wide"]),
        _judge_heads(CLAIMS["heads-imply-the-map"], kinds["gpt"], "heads"),
        _judge_heads(CLAIMS["weighted-heads-imply-the-map"], kinds["gpt"], "weighted_heads"),
        _judge_training(scores),
    )


def _judge_order(kinds: Mapping[str, PairScores]) -> Finding:
    everything = [one for pairs in kinds.values() for one in pairs.values()]
    orders = [[one["in_sample"][column] for column in COLUMNS[2::-1]] for one in everything]
    falls = [linear < rigid < permutation for linear, rigid, permutation in orders]
    outside = [_order_status(one) for one in everything]
    return CLAIMS["larger-groups-have-smaller-errors"].judge(
        share_of(outside),
        evidence=f"Held out, with intervals that do not overlap, in {outside.count('holds')} of {len(outside)} pairs, "
        f"in another order in {outside.count('fails')}. In sample, where it follows from the nesting of the maps, in "
        f"{sum(falls)}.",
    )


def _order_status(one: Mapping[str, Any]) -> Status:
    linear, rigid, permutation = (one["held_out"][column]["held_out"] for column in COLUMNS[2::-1])
    steps = ((linear, rigid), (rigid, permutation))
    return combine(status_above(above["low"] - below["high"], above["high"] - below["low"]) for below, above in steps)


def _few_rows(scores: FamilyScores) -> str:
    """Why the claim about ICA cannot be judged: too few rows for the dimensions; empty where there are enough."""
    sizes = [(own["rows"], max(own["widths"].values())) for own in scores.values() if "rows" in own]
    few = {(n, d): most for n, d in sizes if n < (most := max(ROWS_FOR_ICA * d, rows_needed(d)))}
    if not few:
        return ""
    n, d = min(few, key=lambda one: one[0] / few[one])
    return f"ICA needs about {few[n, d]:,} rows in {d} dimensions; there are {n:,}."


def _judge_ica(kinds: Mapping[str, PairScores], unless: str) -> Finding:
    outside = {kind: _over(pairs, lambda one: nan_if_none(one["efficiency"])) for kind, pairs in kinds.items()}
    parts = [
        f"{KINDS[k]} {percent(in_sample(kinds[k], 'efficiency'))} in sample, {percent(outside[k].value)} held out"
        for k in kinds
    ]
    claim, worst_first = CLAIMS["ica-recovers-part-of-the-rotation"], sorted(outside.values())
    return claim.each(len(outside)).judge(*worst_first, null=0.0, unless=unless, evidence="; ".join(parts) + ".")


def _judge_language_models(pairs: PairScores) -> Finding:
    ours, printed = mean_rigid_share(pairs), rigid_share(*PRINTED["gpt"][1:4])
    linear, rigid = of_null(pairs, "linear"), of_null(pairs, "similarity")
    gaps = _over(pairs, lambda one: _of_null(one, "similarity") - _of_null(one, "linear"))
    return CLAIMS["language-models-align-linearly"].judge(
        linear,
        gaps,
        null=1.0,
        unless=_premise(pairs),
        evidence=f"Held out, a linear map leaves {percent(linear.value)} of chance and a rigid one "
        f"{percent(rigid.value)} ({number(held_out(pairs, 'linear'))} and {number(held_out(pairs, 'similarity'))} of "
        f"the diameter). A rigid map reaches {percent(ours)} of the gain of a linear map over a permutation, "
        f"{percent(printed)} in the paper.",
    )


def _judge_image_models(kind: str, pairs: PairScores) -> Finding:
    rigid, ours = of_null(pairs, "similarity"), _over(pairs, rigid_share_of)
    claim = CLAIMS["{kind}-pairs-align-rigidly"].about(kind=kind, words=KINDS[kind])
    return claim.judge(
        rigid,
        ours,
        null=1.0,
        unless=_premise(pairs),
        evidence=f"Held out, a rigid map leaves {percent(rigid.value)} of chance. It reaches {percent(ours.value)} of "
        f"the gain of a linear map over a permutation, {percent(rigid_share(*PRINTED[kind][1:4]))} in the paper.",
    )


def _judge_autoencoders(kinds: Mapping[str, PairScores]) -> Finding:
    rigid, linear = of_null(kinds["mae"], "similarity"), of_null(kinds["gpt"], "linear")
    return CLAIMS["rigid-autoencoders-match-linear-language-models"].judge(
        subtract(rigid, linear),
        null=0.0,
        unless=_premise(kinds["mae"], kinds["gpt"]),
        evidence=f"Held out, {percent(rigid.value)} of chance against {percent(linear.value)}; of the diameter "
        f"{number(held_out(kinds['mae'], 'similarity'))} against {number(held_out(kinds['gpt'], 'linear'))}, in the "
        f"paper {PRINTED['mae'][2]:g} against {PRINTED['gpt'][3]:g}. Data and sizes differ, in the paper and here.",
    )


def _judge_widths(images: PairScores, text: PairScores) -> Finding:
    linear = [of_null(pairs, "linear") for pairs in (images, text)]
    rigid = [of_null(pairs, "similarity") for pairs in (images, text)]
    return CLAIMS["different-widths-align"].judge(
        linear[0],
        null=1.0,
        unless=_premise(images),
        evidence=f"Held out, a linear map between masked autoencoders of two widths leaves {percent(linear[0].value)} "
        f"of chance, a rigid one {percent(rigid[0].value)}; between language models of two widths, whose outputs "
        f"differ more, {percent(linear[1].value)} and {percent(rigid[1].value)}.",
    )


def _judge_heads(claim: Claim, pairs: PairScores, name: str) -> Finding:
    """Whether the map from heads is closer to the fitted one than to chance; twice an error can be chance already."""
    heads = [one[name] for one in pairs.values() if name in one]
    if not heads:
        return claim.judge(math.nan, null=0.0, evidence="These trainings were scored before heads were weighted.")
    unique = all(one["unique"] for one in heads)
    mean = float(np.mean([one["heads"] for one in heads]))
    fitted, chance = held_out(pairs, "linear"), mean_null(pairs, "linear")
    return claim.judge(
        _over(pairs, lambda one: _gain_of_heads(one, name)),
        null=0.0,
        unless=_premise(pairs) if unique else "The heads do not determine all directions.",
        evidence=f"The map from the heads leaves {number(mean)}, the fitted one {number(fitted)} on other rows, chance "
        f"{number(chance)}. No linear map explains {percent(float(np.mean([one['disagreement'] for one in heads])))} "
        "of the source's head.",
    )


def _gain_of_heads(one: Mapping[str, Any], name: str) -> float:
    null, fitted = nan_if_none(one["held_out"]["linear"]["null"]), one["held_out"]["linear"]["held_out"]["mean"]
    return float((null - one[name]["heads"]) / (null - fitted)) if null > fitted else math.nan


def _judge_training(scores: FamilyScores) -> Finding:
    """Ours: whether pairs become more similar during training."""
    parts, ratios = [], []
    for family, own in scores.items():
        steps = own.get("steps", ())
        if not steps:
            continue
        first, *_, last = map(_share_of_chance, steps)
        ratios.append(_ratio_of_steps(steps[0], steps[-1]))
        raw = [number(steps[k]["similarity"]) for k in (0, -1)]
        parts.append(f"{KINDS[family]} from {percent(first)} to {percent(last)} ({raw[0]} to {raw[1]} of the diameter)")
    claim, words = CLAIMS["training-reduces-the-error"].each(len(ratios)), "; ".join(parts)
    evidence = f"Held-out error as a share of its null, from before the first step to the last: {words}."
    return claim.judge(*sorted(ratios, reverse=True), null=1.0, evidence=evidence)


def _ratio_of_steps(first: Mapping[str, Any], last: Mapping[str, Any]) -> Estimate:
    """The error of chance in the last step over that in the first; without an interval if only means were kept."""
    if "pairs" not in first:
        return Estimate(last["similarity"] / last["null"] * first["null"] / first["similarity"], math.nan, math.nan)
    ratios = {
        names: {"ratio": _share_of_chance(one) / _share_of_chance(first["pairs"][names])}
        for names, one in last["pairs"].items()
    }
    return _over(ratios, lambda one: float(one["ratio"]))


def _share_of_chance(one: Mapping[str, float]) -> float:
    return one["similarity"] / one["null"]


def list_widths(scores: FamilyScores) -> str:
    """The widths of the models that exist in two."""
    return ", ".join(f"{name} {width}" for one in ("gpt", "mae") for name, width in scores[one]["widths"].items())


def note_scores(scores: FamilyScores) -> tuple[str, ...]:
    """What is missing, and what `compare` says of each family."""
    notes = [f"{KINDS[family]}: {text}" for family, own in scores.items() for text in own["advice"]]
    if "admet" not in scores:
        notes.insert(0, "The graph networks of the data set modelpairs were not found, and are left out.")
    return tuple(notes)


def mean_rigid_share(pairs: PairScores) -> float:
    """`rigid_share` of the mean held-out errors."""
    return rigid_share(*(held_out(pairs, column) for column in COLUMNS[:3]))


def rigid_share_of(one: Mapping[str, Any]) -> float:
    """`rigid_share` of the held-out errors of a pair."""
    return rigid_share(*(one["held_out"][column]["held_out"]["mean"] for column in COLUMNS[:3]))


def _of_null(one: Mapping[str, Any], column: str) -> float:
    error = one["held_out"][column]
    return float(error["held_out"]["mean"] / nan_if_none(error["null"]))


def mean_null(pairs: PairScores, column: str) -> float:
    """The mean over pairs of a null."""
    return float(np.mean([nan_if_none(one["held_out"][column]["null"]) for one in pairs.values()]))


def nan_if_none(value: float | None) -> float:
    """A number of JSON, where NaN is null."""
    return float("nan") if value is None else value
