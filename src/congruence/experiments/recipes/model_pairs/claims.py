"""The claims of section 4.2, judged by our numbers, with the paper's numbers, the notes and the tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from congruence.align._options import ROWS_FOR_ICA
from congruence.document import Cell, Table, share
from congruence.experiments.recipes.claims import Estimate, over_pairs, read_claims, share_of
from congruence.experiments.recipes.model_pairs.scores import COLUMNS, layer_name
from congruence.experiments.recipes.model_pairs.trainings import OTHER_WIDTH
from congruence.experiments.recipes.result import number_table
from congruence.formatting import number, percent
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
OF_COMPONENTS = "ICA, of components"
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
        return float(np.mean([_nan_if_none(one["efficiency"]) for one in pairs.values()]))
    return float(np.mean([one["held_out"][column]["held_out"]["mean"] for one in pairs.values()]))


def in_components(one: Mapping[str, Any]) -> tuple[float, float]:
    """The error of matched components, over the diameter of the components, and its null; NaN if not measured."""
    found = one.get("components")
    return (found["held_out"]["mean"], _nan_if_none(found["null"])) if found else (float("nan"),) * 2


def rigid_share(permutation: float, rigid: float, linear: float) -> float:
    """The share of what a linear map gains over a permutation that a rigid one gains; NaN where that is nothing."""
    gain = permutation - linear
    return (permutation - rigid) / gain if gain > 0 else float("nan")


def of_null(pairs: PairScores, column: str) -> Estimate:
    """The held-out error as a share of its null: mean and range over pairs."""
    return over_pairs([_of_null(one, column) for one in pairs.values()])


def _premise(*kinds: PairScores) -> str:
    """Why claims about pairs cannot be judged: their outputs differ; empty where they do not."""
    worst = float(np.max([_nan_if_none(one["outputs_of_chance"]) for pairs in kinds for one in pairs.values()]))
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
        _judge_heads(kinds["gpt"]),
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
    """Why the claim about ICA cannot be judged: too few rows for each dimension; empty where there are enough."""
    ratios = [own["rows"] / max(own["widths"].values()) for own in scores.values() if "rows" in own]
    if min(ratios, default=math.inf) >= ROWS_FOR_ICA:
        return ""
    return f"ICA needs about {ROWS_FOR_ICA} rows for each dimension; there are {number(min(ratios), 2)} or more."


def _judge_ica(kinds: Mapping[str, PairScores], unless: str) -> Finding:
    outside = {kind: over_pairs([_nan_if_none(one["efficiency"]) for one in p.values()]) for kind, p in kinds.items()}
    parts = [
        f"{KINDS[k]} {percent(in_sample(kinds[k], 'efficiency'))} in sample, {percent(outside[k].value)} held out"
        for k in kinds
    ]
    claim = CLAIMS["ica-recovers-part-of-the-rotation"]
    worst_first = sorted(outside.values(), key=lambda one: one.value)
    every = replace(claim, rules=claim.rules * len(worst_first))
    judged = every.judge(*worst_first, null=0.0, unless=unless, evidence="; ".join(parts) + ".")
    return replace(judged, rule=f"{claim.rules[0]}.")


def _judge_language_models(pairs: PairScores) -> Finding:
    ours, printed = _mean_rigid_share(pairs), rigid_share(*PRINTED["gpt"][1:4])
    linear, rigid = of_null(pairs, "linear"), of_null(pairs, "similarity")
    gaps = over_pairs([_of_null(one, "similarity") - _of_null(one, "linear") for one in pairs.values()])
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
    rigid, ours = of_null(pairs, "similarity"), over_pairs([_rigid_share(one) for one in pairs.values()])
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
        Estimate(rigid.value - linear.value, rigid.low - linear.high, rigid.high - linear.low),
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


def _judge_heads(pairs: PairScores) -> Finding:
    """Whether the map from heads is closer to the fitted one than to chance; twice an error can be chance already."""
    heads_of = [one["heads"] for one in pairs.values()]
    reached = []
    for one in pairs.values():
        null, fitted = _nan_if_none(one["held_out"]["linear"]["null"]), one["held_out"]["linear"]["held_out"]["mean"]
        reached.append((null - one["heads"]["heads"]) / (null - fitted) if null > fitted else float("nan"))
    unique = all(one["unique"] for one in heads_of)
    heads = float(np.mean([one["heads"] for one in heads_of]))
    return CLAIMS["heads-imply-the-map"].judge(
        over_pairs(reached),
        null=0.0,
        unless=_premise(pairs) if unique else "The heads do not determine all directions.",
        evidence=f"The map from the heads leaves {number(heads)}, the fitted one "
        f"{number(held_out(pairs, 'linear'))} on other rows, chance {number(mean_null(pairs, 'linear'))}. No linear "
        f"map explains {percent(float(np.mean([one['disagreement'] for one in heads_of])))} of the source's head.",
    )


def _judge_training(scores: FamilyScores) -> Finding:
    """Ours: whether pairs become more similar during training."""
    parts, ratios = [], []
    for family, own in scores.items():
        steps = own.get("steps", ())
        if not steps:
            continue
        first, *_, last = [one["similarity"] / one["null"] for one in steps]
        ratios.append(last / first)
        raw = [number(steps[k]["similarity"]) for k in (0, -1)]
        parts.append(f"{KINDS[family]} from {percent(first)} to {percent(last)} ({raw[0]} to {raw[1]} of the diameter)")
    return CLAIMS["training-reduces-the-error"].judge(
        float(np.max(ratios)) if ratios else float("nan"),
        null=1.0,
        evidence=f"Held-out error as a share of its null, from before the first step to the last: {'; '.join(parts)}.",
    )


def list_widths(scores: FamilyScores) -> str:
    """The widths of the models that exist in two."""
    return ", ".join(f"{name} {width}" for one in ("gpt", "mae") for name, width in scores[one]["widths"].items())


def note_scores(scores: FamilyScores) -> tuple[str, ...]:
    """What is missing, and what `compare` says of each family."""
    notes = [f"{KINDS[family]}: {text}" for family, own in scores.items() for text in own["advice"]]
    if "admet" not in scores:
        notes.insert(0, "The graph networks of the data set modelpairs were not found, and are left out.")
    return tuple(notes)


def _mean_rigid_share(pairs: PairScores) -> float:
    return rigid_share(*(held_out(pairs, column) for column in COLUMNS[:3]))


def _rigid_share(one: Mapping[str, Any]) -> float:
    return rigid_share(*(one["held_out"][column]["held_out"]["mean"] for column in COLUMNS[:3]))


def _of_null(one: Mapping[str, Any], column: str) -> float:
    error = one["held_out"][column]
    return float(error["held_out"]["mean"] / _nan_if_none(error["null"]))


def mean_null(pairs: PairScores, column: str) -> float:
    """The mean over pairs of a null."""
    return float(np.mean([_nan_if_none(one["held_out"][column]["null"]) for one in pairs.values()]))


def _nan_if_none(value: float | None) -> float:
    return float("nan") if value is None else value


def make_tables(scores: FamilyScores) -> tuple[Table, ...]:
    """All tables: Table 1 with our numbers, held out, outputs and heads, by layer, by step."""
    kinds = pairs_by_kind(scores)
    tables = [_table_1(kinds), _held_out_table(kinds), _output_table(kinds)]
    for family in ("gpt", "mae", "resnet"):
        tables += [_layer_table(family, scores[family]), _step_table(family, scores[family])]
    return tuple(tables)


def _table_1(kinds: Mapping[str, PairScores]) -> Table:
    rows = []
    for kind, pairs in kinds.items():
        if kind in PRINTED:
            name, *numbers, printed = PRINTED[kind]
            rows.append((f"paper: {name}", *numbers, None, share(printed), 1))
        shown = [in_sample(pairs, column) for column in COLUMNS]
        own = float(np.mean([_nan_if_none(one["in_sample"].get("components")) for one in pairs.values()]))
        rows.append((KINDS[kind], *shown, own, share(in_sample(pairs, "efficiency")), len(pairs)))
    note = (
        "In sample, on rows trained on, mean over pairs. The models differ from the paper's in size and data, so that "
        "columns can be compared and rows hardly; CheXpert is the paper's pair of two sizes. ICA is measured in the "
        "space of the target, as the other columns, and in that of the matched components, over their diameter."
    )
    return number_table("Table 1", ("pair", *HEAD, OF_COMPONENTS, "efficiency of ICA", "pairs"), rows, note)


def _held_out_table(kinds: Mapping[str, PairScores]) -> Table:
    rows = []
    for kind, pairs in kinds.items():
        for names, one in pairs.items():
            cells = []
            for column in COLUMNS:
                error = one["held_out"][column]["held_out"]
                mean, low, high = (number(_nan_if_none(error[name])) for name in ("mean", "low", "high"))
                cells.append(_sortable(f"{mean} ({low}–{high})", error["mean"]))
            ends = (share(_nan_if_none(one["efficiency"])), share(_rigid_share(one)))
            rows.append((names.replace(" ", " → "), *cells, in_components(one)[0], *ends))
        shown = [held_out(pairs, column) for column in COLUMNS]
        ends = (share(held_out(pairs, "efficiency")), share(_mean_rigid_share(pairs)))
        error, null = np.mean([in_components(one) for one in pairs.values()], axis=0)
        rows.append((f"{KINDS[kind]}, mean", *shown, error, *ends))
        rows.append((f"{KINDS[kind]}, null", *(mean_null(pairs, column) for column in COLUMNS), null, None, None))
    note = (
        "Mean error on rows held out, with 95 % intervals over rows (of text, over files). Components are those of all "
        "these rows, unmixed without the other model; only their matching is held out."
    )
    return number_table("Held out", ("pair", *HEAD, OF_COMPONENTS, "efficiency of ICA", "rigid share"), rows, note)


def _output_table(kinds: Mapping[str, PairScores]) -> Table:
    rows = []
    for pairs in kinds.values():
        for names, one in pairs.items():
            heads = one.get("heads")
            cells: tuple[Any, ...] = (None,) * 5
            if heads:
                fixed = f"{heads['target']['rank']} of {heads['target']['dimension']}"
                cells = (fixed, heads["heads"], heads["seen_by_heads"], heads["fitted"], share(heads["disagreement"]))
            apart = (one["outputs"], share(one["outputs_of_chance"]))
            rows.append((names.replace(" ", " → "), *apart, *cells))
    of_heads = ("head fixes", "from heads", "on what it fixes", "fitted", "head unexplained")
    head = ("pair", "outputs apart", "of chance", *of_heads)
    note = (
        "Theorems start from models with the same outputs. Apart: total variation of a softmax, mean difference of "
        "probabilities (graph networks), distance of hidden patches (the loss does not depend on the others). Errors "
        "of the map from the heads, which uses no data (Roeder et al. 2021), in how many directions the target's head "
        "determines it, and its error on these; of the map fitted to the rows, in sample; and the share of the "
        "source's head that no linear map explains."
    )
    return number_table("Outputs, and the map that heads imply", head, rows, note)


def _layer_table(family: str, scores: Mapping[str, Any]) -> Table:
    rows = []
    for k, layer in enumerate(scores["layers"]):
        near = []
        for column in COLUMNS[:3]:
            mean, null = layer[column]["held_out"]["mean"], _nan_if_none(layer[column]["null"])
            near.append(_sortable(f"{number(mean)} ({number(null)})", mean))
        rows.append((layer_name(k, len(scores["layers"])), *near, *_map_cells(scores["maps"].get(str(k)))))
    if "decoder" in scores["maps"]:
        rows.append(("decoder, from the penultimate layer", None, None, None, *_map_cells(scores["maps"]["decoder"])))
    head = ("layer", *HEAD[:3], "stretch", "median", "Λ", "condition", "directions lost")
    note = (
        "Left: two seeds, the same layer of each, held out (null). Right: singular values of the map from the layer to "
        "the penultimate one, medians over points of the first seed: from the least that is not lost to the largest, "
        "the median, the bi-Lipschitz constant and the condition on what is not lost."
    )
    return number_table(f"{KINDS[family]}, by layer", head, rows, note)


def _step_table(family: str, scores: Mapping[str, Any]) -> Table:
    rows = [
        (
            one["step"],
            one["loss"],
            share(one["outputs_of_chance"]),
            *(one[column] for column in COLUMNS[:3]),
            one["null"],
            share(one["similarity"] / one["null"]),
        )
        for one in scores["steps"]
    ]
    head = ("step", "loss, held out", "outputs apart, of chance", *HEAD[:3], "null of rigid", "rigid, of the null")
    return number_table(
        f"{KINDS[family]}, by training step", head, rows, "Penultimate layer, held out, mean over pairs."
    )


def _map_cells(summary: Mapping[str, float] | None) -> tuple[Any, ...]:
    if summary is None:
        return (None,) * 5
    between = Cell(f"{number(summary['least'])}–{number(summary['largest'])}", summary["least"])
    lost = Cell(f"{summary['lost']:.0f} of {summary['directions']:.0f}", summary["lost"])
    return (between, *(summary[name] for name in ("median", "constant", "condition")), lost)


def _sortable(text: str, value: float | None) -> Cell:
    return Cell(text, "" if value is None or value != value else value)
