"""From rows to independent components: moments, whitening, rotation, on all rows or on as many as the answer needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.ica.rotations import polar
from congruence.ica.samples import PreparedRows, prepare_rows
from congruence.ica.unmix import MAX_ITER, TOLERANCE, Unmixing
from congruence.ica.whiten import Whitening

FIRST = 100  # rows per component in the first half that is tried
TARGET = 0.05  # radians of error that may be left when rows are chosen automatically


@dataclass(frozen=True, eq=False)
class Components:
    """Independent components with the whitening they were found in."""

    whitening: Whitening
    unmixing: Unmixing
    error_left: float | None  # radians by which more rows would still turn the components, where rows were chosen
    rows: Array | None = None  # (m,) which rows decided the rotation, where not all did


def independent_components(
    data: Any,
    *,
    n_components: int | float | None = None,
    contrast: str = "logcosh",
    whiten: bool = True,
    starts: int = 2,
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
        numpy array, memory map, tensor on any device, or `DaskRows`.
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
    _check(starts, rows, tol, max_iter)
    prepared = prepare_rows(data, n_components=n_components, contrast=contrast, whiten=whiten, device=device)
    found = components_of(prepared, rows=rows, starts=starts, tol=tol, max_iter=max_iter, seed=seed, start=start)
    return found if whiten else replace(found, unmixing=first_components(found.unmixing, n_components))


def components_of(
    prepared: PreparedRows,
    *,
    rows: int | str = "all",
    starts: int = 2,
    tol: float = TOLERANCE,
    max_iter: int = MAX_ITER,
    seed: int | np.random.Generator = 0,
    start: Float | None = None,
) -> Components:
    """Find the independent components of rows whose moments and whitening are known; see `independent_components`."""
    _check(starts, rows, tol, max_iter)
    rng, n = np.random.default_rng(seed), len(prepared.data)
    start = _as_rotation(start, prepared.whitening.retained)
    work = _Work(prepared, {"seed": rng, "starts": starts, "tol": tol, "max_iter": max_iter})
    left = None
    if rows == "auto":
        found, index, left = _enough(work, rng, start)
    else:
        everything = rows == "all" or int(rows) >= n
        index = None if everything else np.sort(rng.permutation(n)[: int(rows)])
        found = work.unmix(index, start)
    return Components(prepared.whitening, found, left, index)


@dataclass(frozen=True, eq=False)
class _Work:
    """The rows, and how any part of them is to be unmixed."""

    prepared: PreparedRows
    options: dict[str, Any]

    def unmix(self, index: Array | None, start: Float | None = None, *, near: bool = False) -> Unmixing:
        return self.prepared.subset(index).unmix(start=start, near=near, **self.options)


def first_components(found: Unmixing, n_components: int | float | None) -> Unmixing:
    """The first components of a rotation of given rows."""
    if n_components is None:
        return found
    if isinstance(n_components, (bool, str)) or not float(n_components).is_integer() or n_components < 1:
        raise InputError(f"with whiten=False n_components must be a positive number or None, not {n_components!r}")
    if n_components >= found.k:
        return found
    k = int(n_components)
    of_each = ("negentropy", "skewness", "kurtosis", "sampling_error", "agreement", "noise", "identified")
    parts: dict[str, Any] = {name: None if (part := getattr(found, name)) is None else part[:k] for name in of_each}
    return replace(found, unmixing=found.unmixing[:k], mixing=found.mixing[:, :k], **parts)


def _enough(work: _Work, rng: np.random.Generator, start: Float | None) -> tuple[Unmixing, Array | None, float]:
    """Double two disjoint halves until they agree, then use both; all rows (None) where they never do."""
    white, n = work.prepared.whitening, len(work.prepared.data)
    order = rng.permutation(n)
    half = max(2000, FIRST * white.retained)
    while 2 * half < n:
        parts = [np.sort(order[i * half : (i + 1) * half]) for i in range(2)]
        first, second = work.unmix(parts[0], start), work.unmix(parts[1])  # which agree from one start too easily
        left = _apart(first, second, white) / 2  # both together err half as much as they differ
        if left <= TARGET:
            index = np.sort(order[: 2 * half])
            return work.unmix(index, _rotation(first, white), near=True), index, left
        half *= int(min(8, max(2, np.ceil((left / TARGET) ** 2))))  # `left` is infinite where neither half is sure
    found = work.unmix(None, start)
    sure = found.sampling_error[found.identified]
    return found, None, float(np.quantile(sure, 0.9)) if sure.size else np.inf


def _apart(first: Unmixing, second: Unmixing, white: Whitening) -> float:
    """Angle below which nine in ten of the components that either half is sure of meet their partner in the other."""
    match = np.abs(_rotation(first, white) @ _rotation(second, white).T)  # (k, k)
    sides = [np.arccos(np.minimum(match.max(axis), 1)) for axis in (1, 0)]
    sure = np.concatenate([side[f.identified] for side, f in zip(sides, (first, second), strict=True)])
    return float(np.quantile(sure, 0.9)) if sure.size else np.inf


def _rotation(found: Unmixing, white: Whitening) -> Float:
    """The rotation (k, k) of the whitened rows that gives the components."""
    return found.unmixing @ white.inverse


def _as_rotation(start: Any, k: int) -> Float | None:
    """The orthogonal matrix nearest to a given start, which must be k x k."""
    if start is None:
        return None
    start = as_matrix(start, "the start")
    if start.shape != (k, k):
        raise InputError(f"the start must be a matrix of shape {(k, k)}, but its shape is {tuple(start.shape)}")
    start = to_numpy(start).astype(np.float64)
    if np.linalg.matrix_rank(start) < k:
        raise InputError("the start has linearly dependent rows, so that no rotation is nearest to it")
    rotation: Float = polar(start)
    return rotation


def _check(starts: int, rows: int | str, tol: float, max_iter: int) -> None:
    if not _is_whole(starts) or starts < 1:
        raise InputError(f"starts must be a whole number of at least 1, not {starts!r}")
    if rows not in ("all", "auto") and (not _is_whole(rows) or int(rows) < 2):
        raise InputError(f"rows must be 'all', 'auto' or a number of at least 2, not {rows!r}")
    if not tol > 0:
        raise InputError(f"tol must be positive, not {tol}")
    if not _is_whole(max_iter) or max_iter < 1:
        raise InputError(f"max_iter must be a whole number of at least 1, not {max_iter!r}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
