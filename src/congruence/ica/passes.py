"""One pass over the rows: the averages a step of the solver needs, at the current rotation.

The whitening is folded into the rotation, so that rows are read where they lie, once per pass, and never copied; only
where rows are so far from round that float32 products would blur them is a whitened copy made. Rows are multiplied in
float32 (float64 where they are few); everything of size k x k is float64, since that is what decides whether wide data
separate at all. Chunks are small enough for the processor's cache, and are shared out to single-threaded workers.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, single_threaded, to_numpy
from congruence.errors import TableError
from congruence.ica.contrasts import Contrast
from congruence.maps.algebra import blas_threads, one_thread
from congruence.tables.memory import room_for

CHUNK = 2**18  # numbers in a chunk of rows: a megabyte of float32
SMALL = 2**27  # n k^2 below which float64 costs nothing worth saving
LONGEST = 4096  # rows in a chunk: float32 sums of many more lose digits
ROUND = 1e3  # ratio of standard deviations up to which float32 products of unwhitened rows are precise enough
FELT = 1e-5  # standard deviations by which a rounded mean may move a component
COARSE = 100  # rows per component, or as many as there are components, from which on a rough answer takes few passes
LEAST = 4096  # rows below which a rough answer is not worth the trouble
CACHE = 2**31  # bytes of whitened rows kept in memory, where rows are there already
MAPPED_CACHE = 2**28  # the same, where rows are on disk because they are many


@dataclass(frozen=True, eq=False)
class Averages:
    """Averages over all rows at one rotation, in the coordinates of the components s."""

    cross: Any  # (k, k) of g(s_i) s_j
    slope: Any  # (k,) of g'(s_i)
    power: Any  # (k,) of g(s_i)^2


@dataclass(frozen=True, eq=False)
class Shape:
    """How each component is distributed."""

    contrast: Float  # (k,) average of G(s)
    skewness: Float  # (k,) average of s^3
    kurtosis: Float  # (k,) average of s^4, minus 3


def precision_for(n: int, k: int) -> str:
    """The precision in which n rows are multiplied for k components: float64 where they are few."""
    return "float64" if n * k**2 <= SMALL else "float32"


def few_of(n: int, k: int) -> int | None:
    """How many of n rows to begin with, where a rough answer on a few rows saves passes over many."""
    few = max(LEAST, k * max(COARSE, k))
    return few if n >= 3 * few else None


def is_far_from_round(whitening: Float) -> bool:
    """Whether rows with this whitening would be blurred by float32 products before they are whitened."""
    with one_thread(len(whitening)):
        squares = np.linalg.eigvalsh(whitening @ whitening.T)  # of the singular values
    return bool(squares.max(initial=0) > ROUND**2 * squares.min(initial=np.inf))


class Passes:
    """Passes over the rows (x - mean) @ whitening.T, on the CPU.

    Parameters
    ----------
    data : (n, d) array or memory map
    mean : (d,)
    whitening : (k, d)
    contrast : Contrast
    index : (m,) array, optional
        The rows to use, in any order and with repetitions; all of them by default.
    precision : {"auto", "float32", "float64"}
        Of the products of rows.
    """

    rounds = False

    def __init__(
        self,
        data: Any,
        mean: Float,
        whitening: Float,
        contrast: Contrast,
        *,
        index: Array | None = None,
        precision: str = "auto",
    ):
        self.data, self.mean, self.whitening, self.contrast, self.index = data, mean, whitening, contrast, index
        self.n = len(data) if index is None else len(index)
        self.k, self.d = whitening.shape
        self.dtype = np.dtype(precision if precision != "auto" else precision_for(self.n, self.k))
        self.workers = max(1, min(blas_threads(), self.n // 1024))  # asked now: the solver holds BLAS to one thread
        self.count = 0  # passes made
        self._folded = self._fold()
        self._subtracted = self._rounded_mean()

    @property
    def few(self) -> int | None:
        """How many rows to begin with, where a rough answer on a few rows saves passes over many."""
        return few_of(self.n, self.k)

    def lift(self, matrix: Float) -> Float:
        """A matrix as the kind of array in which averages come: as it is."""
        return matrix

    def averages(self, rotation: Float, *, rough: bool = False) -> Averages:
        """The averages at the components s = z @ rotation.T of the whitened rows z; never rough."""
        self.count += 1
        matrix = rotation @ self._folded  # (k, r)
        totals = self._over_rows(lambda rows: self._sums(rows, matrix.T.astype(self.dtype)))
        cross, slope, power = (sum(parts) / self.n for parts in zip(*totals, strict=True))
        return Averages(cross @ matrix.T, slope, power)

    def shape(self, rotation: Float) -> Shape:
        """How the components at this rotation are distributed."""
        matrix = rotation @ self._folded
        totals = self._over_rows(lambda rows: self._shape_sums(rows, matrix.T.astype(self.dtype)))
        contrast, third, fourth = (sum(parts) / self.n for parts in zip(*totals, strict=True))
        return Shape(contrast, third, fourth - 3)

    def _fold(self) -> Float:
        """The matrix (k, r) from rows as they are read to whitened ones; the identity where these are kept."""
        unsafe = self.dtype != np.float64 and is_far_from_round(self.whitening)
        # Rows that have to be gathered or converted anyway are whitened once and kept, where they fit.
        dear = 2 * self.k < self.d or self.index is not None or self.data.dtype != self.dtype
        size = self.n * self.k * self.dtype.itemsize
        self._fits = size <= (MAPPED_CACHE if isinstance(self.data, np.memmap) else CACHE)
        self._whiten_first = unsafe or (dear and self._fits)
        return np.eye(self.k) if self._whiten_first else self.whitening

    def _rounded_mean(self) -> Array:
        """The mean in the precision of the products, which is faster, or in float64 where rounding would be felt.

        Rows far from the origin have a mean that float32 rounds by more than some of their directions vary.
        """
        rounded = self.mean.astype(self.dtype)
        moved = np.abs(self.whitening @ (self.mean - rounded)).max(initial=0)
        return rounded if moved < FELT else self.mean

    @cached_property
    def _white(self) -> Array | None:
        """A whitened copy of the rows, where one is needed: in memory, or in a temporary file where they are many."""
        if not self._whiten_first:
            return None
        shape = self.n, self.k
        try:
            white = np.empty(shape, self.dtype) if self._fits else room_for(shape, self.dtype, "the whitened rows")
        except TableError:  # room neither on the disk nor in memory: they are whitened again in every pass
            return None

        def fill(parts: list[slice]) -> None:
            for part in parts:
                white[part] = self._whitened(part)

        self._share_out(fill)
        return white

    def _whitened(self, part: slice) -> Array:
        rows = to_numpy(self.data[part if self.index is None else self.index[part]])
        return np.asarray((rows - self.mean) @ self.whitening.T, dtype=self.dtype)

    def _centred(self, part: slice, room: Array) -> Array:
        """A chunk of rows as they are multiplied: whitened, or minus their mean; in `room` where that saves a copy."""
        if self._whiten_first:
            return self._whitened(part) if self._white is None else self._white[part]
        rows = to_numpy(self.data[part if self.index is None else self.index[part]])
        if rows.dtype == self.dtype:
            return np.asarray(np.subtract(rows, self._subtracted, out=room[: len(rows)], casting="same_kind"))
        return np.asarray(rows - self.mean, dtype=self.dtype)

    def _parts(self, start: int, stop: int) -> list[slice]:
        step = min(LONGEST, max(64, CHUNK // max(self.k, self.d)))
        return [slice(a, min(a + step, stop)) for a in range(start, stop, step)]

    def _over_rows(self, work: Callable[[list[slice]], Any]) -> list[Any]:
        if self._whiten_first:
            _ = self._white  # made before the workers need it
        return self._share_out(work)

    def _share_out(self, work: Callable[[list[slice]], Any]) -> list[Any]:
        """Share all chunks out to the workers; the results are in the order of the rows."""
        edges = np.linspace(0, self.n, self.workers + 1).astype(int)
        shares = [self._parts(a, b) for a, b in pairwise(edges)]
        with single_threaded():
            if self.workers == 1:
                return [work(shares[0])]
            with ThreadPoolExecutor(self.workers) as pool:
                return list(pool.map(work, shares))

    def _sums(self, parts: list[slice], matrix: Array) -> tuple[Float, Float, Float]:
        cross, slope, power = np.zeros(matrix.T.shape), np.zeros(self.k), np.zeros(self.k)
        room, components = self._rooms(parts, matrix)
        product = np.empty(matrix.T.shape, self.dtype)
        for part in parts:
            rows = self._centred(part, room)  # (m, r)
            g = np.matmul(rows, matrix, out=components[: len(rows)])  # (m, k): s, then g(s)
            slopes, powers = self.contrast.apply(g, np)
            cross += np.matmul(g.T, rows, out=product)
            slope += slopes
            power += powers
        return cross, slope, power

    def _rooms(self, parts: list[slice], matrix: Array) -> tuple[Array, Array]:
        """Memory for a chunk of rows and its components, taken once per pass and not once per chunk."""
        longest = max((part.stop - part.start for part in parts), default=0)
        return np.empty((longest, matrix.shape[0]), self.dtype), np.empty((longest, self.k), self.dtype)

    def _shape_sums(self, parts: list[slice], matrix: Array) -> tuple[Float, Float, Float]:
        contrast, third, fourth = np.zeros(self.k), np.zeros(self.k), np.zeros(self.k)
        room, components = self._rooms(parts, matrix)
        for part in parts:
            rows = self._centred(part, room)
            s = np.matmul(rows, matrix, out=components[: len(rows)])  # (m, k)
            contrast += self.contrast.value(s).sum(0, dtype=np.float64)
            square = s * s
            third += np.einsum("ij,ij->j", square, s)
            fourth += np.einsum("ij,ij->j", square, square)
        return contrast, third, fourth
