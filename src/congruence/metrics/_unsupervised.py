"""How dependent codes are on each other, without looking at factors (Locatello et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float, as_matrix, listing, to_numpy
from congruence.metrics.binning import as_classes, binned
from congruence.metrics.information import class_information
from congruence.metrics.metric import LOWER, Metric
from congruence.metrics.neighbours import standardised
from congruence.metrics.notes import Note


@dataclass(frozen=True, eq=False)
class Dependence:
    """Four measures of how dependent codes are; 0 for independent ones, but for the bias of binned information."""

    total_correlation: float  # nats, of a Gaussian with the covariance of the codes; infinite if it is singular
    wasserstein_correlation: float  # squared 2-Wasserstein distance of that Gaussian to one without covariances
    wasserstein_correlation_norm: float  # the same, divided by the sum of variances
    mean_mutual_information: float  # nats, mean over pairs of codes, binned
    information: Float  # (L, L) nats, between codes; NaN for a constant code
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The four numbers."""
        return {
            "total_correlation": self.total_correlation,
            "wasserstein_correlation": self.wasserstein_correlation,
            "wasserstein_correlation_norm": self.wasserstein_correlation_norm,
            "mean_mutual_information": self.mean_mutual_information,
        }


def unsupervised(
    codes: Any, factors: Any = None, *, kinds: Any = "auto", bins: int | str = 20, seed: int = 0
) -> Dependence:
    """Total correlation, Wasserstein correlation (and its share of the variance) and mean information between codes.

    From 0, lower means less dependent, which need not mean nearer to the factors. Constant codes are left out. All are
    invariant to the order of codes and a shift of each; all but the Wasserstein correlation to one scale.

    Parameters
    ----------
    codes : (n, L)
    factors, kinds, seed
        Not used: nothing is random, and no factor is looked at.
    bins : int, or a rule of numpy such as "auto"
        Bins of equal width of each code, for the information between codes.

    References
    ----------
    Locatello et al. 2019, appendix; Watanabe 1960 (total correlation); Dowson & Landau 1982 (the distance).
    """
    z = to_numpy(as_matrix(codes, "codes")).astype(np.float64)
    varies = standardised(z).any(0)
    information = np.full((z.shape[1], z.shape[1]), math.nan)
    idle = np.flatnonzero(~varies)
    notes: tuple[Note, ...] = (Note(f"Constant and left out: code {listing(idle)}"),) if idle.size else ()
    if varies.sum() < 2:
        reason = f"{'Only one' if varies.any() else 'No'} code varies; two are needed."
        reasons = dict.fromkeys(DECLARED.scores, reason)
        return Dependence(math.nan, math.nan, math.nan, math.nan, information, reasons, notes)
    classes = as_classes(binned(z[:, varies], bins))
    between = class_information(classes, classes)
    information[np.ix_(varies, varies)] = between
    z = z[:, varies]
    size = float(np.abs(z - z.mean(0)).max())  # so that squares stay in the range of floats
    covariance = np.cov(z / size, rowvar=False)
    distance, total = _wasserstein(covariance), _total_correlation(np.cov(standardised(z), rowvar=False))
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
    if (
        eigenvalues[0] <= len(eigenvalues) * np.finfo(np.float64).eps
    ):  # 0 but for rounding, of which no logarithm is taken
        return math.inf
    return max(0.0, -0.5 * float(np.log(eigenvalues).sum()))


def _wasserstein(covariance: Float) -> float:
    """2 tr(C) - 2 tr sqrt(D C), where D is the diagonal of C.

    D C is similar to the symmetric D^(1/2) C D^(1/2), whose eigenvalues are those of the root squared.
    """
    sizes = np.sqrt(np.diag(covariance))
    eigenvalues = np.linalg.eigvalsh(covariance * np.outer(sizes, sizes))
    return max(0.0, 2 * float(np.trace(covariance)) - 2 * float(np.sqrt(np.maximum(eigenvalues, 0)).sum()))


DECLARED = Metric(
    name="unsupervised",
    function=unsupervised,
    scores=(
        "total_correlation",
        "wasserstein_correlation",
        "wasserstein_correlation_norm",
        "mean_mutual_information",
    ),
    range=(0.0, math.inf),
    direction=LOWER,
    invariant_to=frozenset({"permutation", "shift"}),
    cost="fast",
    supervised=False,
    reference="Locatello et al. 2019",
)
