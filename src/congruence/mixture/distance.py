"""The L2 distance of two Gaussian mixtures, in closed form and in log space.

<p, q> = sum_ij w_i v_j N(mu_i - nu_j; 0, S_i + T_j). The distance changes when both laws are stretched: it is that of
densities, and a law that is squeezed has a higher one. `relative` does not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.errors import InputError
from congruence.mixture.gmm import FLAT, LOG_2PI, GaussianMixture, as_mixture

SAME = 1e-12  # of the spread: components that differ by less are one
PAIRS = 2**16  # of components looked at together


@dataclass(frozen=True)
class L2:
    """How far two mixtures are apart, as densities."""

    log_distance: float  # -inf where they are the same; inf where a component that lies on a subspace is in one only
    relative: (
        float  # of sqrt(<p,p> + <q,q>): from 0 (the same) to 1 (no overlap); affine maps of both leave it as it is
    )
    dimension: int  # of the smallest affine subspace that holds both, on which densities are taken

    @property
    def distance(self) -> float:
        """||p - q||, at least 0, lower is closer; 0 or infinite where the number leaves the range of floats."""
        return math.exp(self.log_distance) if self.log_distance < math.log(np.finfo(float).max) else math.inf

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as in the JSON contract."""
        return {
            "distance": self.distance,
            "log_distance": self.log_distance,
            "relative": self.relative,
            "dimension": self.dimension,
        }


def l2_distance(p: Any, q: Any, *, smoothing: float = 0.0) -> L2:
    """The L2 distance of two mixtures of the same latents.

    Where both lie on one affine subspace, densities are those on it. A component that lies on a smaller one has no
    density: it counts as infinitely far unless it is in both mixtures with the same weight, or smoothing is asked for.

    Parameters
    ----------
    p, q : GaussianMixture
        Or what holds one: a fitted mixture of scikit-learn, a model. Of as many latents; in any order.
    smoothing : float
        Standard deviation of Gaussian noise that is added to both first.

    References
    ----------
    Kivva et al. 2022, section 4, without the formula; the product of two Gaussians integrates in closed form.
    """
    p, q = as_mixture(p, "p"), as_mixture(q, "q")
    if p.dimension != q.dimension:
        raise InputError(f"p and q must have as many latents, not {p.dimension} and {q.dimension}")
    p, q = smoothed(p, smoothing), smoothed(q, smoothing)
    p, q, m = on_common_subspace(p, q)
    weights, means, covariances = _difference(p, q)
    if not len(weights):
        return L2(-math.inf, 0.0, m)
    if m and (np.linalg.eigvalsh(covariances)[:, 0] <= FLAT * _size(p, q)).any():
        return L2(math.inf, 1.0, m)
    scale, total = _signed_sum(weights, means, covariances)
    sizes = np.logaddexp(log_inner(p, p), log_inner(q, q)) if not (p.degenerate or q.degenerate) else math.nan
    log_square = scale + math.log(total) if total > 0 else -math.inf
    relative = math.exp(min(0.0, (log_square - sizes) / 2)) if math.isfinite(sizes) else math.nan
    return L2(log_square / 2, relative, m)


def log_inner(p: GaussianMixture, q: GaussianMixture) -> float:
    """Log <p, q>, the log of the integral of the product of the two densities; inf where it does not exist."""
    found = -math.inf
    for part in _chunks(p.components, q.components):
        sums = p.covariances[part, None] + q.covariances
        logs = log_normal(p.means[part, None] - q.means, sums) + np.log(p.weights[part, None] * q.weights)
        found = float(np.logaddexp(found, np.logaddexp.reduce(logs, axis=None)))
    return found


def log_normal(away: Float, covariances: Float) -> Float:
    """Log N(away; 0, covariance) over the last axes, (..., m) and (..., m, m) -> (...)."""
    m = away.shape[-1]
    try:
        roots = np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        return np.full(away.shape[:-1], math.inf)
    white = np.linalg.solve(roots, away[..., None])[..., 0]
    logs = np.log(np.diagonal(roots, axis1=-2, axis2=-1)).sum(-1)
    return np.asarray(-0.5 * (white * white).sum(-1) - logs - 0.5 * m * LOG_2PI)


def smoothed(p: GaussianMixture, smoothing: float) -> GaussianMixture:
    """The law of p plus Gaussian noise of this standard deviation along every axis."""
    check_smoothing(smoothing)
    if smoothing == 0:
        return p
    return GaussianMixture(p.weights, p.means, p.covariances + smoothing**2 * np.eye(p.dimension))


def check_smoothing(smoothing: float) -> None:
    """Refuse what is no standard deviation."""
    if not (math.isfinite(smoothing) and smoothing >= 0):
        raise InputError(f"smoothing must be a number of at least 0, not {smoothing!r}")


def on_common_subspace(p: GaussianMixture, q: GaussianMixture) -> tuple[GaussianMixture, GaussianMixture, int]:
    """Both laws in coordinates of the smallest affine subspace that holds them, and its dimension."""
    away = p.mean - q.mean
    values, axes = np.linalg.eigh((p.covariance + q.covariance) / 2 + np.outer(away, away) / 4)
    kept = values > FLAT * max(values[-1], np.finfo(float).tiny)
    if kept.all():
        return p, q, p.dimension
    if not kept.any():  # one point
        return p, q, 0
    turn = axes[:, kept].T
    return p.pushed(turn, -turn @ q.mean), q.pushed(turn, -turn @ q.mean), int(kept.sum())


def _difference(p: GaussianMixture, q: GaussianMixture) -> tuple[Float, Float, Float]:
    """The components of p - q with signed weights, where equal ones are joined and those that cancel left out.

    What cancels need not have a density, and a law has distance 0 to itself without rounding.
    """
    weights = np.concatenate([p.weights, -q.weights])
    means, covariances = np.vstack([p.means, q.means]), np.vstack([p.covariances, q.covariances])
    size = _size(p, q)
    flat = np.hstack([means - q.mean, covariances.reshape(len(means), -1) / math.sqrt(size)])
    first = np.arange(len(flat))
    for k in range(1, len(flat)):
        near = np.flatnonzero(np.abs(flat[:k] - flat[k]).max(1) <= SAME * math.sqrt(size))
        if near.size:
            first[k] = first[near[0]]
    joined: Float = np.bincount(first, weights, minlength=len(flat)).astype(np.float64)
    kept = np.flatnonzero(np.abs(joined) > SAME)
    return joined[kept], means[kept], covariances[kept]


def _size(p: GaussianMixture, q: GaussianMixture) -> float:
    """The largest variance of either law along any direction."""
    return max(
        float(np.linalg.eigvalsh(p.covariance)[-1]),
        float(np.linalg.eigvalsh(q.covariance)[-1]),
        float(np.finfo(float).tiny),
    )


def _signed_sum(weights: Float, means: Float, covariances: Float) -> tuple[float, float]:
    """(a, s) with exp(a) s = sum_ij w_i w_j N(mu_i - mu_j; 0, S_i + S_j); weights may be negative."""
    parts = []
    for part in _chunks(len(weights), len(weights)):
        logs = log_normal(means[part, None] - means, covariances[part, None] + covariances)
        parts.append((logs, weights[part, None] * weights))
    scale = max(float(logs.max()) for logs, _ in parts)
    return scale, float(sum((np.exp(logs - scale) * signs).sum() for logs, signs in parts))


def _chunks(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, PAIRS // max(1, columns))
    for start in range(0, rows, step):
        yield slice(start, start + step)
