"""Latent spaces of several runs: scatters whose clusters differ by colour and marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from congruence.report.figures.svg import ABOVE, HEAT, HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE, Drawing

MARKERS = "os^Dv*Ph"
COLOURS = (HELD_OUT, LINEAR, INK, SOURCE, ICA, HEAT, NULL, MUTED)
_POINT: dict[str, Any] = {"markersize": 2.6, "markeredgewidth": 0, "alpha": 0.7, "linestyle": "none"}


def latent_spaces(names: Sequence[str], rows: Sequence[Sequence[Any]], labels: Any, titles: Sequence[str]) -> Drawing:
    """Draw a grid of scatters: a column for each run, a row for each view; see `paint_spaces`."""
    return Drawing(
        lambda figure: paint_spaces(figure, names, rows, labels, titles),
        (max(300, 175 * len(names)), 40 + 185 * len(titles)),
        label=f"Codes of {len(names)} runs, {' and '.join(titles)}, marked by cluster",
        panels=True,
    )


def latent_space(names: Sequence[str], clouds: Sequence[Any], labels: Any) -> Drawing:
    """Draw the codes of all runs on one set of axes: colours are clusters, markers are runs.

    Parameters
    ----------
    names : names of the runs
    clouds : for each run an array (n, 1) or (n, 2)
    labels : (n,)
        The cluster of each point, from 0; more than eight share colours.
    """

    def paint(axes: Any) -> None:
        from matplotlib.lines import Line2D

        for place, cloud in enumerate(clouds):
            _scatter(axes, cloud, labels, None if len(names) == 1 else place)
        axes.set(xlabel="latent 0", ylabel="cluster" if np.shape(clouds[0])[1] == 1 else "latent 1")
        if len(names) > 1:
            marks = [
                Line2D([], [], color=MUTED, marker=MARKERS[i % len(MARKERS)], linestyle="none", label=name)
                for i, name in enumerate(names)
            ]
            axes.legend(handles=marks, **ABOVE, ncols=3)

    kind = "aligned onto the first" if len(names) > 1 else "as learned"
    return Drawing(paint, (460, 380), label=f"Codes of {', '.join(names)}, {kind}, coloured by cluster")


def paint_spaces(
    figure: Any, names: Sequence[str], rows: Sequence[Sequence[Any]], labels: Any, titles: Sequence[str]
) -> None:
    """Paint a grid of scatters: a column for each run, a row for each view.

    Parameters
    ----------
    figure : matplotlib figure
    rows : for each title and run an array (n, 1) or (n, 2)
        With one latent, clusters are separated along the other axis.
    labels : (n,)
        The cluster of each point, from 0; more than eight share marks.
    """
    panels = figure.subplots(len(rows), len(names), squeeze=False)
    for line, (title, clouds) in enumerate(zip(titles, rows, strict=True)):
        for column, (name, cloud) in enumerate(zip(names, clouds, strict=True)):
            axes = panels[line, column]
            _scatter(axes, cloud, labels)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(name if line == 0 else " ", loc="left", fontsize=12)
            if column == 0:
                axes.set_ylabel(title)


def _scatter(axes: Any, cloud: Any, labels: Any, marker: int | None = None) -> None:
    """Draw the points of one run; markers differ by cluster unless one is given."""
    points = np.asarray(cloud)
    points = np.column_stack([points[:, 0], labels]) if points.shape[1] == 1 else points
    for state in np.unique(labels).astype(int):
        shape = MARKERS[(state if marker is None else marker) % len(MARKERS)]
        axes.plot(*points[labels == state].T, shape, color=COLOURS[state % len(COLOURS)], **_POINT)
