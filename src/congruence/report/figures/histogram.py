"""The histogram of a pair: whether its error is spread over all rows or made by a few."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.report.figures.scales import far_apart, plain_decades
from congruence.report.figures.svg import HELD_OUT, LINEAR, MUTED, NULL, Drawing

if TYPE_CHECKING:
    from congruence.align.comparison import Pair

BINS = 36
HISTOGRAM = {
    "identity": (MUTED, (5, 2)),
    "similarity": (HELD_OUT, (None, None)),
    "linear": (LINEAR, (6, 1.5, 1.5, 1.5)),
}


def error_histogram(pair: Pair) -> Drawing:
    """Draw how the held-out errors of single rows are spread, for identity, similarity and linear, or what there is.

    All share their bins. A vertical line marks the null of the similarity (or of the first group there is).
    The x axis is logarithmic where the groups lie too far apart to be seen on one linear axis.
    """
    chosen = [name for name in HISTOGRAM if name in pair.groups] or list(pair.groups)[:1]
    shown = {name: 100 * _finite(pair.groups[name].errors) for name in chosen}
    shown = {name: errors for name, errors in shown.items() if len(errors)}
    reference = "similarity" if "similarity" in shown else next(iter(shown), "")
    null = 100 * pair.groups[reference].null if reference else math.nan
    bins, log = _bins(list(shown.values()), null)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for name, errors in shown.items():
            colour, dashes = HISTOGRAM.get(name, (HELD_OUT, (None, None)))
            counts = np.histogram(np.clip(errors, bins[0], bins[-1]), bins)[0]
            steps = 100 * np.repeat([0, *counts, 0], 2)[1:-1] / len(errors)
            axes.plot(np.repeat(bins, 2), steps, color=colour, dashes=dashes, linewidth=2, label=name)
        if math.isfinite(null):
            axes.axvline(null, color=NULL, linewidth=2, dashes=(1, 1.2), label=f"null of {reference}")
        axes.set(xscale="log" if log else "linear", xlim=(bins[0], 1.02 * bins[-1]), ylabel="% of rows")
        axes.set_xlabel("error of a row, % of the target's diameter" + (" (log)" if log else ""))
        axes.set_ylim(bottom=0)
        axes.grid(axis="y")
        if log:
            plain_decades(axes.xaxis, bins[0], bins[-1])
        if shown:
            figure.legend(loc="outside upper left", ncols=2)

    return Drawing(
        paint,
        (388, 330),
        key=f"histogram {pair.source!r} {pair.target!r}",
        label=f"Histogram of the held-out error of single rows, from {pair.source} to {pair.target}",
    )


def _finite(errors: Any) -> Any:
    errors = np.asarray(errors, dtype=float)
    return errors[np.isfinite(errors)]


def _bins(samples: list[Any], null: float) -> tuple[Any, bool]:
    """Choose common bins, from 0 or, where medians are far apart, logarithmic."""
    tops = [float(sample.max()) for sample in samples] + [null]
    top = 1.04 * max((value for value in tops if math.isfinite(value)), default=0.0) or 1.0
    medians = [float(np.median(sample)) for sample in samples] + [null]
    if not far_apart(medians):
        return np.linspace(0, top, BINS + 1), False
    low = max(min(float(np.quantile(sample, 0.01)) for sample in samples), 1e-9 * top)
    return np.geomspace(low, top, BINS + 1), True
