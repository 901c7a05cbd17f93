"""Figures of a decoder: how much it stretches lengths, and on which outputs its latents act."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import count, number
from congruence.report.figures.scales import far_apart, plain_decades
from congruence.report.figures.svg import ABOVE, HEAT, HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE, Drawing

if TYPE_CHECKING:
    from congruence.decoder.stretch import BiLipschitz
    from congruence.mechanism.part_curve import PartCurve
    from congruence.mechanism.profile import BlockProfile

_BINS = 30
_SIZE = (430, 320)
_COLOURS = (HELD_OUT, LINEAR, SOURCE, ICA, HEAT, INK)


def stretch_histogram(b: BiLipschitz) -> Drawing:
    """Draw the distribution of the finite local bi-Lipschitz constants over the points."""
    constants = b.constants[np.isfinite(b.constants)]
    low, high = float(constants.min()), float(constants.max())
    log = far_apart([low, high])
    margin = 0.02 * max(high - low, 0.05 * high)
    bins = np.geomspace(low, high, _BINS + 1) if log else np.linspace(low - margin, high + margin, _BINS + 1)

    def paint(axes: Any) -> None:
        counts = np.histogram(constants, bins)[0]
        axes.stairs(100 * counts / len(constants), bins, color=HELD_OUT, fill=True, alpha=0.55)
        axes.axvline(float(constants.mean()), color=INK, linewidth=2, label="mean")
        axes.axvline(high, color=LINEAR, linewidth=2, dashes=(5, 2), label="largest")
        axes.set(xscale="log" if log else "linear", ylabel="% of points")
        axes.set_xlabel("bi-Lipschitz constant" + (" (log)" if log else ""))
        if log:
            plain_decades(axes.xaxis, low, high)
        else:
            axes.locator_params(axis="x", nbins=4)  # labels of a narrow range are long
        axes.grid(axis="y")
        axes.legend(**ABOVE, ncols=2)

    label = f"Histogram of local bi-Lipschitz constants: mean {number(constants.mean())}, largest {number(high)}"
    return Drawing(paint, _SIZE, label=label)


def stretch_spectrum(b: BiLipschitz) -> Drawing:
    """Draw the singular values of the Jacobian, from the largest, as median and 90 % band over the points."""
    assert b.spectra is not None
    at = np.arange(1, b.dimension + 1)
    low, middle, high = (np.quantile(b.spectra, q, axis=0) for q in (0.05, 0.5, 0.95))

    def paint(axes: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        axes.fill_between(at, low, high, color=HELD_OUT, alpha=0.3, linewidth=0, label="90 % of points")
        axes.plot(at, middle, color=HELD_OUT, linewidth=2, marker="o", markersize=4, label="median")
        axes.axhline(1, color=MUTED, linewidth=1.5, dashes=(5, 2), label="isometry")
        axes.set(xlabel="singular value, from the largest", ylabel="stretch", ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
        axes.legend(**ABOVE, ncols=3)

    label = f"Singular values of the Jacobian, median over points: {number(middle[0])} to {number(middle[-1])}"
    return Drawing(paint, _SIZE, label=label)


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
            between = owner[a] != owner[b]
            axes.plot(
                *zip(place[a], place[b], strict=True),
                color=NULL if between else MUTED,
                linewidth=1.0 + 4.0 * float(profile.near[a, b]),
                dashes=(4, 2) if between else (None, None),
                zorder=1,
            )
        for a in order:
            axes.plot(*place[a], "o", markersize=13, color=_COLOURS[owner[a] % len(_COLOURS)], zorder=2)
            x, y = (1.22 * v for v in place[a])
            axes.text(x, y, f"z{a}", ha="center", va="center", fontsize=12.5)
        axes.set(xlim=(-1.45, 1.45), ylim=(-1.35, 1.35), aspect="equal")
        axes.set_axis_off()

    label = f"Graph of {count(len(order), 'latent')}: {count(len(edges), 'edge')}, {across} of them between blocks"
    return Drawing(paint, (430, 400), label=label)


def part_curve(curve: PartCurve) -> Drawing:
    """Draw the number of parts with disjoint outputs against the tolerance, and that of random directions."""

    def paint(axes: Any) -> None:
        at = curve.tolerances
        axes.fill_between(
            at, curve.low, curve.high, step="mid", color=HELD_OUT, alpha=0.25, linewidth=0, label="range over points"
        )
        axes.plot(at, curve.parts, drawstyle="steps-mid", color=HELD_OUT, linewidth=2.5, label="median over points")
        style = {"color": NULL, "linewidth": 2, "dashes": (1, 1.2), "drawstyle": "steps-mid"}
        axes.plot(at, curve.null, **style, label="random directions")
        top = int(max(curve.high.max(), curve.null.max(), 2))
        axes.set(xscale="log", xlabel="tolerance: smaller links between outputs count as zero (log)", ylabel="parts")
        axes.set(ylim=(0, top + 0.5), yticks=range(0, top + 1, max(1, top // 8)))
        axes.grid(axis="y")
        axes.legend(**ABOVE, ncols=3)

    return Drawing(paint, (900, 300), label=curve.sentence)
