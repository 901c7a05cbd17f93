"""The distance of two mixtures up to an affine map: what is left when one is carried onto the other as well as can be.

The best map is looked for from starts that match components; the value found is an upper bound of the least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.errors import InputError
from congruence.mixture.distance import L2, check_smoothing, l2_distance, log_normal
from congruence.mixture.gmm import FLAT, GaussianMixture, as_mixture
from congruence.mixture.starts import Start, component_starts

REFINED = 24  # starts that are followed to their minimum
NEARLY = 1e-9  # of the whole: a squared distance below this is rounding, and no more starts are followed


@dataclass(frozen=True, eq=False)
class AffineDistance:
    """How near an affine map z -> matrix @ z + shift brings one mixture to another.

    It is an upper bound: a better map may have been missed, a worse one is never reported. It is not symmetric, since
    the distance is taken between densities in the frame of the target.
    """

    l2: L2  # after the map
    matrix: Float  # (m, m), invertible
    shift: Float  # (m,)
    before: L2  # without any map
    starts: int  # maps suggested by matchings of components
    refined: int  # of them followed to their minimum

    @property
    def distance(self) -> float:
        """The L2 distance after the map: at least 0, lower is closer, an upper bound."""
        return self.l2.distance

    @property
    def relative(self) -> float:
        """The same as a share of sqrt(<p,p> + <q,q>) after the map: from 0 to 1."""
        return self.l2.relative

    def __call__(self, z: Any) -> Float:
        """Carry rows of latents of the source, (n, m), into the frame of the target."""
        return np.asarray(z @ self.matrix.T + self.shift)

    def to_dict(self) -> dict[str, Any]:
        """The numbers and the map, as in the JSON contract."""
        return {
            "distance": self.distance,
            "relative": self.relative,
            "bound": "upper",
            "before": self.before.to_dict(),
            "matrix": self.matrix.tolist(),
            "shift": self.shift.tolist(),
            "starts": self.starts,
            "refined": self.refined,
        }

    def __str__(self) -> str:
        return (
            f"affine distance <= {self.distance:.4g} (relative {self.relative:.3g}; "
            f"{self.before.distance:.4g} without a map), from {self.refined} of {self.starts} starts"
        )


@dataclass(frozen=True, eq=False)
class AffineDistances:
    """The distance of every ordered pair of mixtures."""

    names: tuple[str, ...]
    pairs: Mapping[tuple[str, str], AffineDistance]

    @property
    def matrix(self) -> Float:
        """Distances from the row's mixture to the column's, (k, k), with 0 on the diagonal."""
        return np.array([[0.0 if a == b else self.pairs[a, b].distance for b in self.names] for a in self.names])

    @property
    def mean(self) -> float:
        """Over ordered pairs."""
        return float(np.mean([pair.distance for pair in self.pairs.values()]))

    @property
    def deviation(self) -> float:
        """The standard deviation over ordered pairs (divided by their number)."""
        return float(np.std([pair.distance for pair in self.pairs.values()]))

    def to_dict(self) -> dict[str, Any]:
        """Every pair with its map, as in the JSON contract."""
        pairs = [{"source": a, "target": b} | pair.to_dict() for (a, b), pair in self.pairs.items()]
        return {"names": list(self.names), "pairs": pairs, "mean": self.mean, "deviation": self.deviation}


def affine_distances(
    priors: Mapping[str, GaussianMixture] | Sequence[GaussianMixture], *, smoothing: float = 0.0, seed: int = 0
) -> AffineDistances:
    """`affine_distance` for all ordered pairs of mixtures, given by name or as a list (then named "0", "1", ...)."""
    named = dict(priors) if isinstance(priors, Mapping) else {str(i): prior for i, prior in enumerate(priors)}
    if len(named) < 2:
        raise InputError(f"priors must be at least two mixtures, not {len(named)}")
    pairs = {
        (a, b): affine_distance(named[a], named[b], smoothing=smoothing, seed=seed)
        for a in named
        for b in named
        if a != b
    }
    return AffineDistances(tuple(named), pairs)


def affine_distance(
    prior_a: Any,
    prior_b: Any,
    *,
    smoothing: float = 0.0,
    refined: int = REFINED,
    seed: int = 0,
) -> AffineDistance:
    """The least L2 distance between prior_b and the image of prior_a under an invertible affine map: an upper bound.

    Parameters
    ----------
    prior_a, prior_b : GaussianMixture
        Or what holds one: a fitted mixture of scikit-learn, a model. Of as many latents; components may be more or
        fewer.
    smoothing : float
        Standard deviation of Gaussian noise added to the image and to prior_b, in the frame of prior_b. Needed where
        single components lie on subspaces; where a whole law does, maps between the two subspaces are looked for.
    refined : int
        How many starts, the most promising first, are followed to their minimum by BFGS.
    seed : int
        Of the matchings that are drawn where components are too many to try all.

    Returns
    -------
    AffineDistance
        Unchanged by affine maps of prior_a.

    References
    ----------
    Kivva et al. 2022, section 4. Their appendix with the definition was not at hand: this one is ours.
    """
    prior_a, prior_b = as_mixture(prior_a, "prior_a"), as_mixture(prior_b, "prior_b")
    if prior_a.dimension != prior_b.dimension:
        raise InputError(
            f"prior_a and prior_b must have as many latents, not {prior_a.dimension} and {prior_b.dimension}"
        )
    if isinstance(refined, bool) or not isinstance(refined, int | np.integer) or refined < 1:
        raise InputError(f"refined must be a whole number of at least 1, not {refined!r}")
    check_smoothing(smoothing)
    frame_a, frame_b = _frame(prior_a), _frame(prior_b)
    if len(frame_a.white) != len(frame_b.white):
        raise InputError(
            f"prior_a varies along {len(frame_a.white)} directions and prior_b along {len(frame_b.white)}, so that no "
            "invertible affine map brings them together"
        )
    p, q = prior_a.pushed(frame_a.white, frame_a.centre), prior_b.pushed(frame_b.white, frame_b.centre)
    noise = smoothing**2 * frame_b.white @ frame_b.white.T
    if smoothing == 0 and (p.degenerate or q.degenerate):
        raise InputError("a component lies on a subspace, so that densities do not exist; give a smoothing above 0")
    starts = component_starts(p, q, seed=seed)
    best, followed = _least(_Objective(p, q, noise), starts, int(refined))
    before = l2_distance(prior_a, prior_b, smoothing=smoothing)

    def after(affine: tuple[Float, Float]) -> L2:
        return l2_distance(prior_a.pushed(*affine), prior_b, smoothing=smoothing)

    chosen = _joined(best, frame_a, frame_b)
    if not after(chosen).log_distance <= before.log_distance:
        # the search ran off to maps that make points of components: one of the starts, or no map at all, is better
        plain = (np.eye(prior_a.dimension), np.zeros(prior_a.dimension))
        chosen = min(
            [plain, *(_joined(start, frame_a, frame_b) for start in starts)], key=lambda m: after(m).log_distance
        )
    return AffineDistance(after(chosen), *chosen, before, len(starts), followed)


@dataclass(frozen=True, eq=False)
class _Frame:
    """white @ z + centre has mean 0 and covariance 1 on the directions along which a law varies."""

    white: Float  # (r, m)
    centre: Float  # (r,)
    back: Float  # (m, r), so that back @ white projects onto those directions
    idle: Float  # (m - r, m), orthonormal, the others
    mean: Float  # (m,)


def _frame(prior: GaussianMixture) -> _Frame:
    values, axes = np.linalg.eigh(prior.covariance)
    kept = values > FLAT * max(values[-1], np.finfo(float).tiny)
    if not kept.any():
        raise InputError("a mixture that is one point has no density; give one that varies")
    white = (axes[:, kept] / np.sqrt(values[kept])).T
    back = axes[:, kept] * np.sqrt(values[kept])
    return _Frame(white, -white @ prior.mean, back, axes[:, ~kept].T, prior.mean)


def _joined(start: Start, a: _Frame, b: _Frame) -> tuple[Float, Float]:
    """The map between the given frames: directions along which nothing varies are carried onto each other."""
    matrix = b.back @ start.matrix @ a.white + b.idle.T @ a.idle
    return matrix, b.back @ start.shift + b.mean - matrix @ a.mean


class _Objective:
    """||h p - q||^2 / <q, q> of maps h, with its gradient; both laws white, and `noise` (m, m) added to both."""

    def __init__(self, p: GaussianMixture, q: GaussianMixture, noise: Float) -> None:
        self.m = p.dimension
        i, j = (g.ravel() for g in np.indices((p.components, q.components)))
        k, h = np.triu_indices(p.components)  # the order of two components of p does not matter
        twice = np.where(k == h, 1.0, 2.0)
        # every term is weight * N(A u + o + moved * b; 0, A s A^T + e)
        self.weights = np.concatenate([-2 * p.weights[i] * q.weights[j], twice * p.weights[k] * p.weights[h]])
        self.u = np.vstack([p.means[i], p.means[k] - p.means[h]])
        self.o = np.vstack([-q.means[j], np.zeros((len(k), self.m))])
        self.moved = np.repeat([1.0, 0.0], [len(i), len(k)])
        self.s = np.vstack([p.covariances[i], p.covariances[k] + p.covariances[h]])
        own = np.zeros((len(k), self.m, self.m))
        self.e = np.vstack([q.covariances[j], own]) + 2 * noise
        a, b = (g.ravel() for g in np.indices((q.components, q.components)))
        logs = log_normal(q.means[a] - q.means[b], q.covariances[a] + q.covariances[b] + 2 * noise)
        self.scale = float(np.logaddexp.reduce(logs + np.log(q.weights[a] * q.weights[b])))

    def __call__(self, theta: Float) -> tuple[float, Float]:
        found = self._terms(theta)
        if found is None:
            return 1e6, np.zeros_like(theta)
        m, (values, away, turned, covariances) = self.m, found
        inverse = np.linalg.inv(covariances)
        pull = (inverse @ away[..., None])[..., 0]
        pushed = values[:, None] * pull
        # the sum over terms of value * ((pull pull^T - inverse) A s - pull u^T), as products of tall matrices
        slope = pushed.T @ ((pull[:, None] @ turned)[:, 0] - self.u)
        slope -= (values[:, None, None] * inverse).reshape(-1, m).T @ turned.reshape(-1, m)
        return 1.0 + float(values.sum()), np.concatenate([slope.ravel(), -(self.moved @ pushed)])

    def value(self, theta: Float) -> float:
        """The same without the gradient."""
        found = self._terms(theta)
        return 1e6 if found is None else 1.0 + float(found[0].sum())

    def _terms(self, theta: Float) -> tuple[Float, Float, Float, Float] | None:
        """Values of all terms, their arguments, A s, and covariances; None where the map has lost a direction."""
        m = self.m
        matrix, shift = theta[: m**2].reshape(m, m), theta[m**2 :]
        # One product of tall matrices is far cheaper than one for each term; covariances are their own transposes.
        half = (self.s.reshape(-1, m) @ matrix.T).reshape(self.s.shape)
        turned = np.ascontiguousarray(half.transpose(0, 2, 1))
        covariances = (turned.reshape(-1, m) @ matrix.T).reshape(self.s.shape) + self.e
        away = self.u @ matrix.T + self.o + self.moved[:, None] * shift
        logs = log_normal(away, covariances)
        if not np.isfinite(logs).all():
            return None
        with np.errstate(over="ignore"):
            values = self.weights * np.exp(np.minimum(logs - self.scale, 100.0))
        return values, away, turned, covariances


def _least(objective: _Objective, starts: Sequence[Start], refined: int) -> tuple[Start, int]:
    from scipy.optimize import minimize

    thetas = [np.concatenate([start.matrix.ravel(), start.shift]) for start in starts]
    order = np.argsort([objective.value(theta) for theta in thetas], kind="stable")[:refined]
    best, least, followed = thetas[order[0]], math.inf, 0
    for index in order:
        found = minimize(objective, thetas[index], jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 500})
        followed += 1
        if found.fun < least:
            best, least = found.x, float(found.fun)
        if least < NEARLY:
            break
    m = objective.m
    return Start(best[: m**2].reshape(m, m), best[m**2 :]), followed
