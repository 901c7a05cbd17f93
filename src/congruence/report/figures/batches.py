"""Figures of `deconfound`: differences between conditions, and feature profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import signed
from congruence.report.figures.svg import ABOVE, HELD_OUT, INK, MUTED, NULL, Drawing, add_hover

if TYPE_CHECKING:
    from congruence.batches._inference import Paired
    from congruence.batches.leakage import FeatureProfile

MOST_DOTS = 120  # targets drawn for each condition
MOST_POINTS = 400  # features of a panel: the most technical or biological


def condition_differences(rows: Sequence[tuple[str, Paired, Sequence[float]]], names: Sequence[str]) -> Drawing:
    """Draw each condition's mean difference from base with its 95 % interval, and a dot for each target.

    `rows` has the label of a condition, its difference for all targets together, and that of each target; `names` are
    those of the targets, shown at the pointer.
    """
    labels = [label for label, _, _ in rows]

    def paint(axes: Any) -> None:
        from matplotlib.lines import Line2D

        axes.axvline(0, color=INK, linewidth=1.2)
        ring: dict[str, Any] = {
            "color": MUTED,
            "markersize": 6,
            "markerfacecolor": "none",
            "markeredgewidth": 1.3,
            "linewidth": 0,
        }
        for y, (label, one, targets) in enumerate(reversed(rows)):
            dots = [i for i, value in enumerate(targets[:MOST_DOTS]) if math.isfinite(value)]
            places = [(targets[i], y - 0.22) for i in dots]
            axes.plot(*np.reshape(places, (-1, 2)).T, "o", **ring)
            add_hover(axes, places, [f"{label}, {names[i]}: {signed(targets[i])}" for i in dots])
            if math.isfinite(one.low):
                axes.plot([one.low, one.high], [y + 0.1] * 2, color=HELD_OUT, linewidth=4, solid_capstyle="butt")
            if math.isfinite(one.difference):
                axes.plot(one.difference, y + 0.1, "D", color=HELD_OUT, markersize=9)
        axes.set_yticks(range(len(labels)), labels[::-1])
        axes.set_ylim(-0.6, len(labels) - 0.4)
        axes.set_xlabel("difference in AUROC from base, held-out batches")
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        marks = [
            Line2D([], [], color=HELD_OUT, marker="D", linewidth=4, markersize=9, label="all targets, 95 % interval"),
            Line2D([], [], marker="o", label="one target", **ring),
        ]
        axes.legend(handles=marks, **ABOVE, ncols=2)

    summary = "; ".join(f"{label} {one.difference:+.3f}" for label, one, _ in rows)
    return Drawing(paint, (760, 90 + 46 * len(labels)), label=f"Difference in AUROC from base: {summary}")


def feature_profiles(profiles: Sequence[tuple[str, FeatureProfile]], names: Sequence[str]) -> Drawing:
    """Draw every feature by its share of variance between batches, and by how well it separates a target.

    Each panel is one condition. For several targets, the strongest counts; `names` are those of the targets, shown at
    the pointer. The dashed line is the 95 % level of the strongest for a feature unrelated to all targets.
    """
    level = profiles[0][1].level
    points = [(label, *_points(one, names)) for label, one in profiles]
    top = max((float(y.max()) for _, _, y, _ in points if len(y)), default=1.0)
    right = max((float(x.max()) for _, x, _, _ in points if len(x)), default=1.0)

    def paint(figure: Any) -> None:
        panels = np.atleast_1d(figure.subplots(1, len(points), sharey=True))
        for axes, (label, x, y, texts) in zip(panels, points, strict=True):
            axes.plot(x, y, "o", color=HELD_OUT, markersize=5, alpha=0.55, markeredgewidth=0)
            add_hover(axes, np.column_stack([x, y]), texts)
            if math.isfinite(level):
                axes.axhline(level, color=NULL, linewidth=2, dashes=(1.6, 0.8))
            axes.set_title(label, loc="left")
            axes.set(xlim=(-0.03 * max(right, 0.05), 1.05 * max(right, 0.05)), ylim=(0, 1.08 * max(top, 0.1)))
            axes.grid(visible=True)
            axes.tick_params(length=0)
        panels[0].set_ylabel("biological, |2 AUROC − 1|")
        figure.supxlabel("technical: share of the controls' variance between batches", fontsize=12)

    summary = "; ".join(f"{label}: {len(x)} features" for label, x, _, _ in points)
    return Drawing(
        paint, (230 * len(points) + 50, 290), label=f"Biological against technical share, {summary}", panels=True
    )


def _points(profile: FeatureProfile, names: Sequence[str]) -> tuple[Any, Any, list[str]]:
    """Technical and biological shares of the features that are drawn, and their texts."""
    x, y = np.asarray(profile.technical, dtype=float), profile.strongest
    good = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    chosen = good[np.argsort(-np.maximum(x[good], y[good]), kind="stable")[:MOST_POINTS]]
    known = np.where(np.isfinite(profile.noise)[:, None], profile.biological, -1.0)  # (targets, k)
    texts = [
        f"{profile.condition}{j}\nbiological {y[j]:.2f} ({names[int(known[:, j].argmax())]})\ntechnical {x[j]:.2f}"
        for j in chosen
    ]
    return x[chosen], y[chosen], texts
