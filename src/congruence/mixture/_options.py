"""The options of `examine_mixture`, for Python and the command line, which must not import numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from congruence.options import DATA, option

CODES = ("means", "draws")
TOLERANCE = 0.02  # correlation within a component that may be rounding or estimation error


@dataclass(frozen=True)
class MixtureOptions:
    """Options of the examination of priors and decoders, and of the comparison of runs."""

    rows: int = option(2000, "Largest number of rows of codes to use, the same in every run.", panel=DATA)
    labels: Any = option(
        None,
        "Metadata column of the codes (in Python also an array) that marks rows in the figures. Without one, rows are "
        "marked by their most likely component.",
        panel=DATA,
    )
    codes_are: str | None = option(
        None,
        "Whether codes are posterior 'means', which are not compared with the prior (those of run folders are), or "
        "'draws' from posteriors or the latents themselves, which test P1.",
        panel=DATA,
    )
    check: bool = option(True, "Check the assumptions of the theorems, or only compare the runs.")
    tolerance: float = option(TOLERANCE, "P2: largest correlation within a component that counts as none.")
    max_components: int = option(64, "Check assumptions of priors with at most this many components.")
    seed: int = option(0, "The same seed gives the same result.")
    noise: float | str | None = option(
        None,
        "Standard deviation of the known Gaussian noise on outputs, or 'unknown'; by default that of the model, or 0.",
        in_shell=False,
    )
