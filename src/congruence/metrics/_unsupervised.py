"""How dependent codes are on each other, without factors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float, as_matrix, listing, to_numpy
from congruence.metrics._estimators import standardise
from congruence.metrics._information import bin_columns, class_information
from congruence.metrics._results import MetricResult, Note


@dataclass(frozen=True, eq=False, kw_only=True)
class Dependence(MetricResult):
    """Four measures of how dependent codes are; 0 for independent codes, except for the bias of binned information."""

    total_correlation: float = math.nan  # nats, of a Gaussian with the covariance of the codes; infinite if singular
    wasserstein_correlation: float = math.nan  # squared 2-Wasserstein distance of it to one without covariances
    wasserstein_correlation_norm: float = math.nan  # the same, divided by the sum of variances
    mean_mutual_information: float = math.nan  # nats, mean over pairs of codes, binned
    information: Float  # (L, L) nats, between codes; NaN for a constant code

    headline = (
        "total_correlation",
        "wasserstein_correlation",
        "wasserstein_correlation_norm",
        "mean_mutual_information",
    )


def unsupervised(
    codes: Any, factors: Any = None, *, kinds: Any = "auto", bins: int | str = 20, seed: int = 0
) -> Dependence:
    """Total correlation, Wasserstein correlation (and its share of the variance) and mean information between codes.

    From 0, lower means less dependent, which need not mean closer to the factors. Constant codes are left out. All are
    invariant to the order of codes and a shift of each; all but the Wasserstein correlation to one scale.

    Parameters
    ----------
    codes : (n, L)
        Learned codes, of which two vary.
    factors : None
        Not used.
    kinds : str, default "auto"
        Not used.
    bins : int or str, default 20
        Bins of each code, for the information between codes: a number, or a rule of `numpy.histogram_bin_edges`.
    seed : not used, default 0

    References
    ----------
    Locatello et al. 2019, appendix; Watanabe 1960 (total correlation); Dowson & Landau 1982 (the distance).
    """
    z = to_numpy(as_matrix(codes, "codes")).astype(np.float64)
    varies = standardise(z).any(0)
    information = np.full((z.shape[1], z.shape[1]), math.nan)
    constant = np.flatnonzero(~varies)
    notes = (Note(f"Constant and left out: code {listing(constant)}"),) if constant.size else ()
    if varies.sum() < 2:
        reason = f"{'Only one' if varies.any() else 'No'} code varies; two are needed."
        return Dependence(information=information, reasons=dict.fromkeys(Dependence.headline, reason), notes=notes)
    z = z[:, varies]
    classes = bin_columns(z, bins)
    between = class_information(classes, classes)
    information[np.ix_(varies, varies)] = between
    size = float(np.abs(z - z.mean(0)).max())  # so that squares stay in the range of floats
    covariance = np.cov(z / size, rowvar=False)
    distance, total = _wasserstein(covariance), _total_correlation(np.cov(standardise(z), rowvar=False))
    infinite = {"total_correlation": "A code is a linear function of others, so the total correlation is infinite."}
    return Dependence(
        total_correlation=total,
        wasserstein_correlation=distance * size * size,
        wasserstein_correlation_norm=distance / float(np.trace(covariance)),
        mean_mutual_information=float(between[~np.eye(len(between), dtype=bool)].mean()),
        information=information,
        reasons=infinite if math.isinf(total) else {},
        notes=notes,
    )


def _total_correlation(correlation: Float) -> float:
    """-log(det) / 2 of a correlation matrix, which may be of any scale."""
    eigenvalues = np.linalg.eigvalsh(correlation / correlation[0, 0])
    if eigenvalues[0] <= len(eigenvalues) * np.finfo(np.float64).eps:  # 0 but for rounding
        return math.inf
    return max(0.0, -0.5 * float(np.log(eigenvalues).sum()))


def _wasserstein(covariance: Float) -> float:
    """2 tr(C) - 2 tr sqrt(D C), where D is the diagonal of C.

    D C is similar to the symmetric D^(1/2) C D^(1/2), whose eigenvalues are those of the root squared.
    """
    sizes = np.sqrt(np.diag(covariance))
    eigenvalues = np.linalg.eigvalsh(covariance * np.outer(sizes, sizes))
    return max(0.0, 2 * float(np.trace(covariance)) - 2 * float(np.sqrt(np.maximum(eigenvalues, 0)).sum()))
