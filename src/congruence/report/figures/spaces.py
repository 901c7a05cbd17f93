"""Latent spaces of several runs beside each other: scatters whose clusters differ by colour and mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from congruence.report.figures.svg import HEAT, HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE

MARKS = tuple(zip("os^Dv*Ph", (HELD_OUT, LINEAR, INK, SOURCE, ICA, HEAT, NULL, MUTED), strict=True))


def paint_spaces(
    figure: Any, names: Sequence[str], rows: Sequence[Sequence[Any]], labels: Any, titles: Sequence[str]
) -> None:
    """Paint a grid of scatters: a column for each run, a row for each way to look at it.

    Parameters
    ----------
    figure : matplotlib figure
    rows : for each title and run an array (n, 1) or (n, 2)
        With one latent, clusters are set apart along the other axis.
    labels : (n,)
        The cluster of each point, from 0; more than eight share marks.
    """
    panels = figure.subplots(len(rows), len(names), squeeze=False)
    for line, (title, clouds) in enumerate(zip(titles, rows, strict=True)):
        for column, (name, cloud) in enumerate(zip(names, clouds, strict=True)):
            axes = panels[line, column]
            points = np.asarray(cloud)
            if points.shape[1] == 1:
                points = np.column_stack([points[:, 0], labels])
            for state in np.unique(labels):
                mark, colour = MARKS[int(state) % len(MARKS)]
                here = labels == state
                axes.plot(
                    *points[here].T, mark, color=colour, markersize=2.6, markeredgewidth=0, alpha=0.7, linestyle="none"
                )
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(name if line == 0 else " ", loc="left", fontsize=12)
            if column == 0:
                axes.set_ylabel(title)
