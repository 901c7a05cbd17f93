"""The tables of `model-pairs`: Table 1 with our numbers, held out, outputs and heads, by layer, by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from congruence.document import Cell, Table, share
from congruence.experiments.recipes.model_pairs.claims import (
    HEAD,
    KINDS,
    PRINTED,
    FamilyScores,
    PairScores,
    held_out,
    in_components,
    in_sample,
    mean_null,
    mean_rigid_share,
    nan_if_none,
    pairs_by_kind,
    rigid_share_of,
)
from congruence.experiments.recipes.model_pairs.scores import COLUMNS, layer_name
from congruence.experiments.recipes.result import number_table
from congruence.formatting import number

OF_COMPONENTS = "ICA, of components"


def make_tables(scores: FamilyScores) -> tuple[Table, ...]:
    """All tables."""
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
        own = float(np.mean([nan_if_none(one["in_sample"].get("components")) for one in pairs.values()]))
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
                mean, low, high = (number(nan_if_none(error[name])) for name in ("mean", "low", "high"))
                cells.append(_sortable(f"{mean} ({low}–{high})", error["mean"]))
            ends = (share(nan_if_none(one["efficiency"])), share(rigid_share_of(one)))
            rows.append((names.replace(" ", " → "), *cells, in_components(one)[0], *ends))
        shown = [held_out(pairs, column) for column in COLUMNS]
        ends = (share(held_out(pairs, "efficiency")), share(mean_rigid_share(pairs)))
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
            cells: tuple[Any, ...] = (None,) * 6
            if heads:
                fixed = f"{heads['target']['rank']} of {heads['target']['dimension']}"
                weighted = one.get("weighted_heads", {}).get("heads")
                cells = (fixed, heads["heads"], weighted, heads["seen_by_heads"], heads["fitted"])
                cells += (share(heads["disagreement"]),)
            apart = (one["outputs"], share(one["outputs_of_chance"]))
            rows.append((names.replace(" ", " → "), *apart, *cells))
    of_heads = ("head fixes", "from heads", "weighted", "on what it fixes", "fitted", "head unexplained")
    head = ("pair", "outputs apart", "of chance", *of_heads)
    note = (
        "Theorems start from models with the same outputs. Apart: total variation of a softmax, mean difference of "
        "probabilities (graph networks), distance of hidden patches (the loss does not depend on the others). Errors "
        "of the map from the heads, which uses no data (Roeder et al. 2021), in how many directions the target's head "
        "determines it, its error if tokens are weighted by their counts in the text, and its error on the determined "
        "directions; of the map fitted to the rows, in sample; and the share of the source's head that no linear map "
        "explains."
    )
    return number_table("Outputs, and the map that heads imply", head, rows, note)


def _layer_table(family: str, scores: Mapping[str, Any]) -> Table:
    rows = []
    for k, layer in enumerate(scores["layers"]):
        near = []
        for column in COLUMNS[:3]:
            mean, null = layer[column]["held_out"]["mean"], nan_if_none(layer[column]["null"])
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
