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
        None, "Decoder of another training: do the outputs agree?", panel=DATA, metavar="MODULE:FUNCTION"
    )
    other_latents: Any = option(None, "Its latents of the same inputs, paired by id.", panel=DATA, metavar="LATENTS")
    method: str = option("auto", "auto, exact, lanczos or directions.")
    directions: int = option(10, "Number of random directions, for that method.")
    diameter: Any = option("auto", "Diameter of the latents' support; auto takes that of the rows.")
    constant: float | None = option(None, "Your own c_D for Theorem 1.")
    chunk: int | None = option(None, "Points at a time; chosen by memory unless given.")
    seed: int = option(0, "The same seed gives the same result.")
    device: str = option("auto", "auto, cpu, cuda or cuda:1.")
