"""Figures of a decoder: its bi-Lipschitz constants over points, and its singular values by direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import number
from congruence.report.figures.scales import far_apart, plain_decades
from congruence.report.figures.svg import ABOVE, HELD_OUT, INK, LINEAR, MUTED, Drawing

if TYPE_CHECKING:
    from congruence.decoder.stretch import BiLipschitz

BINS = 30
SIZE = (430, 320)


def stretch_histogram(b: BiLipschitz) -> Drawing:
    """Draw the distribution of the finite local bi-Lipschitz constants over the points."""
    constants = b.constants[np.isfinite(b.constants)]
    low, high = float(constants.min()), float(constants.max())
    log = far_apart([low, high])
    margin = 0.02 * max(high - low, 1e-3 * high)
    bins = np.geomspace(low, high, BINS + 1) if log else np.linspace(low - margin, high + margin, BINS + 1)

    def paint(axes: Any) -> None:
        counts = np.histogram(constants, bins)[0]
        axes.stairs(100 * counts / len(constants), bins, color=HELD_OUT, fill=True, alpha=0.55)
        axes.axvline(float(constants.mean()), color=INK, linewidth=2, label="mean")
        axes.axvline(high, color=LINEAR, linewidth=2, dashes=(5, 2), label="largest")
        axes.set(xscale="log" if log else "linear", ylabel="% of points")
        axes.set_xlabel("bi-Lipschitz constant" + (" (log)" if log else ""))
        if log:
            plain_decades(axes.xaxis, low, high)
        axes.grid(axis="y")
        axes.legend(**ABOVE, ncols=2)

    label = f"Histogram of local bi-Lipschitz constants: mean {number(constants.mean())}, largest {number(high)}"
    return Drawing(paint, SIZE, key="constants", label=label, on_axes=True)


def stretch_spectrum(b: BiLipschitz) -> Drawing:
    """Draw the singular values of the Jacobian, from the largest, as median and 90 % band over the points."""
    assert b.spectra is not None
    at = np.arange(1, b.dimension + 1)
    low, middle, high = (np.quantile(b.spectra, q, axis=0) for q in (0.05, 0.5, 0.95))

    def paint(axes: Any) -> None:
        axes.fill_between(at, low, high, color=HELD_OUT, alpha=0.3, linewidth=0, label="90 % of points")
        axes.plot(at, middle, color=HELD_OUT, linewidth=2, marker="o", markersize=4, label="median")
        axes.axhline(1, color=MUTED, linewidth=1.5, dashes=(5, 2), label="isometry")
        axes.set(xlabel="singular value, from the largest", ylabel="stretch", ylim=(0, None))
        axes.grid(axis="y")
        axes.legend(**ABOVE, ncols=3)

    label = f"Singular values of the Jacobian, median over points: {number(middle[0])} to {number(middle[-1])}"
    return Drawing(paint, SIZE, key="spectrum", label=label, on_axes=True)
