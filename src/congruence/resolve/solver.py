"""The rotation that makes whitened rows as independent as a rotation can.

The solver looks for a stationary point of sum_i sign_i E[G(s_i)] over orthogonal matrices, s = rotation @ z, with
sign_i chosen so that every component is pushed away from the Gaussian: sub- and super-Gaussian sources at once.

With C = E[g(s) s^T], slopes E[g'(s_i)] and kappa_i = E[g'(s_i)] - E[g(s_i) s_i], the gradient of a small rotation in
the plane (i, j) is (sign_i C_ij - sign_j C_ji) / 2 and, for independent components, its curvature is
(|kappa_i| + |kappa_j|) / 2. The symmetric fixed point of FastICA (Hyvärinen 1999) is the Newton step for that curvature
(Ablin, Cardoso & Gramfort 2018), and converges in a few passes on mixtures. On rows that are not a mixture the true
curvature is another, and the fixed point circles; L-BFGS then learns it, with that curvature to start from.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from scipy import linalg

from congruence.arrays import Array, Float
from congruence.maps.algebra import eigh, one_thread, svd
from congruence.resolve.passes import Averages

MEMORY = 10  # steps L-BFGS remembers
GAIN = 0.003  # a fixed point that adds less than this share of contrast a pass is not getting anywhere
UNDECIDED = 30  # passes after which rows that are not white no longer change the signs of their components
LARGEST_STEP = 0.5  # radians in any plane, for a step of L-BFGS
BACKTRACKS = 6
SETTLED = 0.001  # share of contrast gained in five steps, below which components are told apart from noise
# Radians of sampling error from which on a component may be noise: in all, and in the plane with any other component.
# Components fitted to nothing but Gaussian noise have 0.24 to 0.5 in all, whatever the number of rows and dimensions,
# since the solver finds the direction that looks least Gaussian. With only one other to turn against this varies more,
# but one in a hundred falls below 0.12.
FREE = 0.2
FREE_PAIR = 0.12
GRADIENT_TOLERANCE = 30  # times `tol`: what is left of the gradient of a random rotation, before the last step


class Averaging(Protocol):
    """What can be asked for the averages at a rotation: `passes.Passes`, on whatever machine."""

    n: int
    k: int

    def averages(self, rotation: Float) -> Averages:
        """The averages over all rows at a rotation, shape (k, k)."""


@dataclass(frozen=True, eq=False)
class Point:
    """A rotation with its gradient and curvature in every plane of two components."""

    rotation: Float  # (k, k)
    at: Averages
    n: int
    votes: Float  # (k,) 1 for components that say where to turn, 0 for those that only make room
    covariance: Float | None = None  # (k, k) of the rows, where they are not white
    held: Float | None = None  # (k,) signs that no longer follow the components

    @property
    def kappa(self) -> Float:
        """How far each component is from Gaussian, as the contrast sees it: its sign tells super from sub, (k,)."""
        return np.asarray(self.at.slope * self.variances - np.diag(self.at.cross))

    @property
    def variances(self) -> Float:
        """Of the components, (k,): 1 where the rows are white."""
        if self.covariance is None:
            return np.ones(len(self.rotation))
        return np.asarray(np.einsum("ij,ij->i", self.rotation @ self.covariance, self.rotation))

    @property
    def signs(self) -> Float:
        """The direction away from the Gaussian, 0 for components without a vote, (k,)."""
        if self.held is not None:
            return self.held
        return np.where(self.kappa >= 0, self.votes, -self.votes)

    @property
    def gradient(self) -> Float:
        """Of a rotation in each plane, skew-symmetric, (k, k)."""
        pushed = self.signs[:, None] * self.at.cross
        return np.asarray((pushed - pushed.T) / 2)

    @property
    def steepest(self) -> float:
        """The largest gradient of any plane."""
        return float(np.abs(self.gradient).max(initial=0))

    @property
    def curvature(self) -> Float:
        """Of a rotation in each plane, were the components independent, (k, k)."""
        size = np.abs(self.kappa) * self.votes
        if self.covariance is not None:
            own = self.signs[:, None] * (np.outer(self.at.slope, self.variances) - np.diag(self.at.cross)[:, None])
            return np.asarray(np.maximum((own + own.T) / 2, 0.01 * size.mean()))
        return np.asarray((size[:, None] + size) / 2)

    @property
    def contrast(self) -> float:
        """How far all components together are from Gaussian."""
        return float(np.abs(self.kappa).sum())

    @property
    def pair_errors(self) -> Float:
        """Share of component j in component i that the number of rows leaves open, in radians, (k, k).

        That of independent components under the symmetric fixed point (Tichavský, Koldovský & Oja 2006, eq. 11).
        """
        own, size = np.diag(self.at.cross), np.abs(self.kappa)
        noise = np.maximum(self.at.power - own**2, 0)  # (k,)
        variance = (noise[:, None] + noise + size**2) / np.maximum(size[:, None] + size, 1e-150) ** 2
        np.fill_diagonal(variance, 0)
        return np.asarray(np.sqrt(variance / self.n))

    @property
    def sampling_error(self) -> Float:
        """Angle between a component and what it would be with endless rows, in radians, as expected by chance, (k,)."""
        return np.asarray(np.linalg.norm(self.pair_errors, axis=1))

    @property
    def noise(self) -> Array:
        """Whether a component cannot be told from Gaussian noise, (k,)."""
        errors = self.pair_errors
        return np.asarray((np.linalg.norm(errors, axis=1) >= FREE) | (errors.max(1, initial=0) >= FREE_PAIR))

    def turned(self, by: Float, source: Averaging) -> Point:
        """The point after a further rotation `by`; one pass over the rows."""
        rotation = by @ self.rotation
        return replace(self, rotation=rotation, at=source.averages(rotation))


@dataclass(eq=False)
class Solution:
    """Where the solver stopped, and how it went."""

    point: Point
    converged: bool
    reason: str  # why it stopped: "converged", "gaussian" (no component can be told from noise) or "cap"
    reference: float  # largest gradient at a random rotation
    changes: list[float] = field(default_factory=list)  # largest turn the next step makes, per pass, in radians
    gradients: list[float] = field(default_factory=list)  # largest gradient, relative to a random rotation's
    switched: int | None = None  # the pass at which L-BFGS took over

    @property
    def rotation(self) -> Float:
        """The rotation found, (k, k)."""
        return self.point.rotation

    def record(self, step: Float) -> None:
        """Take down how far the next step turns, and the gradient it starts from."""
        turned = np.abs(step - np.diag(np.diag(step)))
        self.changes.append(float(turned.max()))
        self.gradients.append(self.point.steepest / self.reference)


def random_rotation(k: int, rng: np.random.Generator) -> Float:
    """A rotation drawn uniformly from all of them, (k, k)."""
    q, r = linalg.qr(rng.normal(size=(k, k)))
    return np.asarray(q * np.sign(np.diag(r)))


def random_gradient(source: Averaging, rng: np.random.Generator, n: int) -> float:
    """The largest gradient at a random rotation of n rows, of which `source` may be a sample.

    A gradient is signal and sampling noise, and with more rows there is less noise.
    """
    rotation = random_rotation(source.k, rng)
    point = Point(rotation, source.averages(rotation), source.n, np.ones(source.k))
    noise = 0.5 * float(np.mean(point.at.power - np.diag(point.at.cross) ** 2))  # variance of one row's gradient
    signal = max(float(np.square(point.gradient).mean()) - noise / source.n, 0.0)
    share = (signal + noise / n) / max(signal + noise / source.n, 1e-300)
    return point.steepest * float(np.sqrt(min(share, 1.0)))


def solve(
    source: Averaging,
    start: Float,
    *,
    tol: float = 1e-4,
    max_iter: int = 500,
    reference: float | None = None,
    covariance: Float | None = None,
    decide: bool = True,
) -> Solution:
    """Turn `start` until the components no longer move.

    Parameters
    ----------
    source : Averaging
        The whitened rows.
    start : (k, k)
        Where to begin, orthogonal.
    tol : float
        Converged when the next step would turn no pair of components by more than this, in radians, and the gradient is
        below 30 times this share of a random rotation's.
    max_iter : int
        Passes over the rows at most.
    reference : float, optional
        The largest gradient at a random rotation; that of `start` if not given.
    covariance : (k, k), optional
        Of the rows, where they are not white. Components can then not be told from noise.
    decide : bool
        Tell components from noise, and turn on with the votes of the former alone.
    """
    with one_thread(source.k):
        first = Point(start, source.averages(start), source.n, np.ones(source.k), covariance)
        scale = reference if reference is not None else first.steepest
        solution = Solution(first, False, "cap", max(scale, 1e-300))
        if source.k <= 1 or scale == 0:
            solution.converged, solution.reason = True, "converged"
            return solution
        if covariance is not None or not _fixed_point(source, solution, tol, max_iter):
            solution.switched = len(solution.changes)
            _lbfgs(source, solution, tol, max_iter)
        if decide and covariance is None:
            _let_noise_abstain(source, solution, tol, max_iter)
    return solution


def _let_noise_abstain(source: Averaging, solution: Solution, tol: float, max_iter: int) -> None:
    """Turn on with the votes of those components alone that can be told from noise.

    Where the noise has come to rest depends on the start, and would otherwise pull at all other components.
    """
    noise = solution.point.noise
    if not noise.any():
        return
    if noise.all():
        solution.converged, solution.reason = False, "gaussian"
        return
    if _is_capped(solution, max_iter) and not solution.converged:
        return
    if solution.converged:  # the step that was taken down is not the next one any more
        solution.changes.pop(), solution.gradients.pop()
    solution.point = replace(solution.point, votes=np.where(noise, 0.0, 1.0))
    solution.converged, solution.reason = False, "cap"
    _lbfgs(source, solution, tol, max_iter)


def _fixed_point(source: Averaging, solution: Solution, tol: float, max_iter: int) -> bool:
    """Take fixed-point steps while they help; True if there is nothing left to do."""
    contrasts = [solution.point.contrast]
    while True:
        point = solution.point
        step = polar(_newton_matrix(point))
        if _is_done(solution, step, tol, max_iter):
            return True
        solution.point = point.turned(step, source)
        contrasts.append(solution.point.contrast)
        gain = contrasts[-1] - contrasts[max(0, len(contrasts) - 4)]
        slow = len(contrasts) > 5 and gain < 3 * GAIN * contrasts[-1]
        if slow and solution.point.steepest > point.steepest / 2:
            return False


def _newton_matrix(point: Point) -> Float:
    """The matrix whose nearest rotation is the fixed-point step, in the coordinates of the components."""
    matrix = -point.signs[:, None] * point.at.cross
    np.fill_diagonal(matrix, np.abs(point.kappa))
    return np.asarray(matrix)


def _lbfgs(source: Averaging, solution: Solution, tol: float, max_iter: int) -> None:
    """L-BFGS on the orthogonal group, with steps judged by the gradient alone: no pass is spent on the contrast."""
    memory: list[tuple[Float, Float]] = []
    contrasts = [solution.point.contrast]
    while True:
        point = solution.point
        if point.covariance is not None and point.held is None and len(solution.changes) >= UNDECIDED:
            # Away from whiteness a component may be sub-Gaussian on one side and super-Gaussian on the other.
            point = solution.point = replace(point, held=point.signs)
        direction = _direction(point, memory)
        length = min(1.0, LARGEST_STEP / max(np.abs(direction).max(), 1e-300))
        if _is_done(solution, _cayley(length * direction), tol, max_iter):
            return
        length = _search(source, solution, direction, length, max_iter)
        _remember(memory, point, solution.point, length * direction)
        contrasts.append(solution.point.contrast)
        settled = len(contrasts) > 10 and abs(contrasts[-1] / contrasts[-6] - 1) < SETTLED
        undecided = solution.point.votes.all() and solution.point.covariance is None
        if settled and undecided and solution.point.noise.any():
            return  # what is left to be gained is noise


def _search(source: Averaging, solution: Solution, direction: Float, length: float, max_iter: int) -> float:
    """Move along `direction`, shortening the step while it overshoots; how far the solution was moved."""
    point = solution.point
    slope = float((direction * point.gradient).sum())
    for attempt in range(BACKTRACKS):
        if attempt and _is_capped(solution, max_iter):
            break
        if attempt:
            solution.record(_cayley(length * direction))
        solution.point = point.turned(_cayley(length * direction), source)
        ahead = float((direction * solution.point.gradient).sum())
        if ahead <= -0.9 * slope:
            break
        taken, length = length, length * min(0.7, max(0.1, slope / (slope - ahead)))  # the root, were it linear
    else:
        return taken
    return length


def _direction(point: Point, memory: list[tuple[Float, Float]]) -> Float:
    """The step L-BFGS suggests (two-loop recursion), or the Newton step for independent components."""
    curvature = np.maximum(point.curvature, 0.01 * np.median(point.curvature))
    left, weights = point.gradient, []
    for step, change in reversed(memory):
        weight = (step * left).sum() / (step * change).sum()
        left = left - weight * change
        weights.append(weight)
    left = left / np.maximum(curvature, 1e-300)
    for (step, change), weight in zip(memory, reversed(weights), strict=True):
        left = left + (weight - (change * left).sum() / (step * change).sum()) * step
    if (left * point.gradient).sum() <= 0:  # not downhill: what is remembered no longer holds
        memory.clear()
        left = point.gradient / np.maximum(curvature, 1e-300)
    return np.asarray(-left)


def _remember(memory: list[tuple[Float, Float]], point: Point, following: Point, step: Float) -> None:
    if (point.signs != following.signs).any():  # another objective from here on
        memory.clear()
        return
    change = following.gradient - point.gradient
    if (step * change).sum() > 1e-10 * linalg.norm(step) * linalg.norm(change):
        memory.append((step, change))
        del memory[:-MEMORY]


def _is_done(solution: Solution, step: Float, tol: float, max_iter: int) -> bool:
    """Take down the step that comes next, and say whether it is still worth a pass over the rows."""
    solution.record(step)
    if solution.changes[-1] < tol and solution.gradients[-1] < GRADIENT_TOLERANCE * tol:
        solution.converged, solution.reason = True, "converged"
        # The last step is so small that the averages hold after it, too; it needs no pass of its own.
        solution.point = replace(solution.point, rotation=step @ solution.point.rotation)
    return solution.converged or _is_capped(solution, max_iter)


def _is_capped(solution: Solution, max_iter: int) -> bool:
    return len(solution.changes) >= max_iter


def _cayley(skew: Float) -> Float:
    """A rotation that agrees with exp(skew) to second order."""
    half, one = skew / 2, np.eye(len(skew))
    return np.asarray(linalg.solve(one - half, one + half))


def polar(matrix: Float) -> Float:
    """The orthogonal matrix nearest to `matrix`.

    From the eigenvectors of its square, which is faster than a singular value decomposition, polished by one
    Newton-Schulz step; from a singular value decomposition where the square has lost too much.
    """
    values, vectors = eigh(matrix @ matrix.T)
    if values[0] < 1e-8 * values[-1]:
        u, _, vt = svd(matrix)
        return u @ vt
    near = (vectors / np.sqrt(values)) @ vectors.T @ matrix
    return np.asarray(1.5 * near - 0.5 * near @ near.T @ near)
