"""`sprites`: images of one white shape on black that rotates, grows and moves; they imitate dSprites.

A shape is given by the signed distance of a point to its edge, negative inside. The grey value of a quarter of a pixel
is linear in the distance of its centre, from black one quarter width outside to white as far inside; a pixel is the
mean of its quarters. That is the covered area where an edge is straight, and slightly more at a corner. Lengths are in
64ths of the frame: one step of x or y is one pixel of an image of 64 x 64.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import require
from congruence.experiments.data._image_sets import FactorGrid, Renderer, for_slices
from congruence.experiments.data.factor_data import FactorImages

GRID = FactorGrid(  # of dSprites, without its one colour, and of sprites
    names=("shape", "scale", "rotation", "x", "y"),
    kinds=("categorical", "ordinal", "circular:40", "ordinal", "ordinal"),
    sizes=(3, 6, 40, 32, 32),
)
SHAPES = ("square", "ellipse", "heart")
FRAME = 64.0
SQUARE = 21.0  # side at scale 1
ELLIPSE = (15.0, 8.0)  # half axes
HEART = 16.0  # side of the square that carries two half discs
LOWERED = 0.1 * HEART  # distance of the centre of that square below the centre of rotation
FIRST, LAST = 16.5, 47.5  # centre of a sprite in 64ths of the frame: no sprite is ever clipped
SAMPLES = 2  # per pixel, along each side
PIXELS, PIXELS_ON_CPU = 2**25, 2**19  # at a time


def sprites(
    n: int | None = None, *, seed: int = 0, continuous: bool = False, side: int = 64, device: str = "auto"
) -> FactorImages:
    """Draw white shapes on black: a procedural imitation of dSprites, anti-aliased, with exact factors, no download.

    Factors, in this order: shape (3: square, ellipse, heart), scale (6, from 0.5 to 1), rotation (40, in steps of 9
    degrees, counterclockwise), x (32, to the right) and y (32, downwards). These are the factors and levels of dSprites
    except for its constant colour, and for its rotations, of which the first equals the last; the images differ.

    A square looks the same after 90 degrees and an ellipse after 180, as in the original: no code can distinguish such
    rotations, so scores of rotation stay below their maximum. Only the heart shows all 40.

    Parameters
    ----------
    n : int, optional
        Number of images, drawn without replacement from the grid of all 737,280 combinations. By default all of them,
        row-major: the last factor changes fastest. `n=737_280` gives all of them shuffled.
    seed : int
        Of the choice of images.
    continuous : bool
        Draw scale, rotation (degrees, circular), x and y (shares of the frame) uniformly from their ranges instead of
        from the grid; `factors` then holds these values. The shape stays one of three, as a number from 0 to 2.
    side : int
        Height and width in pixels.
    device : {"auto", "cpu", "cuda", "cuda:1", ...}
        Where images are drawn and stored; "auto" takes a GPU if torch finds one. Devices may differ by 1 of 255.
    """
    return SPRITES.make(n, seed=seed, continuous=continuous, side=side, device=device)


def draw_sprites(values: Float, side: int = 64, device: str = "cpu") -> Any:
    """Draw the sprites of given factors (n, 5), in the order of `GRID`, as uint8 (n, 1, side, side)."""
    torch = require("torch", "drawing images", "torch")
    images = torch.empty((len(values), 1, side, side), dtype=torch.uint8, device=device)
    step = max(1, (PIXELS_ON_CPU if device == "cpu" else PIXELS) // side**2)
    for number, name in enumerate(SHAPES):
        rows = np.flatnonzero(values[:, 0].astype(int) == number)
        for_slices(partial(_fill, torch, images, values, rows, name), len(rows), step, device)
    return images


def _fill(torch: Any, images: Any, values: Float, rows: Array, name: str, part: slice) -> None:
    """Draw some of the rows of one shape."""
    side, device = images.shape[-1], str(images.device)
    covered = _covered(torch, name, values[rows[part]], side, device)
    images[torch.as_tensor(rows[part], device=device), 0] = (covered * 255 + 0.5).to(torch.uint8)


def _covered(torch: Any, name: str, values: Float, side: int, device: str) -> Any:
    """The share of every pixel that sprites of one shape cover, (m, side, side)."""
    total = torch.zeros((len(values), side, side), dtype=torch.float32, device=device)
    for row in range(SAMPLES):
        for column in range(SAMPLES):
            total += _near(torch, name, values, side, device, ((column + 0.5) / SAMPLES, (row + 0.5) / SAMPLES))
    return total / SAMPLES**2


def _near(torch: Any, name: str, values: Float, side: int, device: str, within: tuple[float, float]) -> Any:
    """The covered share of a part of every pixel, centred at `within` from the left and from the top."""

    def tensor(x: Any) -> Any:
        return torch.as_tensor(np.ascontiguousarray(x, np.float32), device=device)

    scale, turn = values[:, 1, None, None], np.radians(values[:, 2, None, None])
    columns, rows = ((np.arange(side) + place) * FRAME / side for place in within)
    right = tensor(columns[None, None]) - tensor(values[:, 3, None, None] * FRAME)  # (m, 1, side)
    up = tensor(values[:, 4, None, None] * FRAME) - tensor(rows[None, :, None])  # (m, side, 1)
    cosine, sine, scale = tensor(np.cos(turn) / scale), tensor(np.sin(turn) / scale), tensor(scale)
    x, y = right * cosine + up * sine, up * cosine - right * sine  # in the frame of the sprite, upright and at scale 1
    return (0.5 - _DISTANCES[name](torch, x, y) * scale * (SAMPLES * side / FRAME)).clamp(0, 1)


def _to_square(torch: Any, x: Any, y: Any, side: float = SQUARE) -> Any:
    """Signed distance to a square: exact outside; inside, minus the distance to the nearest edge."""
    a, b = abs(x) - side / 2, abs(y) - side / 2
    out_a, out_b = a.clamp(min=0), b.clamp(min=0)
    return torch.sqrt(out_a * out_a + out_b * out_b) + torch.maximum(a, b).clamp(max=0)


def _to_ellipse(torch: Any, x: Any, y: Any) -> Any:
    """Signed distance to an ellipse, to first order: its level function divided by the norm of its gradient."""
    a, b = ELLIPSE
    level = torch.sqrt(x * x / a**2 + y * y / b**2)
    steepness = torch.sqrt(x * x / a**4 + y * y / b**4)
    middle = level < 0.01  # where both vanish
    return torch.where(middle, -b, level * (level - 1) / torch.where(middle, 1.0, steepness))


def _to_heart(torch: Any, x: Any, y: Any) -> Any:
    """Signed distance to a square that stands on its corner, with a disc on each of its upper edges."""
    x, y = abs(x), y + LOWERED
    turned = math.sqrt(0.5)
    square = _to_square(torch, (x + y) * turned, (y - x) * turned, HEART)
    across, above = x - HEART / 2 * turned, y - HEART / 2 * turned
    disc = torch.sqrt(across * across + above * above) - HEART / 2
    return torch.minimum(square, disc)


_DISTANCES = {"square": _to_square, "ellipse": _to_ellipse, "heart": _to_heart}

SPRITES = Renderer(
    name="sprites",
    grid=GRID,
    ranges=((0, 2), (0.5, 1), (0, 360), (FIRST / FRAME, LAST / FRAME), (FIRST / FRAME, LAST / FRAME)),
    channels=1,
    note="a twin of dSprites (Matthey et al. 2017), drawn by this package; not the original",
    draw=draw_sprites,
    words=SHAPES,
)
