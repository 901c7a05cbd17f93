"""The tables of `model-pairs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from congruence.document import Cell, Table, share
from congruence.experiments.recipes.pair_claims import KINDS, PRINTED, Found, Pairs, held_out, in_sample, pairs_by_kind
from congruence.experiments.recipes.pair_scores import COLUMNS, layer_name
from congruence.experiments.recipes.result import Value, number_table
from congruence.formatting import number

HEAD = ("permutation", "rigid", "linear", "ICA")


def tables_of(found: Found) -> tuple[Table, ...]:
    """All tables: Table 1 with our numbers, held out, outputs and heads, by layer, by step."""
    kinds = pairs_by_kind(found)
    tables = [_table_1(kinds), _held_out(kinds), _outputs(kinds)]
    for family in ("gpt", "mae", "resnet"):
        tables += [_layers(family, found[family]), _steps(family, found[family])]
    return tuple(tables)


def _table_1(kinds: Mapping[str, Pairs]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for kind, pairs in kinds.items():
        if kind in PRINTED:
            name, *numbers, printed = PRINTED[kind]
            rows.append((f"paper: {name}", *numbers, share(printed), 1))
        shown = [in_sample(pairs, column) for column in COLUMNS]
        rows.append((KINDS[kind], *shown, share(in_sample(pairs, "efficiency")), len(pairs)))
    note = (
        "In sample, on rows trained on, mean over pairs. The models differ from the paper's in size and data, so that "
        "columns can be compared and rows hardly; CheXpert is the paper's pair of two sizes."
    )
    return number_table("Table 1", ("pair", *HEAD, "efficiency of ICA", "pairs"), tuple(rows), note)


def _held_out(kinds: Mapping[str, Pairs]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for kind, pairs in kinds.items():
        for names, one in pairs.items():
            cells = [_interval(one["held_out"][column]["held_out"]) for column in COLUMNS]
            rows.append((_arrow(names), *cells, _share(one["efficiency"])))
        shown = [held_out(pairs, column) for column in COLUMNS]
        rows.append((f"{KINDS[kind]}, mean", *shown, share(held_out(pairs, "efficiency"))))
        nulls = [float(np.mean([_defined(one["held_out"][c]["null"]) for one in pairs.values()])) for c in COLUMNS]
        rows.append((f"{KINDS[kind]}, null", *nulls, None))
    note = "Mean error on rows held out, with 95 % intervals over rows (of text, over files)."
    return number_table("Held out", ("pair", *HEAD, "efficiency of ICA"), tuple(rows), note)


def _outputs(kinds: Mapping[str, Pairs]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for pairs in kinds.values():
        for names, one in pairs.items():
            heads = one.get("heads")
            cells: tuple[Value, ...] = (None,) * 5
            if heads:
                fixed = f"{heads['target']['rank']} of {heads['target']['dimension']}"
                cells = (fixed, heads["heads"], heads["seen_by_heads"], heads["fitted"], share(heads["disagreement"]))
            apart = (one["outputs"], share(one["outputs_of_chance"]))
            rows.append((_arrow(names), *apart, *cells))
    of_heads = ("head fixes", "from heads", "on what it fixes", "fitted", "head unexplained")
    head = ("pair", "outputs apart", "of chance", *of_heads)
    note = (
        "Theorems start from models with the same outputs. Apart: total variation of a softmax, mean difference of "
        "probabilities (graph networks), distance of patches that were hidden (what is painted elsewhere, no loss looks"
        " at). Errors of the map from the heads, which sees no data (Roeder et al. 2021), in how many directions the "
        "target's head fixes it, and its error on these; of the map fitted to the rows, in sample; and the share of the"
        " source's head that no linear map explains."
    )
    return number_table("Outputs, and the map that heads imply", head, tuple(rows), note)


def _layers(family: str, scores: Mapping[str, Any]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for k, layer in enumerate(scores["layers"]):
        near = (_with_null(layer[column]) for column in COLUMNS[:3])
        rows.append((layer_name(k, len(scores["layers"])), *near, *_map(scores["maps"].get(str(k)))))
    if "decoder" in scores["maps"]:
        rows.append(("decoder, from the penultimate layer", None, None, None, *_map(scores["maps"]["decoder"])))
    head = ("layer", *HEAD[:3], "stretch", "median", "Λ", "condition", "directions lost")
    note = (
        "Left: two seeds, the same layer of each, held out (null). Right: singular values of the map from the layer to "
        "the penultimate one, medians over points of the first seed: from the least that is not lost to the largest, "
        "the median, the bi-Lipschitz constant and the condition on what is not lost."
    )
    return number_table(f"{KINDS[family]}, by layer", head, tuple(rows), note)


def _steps(family: str, scores: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            one["step"],
            one["loss"],
            share(one["outputs_of_chance"]),
            *(one[column] for column in COLUMNS[:3]),
            one["null"],
            share(one["similarity"] / one["null"]),
        )
        for one in scores["steps"]
    )
    head = ("step", "loss, held out", "outputs apart, of chance", *HEAD[:3], "null of rigid", "rigid, of the null")
    return number_table(
        f"{KINDS[family]}, by training step", head, rows, "Penultimate layer, held out, mean over pairs."
    )


def _map(told: Mapping[str, float] | None) -> tuple[Value, ...]:
    if told is None:
        return (None,) * 5
    between = Cell(f"{number(told['least'])}–{number(told['largest'])}", told["least"])
    lost = Cell(f"{told['lost']:.0f} of {told['directions']:.0f}", told["lost"])
    return (between, *(told[name] for name in ("median", "constant", "condition")), lost)


def _interval(told: Mapping[str, Any]) -> Cell:
    mean, low, high = (number(_defined(told[name])) for name in ("mean", "low", "high"))
    return Cell(f"{mean} ({low}–{high})", _sort_key(told["mean"]))


def _with_null(told: Mapping[str, Any]) -> Cell:
    mean = told["held_out"]["mean"]
    return Cell(f"{number(mean)} ({number(_defined(told['null']))})", _sort_key(mean))


def _sort_key(value: float | None) -> float | str:
    return "" if value is None or value != value else value


def _arrow(names: str) -> str:
    return names.replace(" ", " → ")


def _share(value: float | None) -> Cell:
    return share(_defined(value))


def _defined(value: float | None) -> float:
    return float("nan") if value is None else value
