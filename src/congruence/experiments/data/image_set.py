"""What is known of a data set of images before any of them is read or drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from congruence.arrays import Array
from congruence.experiments.data.grids import Grid
from congruence.experiments.data.twins import Twin


@dataclass(frozen=True, eq=False)
class OpenedImages:
    """A data set that is there: the factors of all N images, and a way to the images of some rows."""

    levels: Array  # (N, k) int64
    images: Callable[[Array], Any]  # row numbers (n,) -> uint8 (n, channels, height, width)


@dataclass(frozen=True)
class ImageSet:
    """A data set of images with known factors: one that is drawn here, or one whose files a user has."""

    name: str
    sentence: str
    count: int  # of images
    shape: tuple[int, int, int]  # channels, height, width
    grid: Grid  # its factors; all but mnist show every combination once
    note: str
    twin: Twin | None = None  # of one that is drawn
    find: Callable[[], list[Path]] | None = None  # of the others: their files, or where they were looked for
    read: Callable[[], OpenedImages] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every combination of levels has one image."""
        return self.count == len(self.grid)

    def opened(self, device: str = "cpu") -> OpenedImages:
        """Look for the files and read the factors; images are read or drawn later, those drawn on `device`."""
        if self.read is not None:
            return self.read()
        twin = self.twin
        assert twin is not None

        def draw(rows: Array) -> Any:
            return twin.draw(twin.values(twin.grid.levels(rows)), self.shape[1], device)

        return OpenedImages(self.grid.levels(), draw)
