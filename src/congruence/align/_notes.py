"""Notes on the limits of a comparison: too few rows or clusters, and diameters known only between bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from congruence.errors import FewRowsWarning, warn_caller
from congruence.maps.nearness import ROWS_FOR_AN_INTERVAL, Protocol

if TYPE_CHECKING:
    from congruence.align._run_statistics import RunStatistics

ROWS_PER_DIMENSION = 10  # enough to distinguish a linear map from a rotation
FEW_CLUSTERS = 10


def sampling_notes(d: int, plan: Protocol, *, warn: bool = False) -> list[str]:
    """Notes on too few rows for d dimensions and on too few or too unequal clusters; with `warn` also as warnings."""
    n, notes = len(plan.unit), []
    if n < ROWS_PER_DIMENSION * d:
        notes.append(
            f"{n} rows for {d} dimensions are fewer than {ROWS_PER_DIMENSION} per dimension, which inflates the "
            f"held-out errors of large groups, the linear map first. Use {ROWS_PER_DIMENSION * d} rows, or fewer "
            "dimensions (PCA)."
        )
    if n < ROWS_FOR_AN_INTERVAL * d:
        notes.append(
            f"No interval is given for the linear map: with fewer than {ROWS_FOR_AN_INTERVAL} rows per dimension none "
            "covers its error at the stated rate."
        )
    sizes = np.bincount(plan.unit)
    if plan.clustered and len(sizes) < FEW_CLUSTERS:
        notes.append(
            f"There are only {len(sizes)} clusters. Rows of a cluster are not independent, so held-out numbers and "
            "intervals are based on that few independent cases."
        )
    elif plan.clustered and sizes.max() > n / 2:
        notes.append(f"One cluster holds {sizes.max()} of {n} rows: without it, maps are fitted on few rows.")
    for note in notes if warn else ():
        warn_caller(note, FewRowsWarning)
    return notes


def diameter_notes(runs: Sequence[RunStatistics]) -> list[str]:
    """A note for each run whose diameter was needed, and is only known between bounds."""
    used = [(run.name, run.diameter) for run in runs if "diameter" in vars(run)]
    return [
        f"The search for the diameter of {name} stopped at its limit: it lies between {diameter.low:.4g} and "
        f"{diameter.high:.4g}. Errors are divided by the lower bound, so they are upper bounds."
        for name, diameter in used
        if not diameter.exact
    ]
