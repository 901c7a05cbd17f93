"""`rooms`: a twin of Shapes3D that is drawn on the spot."""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.data.grids import Grid
from congruence.experiments.data.images import FactorImages, import_torch
from congruence.experiments.data.in_parts import in_parts
from congruence.experiments.data.room_scene import SHAPES, hue_colours, mean_weights, rays_step, surface_weights
from congruence.experiments.data.twins import Twin

GRID = Grid(  # of Shapes3D and of rooms
    names=("floor_hue", "object_hue", "orientation", "scale", "shape", "wall_hue"),
    kinds=("circular:10", "circular:10", "ordinal", "ordinal", "categorical", "circular:10"),
    sizes=(10, 10, 15, 8, 4, 10),
)
FLOOR_HUE, OBJECT_HUE, ORIENTATION, SCALE, SHAPE, WALL_HUE = range(6)
PICTURES = 2**27  # values of pictures at a time on a GPU
PICTURES_ON_CPU = 2**20


def rooms(
    n: int | None = None, *, seed: int = 0, continuous: bool = False, side: int = 64, device: str = "auto"
) -> FactorImages:
    """Draw rooms with one object in the middle: a procedural twin of Shapes3D, with exact factors and no download.

    Factors, in this order: floor hue (10), object hue (10), orientation (15, of the camera, from -30 to 30 degrees),
    scale (8, from 0.75 to 1.25), shape (4: cube, cylinder, sphere, capsule) and wall hue (10). These are the factors
    and levels of Shapes3D, but the pictures are others: scores on one say little about scores on the other.

    Parameters
    ----------
    n : int, optional
        How many, drawn without replacement from the grid of all 480,000 combinations. Without it all of them come,
        row-major: the last factor changes fastest, so that neighbours are alike. `n=480_000` has all of them shuffled.
    continuous : bool
        Draw hues (from 0 to 1, circular), orientation (degrees) and scale uniformly from their ranges instead of from
        the grid; `factors` then holds these values. The shape stays one of four, as a number from 0 to 3.
    side : int
        Height and width in pixels.
    device : {"auto", "cpu", "cuda", "cuda:1", ...}
        Where pictures are drawn and stay; "auto" takes a GPU where torch sees one. Devices may differ by 1 of 255.
    """
    return ROOMS.make(n, seed=seed, continuous=continuous, side=side, device=device)


def draw_rooms(values: Float, side: int = 64, device: str = "cpu") -> Any:
    """Draw the rooms of given factors as uint8 (n, 3, side, side).

    Parameters
    ----------
    values : (n, 6)
        Hues from 0 to 1, degrees, scales and numbers of shapes, in the order of `GRID`.
    """
    torch = import_torch("drawing rooms")
    places, which = _shared(values[:, [ORIENTATION, SCALE, SHAPE]])
    shared = surface_weights(places, side, device) if len(places) <= len(values) // 2 else None
    colours = np.stack([hue_colours(values[:, j]) for j in (FLOOR_HUE, WALL_HUE, OBJECT_HUE)], 1)
    paint = torch.as_tensor(colours.astype(np.float32), device=device)[..., None, None]  # (n, surfaces, 3, 1, 1)
    index = torch.as_tensor(which, device=device)
    images = torch.empty((len(values), 3, side, side), dtype=torch.uint8, device=device)
    step = max(1, (PICTURES_ON_CPU if device == "cpu" else PICTURES) // (3 * side * side))
    step = step if shared is not None else min(step, rays_step(side, device))

    def colour(part: slice) -> None:
        weights = mean_weights(places[which[part]], side, device) if shared is None else shared[index[part]]
        picture = weights[:, 0, None] * paint[part, 0]
        for surface in (1, 2):
            picture += weights[:, surface, None] * paint[part, surface]
        images[part] = (picture * 255 + 0.5).to(torch.uint8)

    in_parts(colour, len(values), step, device)
    return images


def _shared(places: Float) -> tuple[Float, Array]:
    """The different rows of `places`, and which of them each row is."""
    code = np.zeros(len(places), np.int64)
    for column in places.T:
        values, ranks = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + ranks.reshape(-1), return_inverse=True)[1].reshape(-1)
    _, first = np.unique(code, return_index=True)
    return places[first], code


ROOMS = Twin(
    name="rooms",
    grid=GRID,
    ranges=((0, 1), (0, 1), (-30, 30), (0.75, 1.25), (0, 3), (0, 1)),
    channels=3,
    note="a twin of Shapes3D (Burgess and Kim 2018), drawn by this package; not the original",
    draw=draw_rooms,
    words=SHAPES,
)
