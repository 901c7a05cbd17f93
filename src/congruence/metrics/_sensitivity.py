"""How much scores of binned codes depend on the number of bins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from congruence.errors import InputError
from congruence.metrics._infomec import NEIGHBOURS, active_codes, count_shares, distribution
from congruence.metrics._information import bin_columns
from congruence.metrics._mig import mig
from congruence.metrics._modularity import modularity
from congruence.metrics.factors import read_pair


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Scores of binned codes for several numbers of bins."""

    bins: tuple[int, ...]
    scores: dict[str, tuple[float, ...]]  # "mig", "modularity", "infom" and "infoc", one value for each of `bins`

    @property
    def rows(self) -> list[dict[str, float]]:
        """One row for each number of bins."""
        return [
            {"bins": bins} | {name: values[i] for name, values in self.scores.items()}
            for i, bins in enumerate(self.bins)
        ]

    @property
    def spans(self) -> dict[str, float]:
        """The largest less the smallest value of each score; NaN where the score is."""
        return {name: max(values) - min(values) for name, values in self.scores.items()}


def sensitivity(
    codes: Any, factors: Any, *, kinds: Any = "auto", bins: Iterable[int] = (10, 20, 50), factor_bins: int = 10
) -> Sensitivity:
    """Scores of binned codes for several numbers of bins: if they disagree, do not quote one of them alone.

    MIG and modularity as by `mig` and `modularity`, InfoM and InfoC as by `infomec` with `bins`. With more bins,
    estimates of information about every factor rise, most of all for few rows.

    Parameters
    ----------
    codes : (n, L)
        Learned codes.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors.
    kinds : str, list or dict, default "auto"
        Kinds of the factors; see `read_factors`.
    bins : iterable of int, default (10, 20, 50)
        Numbers of bins of each code.
    factor_bins : int, default 10
        Equal-width bins of a continuous factor.
    """
    numbers = tuple(bins)
    if not numbers:
        raise InputError("bins is empty: give at least one number of bins")
    z, s = read_pair(codes, factors, kinds)
    targets = [factor.cut(factor_bins) for factor in s if not factor.left_out]
    active = active_codes(z, discrete_codes=False, version="standalone")
    table: dict[str, list[float]] = {"mig": [], "modularity": [], "infom": [], "infoc": []}
    for number in numbers:
        share = count_shares(bin_columns(z, number), targets, NEIGHBOURS["standalone"], seed=0)
        infom, infoc, *_ = distribution(share, active)
        gap = mig(z, s, bins=number, factor_bins=factor_bins).mig
        modular = modularity(z, s, bins=number, factor_bins=factor_bins).modularity
        for column, value in zip(table.values(), (gap, modular, infom, infoc), strict=True):
            column.append(value)
    return Sensitivity(numbers, {name: tuple(values) for name, values in table.items()})
