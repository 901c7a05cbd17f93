"""The options of `examine_mechanism`, for Python and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from congruence.options import DATA, ReadOptions, option

BUDGET = 200_000  # sets of rows tried for Type S at a point


@dataclass(frozen=True)
class MechanismOptions(ReadOptions):
    """Options of reading latents, of the blocks to check and of the tolerances."""

    drop_missing: bool = option(False, "Leave out rows with NaN or infinity.", panel=DATA)
    model: Any = option(
        None,
        "Decoder of a model, if the first decoder is the generator of its data: tests the premises of the theorems on "
        "it, and whether its codes are disentangled over the domain that the latents sample.",
        panel=DATA,
        metavar="DECODER",
    )
    codes: Any = option(
        None,
        "The model's codes of the same rows, paired by row id or position; by default its decoder is inverted.",
        panel=DATA,
        metavar="CODES",
    )
    points: int | None = option(64, "Number of rows to examine, drawn with the seed; None examines all.", panel=DATA)
    blocks: Any = option(
        None,
        "Latents that form a factor, e.g. '0-1,2,3-4' or '0+2,1'. By default, the first of `types` with more than one "
        "block along the coordinates.",
    )
    types: Sequence[str] = option(("D", "S", "H2"), "Types of parts to search for, if blocks is not set.")
    rtol: float | None = option(
        None, "Derivatives up to this share of the largest count as zero; 1e-6 by default, 2e-6 in float32."
    )
    atol: float = option(0.0, "Derivatives up to this size count as zero. Not used to find blocks.")
    scale: str = option("column", "column, where units of latents do not matter, or global. Not used to find blocks.")
    orders: Sequence[int] = option((2, 3), "Orders of derivatives that must not mix blocks.")
    budget: float = option(BUDGET, "Number of sets of outputs tried for Type S at a point.")
    chunk: int | None = option(None, "Number of points per batch; by default as many as fit into memory.")
    seed: int = option(0, "The same seed gives the same result.")
    device: str = option("auto", "auto, cpu, cuda or cuda:1.")
