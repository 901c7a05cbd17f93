"""The options of `reproduce`, for Python and the command line."""

from __future__ import annotations

from dataclasses import dataclass

from congruence.options import OUTPUT, option


@dataclass(frozen=True)
class ReproduceOptions:
    """How much is computed, and from which data and seed."""

    scale: str = option("small", "smoke (seconds), small (minutes), paper (a GPU) or full.")
    seed: int = option(0, "The same seed gives the same result on the same device.")
    device: str = option("auto", "auto (a GPU if there is one), cpu, cuda or cuda:1.")
    data: str | None = option(
        None,
        "Another data set than that of the scale, if the recipe supports it: mnist or digits; rooms, sprites, "
        "shapes3d, mpi3d, falcor3d, isaac3d; simulated or bbbc021; own or published. Some recipes take several, "
        "separated by commas.",
    )
    force: bool = option(
        False, "Compute it again, even if the folder is finished or holds other settings.", panel=OUTPUT
    )
