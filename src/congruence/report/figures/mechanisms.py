"""Figures of mechanistic independence: which latents move a common output, and how much blocks overlap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from congruence.formatting import count
from congruence.report.figures.heat_maps import tint
from congruence.report.figures.svg import HEAT, HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE, Drawing

if TYPE_CHECKING:
    from congruence.mechanism.profile import BlockProfile

COLOURS = (HELD_OUT, LINEAR, SOURCE, ICA, HEAT, INK)


def latent_graph(profile: BlockProfile) -> Drawing:
    """Draw G_D: latents on a circle, block by block, with an edge where two of them move a common output."""
    order = [a for block in profile.blocks for a in block]
    angle = {a: 2 * math.pi * k / len(order) for k, a in enumerate(order)}
    place = {a: (math.sin(t), math.cos(t)) for a, t in angle.items()}
    owner = {a: k for k, block in enumerate(profile.blocks) for a in block}
    edges = [(a, b) for a in order for b in order if a < b and profile.graph[a, b]]
    across = sum(owner[a] != owner[b] for a, b in edges)

    def paint(axes: Any) -> None:
        for a, b in edges:
            apart = owner[a] != owner[b]
            axes.plot(
                *zip(place[a], place[b], strict=True),
                color=NULL if apart else MUTED,
                linewidth=1.0 + 4.0 * float(profile.near[a, b]),
                dashes=(4, 2) if apart else (None, None),
                zorder=1,
            )
        for a in order:
            axes.plot(*place[a], "o", markersize=13, color=COLOURS[owner[a] % len(COLOURS)], zorder=2)
            x, y = (1.22 * v for v in place[a])
            axes.text(x, y, f"z{a}", ha="center", va="center", fontsize=12.5)
        axes.set(xlim=(-1.45, 1.45), ylim=(-1.35, 1.35), aspect="equal")
        axes.set_axis_off()

    label = f"Graph of {count(len(order), 'latent')}: {count(len(edges), 'edge')}, {across} of them between blocks"
    return Drawing(paint, (430, 400), key=f"graph {profile.names!r}", label=label, on_axes=True)


def block_overlap(profile: BlockProfile, shown: int) -> Drawing:
    """Draw the overlap of every two of the first blocks, from 0 (no common output) to 1 (stronger colour)."""
    names = profile.names[:shown]

    def paint(axes: Any) -> None:
        for i in range(len(names)):
            for j in range(len(names)):
                if i != j:
                    tint(axes, (j - 0.5, i - 0.5), 1.0, float(profile.overlap[i, j]))
        axes.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(names) - 0.5, -0.5), aspect="equal")
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(length=0)

    label = f"Overlap of {count(len(names), 'block')}"
    return Drawing(paint, (430, 430), key=f"overlap {names!r}", label=label, on_axes=True)
