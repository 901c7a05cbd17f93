"""Rows made ready to be unmixed: all of them, a subset in the whitening of all, or a sample drawn with replacement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_tensor, resolve_device, to_numpy
from congruence.errors import InputError
from congruence.ica.contrasts import Contrast, contrast_named
from congruence.ica.distributed import DaskPasses
from congruence.ica.passes import Passes
from congruence.ica.point import random_gradient
from congruence.ica.rotations import polar, random_rotation
from congruence.ica.solver import solve
from congruence.ica.torch_passes import TorchPasses
from congruence.ica.unmix import MAX_ITER, TOLERANCE, Unmixing, unmix_rows
from congruence.ica.whiten import Again, Whitening, whitening
from congruence.maps.algebra import decomposing_on, eigh
from congruence.rows.engine import Moments, row_moments
from congruence.tables.blocks import DaskRows

COARSE_TOLERANCE = 0.01  # radians that a rough answer may still turn
SAME = 0.99  # correlation from which on two rough answers are taken to be one
GATHERED = 2**28  # bytes of chosen rows up to which they are brought here from where dask has them
WHITE = 0.01  # deviation of the covariance from the identity, up to which given rows count as white

AnyPasses = Passes | TorchPasses | DaskPasses


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows in a whitening, ready to be unmixed from any start; the rows are gathered once for all starts."""

    source: AnyPasses
    whitening: Whitening  # in which they are unmixed
    covariance: Float | None = None  # (k, k) of the rows as they are, where they were not whitened
    reported: Whitening | None = None  # in which the components are given, where that is another
    coarse: Callable[[np.random.Generator], Coarse] | None = None  # draws a few of the rows, where there are many

    def unmix(
        self,
        *,
        seed: int | np.random.Generator = 0,
        starts: int = 1,
        start: Float | None = None,
        near: bool = False,
        tol: float = TOLERANCE,
        max_iter: int = MAX_ITER,
    ) -> Unmixing:
        """The components of these rows.

        `start` takes the place of the first random start; where it is `near` the answer, it is not improved on a few
        rows first. For the rest see `unmix_rows`.
        """
        rng = np.random.default_rng(seed)
        begins = [random_rotation(self.source.k, rng) for _ in range(starts)]
        begins[:1] = begins[:1] if start is None else [start]
        agreed: list[Float] = []
        reference = None
        if self.coarse is not None and not near:
            begins, agreed, reference = self.coarse(rng).improve(begins, rng, self.source.n, max_iter)
        elif start is not None:
            reference = random_gradient(self.source, rng, self.source.n)
        found = unmix_rows(
            self.source,
            self.whitening.inverse,
            begins=begins,
            agreed=agreed,
            reference=reference,
            tol=tol,
            max_iter=max_iter,
            covariance=self.covariance,
        )
        if self.reported is None:
            return found
        white = self.reported
        rotation = polar(found.unmixing @ white.inverse)  # white on all rows again
        return replace(found, mean=white.mean, unmixing=rotation @ white.matrix, mixing=white.inverse @ rotation.T)


@dataclass(frozen=True, eq=False)
class Coarse:
    """A few of many rows, in their own whitening: a rough answer on them costs little, and saves passes over all."""

    source: AnyPasses
    to_own: Float  # (k, k) from the whitening of all rows to theirs

    def improve(
        self, begins: list[Float], rng: np.random.Generator, n: int, max_iter: int
    ) -> tuple[list[Float], list[Float], float]:
        """Starts near the answer, how others that led to the same one differ, and a random rotation's gradient."""
        rough = [
            solve(self.source, begin, tol=COARSE_TOLERANCE, max_iter=max_iter, noise="ignored") for begin in begins
        ]
        near = [polar(solution.rotation @ self.to_own) for solution in rough]
        firm = ~to_numpy(rough[0].point.noise)
        same = [bool((np.abs(near[0] @ other.T).max(1)[firm] > SAME).all()) for other in near]
        different = [other for other, equal in zip(near[1:], same[1:], strict=True) if not equal]
        agreed = [other @ near[0].T for other, equal in zip(near[1:], same[1:], strict=True) if equal]
        return [near[0], *different], agreed, random_gradient(self.source, rng, n)


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

    def all(self) -> Sample:
        """All rows."""
        return self._sample(self.whitening, self.covariance, None)

    def subset(self, index: Array | None) -> Sample:
        """Some rows, unmixed in their own whitening, which is the more precise; components are given in that of all."""
        if index is None or self.covariance is not None:
            return self._sample(self.whitening, self.covariance, index)
        here, at = self._here(index)
        return replace(here._sample(here._rewhitened(self.whitening, at), None, at), reported=self.whitening)

    def resampled(self, index: Array) -> Sample:
        """Resampled rows, with all that is fitted to them: the directions retained, the whitening and the components.

        Fewer components than those of all rows where the rows drawn do not vary in as many directions.
        """
        here, at = self._here(index)
        again = partial(row_moments, here.data, self.device, at)
        own, covariance = whitening_of(again(), self.whitening.retained, self.whiten, again)
        return here._sample(own, covariance, at)

    def retaining(self, n_components: int | float | None) -> PreparedRows:
        """The same rows with another number of directions retained."""
        again = partial(row_moments, self.data, self.device, None)
        white, covariance = whitening_of(self.moments, n_components, self.whiten, again)
        return replace(self, whitening=white, covariance=covariance)

    def _here(self, index: Array) -> tuple[PreparedRows, Array]:
        """Rows among which the chosen ones are, and at which positions: brought here where dask has them, if few."""
        if not isinstance(self.data, DaskRows) or len(index) * self.data.shape[1] * 8 > GATHERED:
            return self, index
        return replace(self, data=self.data.take(index)), np.arange(len(index))

    def _sample(self, white: Whitening, covariance: Float | None, index: Array | None) -> Sample:
        source = passes_over(self.data, white, self.contrast, self.device, index)
        few = source.few if covariance is None else None
        coarse = None if few is None else (lambda rng: self._coarse(white, index, source.n, few, rng))
        return Sample(source, white, covariance, coarse=coarse)

    def _coarse(self, white: Whitening, index: Array | None, n: int, few: int, rng: np.random.Generator) -> Coarse:
        chosen = np.sort(rng.choice(n, few, replace=False))
        chosen = chosen if index is None else index[chosen]
        here, at = self._here(chosen)
        own = here._rewhitened(white, at)
        source = passes_over(here.data, own, self.contrast, self.device, at, precision="float32")
        return Coarse(source, own.matrix @ white.inverse)

    def _rewhitened(self, white: Whitening, index: Array) -> Whitening:
        """The whitening of a subset of rows in the directions that were retained of all."""
        moments = row_moments(self.data, self.device, index, white.mean, white.matrix.T)
        values, vectors = eigh(moments.finish())
        values = np.maximum(values, 1e-12 * values[-1])  # fewer rows than components
        to_own = (vectors / np.sqrt(values)) @ vectors.T
        back = (vectors * np.sqrt(values)) @ vectors.T
        mean = white.mean + white.inverse @ moments.mean
        return replace(white, mean=mean, matrix=to_own @ white.matrix, inverse=white.inverse @ back)


def prepare_rows(
    data: Any, *, n_components: int | float | None, contrast: str, whiten: bool, device: str
) -> PreparedRows:
    """Read the rows once for their moments, and whiten them; the arguments are those of `independent_components`."""
    form = contrast_named(contrast)
    device = resolve_device(device, data)
    if device != "cpu" and isinstance(data, DaskRows):
        raise InputError(
            f"device {device!r} cannot be used for a dask array, whose workers compute on the CPU; use 'cpu'"
        )
    again = partial(row_moments, data, device, None)
    moments = again()
    with decomposing_on(device):
        white, covariance = whitening_of(moments, n_components, whiten, again)
    return PreparedRows(data, moments, white, covariance, whiten, form, device)


def whitening_of(
    moments: Moments, n_components: int | float | None, whiten: bool, again: Again
) -> tuple[Whitening, Float | None]:
    """The whitening, and the second moments of the rows where they are not to be whitened and are not white."""
    if whiten:
        return whitening(moments, "pca", n_components, again=again), None
    second = moments.finish() + np.outer(moments.mean, moments.mean)
    one, d = np.eye(moments.d), moments.d
    as_given = Whitening(np.zeros(d), one, one, d, np.diag(second), d)
    return as_given, None if np.abs(second - one).max() < WHITE else second


def passes_over(
    data: Any,
    white: Whitening,
    contrast: Contrast,
    device: str,
    index: Array | None = None,
    precision: str = "auto",
) -> AnyPasses:
    """The passes over rows: where dask has them, in numpy on the CPU, in torch on any other device."""
    if isinstance(data, DaskRows):
        return DaskPasses(data, white.mean, white.matrix, contrast, index=index, precision=precision)
    if device == "cpu":
        rows = to_numpy(data) if is_tensor(data) else data
        return Passes(rows, white.mean, white.matrix, contrast, index=index, precision=precision)
    return TorchPasses(data, white.mean, white.matrix, contrast, index=index, device=device)
