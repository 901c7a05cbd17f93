"""How much scores of binned codes depend on the number of bins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from congruence.errors import InputError
from congruence.metrics._infomec import active_codes, spread
from congruence.metrics._mig import mig
from congruence.metrics._modularity import modularity
from congruence.metrics.factors import paired
from congruence.metrics.shares import shares_by_bins, usable


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Scores of binned codes for several numbers of bins."""

    bins: tuple[int, ...]
    scores: dict[str, tuple[float, ...]]  # "mig", "modularity", "infom" and "infoc", one value for each of `bins`

    @property
    def rows(self) -> list[dict[str, float]]:
        """One row for each number of bins."""
        values = zip(*self.scores.values(), strict=True)
        return [
            {"bins": bins, **dict(zip(self.scores, row, strict=True))}
            for bins, row in zip(self.bins, values, strict=True)
        ]

    @property
    def spans(self) -> dict[str, float]:
        """The largest less the smallest value of each score; NaN where the score is."""
        return {name: max(values) - min(values) for name, values in self.scores.items()}


def sensitivity(
    codes: Any, factors: Any, *, kinds: Any = "auto", bins: Iterable[int] = (10, 20, 50), factor_bins: int = 10
) -> Sensitivity:
    """Scores of binned codes for several numbers of bins: if they disagree, none of them should be quoted alone.

    MIG and modularity as by `mig` and `modularity`, InfoM and InfoC as by `infomec` with `bins`. With more bins,
    estimates of information about every factor rise, most of all for few rows.

    Parameters
    ----------
    codes : (n, L)
    factors : (n, K) array, data frame or mapping from name to column
        Continuous ones are cut into `factor_bins` classes of equal width; `kinds` as in `read_factors`.
    bins : numbers of bins of each code
    """
    numbers = tuple(bins)
    if not numbers:
        raise InputError("bins is empty: give at least one number of bins")
    z, s = paired(codes, factors, kinds)
    targets = list(usable(s, factor_bins, by_counts=True)[0].values())
    active = active_codes(z, discrete_codes=False, version="standalone")
    table: dict[str, list[float]] = {"mig": [], "modularity": [], "infom": [], "infoc": []}
    for number in numbers:
        table["mig"].append(mig(z, s, bins=number, factor_bins=factor_bins).mig)
        table["modularity"].append(modularity(z, s, bins=number, factor_bins=factor_bins).modularity)
        spreading = spread(shares_by_bins(z, targets, number, k=10, seed=0), active)
        table["infom"].append(spreading.modularity)
        table["infoc"].append(spreading.compactness)
    return Sensitivity(numbers, {name: tuple(values) for name, values in table.items()})
