"""Independent components of one run on its own: whiten, rotate, and put the components into one agreed order.

ICA determines neither the order nor the signs of components. Here those that are distinguishable from noise come first,
each group in falling order of negentropy, and every component is signed so that its longer tail is positive.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.errors import NotConvergedWarning
from congruence.ica.contrasts import contrast_named
from congruence.ica.distributed import DaskPasses
from congruence.ica.passes import Passes, Shape
from congruence.ica.rotations import random_rotation
from congruence.ica.solver import Solution, solve
from congruence.ica.torch_passes import TorchPasses
from congruence.maps.algebra import one_thread
from congruence.rows.engine import Rows
from congruence.rows.sums import Spread
from congruence.stats.matching import matched_correlations

AGREES = 0.98  # correlation with the same component of another start, from which on both count as one
CONVERGED = float(np.arccos(AGREES))  # radians that the next step may still turn a component that counts as converged
SYMMETRIC = 1e-5  # skewness below which its sign is rounding
STILL = 1e-5  # radians: rounding of float32 products may turn components by this indefinitely
MAX_ITER = 500
OF_ALL = 200  # passes until all components converge, including noise: the default of FastICA
TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Unmixing:
    """Components s = (x - mean) @ unmixing.T of unit variance, and the way back x = s @ mixing.T + mean."""

    mean: Float  # (d,)
    unmixing: Float  # (k, d)
    mixing: Float  # (d, k)
    negentropy: Float  # (k,) squared distance of the average contrast from a Gaussian's; 0 is Gaussian
    skewness: Float  # (k,) never negative, up to rounding
    kurtosis: Float  # (k,) 0 is Gaussian, below is flat, above has heavy tails
    sampling_error: Float  # (k,) radians the number of rows leaves open; NaN where rows are not white
    agreement: Float | None  # (k,) smallest correlation with the same component of another start
    noise: Array  # (k,) whether the component is indistinguishable from Gaussian noise
    identified: Array  # (k,) whether it is not noise, agrees across all starts, and has converged
    converged: bool
    reason: str  # "converged", "gaussian" (all components indistinguishable from noise) or "cap"
    changes: tuple[float, ...]  # largest turn of a pair of components, per pass, in radians
    gradients: tuple[float, ...]  # largest gradient per pass, relative to a random rotation's
    switched: int | None  # the pass at which L-BFGS took over from the fixed point
    n: int  # rows used

    @property
    def k(self) -> int:
        """The number of components."""
        return len(self.unmixing)

    @property
    def iterations(self) -> int:
        """The number of passes over the rows."""
        return len(self.changes)


def unmix_rows(
    source: Passes | TorchPasses | DaskPasses,
    inverse: Float,
    *,
    begins: list[Float],
    agreed: list[Float] | None = None,
    reference: float | None = None,
    tol: float = TOLERANCE,
    max_iter: int = MAX_ITER,
    covariance: Float | None = None,
    noise: str = "frozen",
) -> Unmixing:
    """Rotate whitened rows to independent components.

    Parameters
    ----------
    source : Passes
        The rows, with their mean and whitening (k, d).
    inverse : (d, k)
        The way back from whitened rows.
    begins : list of (k, k)
        Rotations to start from; the best solution is kept, and how well the others agree with it is reported.
    agreed : list of (k, k), optional
        How the answers of other starts, which need not be followed to the end, are turned against that of the first.
    reference : float, optional
        The largest gradient at a random rotation; that of the start if not given.
    tol, max_iter : float, int
        See `solver.solve`.
    covariance : (k, k), optional
        Of the rows as they are, where they were not whitened.
    noise : {"frozen", "free", "ignored"}
        How components that are indistinguishable from noise are treated; see `solver.solve`.
    """
    options: dict[str, Any] = {
        "tol": tol,
        "max_iter": max_iter,
        "reference": reference,
        "covariance": covariance,
        "noise": noise,
    }
    solutions = [solve(source, begin, **options) for begin in begins]
    best = max(solutions, key=lambda solution: solution.point.contrast)
    others = [solution.rotation for solution in solutions if solution is not best]
    others += [turn @ solutions[0].rotation for turn in agreed or []]
    with one_thread(source.k):
        return _canonical(source, inverse, best, others, covariance)


def _canonical(
    source: Passes | TorchPasses | DaskPasses,
    inverse: Float,
    best: Solution,
    others: list[Float],
    covariance: Float | None,
) -> Unmixing:
    """Bring the components into the agreed order and signs, and describe each."""
    rotation = best.rotation
    size = np.ones(source.k) if covariance is None else np.sqrt(np.diag(rotation @ covariance @ rotation.T))
    shape = source.shape(rotation / np.where(size > 0, size, 1.0)[:, None])
    negentropy = np.square(shape.contrast - source.contrast.gaussian)
    agreement = np.min([matched_correlations(rotation @ other.T) for other in others], axis=0) if others else None
    noise = to_numpy(best.point.noise) if covariance is None else np.zeros(source.k, dtype=bool)
    settled = np.ones(source.k, dtype=bool) if best.moves is None else to_numpy(best.moves) < CONVERGED
    identified = ~noise & settled if agreement is None else ~noise & settled & (agreement >= AGREES)
    order = np.lexsort((-negentropy, noise))  # not by what other starts say, which may be others in another fit
    signs = _signs(shape, inverse @ rotation.T)[order]
    unmixing = rotation[order] * signs[:, None]
    return Unmixing(
        mean=source.mean,
        unmixing=unmixing @ source.whitening,
        mixing=inverse @ unmixing.T,
        negentropy=negentropy[order],
        skewness=shape.skewness[order] * signs,
        kurtosis=shape.kurtosis[order],
        sampling_error=to_numpy(best.point.sampling_error)[order] if covariance is None else np.full(source.k, np.nan),
        agreement=None if agreement is None else agreement[order],
        noise=noise[order],
        identified=identified[order],
        converged=best.converged,
        reason=best.reason,
        changes=tuple(best.changes),
        gradients=tuple(best.gradients),
        switched=best.switched,
        n=source.n,
    )


def _signs(shape: Shape, mixing: Float) -> Float:
    """Signs (k,) by skewness; where there is none, so that the largest entry of the mixing column is positive."""
    if not mixing.size:  # rows that are all equal have no component
        return np.ones(0)
    largest = _largest_positive(mixing)
    decides = np.where(np.abs(shape.skewness) > SYMMETRIC, shape.skewness, largest)
    return np.where(decides < 0, -1.0, 1.0)


def _largest_positive(columns: Float) -> Float:
    """The signs (k,) that make the largest entry of every column positive."""
    largest = np.take_along_axis(columns, np.abs(columns).argmax(0)[None], 0)[0]
    return np.where(largest < 0, -1.0, 1.0)


def unmix(spread: Spread, *, seed: int = 0, max_iter: int = OF_ALL) -> Unmixing:
    """The independent components of the rows of `spread`, on their numerical rank, in the run's centred coordinates.

    All of them are rotated until they converge, as in the paper: components that are noise in one run may be the same
    noise in another run on the same rows.
    """
    axes, singular = spread.axes  # (d, k), (k,)
    axes = axes * _largest_positive(axes)  # else rounding decides their signs, and with them where the rotation starts
    deviation = singular / np.sqrt(spread.n)
    rows: Any = _Taken(spread.rows)
    source = Passes(rows, spread.mean, (axes / deviation).T, contrast_named("logcosh"), index=spread.index)
    begin = random_rotation(source.k, np.random.default_rng(seed))
    return unmix_rows(source, axes * deviation, begins=[begin], noise="free", max_iter=max_iter)


class _Taken:
    """The rows of a run, centred, as something that can be indexed."""

    dtype = np.dtype(np.float64)

    def __init__(self, rows: Rows):
        self.rows, self.shape = rows, (rows.n, rows.d)

    def __len__(self) -> int:
        return self.rows.n

    def __getitem__(self, index: Any) -> Any:
        return self.rows.take(index)


def advice(found: Unmixing) -> str:
    """Why the solver did not converge, and what to do about it; empty where it did."""
    if found.converged:
        return ""
    few = (
        f"{found.n} rows are few for {found.k} components (aim for 100 per component). "
        if found.n < 50 * found.k
        else ""
    )
    if found.reason == "gaussian":
        return (
            f"No component is distinguishable from Gaussian noise, so all axes may be arbitrary. {few}Use more rows or "
            "fewer components, or keep the whitened rows."
        )
    noise = int(found.noise.sum())
    near = f"{noise} of {found.k} components are nearly Gaussian. " if noise else ""
    remedy = "Raise max_iter (--max-iter), or use fewer components."
    if found.changes[-1] < STILL:
        remedy = "Rounding may prevent convergence; raise tol (--tol)."
    return (
        f"ICA did not converge: after {found.iterations} passes the components still turned by "
        f"{found.changes[-1]:.1e} radians (gradient {found.gradients[-1]:.1e} of that of a random rotation). "
        f"{near}{few}{remedy}"
    )


def warn_unless_converged(found: Unmixing) -> None:
    """Warn, with the reason and what to do, where the solver did not converge."""
    if not found.converged:
        warnings.warn(advice(found), NotConvergedWarning, stacklevel=3)
