"""The options of `reproduce`, for Python and the command line."""

from __future__ import annotations

from dataclasses import dataclass

from congruence.options import OUTPUT, option


@dataclass(frozen=True)
class ReproduceOptions:
    """How much is computed, and from which data and seed."""

    scale: str = option("small", "smoke (seconds), small (minutes), paper (a GPU) or full.")
    seed: int = option(0, "The same seed gives the same result.")
    device: str = option("auto", "auto, cpu, cuda or cuda:1.")
    data: str | None = option(
        None,
        "Another data set than that of the scale, where the recipe has several (mnist or digits; rooms, sprites, "
        "shapes3d, mpi3d, falcor3d, isaac3d).",
    )
    force: bool = option(False, "Compute it again, from the start.", panel=OUTPUT)
