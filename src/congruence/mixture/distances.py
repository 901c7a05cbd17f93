"""L2 distances of Gaussian mixtures, in closed form and in log space, as they are and up to an affine map.

<p, q> = sum_ij w_i v_j N(mu_i - nu_j; 0, S_i + T_j). The distance is one of densities: it changes when both mixtures
are rescaled, while the relative distance does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from congruence.arrays import Float
from congruence.checks import check_integer, check_number
from congruence.errors import InputError
from congruence.mixture._affine_search import minimise_distance
from congruence.mixture.priors import FLAT, GaussianMixture, as_mixture, log_normal
from congruence.result import Record

_SAME = 1e-12  # relative to the spread: components that differ by less are equal
_PAIRS = 2**16  # of components in memory at a time
_Components = tuple[Float, Float, Float]  # weights, means and covariances


@dataclass(frozen=True)
class L2(Record):
    """The L2 distance of two mixtures."""

    log_distance: float  # -inf if they are equal; inf if a component on a subspace is in one of them only
    relative: float  # divided by sqrt(<p,p> + <q,q>), from 0 (equal) to 1 (no overlap); invariant under affine maps
    dimension: int  # of the smallest affine subspace that contains both, on which the densities are defined

    NAMES = ("distance", "log_distance", "relative", "dimension")

    @property
    def distance(self) -> float:
        """||p - q||, at least 0, lower is closer; 0 or infinite outside the range of floats."""
        return math.exp(self.log_distance) if self.log_distance < math.log(np.finfo(float).max) else math.inf


@dataclass(frozen=True, eq=False)
class AffineDistance(Record):
    """The distance of two mixtures after the best affine map found, z -> matrix @ z + shift.

    It is an upper bound, since the search may miss a better map. It is not symmetric, since the densities are compared
    in the coordinates of the target.
    """

    l2: L2  # after the map
    matrix: Float  # (m, m), invertible
    shift: Float  # (m,)
    before: L2  # without a map
    unit: float  # of the standardised distance: the fourth root of the determinant of the covariance of the target
    starts: int  # initial maps from matchings of components, and of one component onto one
    refined: int  # starts that were minimised

    bound: ClassVar = "upper"
    NAMES = ("distance", "standardised", "relative", "bound", "before", "matrix", "shift", "starts", "refined")

    distance = property(attrgetter("l2.distance"))  # after the map: at least 0, lower is closer, an upper bound
    relative = property(attrgetter("l2.relative"))  # the relative distance after the map, from 0 to 1

    @property
    def standardised(self) -> float:
        """The distance in units of the spread of the target: that of latents in which its covariance is 1.

        Invariant under affine maps of both mixtures, while `distance` grows if both are squeezed.
        """
        return float(self.unit * self.distance)

    def __call__(self, z: Any) -> Float:
        """Map latents of the source, (n, m), to the coordinates of the target."""
        return np.asarray(z @ self.matrix.T + self.shift)

    def __str__(self) -> str:
        before = self.unit * self.before.distance
        return (
            f"affine distance <= {self.standardised:.4g} in units of the target's spread (relative "
            f"{self.relative:.3g}; {before:.4g} without a map), from {self.refined} of {self.starts} starts"
        )


@dataclass(frozen=True, eq=False)
class AffineDistances:
    """The affine distance of every ordered pair of mixtures."""

    names: tuple[str, ...]
    pairs: Mapping[tuple[str, str], AffineDistance]

    @property
    def matrix(self) -> Float:
        """Distances from the mixture of the row to that of the column, (k, k), with 0 on the diagonal."""
        return np.array([[0.0 if a == b else self.pairs[a, b].distance for b in self.names] for a in self.names])

    @property
    def mean(self) -> float:
        """The mean over ordered pairs."""
        return float(np.mean([pair.distance for pair in self.pairs.values()]))

    @property
    def deviation(self) -> float:
        """The standard deviation over ordered pairs (divided by their number)."""
        return float(np.std([pair.distance for pair in self.pairs.values()]))

    def to_dict(self) -> dict[str, Any]:
        """Every pair with its map, as in the JSON."""
        pairs = [{"source": a, "target": b} | pair.to_dict() for (a, b), pair in self.pairs.items()]
        return {"names": list(self.names), "pairs": pairs, "mean": self.mean, "deviation": self.deviation}


def l2_distance(p: Any, q: Any, *, smoothing: float = 0.0) -> L2:
    """Compute the L2 distance of two mixtures of the same latents, in any form that `affine_distance` takes.

    If both lie on one affine subspace, densities are those on it. A component on a smaller subspace has no density: its
    distance is infinite unless it is in both mixtures with the same weight, or `smoothing`, the standard deviation of
    Gaussian noise that is added to both, is above 0.

    References
    ----------
    Kivva et al. 2022, section 4, without the formula; products of Gaussians have closed-form integrals.
    """
    p, q = as_mixture(p, "p"), as_mixture(q, "q")
    if p.dimension != q.dimension:
        raise InputError(f"p and q must have the same number of latents; got {p.dimension} and {q.dimension}")
    if check_number("smoothing", smoothing, 0) > 0:
        noise = smoothing**2 * np.eye(p.dimension)
        p, q = (GaussianMixture(one.weights, one.means, one.covariances + noise) for one in (p, q))
    p, q, m = _on_common_subspace(p, q)
    size = max(float(np.linalg.eigvalsh(one.covariance)[-1]) for one in (p, q))
    size = max(size, float(np.finfo(float).tiny))
    signed = _subtract(p, q, size)
    if not len(signed[0]):
        return L2(-math.inf, 0.0, m)
    if (np.linalg.eigvalsh(signed[2])[:, 0] <= FLAT * size).any():
        return L2(math.inf, 1.0, m)
    log_square = _log_inner(signed, signed)
    sizes = math.nan
    if not (p.degenerate or q.degenerate):
        sizes = np.logaddexp.reduce([_log_inner(_parts(one), _parts(one)) for one in (p, q)])
    relative = math.exp(min(0.0, (log_square - sizes) / 2)) if math.isfinite(sizes) else math.nan
    return L2(log_square / 2, relative, m)


def affine_distances(
    priors: Mapping[str, GaussianMixture] | Sequence[GaussianMixture], *, smoothing: float = 0.0, seed: int = 0
) -> AffineDistances:
    """Compute `affine_distance` for all ordered pairs of at least two mixtures, by name or named "0", "1", ...."""
    named = dict(priors) if isinstance(priors, Mapping) else {str(i): prior for i, prior in enumerate(priors)}
    if len(named) < 2:
        raise InputError(f"priors must hold at least two mixtures; got {len(named)}")
    pairs = permutations(named, 2)
    distances = {(a, b): affine_distance(named[a], named[b], smoothing=smoothing, seed=seed) for a, b in pairs}
    return AffineDistances(tuple(named), distances)


def affine_distance(
    prior_a: Any, prior_b: Any, *, smoothing: float = 0.0, refined: int = 24, seed: int = 0
) -> AffineDistance:
    """Minimise the L2 distance between prior_b and the image of prior_a over invertible affine maps.

    Parameters
    ----------
    prior_a, prior_b : GaussianMixture
        Or a fitted scikit-learn mixture, or a model with `mixture_prior()`; with the same number of latents.
    smoothing : float
        Standard deviation of Gaussian noise added to the image and to prior_b, in the coordinates of prior_b. Needed
        if single components lie on subspaces; if a whole mixture does, the map is between the two subspaces.
    refined : int
        Number of starts of each kind (matchings of all components; one component onto one), the most promising first,
        that are minimised by BFGS.
    seed : int
        Seed of the matchings, which are sampled if there are too many components to try all.

    Returns
    -------
    AffineDistance
        An upper bound of the minimum. Invariant under affine maps of prior_a.

    References
    ----------
    Kivva et al. 2022, section 4, which does not define the distance; this definition is of this package.
    """
    prior_a, prior_b = as_mixture(prior_a, "prior_a"), as_mixture(prior_b, "prior_b")
    if prior_a.dimension != prior_b.dimension:
        raise InputError(
            f"prior_a and prior_b must have the same number of latents; got {prior_a.dimension} and {prior_b.dimension}"
        )
    check_integer("refined", refined)
    check_number("smoothing", smoothing, 0)
    a, b = _Whitening(prior_a), _Whitening(prior_b)
    if len(a.white) != len(b.white):
        raise InputError(
            f"prior_a varies along {len(a.white)} directions and prior_b along {len(b.white)}, so no invertible affine "
            "map exists between them"
        )
    p, q = prior_a.pushed(a.white, -a.white @ a.mean), prior_b.pushed(b.white, -b.white @ b.mean)
    if smoothing == 0 and (p.degenerate or q.degenerate):
        raise InputError("a component lies on a subspace, so it has no density; smoothing must be above 0")
    best, starts, minimised = minimise_distance(p, q, smoothing**2 * b.white @ b.white.T, refined, seed)

    def join(theta: Float) -> tuple[Float, Float]:  # as a map between the mixtures, including idle directions
        r = len(a.white)
        matrix = b.back @ theta[: r**2].reshape(r, r) @ a.white + b.idle.T @ a.idle
        return matrix, b.back @ theta[r**2 :] + b.mean - matrix @ a.mean

    def distance_after(affine: tuple[Float, Float]) -> L2:
        return l2_distance(prior_a.pushed(*affine), prior_b, smoothing=smoothing)

    before = l2_distance(prior_a, prior_b, smoothing=smoothing)
    chosen = join(best)
    if not distance_after(chosen).log_distance <= before.log_distance:
        # The search diverged to maps that collapse components: a start, or the identity, is better.
        identity = (np.eye(prior_a.dimension), np.zeros(prior_a.dimension))
        tried = [identity, *map(join, starts)]
        chosen = min(tried, key=lambda affine: distance_after(affine).log_distance)
    return AffineDistance(distance_after(chosen), *chosen, before, b.unit, len(starts), minimised)


class _Whitening:
    """The whitening of a mixture: white @ (z - mean) has mean 0 and covariance 1 on the directions that vary."""

    def __init__(self, prior: GaussianMixture) -> None:
        values, axes = np.linalg.eigh(prior.covariance)
        varying = values > FLAT * max(values[-1], np.finfo(float).tiny)
        if not varying.any():
            raise InputError("a mixture that is a single point has no density; at least one variance must be above 0")
        self.white = (axes[:, varying] / np.sqrt(values[varying])).T  # (r, m)
        self.back = axes[:, varying] * np.sqrt(values[varying])  # (m, r): back @ white projects onto these directions
        self.idle = axes[:, ~varying].T  # (m - r, m), orthonormal, the other directions
        self.mean = prior.mean
        self.unit = math.exp(np.log(values[varying]).sum() / 4)


def _on_common_subspace(p: GaussianMixture, q: GaussianMixture) -> tuple[GaussianMixture, GaussianMixture, int]:
    """Both mixtures in coordinates of the smallest affine subspace that contains them, and its dimension."""
    away = p.mean - q.mean
    values, axes = np.linalg.eigh((p.covariance + q.covariance) / 2 + np.outer(away, away) / 4)
    varying = values > FLAT * max(values[-1], np.finfo(float).tiny)
    if varying.all() or not varying.any():  # not any: one point
        return p, q, int(varying.sum())
    turn = axes[:, varying].T
    return p.pushed(turn, -turn @ q.mean), q.pushed(turn, -turn @ q.mean), int(varying.sum())


def _parts(p: GaussianMixture) -> _Components:
    return p.weights, p.means, p.covariances


def _subtract(p: GaussianMixture, q: GaussianMixture, size: float) -> _Components:
    """The components of p - q with signed weights; equal components are merged, and dropped where they cancel.

    Components that cancel need no density, and the distance of a mixture to itself is exactly 0.
    """
    weights = np.concatenate([p.weights, -q.weights])
    means, covariances = np.vstack([p.means, q.means]), np.vstack([p.covariances, q.covariances])
    flat = np.hstack([means - q.mean, covariances.reshape(len(means), -1) / math.sqrt(size)])
    first = np.arange(len(flat))
    for k in range(1, len(flat)):
        near = np.flatnonzero(np.abs(flat[:k] - flat[k]).max(1) <= _SAME * math.sqrt(size))
        if near.size:
            first[k] = first[near[0]]
    merged: Float = np.bincount(first, weights, minlength=len(flat)).astype(np.float64)
    varying = np.flatnonzero(np.abs(merged) > _SAME)
    return merged[varying], means[varying], covariances[varying]


def _log_inner(p: _Components, q: _Components) -> float:
    """Log of sum_ij w_i v_j N(mu_i - nu_j; 0, S_i + T_j), where weights may be negative; -inf if not above 0."""
    step = max(1, _PAIRS // len(q[0]))
    terms = []
    for start in range(0, len(p[0]), step):
        weights, means, covariances = (array[start : start + step, None] for array in p)
        terms.append((log_normal(means - q[1], covariances + q[2]), weights * q[0]))
    scale = max(float(logs.max()) for logs, _ in terms)
    total = float(sum((np.exp(logs - scale) * weights).sum() for logs, weights in terms))
    return scale + math.log(total) if total > 0 else -math.inf
