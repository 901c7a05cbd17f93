"""A sheet of small images in labelled rows, as a png, svg or pdf file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.errors import InputError
from congruence.files import check_writable, replacing

if TYPE_CHECKING:
    from congruence.experiments.data.variations import Variation

FORMATS = (".png", ".svg", ".pdf")
INCH = 0.72  # width of one image
LABEL = 1.15  # inches at the left for the names of rows
BELOW = 0.22  # inches under each row for the words below its images
GAP = 0.06  # between images, as a share of their width
FONT = 8.0
DOTS = 128  # per inch


def check_sheet_path(path: Path) -> None:
    """Refuse, before any work, a path to which no sheet can be written."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"a sheet of images is written as {', '.join(FORMATS)}, not as {path.name!r}")
    check_writable(path)


def write_sheet(rows: Sequence[Variation], path: str | Path, *, title: str) -> None:
    """Write rows of images, each with its name at the left and a word below every image; whole or not at all."""
    from matplotlib import style
    from matplotlib.figure import Figure

    path = Path(path)
    check_sheet_path(path)
    most = max(len(row.images) for row in rows)
    width, height = LABEL + most * INCH * (1 + GAP) + 0.1, 0.35 + len(rows) * (INCH + BELOW)
    with style.context(["default", {"svg.hashsalt": title, "font.size": FONT}]):
        figure = Figure(figsize=(width, height), facecolor="white")
        figure.text(0.1 / width, 1 - 0.2 / height, title, va="center", color="0.35")
        for number, row in enumerate(rows):
            bottom = height - 0.35 - number * (INCH + BELOW) - INCH
            _paint_row(figure, row, bottom, (width, height))
        stamp = {"Date": None} if path.suffix.lower() == ".svg" else {}
        with replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=DOTS, metadata=stamp)


def _paint_row(figure: Any, row: Variation, bottom: float, size: tuple[float, float]) -> None:
    figure.text(0.1 / size[0], (bottom + INCH / 2) / size[1], row.name, va="center")
    for place, (image, label) in enumerate(zip(row.images, row.labels, strict=True)):
        left = LABEL + place * INCH * (1 + GAP)
        axes = figure.add_axes((left / size[0], bottom / size[1], INCH / size[0], INCH / size[1]))
        axes.set_axis_off()
        pixels = np.ascontiguousarray(image.transpose(1, 2, 0))
        if pixels.shape[-1] == 1:
            axes.imshow(pixels[..., 0], cmap="gray", vmin=0, vmax=255)
        else:
            axes.imshow(pixels)
        figure.text((left + INCH / 2) / size[0], (bottom - BELOW / 2) / size[1], label, ha="center", va="center")
