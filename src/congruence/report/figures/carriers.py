"""Which features carry biology, and which carry the batch: one point for each feature of a condition."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.document import Cell
from congruence.report.figures.svg import HELD_OUT, NULL, Drawing

if TYPE_CHECKING:
    from congruence.batches.outcome import Outcome

PANELS = ("base", "whitened", "ica", "rotated", "standardised", "tvn", "harmony")
MOST_PANELS = 4
MOST_POINTS = 400  # features of a panel; those that carry most of either
LISTED = 40  # features in the table


def carriers_figure(result: Outcome, called: Callable[[str], str]) -> Drawing:
    """Draw every feature by the share of its variance that lies between batches, and by how biological it is.

    Of several targets, the one that the feature tells most of counts. The dashed line is what a feature that tells
    nothing stays below, 19 times of 20.
    """
    names = [name for name in PANELS if name in result.carriers][:MOST_PANELS]
    if not names:
        return ""
    known = result.carriers[names[0]].noise
    known = known[np.isfinite(known)]  # no target may have controls beside it
    noise = float(np.median(known)) if len(known) else math.nan
    points = {name: _points(result, name) for name in names}
    top = max((float(y.max()) for _, y in points.values() if len(y)), default=1.0)
    right = max((float(x.max()) for x, _ in points.values() if len(x)), default=1.0)

    def paint(figure: Any) -> None:
        panels = np.atleast_1d(figure.subplots(1, len(names), sharey=True))
        for axes, name in zip(panels, names, strict=True):
            x, y = points[name]
            axes.plot(x, y, "o", color=HELD_OUT, markersize=5, alpha=0.55, markeredgewidth=0)
            if math.isfinite(noise):
                axes.axhline(noise, color=NULL, linewidth=2, dashes=(1.6, 0.8))
            axes.set_title(called(name), loc="left")
            axes.set(xlim=(-0.03 * max(right, 0.05), 1.05 * max(right, 0.05)), ylim=(0, 1.08 * max(top, 0.1)))
            axes.grid(visible=True)
            axes.tick_params(length=0)
        panels[0].set_ylabel("biological, |2 AUROC − 1|")
        figure.supxlabel("technical: share of the controls' variance between batches", fontsize=12)

    said = "; ".join(f"{called(name)}: {len(x)} features" for name, (x, _) in points.items())
    key = f"carriers {result.name!r} {names!r}"
    return Drawing(paint, (230 * len(names) + 50, 290), key=key, label=f"Biological against technical, {said}")


def _points(result: Outcome, name: str) -> tuple[Any, Any]:
    one = result.carriers[name]
    x, y = np.asarray(one.technical, dtype=float), _strongest(one.biological)
    good = np.isfinite(x) & np.isfinite(y)
    x, y = x[good], y[good]
    first = np.argsort(-np.maximum(x, y), kind="stable")[:MOST_POINTS]
    return x[first], y[first]


def _strongest(biological: Any) -> Any:
    """The target that each feature tells most of, (k,)."""
    return np.asarray(biological, dtype=float).max(0)


def carrier_rows(result: Outcome) -> list[dict[str, Any]]:
    """The features of ICA (or of the last condition) that carry most, of either."""
    if not result.carriers:
        return []
    name = "ica" if "ica" in result.carriers else list(result.carriers)[-1]
    one = result.carriers[name]
    biological, technical = np.asarray(one.biological, dtype=float), np.asarray(one.technical, dtype=float)
    strongest = np.nan_to_num(_strongest(biological))
    rows = []
    for j in np.argsort(-np.maximum(strongest, np.nan_to_num(technical)), kind="stable")[:LISTED]:
        i = int(np.argmax(np.nan_to_num(biological[:, j])))
        tells = strongest[j] > one.noise[i]
        rows.append(
            {
                "name": f"{name}{j}",
                "target": result.targets[i].name if tells else "–",
                "cells": [_cell(float(strongest[j])), _cell(float(technical[j]))],
            }
        )
    return rows


def _cell(value: float) -> Cell:
    return Cell(f"{value:.2f}", value) if math.isfinite(value) else Cell("–", "")
