"""The rotation that makes whitened rows as independent as a rotation can.

The solver finds a stationary point of sum_i sign_i E[G(s_i)] over orthogonal matrices, s = rotation @ z, with sign_i
chosen so that every component is pushed away from the Gaussian: sub- and super-Gaussian sources at once.

The symmetric fixed point of FastICA (Hyvärinen 1999) is the Newton step for the curvature of independent components
(Ablin, Cardoso & Gramfort 2018), and converges in a few passes on mixtures. On rows that are not a mixture the true
curvature is another, and the fixed point cycles; L-BFGS then learns it, starting from that curvature. Components that
are indistinguishable from noise are frozen in the end. All of it works on arrays of numpy and of torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Float, as_float64_like, library, to_numpy
from congruence.ica._passes import AnyPasses
from congruence.ica._point import Point, cayley, point_at, polar
from congruence.ica._spectral import random_start_rows, rows_needed, spectral_rotation
from congruence.rows.algebra import one_thread

# A component's sampling error is at least about sqrt(k / 5 n), as for binary sources: with fewer rows, all are noise.
ROWS_FOR_ANY = 5

MEMORY = 10  # steps L-BFGS remembers
GAIN = 0.003  # share of contrast per pass below which the fixed point makes no progress
UNDECIDED = 30  # passes after which rows that are not white no longer change the signs of their components
LARGEST_STEP = 0.5  # radians in any plane, for a step of L-BFGS
BACKTRACKS = 6
HOPELESS = 30  # passes after which rows are too few if all components are still indistinguishable from noise
WEAKER = 6  # times as many rows as Laplace sources are needed to find uniform ones, whose kurtosis is smaller
MOVING = 0.05  # radians per step from which a component has not found its source yet
FEWER = 0.75  # share of them that may still move after a pass over them alone, for another such pass to be worth it
SETTLED = 0.001  # share of contrast gained in five steps, below which components are compared with noise
STILL = 0.01  # radians that components may still turn where noise is ignored
GRADIENT_TOLERANCE = 30  # times `tol`: the gradient, relative to a random rotation's, allowed before the last step
ROUGH_TURN, ROUGH_GRADIENT = 0.01, 0.1  # above both, rounded products suffice; the gradient is relative, too

Memory = list[tuple[Any, Any]]  # steps taken, and how each changed the gradient


@dataclass(eq=False)
class Solution:
    """Where and why the solver stopped."""

    point: Point
    reference: float  # largest gradient at a random rotation
    tol: float
    max_iter: int
    converged: bool = False
    reason: str = "cap"  # why it stopped: "converged", "noise" (else moves), "gaussian" (all is noise) or "cap"
    changes: list[float] = field(default_factory=list)  # largest turn of the next step, per pass, in radians
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

    @property
    def hopeless(self) -> bool:
        """Whether after many passes no component is distinguishable from noise."""
        return len(self.changes) >= HOPELESS and bool(self.point.noise.all())

    def record(self, step: Any, point: Point | None = None) -> None:
        """Record how far the next step turns, and the gradient it starts from: at the solution, or another point."""
        xp = library(step)
        self.moves = xp.amax(abs(step - xp.diag(xp.diag(step))), 1)
        self.changes.append(float(self.moves.max()))
        self.gradients.append((point or self.point).steepest / self.reference)

    def ends_with(self, step: Any) -> bool:
        """Record the next step; return whether the solver should stop."""
        self.record(step)
        still = self.changes[-1] < self.tol and self.gradients[-1] < GRADIENT_TOLERANCE * self.tol
        if still and not self.rough:
            self.converged, self.reason = True, "converged"
            # The last step is so small that the averages still hold after it; no further pass is needed.
            self.point = replace(self.point, rotation=step @ self.point.rotation)
        return self.converged or self.capped

    def move(self, rotation: Any, source: AnyPasses) -> None:
        """Move to a rotation, which is one pass over the rows; once steps are small, products are no longer rounded."""
        self.rough = self.rough and self.changes[-1] > ROUGH_TURN and self.gradients[-1] > ROUGH_GRADIENT
        self.point = replace(self.point, rotation=rotation, at=source.averages(rotation, rough=self.rough))


def solve(
    source: AnyPasses,
    start: Float,
    *,
    tol: float = 1e-4,
    max_iter: int = 500,
    reference: float | None = None,
    covariance: Float | None = None,
    noise: str = "frozen",
) -> Solution:
    """Rotate `start`, orthogonal (k, k), until the components of the whitened rows converge, or for `max_iter` passes.

    Converged: the next step would turn no pair of components by more than `tol`, in radians, and the gradient is below
    30 times this share of `reference`, the largest gradient at a random rotation (that of `start` if not given). With
    the `covariance` (k, k) of rows that are not white, components are not compared with noise.

    `noise` says how components that are indistinguishable from noise are treated. "frozen": they no longer determine
    the rotation, and the others are rotated until they converge. "free": they count like all others, as in FastICA.
    "ignored": the solver stops when only they still move, and at once where no component of so few rows could be
    anything else.
    """
    with one_thread(source.k):
        rough = source.rounds and covariance is None
        first = point_at(start, source, covariance, rough=rough)
        scale = reference if reference is not None else first.steepest
        solution = Solution(first, max(scale, 1e-300), tol, max_iter, rough=rough)
        if source.k <= 1 or scale == 0:
            solution.converged, solution.reason = True, "converged"
            return solution
        if noise == "ignored" and source.n < ROWS_FOR_ANY * source.k:
            solution.reason = "gaussian"
            return solution
        matters = noise == "free" or covariance is not None
        done = covariance is None and _fixed_point(source, solution, noise_matters=matters)
        if not done and not matters and _restart_noise(source, solution):
            done = _fixed_point(source, solution, noise_matters=False)
        if not done and (matters or not solution.hopeless):
            solution.switched = len(solution.changes)
            _lbfgs(source, solution, noise_matters=matters, still=STILL if noise == "ignored" else 0.0)
        if noise == "frozen" and covariance is None:
            _freeze_noise(source, solution)
        elif noise == "ignored" and not solution.converged and bool(solution.point.noise.any()):
            everything = bool(solution.point.noise.all())
            solution.reason = "gaussian" if everything else "cap" if solution.capped else "noise"
            solution.converged = solution.reason == "noise"
    return solution


def _fixed_point(source: AnyPasses, solution: Solution, *, noise_matters: bool) -> bool:
    """Take fixed-point steps while they help; return whether the solver is done."""
    contrasts = [solution.point.contrast]
    while True:
        point = solution.point
        step = polar(_newton_matrix(point))
        if solution.ends_with(step):
            return True
        solution.move(_settle(source, solution, step), source)
        contrasts.append(solution.point.contrast)
        gain = contrasts[-1] - contrasts[max(0, len(contrasts) - 4)]
        slow = len(contrasts) > 5 and gain < 3 * GAIN * contrasts[-1]
        if (slow and solution.point.steepest > point.steepest / 2) or (not noise_matters and solution.hopeless):
            return False


def _settle(source: AnyPasses, solution: Solution, step: Any) -> Any:
    """Take a step, and further ones with those components that still move, inside their span, until they settle, too.

    Returns the rotation. A pass over few components costs their share of a pass over all.
    """
    point, before = solution.point, len(step)
    rotation, moves = step @ point.rotation, to_numpy(solution.moves).copy()
    moving = np.flatnonzero(moves >= MOVING)
    while 1 < len(moving) <= FEWER * before and len(solution.changes) + 1 < solution.max_iter:  # one for all of them
        part = replace(point, rotation=rotation[moving], active=point.active[moving])
        part = replace(part, at=source.averages(part.rotation, rough=solution.rough))
        turn = polar(_newton_matrix(part))
        solution.record(turn, part)
        rotation[moving] = turn @ part.rotation
        moves[moving] = to_numpy(solution.moves)
        before, moving = len(moving), moving[moves[moving] >= MOVING]
    solution.moves = source.lift(moves)
    return rotation


def _newton_matrix(point: Point) -> Any:
    """The matrix whose nearest rotation is the fixed-point step, in the coordinates of the components."""
    matrix, xp = -point.signs[:, None] * point.at.cross, library(point.rotation)
    return matrix + xp.diag(abs(point.kappa) - xp.diag(matrix))


def _restart_noise(source: AnyPasses, solution: Solution) -> bool:
    """Start components that are noise again, inside their span, where sources are easier to find than among all.

    Returns whether that found any.
    """
    noise = np.flatnonzero(to_numpy(solution.point.noise))
    m = len(noise)
    if m == source.k or solution.capped or not rows_needed(m) <= source.n < WEAKER * random_start_rows(m):
        return False
    rotation = solution.point.rotation + 0.0
    begin = source.lift(spectral_rotation(source, rotation[noise], np.random.default_rng(m)))
    first = replace(solution.point, rotation=begin, at=source.averages(begin), active=solution.point.active[noise])
    part = replace(solution, point=first)  # shares the records
    _fixed_point(source, part, noise_matters=False)
    if bool(part.point.noise.all()) or solution.capped:
        return False
    rotation[noise] = part.point.rotation
    solution.move(rotation, source)
    return True


def _freeze_noise(source: AnyPasses, solution: Solution) -> None:
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


def _lbfgs(source: AnyPasses, solution: Solution, *, noise_matters: bool, still: float = 0.0) -> None:
    """L-BFGS on the orthogonal group; steps are judged by the gradient alone, which needs no further pass.

    Unless noise matters, it stops when only noise is left to be gained, or when no other component turns by `still`.
    """
    memory: Memory = []
    contrasts = [solution.point.contrast]
    while True:
        point = solution.point
        if point.covariance is not None and point.fixed_signs is None and len(solution.changes) >= UNDECIDED:
            # Away from whiteness a component may be sub-Gaussian on one side and super-Gaussian on the other.
            point = solution.point = replace(point, fixed_signs=point.signs)
        direction = _direction(point, memory)
        direction = direction * min(1.0, LARGEST_STEP / max(float(abs(direction).max()), 1e-300))
        step = cayley(direction)
        if solution.ends_with(step):
            return
        rough = solution.rough
        followed = _search(source, solution, direction, step)
        if rough == solution.rough:  # else the gradients before and after are not comparable
            _remember(memory, point, solution.point, followed)
        if solution.capped:  # while shortening the step
            return
        contrasts.append(solution.point.contrast)
        if noise_matters or len(contrasts) <= 3:
            continue
        noise = solution.point.noise
        settled = len(contrasts) > 10 and abs(contrasts[-1] / contrasts[-6] - 1) < SETTLED
        if solution.hopeless or (settled and bool(noise.any())):
            return  # only noise is left to be gained
        if still and bool(noise.any()) and bool((solution.moves[~noise] < still).all()) and not bool(noise.all()):
            return


def _search(source: AnyPasses, solution: Solution, direction: Any, step: Any) -> Any:
    """Move along `direction`, shortening the step while it overshoots; return the part of the direction followed."""
    point = solution.point
    slope = float((direction * point.gradient).sum())
    length = 1.0
    for _ in range(BACKTRACKS):
        solution.point = point
        solution.move(step @ point.rotation, source)
        ahead = float((direction * solution.point.gradient).sum())
        if ahead <= -0.9 * slope or solution.capped:
            break
        length *= min(0.7, max(0.1, slope / (slope - ahead)))  # where a linear gradient would vanish
        step = cayley(length * direction)
        solution.record(step)
    return length * direction


def _direction(point: Point, memory: Memory) -> Any:
    """The step of L-BFGS, or the Newton step for independent components."""
    curvature = point.curvature
    curvature = curvature.clip(max(0.01 * float(library(curvature).median(curvature)), 1e-300))
    plain = point.gradient / curvature
    if not memory:
        return -plain
    left = plain + _learned(point.gradient, plain, curvature, memory)
    if (left * point.gradient).sum() <= 0:  # not downhill: the steps remembered no longer apply
        memory.clear()
        left = plain
    return -left


def _learned(gradient: Any, plain: Any, curvature: Any, memory: Memory) -> Any:
    """The correction to the Newton step `plain` from the steps remembered.

    The compact form of L-BFGS (Byrd, Nocedal & Schnabel 1994): a few products of wide matrices, and not the twenty
    dependent ones of the two-loop recursion, which leave a GPU waiting.
    """
    xp, m = library(gradient), len(memory)
    steps = xp.stack([step for step, _ in memory]).reshape(m, -1)  # (m, k * k)
    changes = xp.stack([change for _, change in memory]).reshape(m, -1)
    eased = changes / curvature.ravel()
    right = xp.stack([gradient.ravel(), plain.ravel()], 1)  # (k * k, 2)
    sums = xp.concatenate([steps @ changes.T, changes @ eased.T, steps @ right[:, :1], changes @ right[:, 1:]], 1)
    seen = to_numpy(sums)  # (m, 2 m + 2), the only copy from a GPU
    rising = np.triu(seen[:, :m])
    first = linalg.solve_triangular(rising, seen[:, -2])
    second = (np.diag(np.diag(rising)) + seen[:, m : 2 * m]) @ first - seen[:, -1]
    second = linalg.solve_triangular(rising, second, trans="T")
    there = as_float64_like(np.stack([second, first]), gradient)
    return (there[0] @ steps - there[1] @ eased).reshape(plain.shape)


def _remember(memory: Memory, point: Point, following: Point, step: Any) -> None:
    if bool((point.signs != following.signs).any()):  # another objective from here on
        memory.clear()
        return
    change = following.gradient - point.gradient
    if (step * change).sum() > 1e-10 * ((step**2).sum() * (change**2).sum()) ** 0.5:
        memory.append((step, change))
        del memory[:-MEMORY]
