"""The figures of `model-pairs`: the table as bars, nearness by layer and by step, and all pairs of layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from congruence.align.layer_comparison import LayerComparison
from congruence.experiments.recipes.model_pairs.claims import (
    KINDS,
    PRINTED,
    FamilyScores,
    PairScores,
    held_out,
    in_sample,
    mean_null,
    pairs_by_kind,
)
from congruence.experiments.recipes.model_pairs.scores import COLUMNS, layer_name
from congruence.experiments.recipes.result import RecipeFigure, draw_figure, paint_panels
from congruence.formatting import number
from congruence.report.figures.heat_maps import layer_picture
from congruence.report.figures.scales import step_axis
from congruence.report.figures.svg import HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE

MARKS = {"permutation": (SOURCE, "s"), "similarity": (HELD_OUT, "o"), "linear": (LINEAR, "v"), "ica": (ICA, "P")}
CALLED = {"permutation": "permutation", "similarity": "rigid", "linear": "linear", "ica": "ICA"}
TRAINED = ("gpt", "mae", "resnet")
ACROSS = 3  # panels next to each other


def draw_figures(scores: FamilyScores) -> tuple[RecipeFigure, ...]:
    """All figures."""
    maps = [_layer_figure(family, scores[family]["map"]) for family in TRAINED]
    return (draw_table(pairs_by_kind(scores)), draw_layers(scores), draw_steps(scores), *maps)


def draw_table(kinds: Mapping[str, PairScores]) -> RecipeFigure:
    """Every kind of pair in a panel: the paper's number, ours in sample, ours held out, and the null."""
    rows = -(-len(kinds) // ACROSS)

    def paint(figure: Any) -> None:
        panels = figure.subplots(rows, ACROSS, squeeze=False)
        for axes, (kind, pairs) in zip(panels.flat, kinds.items(), strict=False):
            _column(axes, kind, pairs)
        for axes in panels.flat[len(kinds) :]:
            axes.remove()
        for axes in panels[:, 0]:
            axes.set_ylabel("error over the diameter")
        handles = {label: one for one, label in zip(*panels[0, 0].get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=4)

    summary = "; ".join(
        f"{KINDS[kind]} {', '.join(number(held_out(pairs, column)) for column in COLUMNS)}"
        for kind, pairs in kinds.items()
    )
    return draw_figure(
        "pairs",
        paint,
        (900, 60 + 330 * rows),
        f"Held-out errors by kind of map (and ICA): {summary}",
        "Error after the best map of each kind. Bars: the mean over pairs, held out, with every pair as a dot; "
        "circles: in sample on rows trained on; diamonds: the paper's pair; lines: the null.",
    )


def _column(axes: Any, kind: str, pairs: PairScores) -> None:
    at = np.arange(len(COLUMNS))
    colours = [MARKS[column][0] for column in COLUMNS]
    axes.bar(at, [held_out(pairs, column) for column in COLUMNS], color=colours, width=0.62, alpha=0.75)
    for x, column in zip(at, COLUMNS, strict=True):
        errors = [one["held_out"][column]["held_out"]["mean"] for one in pairs.values()]
        axes.plot([x] * len(errors), errors, ".", color=INK, markersize=4)
        axes.hlines(mean_null(pairs, column), x - 0.4, x + 0.4, color=NULL, linewidth=1.6, label="null")
    inside = [in_sample(pairs, column) for column in COLUMNS]
    axes.plot(at, inside, "o", color=INK, markerfacecolor="none", markersize=8, label="in sample")
    if kind in PRINTED:
        axes.plot(at, PRINTED[kind][1:5], "D", color=MUTED, markersize=6, label="paper")
    axes.set_xticks(at, ["perm.", "rigid", "linear", "ICA"])
    axes.set_ylim(bottom=0)
    axes.set_title(KINDS[kind], loc="left", fontsize=11)
    axes.grid(axis="y")


def draw_layers(scores: FamilyScores) -> RecipeFigure:
    """The held-out error of each layer to the same layer of another seed."""

    def paint(axes: Any, family: str) -> None:
        layers = scores[family]["layers"]
        names = [layer_name(k, len(layers)) for k in range(len(layers))]
        _paint_errors(axes, family, range(len(layers)), lambda column: [o[column]["held_out"]["mean"] for o in layers])
        axes.set_xticks(range(len(layers)), [name.replace("block ", "") for name in names], rotation=40, ha="right")

    rigid = {family: [one["similarity"]["held_out"]["mean"] for one in scores[family]["layers"]] for family in TRAINED}
    summary = "; ".join(f"{KINDS[family]} {', '.join(number(one, 2) for one in rigid[family])}" for family in TRAINED)
    label = f"Held-out error up to a rigid map, layer by layer: {summary}"
    caption = "Two seeds, the same layer of each, from the first layer to the penultimate one."
    return _draw_families("by-layer", paint, 900, label, caption)


def draw_steps(scores: FamilyScores) -> RecipeFigure:
    """The held-out error of the penultimate layer, and the difference of outputs, by training step."""

    def paint(axes: Any, family: str) -> None:
        steps = scores[family]["steps"]
        at = [one["step"] for one in steps]
        _paint_errors(axes, family, at, lambda column: [one[column] for one in steps])
        other = axes.twinx()
        apart = [one["outputs_of_chance"] for one in steps]
        other.plot(at, apart, color=MUTED, linewidth=1.4, dashes=(3, 1.6), marker="x")
        other.set_ylim(0, max(1.05, 1.05 * max(apart)))
        other.set_ylabel("outputs apart, of chance (dashed)" if family == TRAINED[-1] else "")
        step_axis(axes, at)

    summary = "; ".join(
        f"{KINDS[family]} {', '.join(number(one['similarity'], 2) for one in scores[family]['steps'])}"
        for family in TRAINED
    )
    label = f"Held-out error up to a rigid map by training step: {summary}"
    caption = "Penultimate layer, mean over pairs, from before the first step to the last."
    return _draw_families("by-step", paint, 940, label, caption)


def _draw_families(
    name: str, paint: Callable[[Any, str], None], width: float, label: str, caption: str
) -> RecipeFigure:
    """A panel of held-out errors for each family that is trained here."""
    panels = partial(paint_panels, cases=TRAINED, paint=paint, ylabel="held-out error", ncols=3)
    return draw_figure(name, panels, (width, 380), label, caption)


def _paint_errors(axes: Any, family: str, x: Sequence[float], errors: Callable[[str], list[float]]) -> None:
    for column in COLUMNS[:3]:
        colour, marker = MARKS[column]
        axes.plot(x, errors(column), color=colour, marker=marker, linewidth=1.8, markersize=6, label=CALLED[column])
    axes.set_ylim(bottom=0)
    axes.set_title(KINDS[family], loc="left")


def _layer_figure(family: str, scores: Mapping[str, Any]) -> RecipeFigure:
    layers = read_layers(scores)
    caption = f"{KINDS[family]}, every layer of one seed against every layer of another: {layers.verdict}"
    return RecipeFigure(f"layer-map-{family}", caption, layer_picture(layers))


def read_layers(scores: Mapping[str, Any]) -> LayerComparison:
    """The comparison of layers in the scores of a family; parts that version 0.1.0 wrote have other names."""
    undefined = np.full(np.shape(scores["nearness"]), np.nan)
    old = {"source_layers": "rows", "target_layers": "columns", "notes": "advice"}
    made = {new: scores[name] for new, name in old.items() if name in scores}
    made |= {field.name: scores[field.name] for field in fields(LayerComparison) if field.name in scores}
    made.setdefault("perfect", 0.0)
    numbers = {name: scores.get(name) for name in ("nearness", "null", "p")}
    made |= {name: undefined if one is None else np.array(one, dtype=float) for name, one in numbers.items()}
    made["p_layer"] = np.array(scores.get("p_layer", undefined[:, 0]), dtype=float)
    return LayerComparison(**(made | {"dependence": None}))  # which the caption does not name
