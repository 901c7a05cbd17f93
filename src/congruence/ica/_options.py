"""The options of `resolve`, for Python and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from congruence.options import DATA, ReadOptions, option

RESAMPLES = 20  # default number for a report or a curve


@dataclass(frozen=True)
class ResolveOptions(ReadOptions):
    """How a table is read and its independent components are found."""

    cluster: Any = option(None, "Column whose rows stay together in halves and resamples (plate, patient).", panel=DATA)
    drop_missing: bool = option(False, "Leave out rows with NaN or infinity.", panel=DATA)
    components: Any = option(
        None, "Number of components, or share of the variance to keep (64 or 0.95).", metavar="N|SHARE"
    )
    contrast: str = option("logcosh", "logcosh, exp (heavy tails) or cube (kurtosis).")
    whiten: bool = option(True, "Whiten the rows first; otherwise only rotate them.")
    standardize: bool = option(False, "Scale columns to unit variance first, e.g. if they have different units.")
    normalize: str | None = option(None, "'cosine' scales rows to the unit sphere first.")
    starts: int = option(3, "Number of random starts.")
    check: bool = option(True, "Identified components must also return on disjoint halves of the rows.")
    rows: Any = option("all", "Rows used to fit the rotation: all, auto or a number.")
    tol: float = option(1e-4, "Converged when components turn by less (radians).")
    max_iter: int = option(500, "Maximum number of passes over the rows.")
    stability: int | None = option(
        None, f"Number of bootstrap resamples to refit on; {RESAMPLES} for a report or a curve, 0 for none."
    )
    curve: Sequence[int] = option((), "Stability for several numbers of components, e.g. 8,16,32.")
    seed: int = option(0, "The same seed gives the same result.")
    device: str = option("auto", "auto, cpu, cuda or cuda:1.")
