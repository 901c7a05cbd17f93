"""Do the rows of codes and factors depend on each other, so that chance levels and intervals are wrong?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from congruence.arrays import Array
from congruence.errors import InputError
from congruence.formatting import percent
from congruence.maps._protocol import protocol
from congruence.maps.dependence import Dependence, check_rows
from congruence.metrics._estimators import standardise
from congruence.metrics.factors import factor_columns, has_few_levels
from congruence.rows.engine import Rows

if TYPE_CHECKING:
    from congruence.metrics._scoring import Pairing

ROWS_TO_CHECK = 50  # with fewer, rows left out together are so many that the error rises for that reason


def check_cluster(pairing: Pairing, cluster: Array | None) -> None:
    """Refuse a factor that is the name of the clusters: it cannot be predicted for a cluster that was left out.

    A number that each cluster has one value of, as the age of a patient, can.
    """
    if cluster is None or pairing.unit is None:
        return
    for factor in pairing.s:
        labels = np.unique(factor.values, return_inverse=True)[1].reshape(-1)
        pairs = len(np.unique(labels * (pairing.unit.max() + 1) + pairing.unit))
        names = factor.kind == "categorical" and not factor.note
        same = cluster.dtype.kind in "iuf" and np.array_equal(cluster.astype(np.float64), factor.values)
        if same or (names and pairs == labels.max() + 1 == pairing.unit.max() + 1):
            raise InputError(
                f"factor {factor.name} is also the cluster, so it cannot be predicted for a cluster that was left out; "
                "leave it out of the factors, or cluster by something else"
            )


def measure_row_dependence(pairing: Pairing, *, discrete_codes: bool, seed: int) -> Dependence | None:
    """Whether a linear map from codes to factors is worse on rows left out together; None where that was not checked.

    Not checked: rows with clusters or blocks, and few rows. Only factors that are numbers are predicted: rows sorted by
    class, which no map can predict for a class left out, may still be independent. Codes that repeat few values, as
    those of classes do, are no copies.
    """
    n = len(pairing.z)
    if pairing.unit is not None or n < ROWS_TO_CHECK:
        return None
    s = [factor for factor in pairing.s if not factor.left_out]
    numbers = [factor for factor in s if not factor.is_unordered]
    z = standardise(pairing.z)
    if not s or not z.any():
        return None
    target = standardise(factor_columns(numbers or s, unordered=True).values)
    found = check_rows(Rows(z), Rows(target), protocol(n, nulls=0, bootstrap=0, seed=seed), "linear")
    half_lost = found.consecutive > 1 - (1 - found.scattered) / 2  # rows sorted by a factor need not depend
    repeats = discrete_codes or all(has_few_levels(code) for code in pairing.z.T)
    return replace(
        found,
        ordered=bool(numbers) and found.ordered and half_lost,
        clustered=bool(numbers) and found.clustered,
        copies=found.copies[:0] if repeats else found.copies,
    )


def copies_note(found: Dependence) -> list[str]:
    """A note on copies that leave the verdict as it is: few of them, or codes that predict the factors exactly."""
    if not len(found.copies):
        return []
    rows = f"{len(found.copies)} of {found.n} rows {'is a copy' if len(found.copies) == 1 else 'are copies'} of others"
    return [f"{rows}. Intervals are too narrow, because each copy counts as a row; leave copies out"]


def dependence_sentence(found: Dependence) -> str:
    """What was found, and what to do."""
    if found.repeated:
        return (
            f"{len(found.copies)} of {found.n} rows are copies of others; leave them out, or give each set of copies a "
            "label as cluster (--cluster)."
        )
    how, value, then = "rows with similar codes are left out together", found.neighbours, "cluster (--cluster)"
    if found.ordered:
        how, value = "consecutive rows are left out together", found.consecutive
        then = "order_blocks (--order-blocks) or cluster (--cluster)"
    return (
        f"The error of a linear map from codes to factors rises from {percent(found.scattered)} to {percent(value)} of "
        f"chance where {how}; say how rows belong together by {then}."
    )
