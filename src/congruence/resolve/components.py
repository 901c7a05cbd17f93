"""From rows to independent components: moments, whitening, rotation, on all rows or on as many as the answer needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_tensor, resolve_device, row_chunks
from congruence.errors import InputError
from congruence.maps.algebra import eigh
from congruence.resolve.contrasts import Contrast, contrast_named
from congruence.resolve.moments import Moments, moments_of
from congruence.resolve.passes import Passes
from congruence.resolve.solver import polar, random_gradient, random_rotation, solve
from congruence.resolve.torch_passes import TorchPasses
from congruence.resolve.unmix import MAX_ITER, TOLERANCE, Unmixing, unmix_rows
from congruence.resolve.whiten import Whitening, mapped, whitening

CHUNK_BYTES = 2**22  # of rows summed at a time: they stay in the processor's cache
WHITE = 0.01  # deviation of the covariance from the identity, up to which given rows count as white
COARSE = 250  # rows per component from which on a rough answer takes few passes
COARSE_TOLERANCE = 0.01  # radians that a rough answer may still turn
LEAST = 8192  # rows a rough answer is not worth the trouble below
FIRST = 20  # rows per component in the first half that is tried
TARGET = 0.05  # radians of error that may be left when rows are chosen automatically


@dataclass(frozen=True, eq=False)
class Components:
    """Independent components with the whitening they were found in."""

    whitening: Whitening
    unmixing: Unmixing
    error_left: float | None  # radians by which more rows would still turn the components, where rows were chosen


def independent_components(
    data: Any,
    *,
    n_components: int | float | None = None,
    contrast: str = "logcosh",
    whiten: bool = True,
    starts: int = 1,
    rows: int | str = "all",
    tol: float = TOLERANCE,
    max_iter: int = MAX_ITER,
    seed: int | np.random.Generator = 0,
    start: Float | None = None,
    device: str = "auto",
) -> Components:
    """Find the independent components of the rows of `data`, shape (n, d).

    Parameters
    ----------
    data : (n, d)
        numpy array, memory map, or tensor on any device.
    n_components : int, float or None
        Directions to keep in the whitening, see `whiten.whitening`; with ``whiten=False``, the number of components to
        keep of all that the rotation gives.
    contrast : {"logcosh", "exp", "cube"}
        What counts as far from Gaussian.
    whiten : bool
        False takes the rows as they are and only rotates them.
    starts : int
        Random starts; with more than one, how well they agree is reported.
    rows : int, "all" or "auto"
        How many rows to use for the rotation, chosen at random; "auto" uses as many as two halves need to agree.
        The whitening is always that of all rows.
    tol, max_iter : float, int
        See `solver.solve`.
    seed : int or Generator
        Of the starts and of the choice of rows.
    start : (k, k), optional
        The rotation of the whitened rows to begin with, instead of a random one.
    device : str
        "auto" (where the data are), "cpu" or "cuda".
    """
    form = contrast_named(contrast)
    _check(starts, rows, tol, max_iter)
    device = resolve_device(device, data)
    rng = np.random.default_rng(seed)
    moments = moments_of(_chunks(data, device))
    white, covariance = _whitening(moments, n_components, whiten, lambda: _chunks(data, device))
    work = _Work(data, white, form, device, starts, _as_rotation(start, white.retained), covariance, tol, max_iter, rng)
    left = None
    if rows == "auto":
        found, left = _enough(work, len(data))
    else:
        everything = rows == "all" or int(rows) >= len(data)
        found = work.unmix(None if everything else np.sort(rng.permutation(len(data))[: int(rows)]), start)
    return Components(white, found if whiten else _first(found, n_components), left)


@dataclass(frozen=True, eq=False)
class _Work:
    """What is the same for every subset of the rows."""

    data: Any
    whitening: Whitening
    contrast: Contrast
    device: str
    starts: int
    start: Float | None
    covariance: Float | None
    tol: float
    max_iter: int
    rng: np.random.Generator

    def unmix(self, index: Array | None, start: Float | None = None) -> Unmixing:
        """The components of some rows; those of a subset are found in its own whitening, which is the more precise."""
        own, to_own = (self.whitening, None) if index is None or self.covariance is not None else self._own(index)
        source = self._passes(own, index)
        begins, reference = self._begins(source, index, start)
        found = unmix_rows(
            source,
            own.inverse,
            begins=begins,
            reference=reference,
            tol=self.tol,
            max_iter=self.max_iter,
            covariance=self.covariance,
        )
        if to_own is None:
            return found
        rotation = polar(found.unmixing @ own.inverse @ to_own)  # white on all rows again
        return replace(
            found,
            mean=self.whitening.mean,
            unmixing=rotation @ self.whitening.matrix,
            mixing=self.whitening.inverse @ rotation.T,
        )

    def _passes(self, white: Whitening, index: Array | None) -> Passes | TorchPasses:
        return passes_over(self.data, white, self.contrast, self.device, index)

    def _begins(
        self, source: Passes | TorchPasses, index: Array | None, start: Float | None
    ) -> tuple[list[Float], float | None]:
        """Where to start, and the gradient of a random rotation where the starts are not random.

        Where there are many rows, a few of them bring a random start near the answer at little cost.
        """
        given = start if start is not None else self.start
        begins = [random_rotation(source.k, self.rng) for _ in range(self.starts)]
        if given is not None:
            begins[0] = given
        few = max(LEAST, COARSE * source.k)
        if source.n < 2 * few or self.covariance is not None or start is not None:
            return begins, None if given is None else random_gradient(source, self.rng, source.n)
        chosen = np.sort(self.rng.choice(source.n, few, replace=False))
        chosen = chosen if index is None else index[chosen]
        own, to_own = self._own(chosen)
        coarse = self._passes(own, chosen)
        rough = [solve(coarse, begin, tol=COARSE_TOLERANCE, max_iter=self.max_iter, decide=False) for begin in begins]
        return [polar(s.rotation @ to_own) for s in rough], random_gradient(coarse, self.rng, source.n)

    def _own(self, index: Array) -> tuple[Whitening, Float]:
        """The whitening of a subset of rows, and the matrix (k, k) that leads there from the whitening of all rows."""
        white = self.whitening
        parts = (index[part] for part in row_chunks(len(index), self.data.shape[1]))
        moments = moments_of(mapped(self.data[part], white.mean, white.matrix.T) for part in parts)
        values, vectors = eigh(moments.finish())
        values = np.maximum(values, 1e-12 * values[-1])  # fewer rows than components
        to_own = (vectors / np.sqrt(values)) @ vectors.T
        back = (vectors * np.sqrt(values)) @ vectors.T
        mean = white.mean + white.inverse @ moments.mean
        return replace(white, mean=mean, matrix=to_own @ white.matrix, inverse=white.inverse @ back), to_own


def passes_over(
    data: Any, white: Whitening, contrast: Contrast, device: str, index: Array | None = None
) -> Passes | TorchPasses:
    """The passes over rows: numpy on the CPU, torch on any other device."""
    if device == "cpu":
        if is_tensor(data):
            data = data.detach().numpy() if str(data.dtype) != "torch.bfloat16" else data.float().numpy()
        return Passes(data, white.mean, white.matrix, contrast, index=index)
    return TorchPasses(data, white.mean, white.matrix, contrast, index=index, device=device)


def _whitening(
    moments: Moments, n_components: int | float | None, whiten: bool, again: Any
) -> tuple[Whitening, Float | None]:
    """The whitening, and the second moments of the rows where they are not to be whitened and are not white."""
    if whiten:
        return whitening(moments, "pca", n_components, again=again), None
    second = moments.finish() + np.outer(moments.mean, moments.mean)
    one, d = np.eye(moments.d), moments.d
    as_given = Whitening(np.zeros(d), one, one, d, np.diag(second), d)
    return as_given, None if np.abs(second - one).max() < WHITE else second


def _first(found: Unmixing, n_components: int | float | None) -> Unmixing:
    """The first components of a rotation of given rows."""
    if n_components is None or n_components >= found.k:
        return found
    if isinstance(n_components, (bool, str)) or n_components != int(n_components) or n_components < 1:
        raise InputError(f"with whiten=False n_components must be a positive number or None, not {n_components!r}")
    k = int(n_components)
    of_each = ("negentropy", "skewness", "kurtosis", "sampling_error", "agreement", "identified")
    parts: dict[str, Any] = {name: None if (part := getattr(found, name)) is None else part[:k] for name in of_each}
    return replace(found, unmixing=found.unmixing[:k], mixing=found.mixing[:, :k], **parts)


def _enough(work: _Work, n: int) -> tuple[Unmixing, float]:
    """Double two disjoint halves until they agree, then use both; all rows where they never do."""
    order = work.rng.permutation(n)
    half = max(2000, FIRST * work.whitening.retained)
    while 2 * half < n:
        first, second = (work.unmix(np.sort(order[i * half : (i + 1) * half])) for i in range(2))
        left = _apart(first, second, work.whitening) / 2  # both together err half as much as they differ
        if left <= TARGET:
            return work.unmix(np.sort(order[: 2 * half]), _rotation(first, work.whitening)), left
        half *= min(8, max(2, int(np.ceil((left / TARGET) ** 2))))
    found = work.unmix(None)
    return found, float(np.quantile(found.sampling_error[found.identified], 0.9)) if found.identified.any() else np.inf


def _apart(first: Unmixing, second: Unmixing, white: Whitening) -> float:
    """Angle below which nine in ten of the components that either half is sure of meet their partner in the other."""
    match = np.abs(_rotation(first, white) @ _rotation(second, white).T)  # (k, k)
    sides = [np.arccos(np.minimum(match.max(axis), 1)) for axis in (1, 0)]
    sure = np.concatenate([side[f.identified] for side, f in zip(sides, (first, second), strict=True)])
    return float(np.quantile(sure, 0.9)) if sure.size else np.inf


def _rotation(found: Unmixing, white: Whitening) -> Float:
    """The rotation (k, k) of the whitened rows that gives the components."""
    return found.unmixing @ white.inverse


def _chunks(data: Any, device: str) -> Iterator[Any]:
    n, d = data.shape
    for part in row_chunks(n, d, CHUNK_BYTES):
        chunk = data[part]
        if device != "cpu" and not is_tensor(chunk):
            import torch

            chunk = torch.from_numpy(np.array(chunk)).to(device)
        yield chunk


def _as_rotation(start: Any, k: int) -> Float | None:
    """The orthogonal matrix nearest to a given start, which must be k x k."""
    if start is None:
        return None
    start = np.asarray(start, dtype=np.float64)
    if start.shape != (k, k) or not np.isfinite(start).all():
        raise InputError(f"the start must be a finite matrix of shape {(k, k)}, but its shape is {start.shape}")
    return polar(start)


def _check(starts: int, rows: int | str, tol: float, max_iter: int) -> None:
    if starts < 1:
        raise InputError(f"starts must be at least 1, not {starts}")
    if rows not in ("all", "auto") and (isinstance(rows, str) or int(rows) < 2):
        raise InputError(f"rows must be 'all', 'auto' or a number of at least 2, not {rows!r}")
    if not tol > 0:
        raise InputError(f"tol must be positive, not {tol}")
    if max_iter < 1:
        raise InputError(f"max_iter must be at least 1, not {max_iter}")
