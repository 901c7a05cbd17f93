"""Whitened samples of rows, and their rotation to independent components in one canonical order.

ICA determines neither the order nor the signs of components. Here those that are distinguishable from noise come first,
each group in falling order of negentropy, and every component is signed so that its longer tail is positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, resolve_device, to_numpy
from congruence.errors import InputError
from congruence.ica._contrasts import Contrast, contrast_named
from congruence.ica._passes import AnyPasses, DaskPasses, Passes
from congruence.ica._point import SAME_AXIS, polar, random_gradient, random_rotation
from congruence.ica._solver import solve
from congruence.ica._spectral import nearer
from congruence.ica._whitening import SMALLEST, Reread, Whitening, fit_whitening, largest_positive
from congruence.rows.algebra import decomposing_on, eigh, one_thread
from congruence.rows.blocks import DaskRows
from congruence.rows.engine import Moments, row_moments
from congruence.rows.sums import RowScatter
from congruence.stats.matching import matched_correlations

MAX_ITER = 500
MAX_ITER_FREE = 200  # passes until all components converge, including noise: the default of FastICA
CONVERGED = 0.2  # radians that the next step may still turn a component that counts as converged
SYMMETRIC = 1e-5  # skewness below which its sign is rounding
ROUGHLY = 1e-3  # the tolerance of the fit of `compare` to all rows; `COARSE_TOLERANCE` is that of its folds
COARSE_TOLERANCE = 0.01  # radians that a rough solution may still turn
SAME = 0.99  # correlation from which two rough solutions count as one
GATHERED = 2**28  # bytes of chosen rows of a dask array up to which they are copied to this process
WHITE = 0.01  # largest deviation of the covariance from the identity at which rows count as white


@dataclass(frozen=True, eq=False)
class Unmixing:
    """Components s = (x - mean) @ unmixing.T of unit variance, and their inverse x = s @ mixing.T + mean."""

    mean: Float  # (d,)
    unmixing: Float  # (k, d)
    mixing: Float  # (d, k)
    negentropy: Float  # (k,) squared distance of the average contrast from a Gaussian's; 0 is Gaussian
    skewness: Float  # (k,) never negative, up to rounding
    kurtosis: Float  # (k,) 0 is Gaussian, below is flat, above has heavy tails
    # (k,) standard error of each axis in radians, from blocks of rows where checked; else it assumes independence
    sampling_error: Float  # NaN where rows are not white
    agreement: Float | None  # (k,) smallest correlation with the same component of another start
    noise: Array  # (k,) whether the component is indistinguishable from Gaussian noise
    identified: Array  # (k,) whether it is not noise, agrees across all starts, has converged and, if checked, returns
    converged: bool
    reason: str  # "converged", "gaussian" (all components indistinguishable from noise) or "cap"
    changes: tuple[float, ...]  # largest turn of a pair of components, per pass, in radians
    gradients: tuple[float, ...]  # largest gradient per pass, relative to a random rotation's
    switched: int | None  # the pass at which L-BFGS took over from the fixed point
    n: int  # rows used
    returned: Float | None = None  # (k,) smallest correlation with it on disjoint halves of the rows, where checked

    @property
    def k(self) -> int:
        """The number of components."""
        return len(self.unmixing)

    @property
    def iterations(self) -> int:
        """The number of passes over the rows."""
        return len(self.changes)


def first_components(unmixing: Unmixing, n_components: int | float | None) -> Unmixing:
    """Keep only the first `n_components` components."""
    if n_components is None:
        return unmixing
    if isinstance(n_components, (bool, str)) or not float(n_components).is_integer() or n_components < 1:
        raise InputError(f"with whiten=False n_components must be a positive integer or None; got {n_components!r}")
    if n_components >= unmixing.k:
        return unmixing
    k = int(n_components)
    of_each = ("negentropy", "skewness", "kurtosis", "sampling_error", "agreement", "returned", "noise", "identified")
    parts: dict[str, Any] = {name: None if (part := getattr(unmixing, name)) is None else part[:k] for name in of_each}
    return replace(unmixing, unmixing=unmixing.unmixing[:k], mixing=unmixing.mixing[:, :k], **parts)


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Rows with their moments and whitening, which every sample of them shares."""

    data: Any  # (n, d)
    moments: Moments
    whitening: Whitening
    covariance: Float | None  # (d, d) second moments, where the rows are neither white nor to be whitened
    whiten: bool
    contrast: Contrast
    device: str
    standardize: bool = False  # scale columns to unit variance before whitening
    unit: float | None = None  # of rows that are not whitened

    def subset(self, index: Array | None) -> Sample:
        """Some rows, unmixed in their own, more precise whitening; components are reported in that of all rows."""
        if index is None or self.covariance is not None:
            return Sample(self, self.whitening, self.covariance, index)
        here, at = self.gather(index)
        return Sample(here, here.rewhiten(self.whitening, at), None, at, self.whitening)

    def resample(self, index: Array, *, gather: bool = True) -> Sample:
        """Resampled rows, to be fitted independently: directions, whitening and components.

        Fewer components than those of all rows where the rows drawn do not vary in as many directions. With `gather`,
        a few rows of a dask array are copied here.
        """
        here, at = self.gather(index) if gather else (self, index)
        reread = partial(row_moments, here.data, self.device, at)
        return Sample(here, *self._whiten(reread, reread(), self.whitening.retained), index=at)

    def retain(self, n_components: int | float | None) -> PreparedRows:
        """The same rows with another number of directions retained."""
        reread = partial(row_moments, self.data, self.device, None)
        white, covariance = self._whiten(reread, self.moments, n_components)
        return replace(self, whitening=white, covariance=covariance)

    def _whiten(self, reread: Reread, moments: Moments, n_components: Any) -> tuple[Whitening, Float | None]:
        return _whiten(moments, n_components, self.whiten, reread, self.standardize, self.unit)

    def gather(self, index: Array) -> tuple[PreparedRows, Array]:
        """Rows that include the chosen ones, and their positions; a few rows of a dask array are copied here."""
        if not isinstance(self.data, DaskRows) or len(index) * self.data.shape[1] * 8 > GATHERED:
            return self, index
        return replace(self, data=self.data.take(index)), np.arange(len(index))

    def rewhiten(self, white: Whitening, index: Array) -> Whitening:
        """The whitening of some of the rows in the directions that were retained of all."""
        moments = row_moments(self.data, self.device, index, white.mean, white.matrix.T)
        values, vectors = eigh(moments.finish())
        values = np.maximum(values, 1e-12 * values[-1])  # fewer rows than components
        to_own = (vectors / np.sqrt(values)) @ vectors.T
        back = (vectors * np.sqrt(values)) @ vectors.T
        mean = white.mean + white.inverse @ moments.mean
        return replace(white, mean=mean, matrix=to_own @ white.matrix, inverse=white.inverse @ back)

    def passes(self, white: Whitening, index: Array | None, precision: str = "auto") -> AnyPasses:
        """Passes over the rows at `index` in a whitening: by dask, in numpy on the CPU, in torch on other devices."""
        options: dict[str, Any] = {"index": index, "precision": precision}
        if isinstance(self.data, DaskRows):
            return DaskPasses(self.data, white.mean, white.matrix, self.contrast, **options)
        return Passes(self.data, white.mean, white.matrix, self.contrast, **options, device=self.device)


def prepare_rows(
    data: Any,
    *,
    n_components: int | float | None,
    contrast: str,
    whiten: bool,
    device: str,
    standardize: bool = False,
    unit: float | None = None,
) -> PreparedRows:
    """Read the rows once for their moments, and whiten them; the arguments are those of `independent_components`."""
    form = contrast_named(contrast)
    if standardize and not whiten:
        raise InputError("standardize scales columns before whitening, so it needs whiten=True")
    device = resolve_device(device, data)
    if device != "cpu" and isinstance(data, DaskRows):
        raise InputError(f"device {device!r} cannot be used for a dask array, which is computed on the CPU; use 'cpu'")
    reread = partial(row_moments, data, device, None)
    moments = reread()
    with decomposing_on(device):
        white, covariance = _whiten(moments, n_components, whiten, reread, standardize, unit)
    return PreparedRows(data, moments, white, covariance, whiten, form, device, standardize, unit)


def _whiten(
    moments: Moments,
    n_components: int | float | None,
    whiten: bool,
    reread: Reread,
    standardize: bool,
    unit: float | None,
) -> tuple[Whitening, Float | None]:
    """The whitening, and the second moments of the rows where they are not to be whitened and are not white.

    Rows that are not to be whitened are only divided by one number.
    """
    if whiten:
        return fit_whitening(moments, "pca-cor" if standardize else "pca", n_components, reread=reread), None
    covariance = moments.finish()
    second = covariance + np.outer(moments.mean, moments.mean)
    one, d = np.eye(moments.d), moments.d
    if 0 < np.trace(second) < SMALLEST:
        raise InputError("the values are too small to be squared; rescale them")
    unit = unit or float(np.sqrt(eigh(second)[0][-1])) or 1.0
    as_given = Whitening(np.zeros(d), one / unit, one * unit, d, np.diag(second), d, np.sqrt(np.diag(covariance)))
    second = second / unit**2
    return as_given, None if np.abs(second - one).max() < WHITE else second


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows in a whitening, which can be unmixed from any start; they are gathered once for all starts."""

    prepared: PreparedRows
    whitening: Whitening  # in which they are unmixed
    covariance: Float | None = None  # (k, k) of the rows as they are, where they were not whitened
    index: Array | None = None  # which rows
    reported: Whitening | None = None  # in which the components are reported, where that is another

    @cached_property
    def source(self) -> AnyPasses:
        """Passes over these rows."""
        return self.prepared.passes(self.whitening, self.index)

    def unmix(
        self,
        *,
        seed: int | np.random.Generator = 0,
        starts: int = 1,
        start: Float | None = None,
        near: bool = False,
        **options: Any,
    ) -> Unmixing:
        """Return the components of these rows.

        `start` replaces the first random start; where it is `near` the solution, it is not improved on a few rows
        first. `options` are `tol` and `max_iter`.
        """
        rng, source = np.random.default_rng(seed), self.source
        given = [] if start is None else [start]
        begins = [random_rotation(source.k, rng) for _ in range(starts)][len(given) :]
        agreed: list[Float] = []
        reference = None
        few = source.few if self.covariance is None else None
        if few is not None and not near:
            begins, agreed, reference = self._improve(given, begins, few, rng, options.get("max_iter", MAX_ITER))
        else:
            closer = nearer(source, begins, rng) if self.covariance is None else begins
            if given or closer is not begins:
                reference = random_gradient(source, rng, source.n)
            begins = given + closer
        options |= {"reference": reference, "covariance": self.covariance}
        unmixing = unmix_rows(source, self.whitening.inverse, begins, agreed, **options)
        if self.reported is None:
            return unmixing
        white = self.reported
        rotation = polar(unmixing.unmixing @ white.inverse)  # white on all rows again
        return replace(unmixing, mean=white.mean, unmixing=rotation @ white.matrix, mixing=white.inverse @ rotation.T)

    def _improve(
        self, given: list[Float], begins: list[Float], few: int, rng: np.random.Generator, max_iter: int
    ) -> tuple[list[Float], list[Float], float]:
        """Solve a few of the rows roughly, which saves passes over all.

        Returns starts near the solution, rotations between starts with the same one, and a random rotation's gradient.
        """
        n, white = self.source.n, self.whitening
        chosen = np.sort(rng.choice(n, few, replace=False))
        here, at = self.prepared.gather(chosen if self.index is None else self.index[chosen])
        own = here.rewhiten(white, at)
        source, to_own = here.passes(own, at, "float32"), own.matrix @ white.inverse
        begins = given + nearer(source, begins, rng)
        rough = [solve(source, begin, tol=COARSE_TOLERANCE, max_iter=max_iter, noise="ignored") for begin in begins]
        first, *others = [polar(solution.rotation @ to_own) for solution in rough]
        firm = ~to_numpy(rough[0].point.noise)
        same = [bool((np.abs(first @ other.T).max(1)[firm] > SAME).all()) for other in others]
        different = [other for other, equal in zip(others, same, strict=True) if not equal]
        agreed = [other @ first.T for other, equal in zip(others, same, strict=True) if equal]
        return [first, *different], agreed, random_gradient(source, rng, n)


def unmix_rows(
    source: AnyPasses,
    inverse: Float,
    begins: Sequence[Float],
    agreed: Sequence[Float] = (),
    *,
    covariance: Float | None = None,
    **options: Any,
) -> Unmixing:
    """Rotate whitened rows to independent components; `inverse` (d, k) is the inverse of the whitening.

    The best of the solutions from the rotations `begins`, (k, k) each, is kept, and the agreement of the others with it
    is reported. `agreed` are rotations from the solution of the first start to those of other starts, which are not
    solved again. `covariance` (k, k) and `options` are those of `solve`.
    """
    solutions = [solve(source, begin, covariance=covariance, **options) for begin in begins]
    best = max(solutions, key=lambda solution: solution.point.contrast)
    others = [solution.rotation for solution in solutions if solution is not best]
    others += [turn @ solutions[0].rotation for turn in agreed]
    white, rotation = covariance is None, best.rotation
    with one_thread(source.k):
        size = np.ones(source.k) if covariance is None else np.sqrt(np.diag(rotation @ covariance @ rotation.T))
        shape = source.shape(rotation / np.where(size > 0, size, 1.0)[:, None])
        negentropy = np.square(shape.contrast - source.contrast.gaussian)
        agreement = np.min([matched_correlations(rotation @ other.T) for other in others], axis=0) if others else None
        noise = to_numpy(best.point.noise) if white else np.zeros(source.k, dtype=bool)
        error = to_numpy(best.point.sampling_error) if white else np.full(source.k, np.nan)
        identified = ~noise if best.moves is None else ~noise & (to_numpy(best.moves) < CONVERGED)
        identified = identified if agreement is None else identified & (agreement >= SAME_AXIS)
        order = np.lexsort((-negentropy, noise))  # not by agreement, which another fit with other starts may not share
        signs = _signs(shape.skewness, inverse @ rotation.T)[order]
        unmixing = rotation[order] * signs[:, None]
        return Unmixing(
            mean=source.mean,
            unmixing=unmixing @ source.whitening,
            mixing=inverse @ unmixing.T,
            negentropy=negentropy[order],
            skewness=shape.skewness[order] * signs,
            kurtosis=shape.kurtosis[order],
            sampling_error=error[order],
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


def _signs(skewness: Float, mixing: Float) -> Float:
    """Signs (k,) by skewness; where there is none, so that the largest entry of the mixing column is positive."""
    if not mixing.size:  # rows that are all equal have no component
        return np.ones(0)
    decisive = np.where(np.abs(skewness) > SYMMETRIC, skewness, largest_positive(mixing))
    return np.where(decisive < 0, -1.0, 1.0)


def unmix(
    spread: RowScatter,
    *,
    seed: int = 0,
    max_iter: int = MAX_ITER_FREE,
    near: Unmixing | None = None,
    noise: str = "ignored",
) -> Unmixing:
    """Return the independent components of the rows of `spread`, on their numerical rank, in centred coordinates.

    They are rotated until only components that are indistinguishable from noise still move, from a random start or
    from the components `near`, of other rows of the same run. Where nothing was distinguishable from noise there,
    nothing is here, and these are returned. `noise` "free" rotates all of them until they converge.
    """
    axes, singular = spread.axes  # (d, k), (k,)
    axes = axes * largest_positive(axes)  # else rounding decides their signs, and with them the start
    deviation = singular / np.sqrt(spread.n)
    white, inverse = (axes / deviation).T, axes * deviation  # (k, d), (d, k)
    source = Passes(
        spread.rows, spread.mean, white, contrast_named("logcosh"), index=spread.index, device=spread.rows.device
    )
    begin, tol = random_rotation(source.k, np.random.default_rng(seed)), ROUGHLY
    if near is not None and near.k == source.k > 0:
        begin, tol = polar(near.unmixing @ inverse), tol if noise == "free" else COARSE_TOLERANCE
        max_iter = 1 if near.reason == "gaussian" else max_iter
    return unmix_rows(source, inverse, [begin], noise=noise, tol=tol, max_iter=max_iter)
