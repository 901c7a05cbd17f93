"""The options of `examine_decoder`, for Python and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from congruence.options import DATA, ReadOptions, option


@dataclass(frozen=True)
class DecoderOptions(ReadOptions):
    """Options of reading latents and of measuring the decoder at them."""

    drop_missing: bool = option(False, "Leave out rows with NaN or infinity.", panel=DATA)
    other: Any = option(
        None, "Decoder of another training, which is measured and compared as well.", panel=DATA, metavar="DECODER"
    )
    other_latents: Any = option(
        None, "Latents of `other` for the same inputs, paired by row id or by position.", panel=DATA, metavar="LATENTS"
    )
    method: str = option("auto", "exact (all singular values), lanczos (extreme ones), directions (random) or auto.")
    directions: int = option(10, "Number of random directions, if method is directions.")
    diameter: Any = option("auto", "Diameter of the support of the latents; auto uses the diameter of the rows.")
    convex: bool = option(False, "Declare that the latents fill convex sets (a box, a ball); a sample cannot prove it.")
    constant: float | None = option(None, "Constant c_D of Theorem 1; by default that of this package.")
    chunk: int | None = option(None, "Number of points per batch; by default as many as fit into memory.")
    seed: int = option(0, "The same seed gives the same result.")
    device: str = option("auto", "auto, cpu, cuda or cuda:1.")
