"""The options of `examine_mechanism`, for Python and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from congruence.mechanism._sparsity_gap import BUDGET
from congruence.options import DATA, ReadOptions, option


@dataclass(frozen=True)
class MechanismOptions(ReadOptions):
    """How latents are read, which blocks are checked, and what counts as zero."""

    drop_missing: bool = option(False, "Leave out rows with NaN or infinity.", panel=DATA)
    model: Any = option(
        None,
        "Decoder of a model of this generator's data: are its codes disentangled?",
        panel=DATA,
        metavar="MODULE:FUNCTION",
    )
    codes: Any = option(None, "The model's codes of the same rows; found by default.", panel=DATA, metavar="CODES")
    points: int | None = option(64, "Number of rows to examine, drawn with the seed.", panel=DATA)
    blocks: Any = option(None, "Latents that form a factor, e.g. '0-1,2,3-4' or '0+2,1'; found by default.")
    types: Sequence[str] = option(("D", "S", "H2"), "Types of parts to find if no blocks are given.")
    rtol: float | None = option(None, "What counts as zero, relative to the largest derivative; by default 1e-6.")
    atol: float = option(0.0, "What counts as zero, absolute. Not used to find blocks.")
    scale: str = option("global", "global, or column for latents in different units. Not used to find blocks.")
    orders: Sequence[int] = option((2, 3), "Orders of derivatives that must not mix blocks.")
    budget: float = option(BUDGET, "Number of sets of outputs tried for Type S at a point.")
    chunk: int | None = option(None, "Points at a time; chosen by memory by default.")
    seed: int = option(0, "The same seed gives the same result.")
    device: str = option("auto", "auto, cpu, cuda or cuda:1.")
