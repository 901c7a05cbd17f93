"""The report of a resolution: which axes come back, what they look like, and how they were found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from congruence import files
from congruence.document import Cell
from congruence.document import label_cell as as_cell
from congruence.formatting import elided, number, percent
from congruence.report import words
from congruence.report.figures import components as figures
from congruence.report.page import fill

if TYPE_CHECKING:
    from congruence.ica.portraits import Loading
    from congruence.ica.resolution import Resolution

LOST = {"noise": "no: as good as Gaussian", "start": "no: depends on the start", "cap": "no: had not come to rest"}
LISTED_COLUMNS = 4  # of metadata, beside the rows that load most


@dataclass(frozen=True)
class Ends:
    """One component as the page shows it: its histogram, and the rows that have most and least of it."""

    name: str
    figure: str
    head: tuple[tuple[str, bool], ...]  # the name of a column, and whether it holds numbers
    highest: tuple[tuple[Cell, ...], ...]
    lowest: tuple[tuple[Cell, ...], ...]


def write_resolution_report(resolution: Resolution, path: str | Path) -> None:
    """Write the report of a resolution to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render_resolution(resolution))


def render_resolution(resolution: Resolution) -> str:
    """Return the report of a resolution as one HTML page that needs no other file."""
    found, white = resolution.components.unmixing, resolution.components.whitening
    settings = {name: value for name, value in resolution.settings.items() if name != "command"}
    return fill(
        "resolution.html.j2",
        resolution=resolution,
        lead=words.RESOLUTIONS[resolution.status][1].format(k=resolution.k, returning=resolution.returning),
        notes_on=[words.sentence(text) for text in resolution.advice],
        rows=[_row(row) for row in resolution.table()],
        with_starts=found.agreement is not None,
        ends=[_ends(resolution, i) for i in range(len(resolution.portraits))],
        spectrum=figures.spectrum(white.variances, white.retained) if resolution.rank else "",
        convergence=figures.convergence(found, resolution.settings.get("tol")) if found.iterations else "",
        stability=_stability(resolution),
        directions=directions_sentence(resolution),
        rest=rest_sentence(resolution),
        command=resolution.settings.get("command"),
        made={"table": resolution.name, "table rows": resolution.n, "table columns": resolution.d} | settings,
    )


def _stability(resolution: Resolution) -> dict[str, Any] | None:
    """The section on resampled rows, where there were any."""
    measured = resolution.stability
    if measured is None:
        return None
    curve = sorted(measured.curve, key=lambda point: point.n_components)
    return {
        "runs": measured.settings["bootstrap"],
        "clusters": measured.settings["clusters"],
        "figure": figures.stability(resolution.table(), measured.chance),
        "curve": curve,
        "curve_figure": figures.stability_curve(curve) if curve else "",
    }


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """A component as the table shows it: texts, with what they are sorted by."""
    degrees, agreement = math.degrees(row["sampling_error"]), row["agreement"]
    return {
        "name": row["component"],
        "back": _back(row),
        "cells": [
            *([_resampled(row)] if "median" in row else []),
            *([] if agreement is None else [Cell(f"{agreement:.3f}", agreement)]),
            Cell(f"{degrees:.1f}°" if degrees <= 90 else "> 90°", degrees),
            Cell(number(row["negentropy"], 2), row["negentropy"]),
            Cell(_fixed(row["kurtosis"]), row["kurtosis"]),
            Cell(_fixed(row["skewness"]), row["skewness"]),
        ],
    }


def _back(row: dict[str, Any]) -> str:
    """Whether a component comes back, and if not, what keeps it from that."""
    if row["identified"]:
        return "yes" if row.get("stable", True) else "no: not on resamples"
    return LOST[row["lost_to"]]


def _resampled(row: dict[str, Any]) -> Cell:
    return Cell(f"{row['median']:.3f}", row["median"], f"{row['low']:.3f} to {row['high']:.3f}")


def _fixed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _ends(resolution: Resolution, component: int) -> Ends:
    one, name = resolution.portraits[component], f"ica{component}"
    columns = list(one.highest[0].metadata)[:LISTED_COLUMNS]
    numeric = [all(isinstance(end.metadata[column], int | float) for end in one.highest) for column in columns]
    titles = [elided([column.removeprefix("Metadata_")], 24)[0] for column in columns]
    which = ("row", True) if one.highest[0].id is None else ("id", False)
    return Ends(
        name=name,
        figure=figures.portrait(one, name, resolution.edges),
        head=(("value", True), which, *zip(titles, numeric, strict=True)),
        highest=_cells(one.highest, columns),
        lowest=_cells(one.lowest, columns),
    )


def _cells(loadings: Sequence[Loading], columns: Sequence[str]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(
        (
            Cell(_fixed(one.value), one.value),
            Cell(str(one.row), one.row) if one.id is None else as_cell(one.id),
            *(as_cell(one.metadata[column]) for column in columns),
        )
        for one in loadings
    )


def directions_sentence(resolution: Resolution) -> str:
    """Say in how many directions the rows vary, and how many of these were kept."""
    white = resolution.components.whitening
    if resolution.settings.get("whiten") is False:
        return f"The rows were taken as they are, with their {resolution.d} columns, and only rotated."
    flat = resolution.d - resolution.rank
    text = f"The {resolution.n} rows vary in {resolution.rank} of {resolution.d} directions"
    if flat:
        text += f"; the other {flat} {'is' if flat == 1 else 'are'} constant or made of these"
    held = float(white.variances[: white.retained].sum() / white.variances.sum())
    if white.retained < resolution.rank:
        return f"{text}. The first {white.retained} were kept, with {percent(held)} of the variance."
    return f"{text}. All that vary were kept."


def rest_sentence(resolution: Resolution) -> str:
    """Say how the solver came to rest, or that it did not."""
    found = resolution.components.unmixing
    passes = f"{found.iterations} {'pass' if found.iterations == 1 else 'passes'} over "
    passes += f"all {found.n} rows" if found.n == resolution.n else f"{found.n} of {resolution.n} rows"
    if not found.iterations:
        return "There was nothing to rotate."
    ends = {
        "converged": f"The components came to rest after {passes}.",
        "gaussian": f"After {passes} no component could be told from Gaussian noise.",
        "cap": f"The components had not come to rest after {passes}.",
    }
    left = resolution.components.error_left
    if left is None or not math.isfinite(left):
        return ends[found.reason]
    return f"{ends[found.reason]} More rows would still turn nine in ten of them, by up to {math.degrees(left):.1f}°."
