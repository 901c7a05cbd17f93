"""Images of a model in a page: rows of them as one picture each, written into the page itself."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.formatting import number

if TYPE_CHECKING:
    from congruence.metrics.evaluation import Evaluation
    from congruence.models.pictures import Pictures

GAP = 2  # pixels between images
SHOWN = 32  # latents


def model_section(pictures: Pictures, result: Evaluation) -> dict[str, Any]:
    """What the page shows of a model: images above their reconstructions, and a strip for each latent."""
    rows = []
    for code, images, values in zip(result.per_code, pictures.traversals, pictures.values, strict=False):
        low, high = number(float(values[0])), number(float(values[-1]))
        about = f"{code.code} from {low} to {high}"
        tells = code.factor if code.active and not code.idle else ""
        rows.append({"name": code.code, "tells": tells, "low": low, "high": high, "strip": strip(images, about)})
    return {
        "originals": strip(pictures.originals, "images"),
        "reconstructions": strip(pictures.reconstructions, "their reconstructions"),
        "rows": rows[:SHOWN],
        "hidden": max(0, len(rows) - SHOWN),
    }


def side_by_side(before: Pictures, after: Pictures, result: Evaluation) -> list[dict[str, Any]]:
    """What each code changed before and changes now, a row for each place in the order of matched codes."""
    sides = ((before, result.beside[0]), (after, result))
    columns = [[_traversal(pictures, one, j) for j in one.order] for pictures, one in sides]
    short = max(len(column) for column in columns)
    padded = [column + [None] * (short - len(column)) for column in columns]
    return [{"before": left, "after": right} for left, right in zip(*padded, strict=True)][:SHOWN]


def _traversal(pictures: Pictures, result: Evaluation, place: int) -> dict[str, Any]:
    code = result.per_code[place]
    tells = code.factor if code.active and not code.idle else ""
    return {"name": code.code, "tells": tells, "strip": strip(pictures.traversals[place], f"{code.code}, {tells}")}


def strip(images: Any, about: str) -> dict[str, Any]:
    """Images (m, channels, height, width) side by side, as the address, the size and the description of a picture."""
    m, channels, height, width = images.shape
    shades = np.asarray(images[:, :3] if channels >= 3 else images[:, [0, 0, 0]], dtype=np.uint8)  # grey as colours
    alpha = np.full((m, 1, height, width), 255, np.uint8)
    pixels = np.concatenate([shades, alpha], 1)
    wide = np.zeros((height, m * (width + GAP) - GAP, 4), np.uint8)  # what is between images lets the page through
    for i, image in enumerate(pixels):
        wide[:, i * (width + GAP) : i * (width + GAP) + width] = image.transpose(1, 2, 0)
    address = "data:image/png;base64," + base64.b64encode(png(wide)).decode()
    return {"address": address, "width": wide.shape[1], "height": height, "about": about}


def png(pixels: Any) -> bytes:
    """Pixels (height, width, 4) uint8, red, green, blue and alpha, as a png file; the same pixels, the same bytes."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # 0: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
