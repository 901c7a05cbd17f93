"""Search for the affine map that minimises the distance between two whitened mixtures.

Random rotations are poor starts: between distant components the distance is flat. If two mixtures are equal up to an
affine map, their whitened forms are equal up to a rotation that maps components onto components, so every matching of
components yields a start. If they are not, the best map may match single components, so every map of one component
onto one is a start as well. A map z -> A z + b is one vector theta: the rows of A, then b.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations, product

import numpy as np

from congruence.arrays import Array, Float
from congruence.mixture.priors import GaussianMixture, log_normal
from congruence.stats.matching import match

_MOST_MATCHINGS = 720  # all permutations of six components
_DRAWN = 60  # matchings drawn where all would be too many
_ROUNDS = 5  # of matching the components again after a map
_SIGNS = 4  # axes whose sign the means do not determine, for which all signs are tried
_ORDERS = 3  # dimensions up to which axes are matched in all orders
_FLAT = 1e-12  # variance that counts as none
_FIRST_STEP = 0.2  # relative change of a map by the first step of BFGS
_RIDGE = 1e-3  # of the least-squares fit of means, which keeps the map determined with few means
_CONVERGED = 1e-9  # relative: a squared distance below this is rounding, and the search stops


def minimise_distance(
    p: GaussianMixture, q: GaussianMixture, noise: Float, refined: int, seed: int
) -> tuple[Float, list[Float], int]:
    """Return the best map from p to q, the starts, and how many of them were minimised; `noise`, (m, m), is smoothing.

    The starts with the smallest distances are minimised first, `refined` of them at most.
    """
    from scipy.optimize import minimize

    objective, m = Objective(p, q, noise), p.dimension

    def rank(thetas: list[Float]) -> list[Float]:
        return [thetas[i] for i in np.argsort([objective.value(theta) for theta in thetas], kind="stable")]

    def times(matrix: Float, theta: Float) -> Float:
        return np.concatenate([(matrix @ theta[: m**2].reshape(m, m)).ravel(), matrix @ theta[m**2 :]])

    def minimise(start: Float) -> tuple[Float, float]:
        """Minimise over maps h_0 o (z -> z + step (X z + x)) near a start h_0.

        The first step of BFGS has a length of about 1. In the coordinates X, x it is a small change of any start; in
        the coordinates of the target it would leave a narrow component at once.
        """
        step = _FIRST_STEP * start[: m**2].reshape(m, m)

        def local(x: Float) -> tuple[float, Float]:
            value, slope = objective(start + times(step, x))
            return value, times(step.T, slope)

        options = {"gtol": 1e-9, "maxiter": 500}
        result = minimize(local, np.zeros_like(start), jac=True, method="BFGS", options=options)
        return start + times(step, result.x), float(result.fun)

    matched = rank(_starts(p, q, seed))
    onto = rank([rank(maps)[0] for maps in _parts_onto_parts(p, q) if maps])
    starts = [*matched, *onto]
    best, least, minimised = starts[0], math.inf, 0
    for start in (*matched[:refined], *onto[:refined]):
        found, value = minimise(start)
        minimised += 1
        if value < least:
            best, least = found, value
        if least < _CONVERGED:
            break
    return best, starts, minimised


class Objective:
    """||h p - q||^2 / <q, q> of maps h, with its gradient; `noise`, (m, m), is added to both covariances."""

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
        self.e = np.vstack([q.covariances[j], np.zeros((len(k), self.m, self.m))]) + 2 * noise
        a, b = (g.ravel() for g in np.indices((q.components, q.components)))
        logs = log_normal(q.means[a] - q.means[b], q.covariances[a] + q.covariances[b] + 2 * noise)
        self.scale = float(np.logaddexp.reduce(logs + np.log(q.weights[a] * q.weights[b])))

    def __call__(self, theta: Float) -> tuple[float, Float]:
        terms = self._terms(theta)
        if terms is None:
            return 1e6, np.zeros_like(theta)
        m, (values, away, turned, covariances) = self.m, terms
        inverse = np.linalg.inv(covariances)
        pull = (inverse @ away[..., None])[..., 0]
        pushed = values[:, None] * pull
        # the sum over terms of value * ((pull pull^T - inverse) A s - pull u^T), as products of tall matrices
        slope = pushed.T @ ((pull[:, None] @ turned)[:, 0] - self.u)
        slope -= (values[:, None, None] * inverse).reshape(-1, m).T @ turned.reshape(-1, m)
        return 1.0 + float(values.sum()), np.concatenate([slope.ravel(), -(self.moved @ pushed)])

    def value(self, theta: Float) -> float:
        """The objective without its gradient."""
        terms = self._terms(theta)
        return 1e6 if terms is None else 1.0 + float(terms[0].sum())

    def _terms(self, theta: Float) -> tuple[Float, Float, Float, Float] | None:
        """The values of all terms, their arguments, A s, and covariances; None if the map is singular."""
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


def _starts(p: GaussianMixture, q: GaussianMixture, seed: int) -> list[Float]:
    """The identity, and several maps for each matching of components."""
    m = p.dimension
    starts = [(np.eye(m), np.zeros(m))]
    for rows, columns in _matchings(p, q, seed):
        least_squares, rotation = _fit_means(p, q, rows, columns)
        starts.append(least_squares)
        starts += [(turn, np.zeros(m)) for turn in (rotation, *_rotate_axes(p, q, rows, columns))]
    return [np.concatenate([a.ravel(), b]) for a, b in starts if abs(np.linalg.det(a)) > 1e-6]


def _parts_onto_parts(p: GaussianMixture, q: GaussianMixture) -> Iterator[list[Float]]:
    """Maps of one component of p, or of the whole, onto one of q, or the whole: mean onto mean, axes onto axes.

    If the mixtures are not equal up to an affine map, the best map may match one narrow component and leave the others.
    The axes may be matched in any order and with any signs; in more than three dimensions, in order of the variances.
    """
    m = p.dimension
    orders = list(permutations(range(m))) if m <= _ORDERS else [tuple(range(m))]
    signs = [np.array([*flips, *[1.0] * (m - len(flips))]) for flips in product((1.0, -1.0), repeat=min(m, _SIGNS))]
    sources, targets = (
        [(np.zeros(m), np.eye(m)), *zip(g.means, g.covariances, strict=True)] for g in (p, q)
    )  # both are whitened
    for (mean, covariance), (goal, spread) in product(sources, targets):
        (values, axes), (wanted, turned) = np.linalg.eigh(covariance), np.linalg.eigh(spread)
        if values[0] <= _FLAT * values[-1]:
            continue
        maps = []
        for order, flips in product(orders, signs):
            factors = flips * np.sqrt(np.maximum(wanted, _FLAT)[list(order)] / values)
            matrix = (turned[:, list(order)] * factors) @ axes.T
            maps.append(np.concatenate([matrix.ravel(), goal - matrix @ mean]))
        yield maps


def _matchings(p: GaussianMixture, q: GaussianMixture, seed: int) -> Iterator[tuple[Array, Array]]:
    """Matchings of the components of the smaller mixture with those of the other: all of them, or likely ones."""
    few, many = sorted((p.components, q.components))
    if math.perm(many, few) <= _MOST_MATCHINGS:
        for chosen in permutations(range(many), few):
            one, other = np.arange(few), np.array(chosen)
            yield (one, other) if p.components == few else (other, one)
        return
    rng = np.random.default_rng(seed)
    features = []  # of each component, which no rotation changes: weight, distance from the mean, variances
    for g in (p, q):
        spread = np.sqrt(np.maximum(np.linalg.eigvalsh(g.covariances), 0))  # (J, m)
        along = np.sqrt(np.maximum(np.einsum("ja,jab,jb->j", g.means, g.covariances, g.means), 0))
        features.append(np.column_stack([np.log(g.weights), np.linalg.norm(g.means, axis=1), along, spread]))
    cost = np.asarray(((features[0][:, None] - features[1]) ** 2).sum(-1))
    typical = float(np.median(cost))
    seen = set()
    for draw in range(_DRAWN):
        rows, columns = match(-cost - (0 if draw == 0 else typical * rng.exponential(0.1 + draw / _DRAWN, cost.shape)))
        for _ in range(_ROUNDS):
            if tuple(columns) in seen:
                break
            seen.add(tuple(columns))
            yield rows, columns
            matrix, shift = _fit_means(p, q, rows, columns)[0]
            away = (p.means @ matrix.T + shift)[:, None] - q.means
            rows, columns = match(-(away**2).sum(-1) - 0.1 * cost)


def _fit_means(
    p: GaussianMixture, q: GaussianMixture, rows: Array, columns: Array
) -> tuple[tuple[Float, Float], Float]:
    """The affine map of matched means by least squares, regularised towards the best rotation; and that rotation."""
    m = p.dimension
    weights = np.sqrt(p.weights[rows] * q.weights[columns])[:, None]
    source, target = p.means[rows], q.means[columns]
    u, _, vt = np.linalg.svd((target * weights).T @ source)
    rotation = np.asarray(u @ vt)
    x = np.column_stack([source, np.ones(len(source))])
    gram = x.T @ (weights * x) + _RIDGE * np.eye(m + 1)
    solved = np.linalg.solve(gram, x.T @ (weights * target) + _RIDGE * np.vstack([rotation.T, np.zeros(m)]))
    return (solved[:m].T, solved[m]), rotation


def _rotate_axes(p: GaussianMixture, q: GaussianMixture, rows: Array, columns: Array) -> Iterator[Float]:
    """Rotations that map the axes of matched covariances onto each other, with signs determined by the means."""
    # Unequal factors, so that covariances that sum to the identity keep axes; the same for both mixtures.
    factors = 1.0 / (2.0 + np.arange(len(rows)))
    source = np.linalg.eigh(np.tensordot(factors, p.covariances[rows], 1))[1]
    target = np.linalg.eigh(np.tensordot(factors, q.covariances[columns], 1))[1]
    a, b = p.means[rows] @ source, q.means[columns] @ target
    products = (a * b).sum(0)
    size = np.sqrt((a * a).sum(0) * (b * b).sum(0))
    undetermined = np.flatnonzero(np.abs(products) < 0.1 * np.maximum(size, 1e-3))[:_SIGNS]
    signs = np.where(products < 0, -1.0, 1.0)
    for flipped in product((1.0, -1.0), repeat=len(undetermined)):
        signs[undetermined] = flipped
        yield np.asarray((target * signs) @ source.T)
