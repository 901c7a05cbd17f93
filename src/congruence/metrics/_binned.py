"""MIG, modularity and IRS: scores of codes or factors that are cut into bins; and how much they depend on the bins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.errors import InputError
from congruence.metrics._infomec import NEIGHBOURS, active_codes, count_shares, distribution
from congruence.metrics._information import bin_columns, class_information, entropy, lead
from congruence.metrics._results import MetricResult, Note, note_if
from congruence.metrics.factors import Factors, read_pair


@dataclass(frozen=True, eq=False)
class InformationGap(MetricResult):
    """The gap of each factor; K factors, L codes."""

    mig: float  # mean over factors
    gaps: Float  # (K,) NaN for a factor that is left out
    information: Float  # (K, L) nats; 0 for a factor that is left out

    headline = ("mig",)


def mig(
    codes: Any, factors: Any, *, kinds: Any = "auto", bins: int | str = 20, factor_bins: int = 10, seed: int = 0
) -> InformationGap:
    """Mutual information gap: mean over factors of (largest - second largest information of a code) / entropy.

    From 0 to 1, higher is better: 1 if one code, and no other, determines each factor. It does not measure whether a
    code also encodes other factors. Codes are cut into bins of equal width, so the number depends on `bins`: see
    `sensitivity`. Invariant to the order of codes, and to a scale and a shift of each.

    Parameters
    ----------
    codes : (n, L)
        Learned codes, L at least 2.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
    kinds : str, list or dict as of `read_factors`, default "auto"
    bins : int or str, default 20
        Bins of each code: a number, or a rule of `numpy.histogram_bin_edges` such as "auto".
    factor_bins : int, default 10
        Equal-width bins of a continuous factor.
    seed : not used, default 0

    References
    ----------
    Chen et al. 2018, eq. 6; 20 bins as in Locatello et al. 2019.
    """
    z, s = read_pair(codes, factors, kinds)
    information, entropies, notes = binned_information(z, s, bins, factor_bins)
    gaps = lead(information) / entropies
    score = float(gaps[s.varies].mean()) if s.varies.any() else float("nan")
    reason = "There is only one code; two are needed." if s.varies.any() else "No factor varies."
    return InformationGap(score, gaps, information, reasons={"mig": reason} if np.isnan(score) else {}, notes=notes)


def binned_information(
    z: Float, s: Factors, bins: int | str, factor_bins: int
) -> tuple[Float, Float, tuple[Note, ...]]:
    """Information of binned codes about factors as classes, (K, L) in nats, the factors' entropies (K,), and notes.

    A factor that is left out has the information 0 and the entropy NaN.
    """
    live = Factors(tuple(factor for factor in s if not factor.left_out))
    information, entropies = np.zeros((len(s), z.shape[1])), np.full(len(s), np.nan)
    codes = bin_columns(z, bins)
    if live:
        classes = live.labels(factor_bins)
        information[s.varies], entropies[s.varies] = class_information(codes, classes), entropy(classes)
    cut = note_if(live.numbers, f"cut into {factor_bins} bins of equal width")
    return information, entropies, (*s.notes, *s.exclusions, *cut)


@dataclass(frozen=True, eq=False)
class Modularity(MetricResult):
    """The modularity of each code; K factors, L codes."""

    modularity: float  # mean over codes
    per_code: Float  # (L,) 0 for a code without information
    information: Float  # (K, L) nats; 0 for a factor that is left out

    headline = ("modularity",)


def modularity(
    codes: Any, factors: Any, *, kinds: Any = "auto", bins: int | str = 20, factor_bins: int = 10, seed: int = 0
) -> Modularity:
    """Mean over codes of 1 - (squared information about other factors) / (squared largest information (K - 1)).

    From 0 to 1, higher is better: 1 if each code encodes one factor only. Codes without information count 0, so
    constant codes lower it; noise in a code counts as information, since binned estimates are never 0. Invariant to the
    order of codes, and to a scale and a shift of each.

    Parameters
    ----------
    codes : (n, L)
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors, K at least 2.
    kinds : str, list or dict as of `read_factors`, default "auto"
    bins : int or str, default 20
        Bins of each code: a number, or a rule of `numpy.histogram_bin_edges` such as "auto".
    factor_bins : int, default 10
        Equal-width bins of a continuous factor.
    seed : not used, default 0

    References
    ----------
    Ridgeway & Mozer 2018, section 3; 20 bins as in Locatello et al. 2019.
    """
    z, s = read_pair(codes, factors, kinds)
    information, _, notes = binned_information(z, s, bins, factor_bins)
    squared = np.square(information[s.varies])
    if len(squared) < 2:
        reason = f"{'Only one' if len(squared) else 'No'} factor varies; two are needed."
        undefined = np.full(z.shape[1], np.nan)
        return Modularity(float("nan"), undefined, information, reasons={"modularity": reason}, notes=notes)
    largest = squared.max(0)
    rest = (squared.sum(0) - largest) / np.where(largest > 0, largest, 1.0) / (len(squared) - 1)
    per_code = np.where(largest > 0, 1 - rest, 0.0)
    return Modularity(float(per_code.mean()), per_code, information, reasons={}, notes=notes)


@dataclass(frozen=True, eq=False)
class Robustness(MetricResult):
    """The robustness of each code; K factors, L codes."""

    irs: float  # mean over codes, weighted by `deviations`
    robustness: Float  # (K, L) of code l given factor k; NaN for constant codes and factors left out
    per_code: Float  # (L,) the largest over factors
    parents: Array  # (L,) the factor that has it; -1 for a constant code
    deviations: Float  # (L,) the largest distance of each code from its mean

    headline = ("irs",)


def irs(
    codes: Any, factors: Any, *, kinds: Any = "auto", bins: int = 20, quantile: float = 0.99, seed: int = 0
) -> Robustness:
    """Interventional robustness: 1 - (deviation of a code while its own factor is fixed) / (its largest deviation).

    From -1 to 1, higher is better: 1 if each code is a function of one factor; about 0 for uniform noise. Gaussian
    noise has about 0.3, since a quantile is compared with a maximum: compare with noise of the same shape. For each
    value of a factor the `quantile` of |code - mean given the value| is taken; these are averaged over values. Constant
    codes are left out. Invariant to the order of codes, their signs, one scale for all and a shift of each.

    Parameters
    ----------
    codes : (n, L)
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
    kinds : str, list or dict as of `read_factors`, default "auto"
    bins : int, default 20
        Equal-width bins of a continuous factor, and of one with more classes than this.
    quantile : float, default 0.99
        Of the deviations of a code from its mean, given the value of a factor.
    seed : not used, default 0

    References
    ----------
    Suter et al. 2019, eq. 8; as implemented for Locatello et al. 2019.
    """
    z, s = read_pair(codes, factors, kinds)
    deviations = np.abs(z - z.mean(0)).max(0)
    moves, varies = np.ptp(z, axis=0) > 0, s.varies
    robustness = np.full((len(s), z.shape[1]), np.nan)
    for i in np.flatnonzero(varies):
        values = s[i].labels().astype(np.float64) if s[i].is_discrete else s[i].values
        classes = bin_columns(values[:, None], bins)[:, 0]  # with no more classes than bins, each has its own
        robustness[i, moves] = 1 - _drift(z[:, moves], classes, quantile) / deviations[moves]
    per_code, parents = np.full(z.shape[1], np.nan), np.full(z.shape[1], -1)
    score, reasons = float("nan"), {}
    if moves.any() and varies.any():
        per_code[moves] = robustness[varies][:, moves].max(0)
        parents[moves] = np.flatnonzero(varies)[robustness[varies][:, moves].argmax(0)]
        score = float(np.average(per_code[moves], weights=deviations[moves]))
    else:
        reasons["irs"] = "No code varies." if varies.any() else "No factor varies."
    cut = [f.name for f in s if not f.left_out and (not f.is_discrete or f.distinct > bins)]
    notes = (*s.notes, *s.exclusions, *note_if(cut, f"cut into {bins} bins of equal width"))
    if not moves.all():
        notes += (Note(f"Constant and left out: code {listing(np.flatnonzero(~moves))}"),)
    return Robustness(score, robustness, per_code, parents, deviations, reasons=reasons, notes=notes)


def _drift(z: Float, classes: Array, quantile: float) -> Float:
    """The deviation of codes (n, L) from their mean in a class, averaged over classes; shape (L,)."""
    order = np.argsort(classes, kind="stable")
    parts = np.split(z[order], np.cumsum(np.bincount(classes))[:-1])
    drift: Float = np.mean([np.quantile(np.abs(part - part.mean(0)), quantile, axis=0) for part in parts], axis=0)
    return drift


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
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
    kinds : str, list or dict as of `read_factors`, default "auto"
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
