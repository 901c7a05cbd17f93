"""Rows made ready to be unmixed: all of them, a subset in the whitening of all, or a sample drawn with replacement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_tensor, resolve_device, row_chunks, to_numpy
from congruence.maps.algebra import eigh
from congruence.resolve.contrasts import Contrast, contrast_named
from congruence.resolve.moments import Moments, moments_of
from congruence.resolve.passes import Passes
from congruence.resolve.solver import polar
from congruence.resolve.torch_passes import TorchPasses
from congruence.resolve.unmix import Unmixing, unmix_rows
from congruence.resolve.whiten import Chunks, Whitening, mapped, whitening

CHUNK_BYTES = 2**22  # of rows summed at a time: they stay in the processor's cache
WHITE = 0.01  # deviation of the covariance from the identity, up to which given rows count as white


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows in a whitening, ready to be unmixed from any start; the rows are gathered once for all starts."""

    source: Passes | TorchPasses
    whitening: Whitening  # in which they are unmixed
    covariance: Float | None = None  # (k, k) of the rows as they are, where they were not whitened
    reported: Whitening | None = None  # in which the components are given, where that is another

    def unmix(self, **options: Any) -> Unmixing:
        """The components of these rows; `options` are those of `unmix_rows`."""
        found = unmix_rows(self.source, self.whitening.inverse, covariance=self.covariance, **options)
        if self.reported is None:
            return found
        white = self.reported
        rotation = polar(found.unmixing @ white.inverse)  # white on all rows again
        return replace(found, mean=white.mean, unmixing=rotation @ white.matrix, mixing=white.inverse @ rotation.T)


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
        return replace(self._sample(self._rewhitened(index), None, index), reported=self.whitening)

    def resampled(self, index: Array) -> Sample:
        """Rows drawn anew, with all that is fitted to them: the directions retained, the whitening and the components.

        Fewer components than those of all rows where the rows drawn do not vary in as many directions.
        """
        moments = moments_of(_chunks(self.data, self.device, index))
        own, covariance = whitening_of(
            moments, self.whitening.retained, self.whiten, lambda: _chunks(self.data, self.device, index)
        )
        return self._sample(own, covariance, index)

    def retaining(self, n_components: int | float | None) -> PreparedRows:
        """The same rows with another number of directions retained."""
        white, covariance = whitening_of(self.moments, n_components, self.whiten, self._again)
        return replace(self, whitening=white, covariance=covariance)

    def _again(self) -> Iterator[Any]:
        return _chunks(self.data, self.device)

    def _sample(self, white: Whitening, covariance: Float | None, index: Array | None) -> Sample:
        return Sample(passes_over(self.data, white, self.contrast, self.device, index), white, covariance)

    def _rewhitened(self, index: Array) -> Whitening:
        """The whitening of a subset of rows in the directions that were retained of all."""
        white = self.whitening
        parts = (index[part] for part in row_chunks(len(index), self.data.shape[1]))
        moments = moments_of(mapped(self.data[part], white.mean, white.matrix.T) for part in parts)
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
    moments = moments_of(_chunks(data, device))
    white, covariance = whitening_of(moments, n_components, whiten, lambda: _chunks(data, device))
    return PreparedRows(data, moments, white, covariance, whiten, form, device)


def whitening_of(
    moments: Moments, n_components: int | float | None, whiten: bool, again: Chunks
) -> tuple[Whitening, Float | None]:
    """The whitening, and the second moments of the rows where they are not to be whitened and are not white."""
    if whiten:
        return whitening(moments, "pca", n_components, again=again), None
    second = moments.finish() + np.outer(moments.mean, moments.mean)
    one, d = np.eye(moments.d), moments.d
    as_given = Whitening(np.zeros(d), one, one, d, np.diag(second), d)
    return as_given, None if np.abs(second - one).max() < WHITE else second


def passes_over(
    data: Any, white: Whitening, contrast: Contrast, device: str, index: Array | None = None
) -> Passes | TorchPasses:
    """The passes over rows: numpy on the CPU, torch on any other device."""
    if device == "cpu":
        return Passes(to_numpy(data) if is_tensor(data) else data, white.mean, white.matrix, contrast, index=index)
    return TorchPasses(data, white.mean, white.matrix, contrast, index=index, device=device)


def _chunks(data: Any, device: str, index: Array | None = None) -> Iterator[Any]:
    n = len(data) if index is None else len(index)
    for part in row_chunks(n, data.shape[1], CHUNK_BYTES):
        chunk = data[part if index is None else index[part]]
        if device != "cpu" and not is_tensor(chunk):
            import torch

            chunk = torch.from_numpy(np.array(chunk)).to(device)
        yield chunk
