"""The rotation that makes whitened rows as independent as a rotation can.

The solver looks for a stationary point of sum_i sign_i E[G(s_i)] over orthogonal matrices, s = rotation @ z, with
sign_i chosen so that every component is pushed away from the Gaussian: sub- and super-Gaussian sources at once.

The symmetric fixed point of FastICA (Hyvärinen 1999) is the Newton step for the curvature of independent components
(Ablin, Cardoso & Gramfort 2018), and converges in a few passes on mixtures. On rows that are not a mixture the true
curvature is another, and the fixed point cycles; L-BFGS then learns it, with that curvature to start from. Components
that are indistinguishable from noise are frozen in the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Float, as_float64_like, library, to_numpy
from congruence.ica.point import Averaging, Point, point_at
from congruence.ica.rotations import cayley, polar
from congruence.maps.algebra import one_thread

MEMORY = 10  # steps L-BFGS remembers
GAIN = 0.003  # a fixed point that adds less than this share of contrast a pass is not getting anywhere
UNDECIDED = 30  # passes after which rows that are not white no longer change the signs of their components
LARGEST_STEP = 0.5  # radians in any plane, for a step of L-BFGS
BACKTRACKS = 6
SETTLED = 0.001  # share of contrast gained in five steps, below which components are judged against noise
GRADIENT_TOLERANCE = 30  # times `tol`: what is left of the gradient of a random rotation, before the last step
ROUGH_TURN, ROUGH_GRADIENT = 0.01, 0.1  # above both, rounded products do; the gradient is relative to a random one

Memory = list[tuple[Any, Any]]  # steps taken, and how each changed the gradient


@dataclass(eq=False)
class Solution:
    """Where and why the solver stopped."""

    point: Point
    converged: bool
    reason: str  # why it stopped: "converged", "gaussian" (all components indistinguishable from noise) or "cap"
    reference: float  # largest gradient at a random rotation
    tol: float
    max_iter: int
    changes: list[float] = field(default_factory=list)  # largest turn the next step makes, per pass, in radians
    gradients: list[float] = field(default_factory=list)  # largest gradient, relative to a random rotation's
    switched: int | None = None  # the pass at which L-BFGS took over
    rough: bool = False  # whether the averages at the point are of rounded products
    moves: Any = None  # (k,) how far the next step turns each component against any other, in radians

    @property
    def rotation(self) -> Float:
        """The rotation found, (k, k)."""
        return to_numpy(self.point.rotation)

    @property
    def capped(self) -> bool:
        """Whether no further pass is allowed."""
        return len(self.changes) >= self.max_iter

    def record(self, step: Any) -> None:
        """Record how far the next step turns, and the gradient it starts from."""
        xp = library(step)
        self.moves = xp.amax(abs(step - xp.diag(xp.diag(step))), 1)
        self.changes.append(float(self.moves.max()))
        self.gradients.append(self.point.steepest / self.reference)

    def ends_with(self, step: Any) -> bool:
        """Record the next step; return whether the solver should stop."""
        self.record(step)
        still = self.changes[-1] < self.tol and self.gradients[-1] < GRADIENT_TOLERANCE * self.tol
        if still and not self.rough:
            self.converged, self.reason = True, "converged"
            # The last step is so small that the averages hold after it, too; it needs no pass of its own.
            self.point = replace(self.point, rotation=step @ self.point.rotation)
        return self.converged or self.capped

    def turn(self, step: Any, source: Averaging) -> None:
        """Take a step; once steps are small, products are no longer rounded."""
        self.rough = self.rough and self.changes[-1] > ROUGH_TURN and self.gradients[-1] > ROUGH_GRADIENT
        self.point = self.point.turned(step, source, rough=self.rough)


def solve(
    source: Averaging,
    start: Float,
    *,
    tol: float = 1e-4,
    max_iter: int = 500,
    reference: float | None = None,
    covariance: Float | None = None,
    noise: str = "frozen",
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
        Of the rows, where they are not white. Components are then not judged against noise.
    noise : {"frozen", "free", "ignored"}
        What happens to components that are indistinguishable from noise. "frozen": they no longer determine the
        rotation, and the others are rotated until they converge. "free": they count like all others, as in FastICA.
        "ignored": the solver stops when only they still move.
    """
    with one_thread(source.k):
        rough = source.rounds and covariance is None
        first = point_at(start, source, covariance, rough=rough)
        scale = reference if reference is not None else first.steepest
        solution = Solution(first, False, "cap", max(scale, 1e-300), tol, max_iter, rough=rough)
        if source.k <= 1 or scale == 0:
            solution.converged, solution.reason = True, "converged"
            return solution
        if covariance is not None or not _fixed_point(source, solution):
            solution.switched = len(solution.changes)
            _lbfgs(source, solution, noise_matters=noise == "free" or covariance is not None)
        if noise == "frozen" and covariance is None:
            _freeze_noise(source, solution)
    return solution


def _fixed_point(source: Averaging, solution: Solution) -> bool:
    """Take fixed-point steps while they help; True if there is nothing left to do."""
    contrasts = [solution.point.contrast]
    while True:
        point = solution.point
        step = polar(_newton_matrix(point))
        if solution.ends_with(step):
            return True
        solution.turn(step, source)
        contrasts.append(solution.point.contrast)
        gain = contrasts[-1] - contrasts[max(0, len(contrasts) - 4)]
        slow = len(contrasts) > 5 and gain < 3 * GAIN * contrasts[-1]
        if slow and solution.point.steepest > point.steepest / 2:
            return False


def _newton_matrix(point: Point) -> Any:
    """The matrix whose nearest rotation is the fixed-point step, in the coordinates of the components."""
    matrix, xp = -point.signs[:, None] * point.at.cross, library(point.rotation)
    return matrix + xp.diag(abs(point.kappa) - xp.diag(matrix))


def _freeze_noise(source: Averaging, solution: Solution) -> None:
    """Continue with only those components active that are distinguishable from noise.

    Where noise components converge depends on the start, and would otherwise affect all other components.
    """
    noise = to_numpy(solution.point.noise)
    if not noise.any():
        return
    if noise.all():
        solution.converged, solution.reason = False, "gaussian"
        return
    if solution.capped and not solution.converged:
        return
    if solution.converged:  # the recorded step is no longer the next one
        solution.changes.pop(), solution.gradients.pop()
    solution.point = replace(solution.point, active=source.lift(np.where(noise, 0.0, 1.0)))
    solution.converged, solution.reason = False, "cap"
    _lbfgs(source, solution, noise_matters=True)


def _lbfgs(source: Averaging, solution: Solution, *, noise_matters: bool) -> None:
    """L-BFGS on the orthogonal group, with steps judged by the gradient alone: no pass is spent on the contrast."""
    memory: Memory = []
    contrasts = [solution.point.contrast]
    while True:
        point = solution.point
        if point.covariance is not None and point.held is None and len(solution.changes) >= UNDECIDED:
            # Away from whiteness a component may be sub-Gaussian on one side and super-Gaussian on the other.
            point = solution.point = replace(point, held=point.signs)
        direction = _direction(point, memory)
        direction = direction * min(1.0, LARGEST_STEP / max(float(abs(direction).max()), 1e-300))
        step = cayley(direction)
        if solution.ends_with(step):
            return
        rough = solution.rough
        followed = _search(source, solution, direction, step)
        if rough == solution.rough:  # else the gradients before and after do not belong together
            _remember(memory, point, solution, followed)
        if solution.capped:  # while shortening the step
            return
        contrasts.append(solution.point.contrast)
        settled = len(contrasts) > 10 and abs(contrasts[-1] / contrasts[-6] - 1) < SETTLED
        if settled and not noise_matters and bool(solution.point.noise.any()):
            return  # what is left to be gained is noise


def _search(source: Averaging, solution: Solution, direction: Any, step: Any) -> Any:
    """Move along `direction`, shortening the step while it overshoots; the direction as long as it was followed."""
    point = solution.point
    slope = float((direction * point.gradient).sum())
    length = 1.0
    for _ in range(BACKTRACKS):
        solution.point = point
        solution.turn(step, source)
        ahead = float((direction * solution.point.gradient).sum())
        if ahead <= -0.9 * slope or solution.capped:
            break
        length *= min(0.7, max(0.1, slope / (slope - ahead)))  # where the gradient would vanish, were it linear
        step = cayley(length * direction)
        solution.record(step)
    return length * direction


def _direction(point: Point, memory: Memory) -> Any:
    """The step L-BFGS suggests, or the Newton step for independent components."""
    curvature = point.curvature
    curvature = curvature.clip(max(0.01 * float(library(curvature).median(curvature)), 1e-300))
    plain = point.gradient / curvature
    if not memory:
        return -plain
    left = plain + _learned(point.gradient, plain, curvature, memory)
    if (left * point.gradient).sum() <= 0:  # not downhill: what is remembered no longer holds
        memory.clear()
        left = plain
    return -left


def _learned(gradient: Any, plain: Any, curvature: Any, memory: Memory) -> Any:
    """What the steps remembered add to the Newton step `plain`.

    The compact form of L-BFGS (Byrd, Nocedal & Schnabel 1994): a few products of wide matrices, and not the twenty
    dependent ones of the two-loop recursion, which leave a GPU waiting.
    """
    xp, m = library(gradient), len(memory)
    steps = xp.stack([step for step, _ in memory]).reshape(m, -1)  # (m, k * k)
    changes = xp.stack([change for _, change in memory]).reshape(m, -1)
    eased = changes / curvature.ravel()
    right = xp.stack([gradient.ravel(), plain.ravel()], 1)  # (k * k, 2)
    sums = xp.concatenate([steps @ changes.T, changes @ eased.T, steps @ right[:, :1], changes @ right[:, 1:]], 1)
    seen = to_numpy(sums)  # (m, 2 m + 2), all that has to come from a GPU
    rising = np.triu(seen[:, :m])
    first = linalg.solve_triangular(rising, seen[:, -2])
    second = (np.diag(np.diag(rising)) + seen[:, m : 2 * m]) @ first - seen[:, -1]
    second = linalg.solve_triangular(rising, second, trans="T")
    there = as_float64_like(np.stack([second, first]), gradient)
    return (there[0] @ steps - there[1] @ eased).reshape(plain.shape)


def _remember(memory: Memory, point: Point, solution: Solution, step: Any) -> None:
    following = solution.point
    if bool((point.signs != following.signs).any()):  # another objective from here on
        memory.clear()
        return
    change = following.gradient - point.gradient
    if (step * change).sum() > 1e-10 * ((step**2).sum() * (change**2).sum()) ** 0.5:
        memory.append((step, change))
        del memory[:-MEMORY]
