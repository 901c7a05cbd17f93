"""Passes over the rows: the averages that a step of the solver needs, at the current rotation.

The whitening is folded into the rotation, so that rows are read where they are stored, once per pass, and not copied;
only rows so far from round that float32 products would lose their small directions are whitened first. Rows are
multiplied in float32 (float64 where they are few); everything of size k x k is float64, without which wide data do not
separate. The same code runs on numpy and torch; on a device, k x k matrices stay there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from congruence.arrays import Array, Float, is_tensor, single_threaded, to_numpy, to_tensor
from congruence.errors import TableError
from congruence.ica._contrasts import Averages, Contrast, Fourth, Scores, Shape, Sums, column_sums
from congruence.memory import room_for
from congruence.rows.algebra import blas_threads, one_thread
from congruence.rows.blocks import DaskRows, Partition, merged, persist

T = TypeVar("T")
CHUNK = 2**18  # numbers in a chunk of rows: a megabyte of float32, which stays in the processor's cache
DEVICE_CHUNK = 2**24  # the same on a device: enough to keep a GPU busy, few enough for float32 sums
LONGEST = 4096  # rows in a chunk on the CPU: float32 sums of many more lose digits
SMALL = 2**27  # n k^2 below which float64 costs little
ROUND = 1e3  # ratio of standard deviations up to which float32 products of unwhitened rows are precise enough
ROUNDED_MEAN = 1e-5  # standard deviations by which a rounded mean may shift a component
COARSE = 100  # rows per component, or as many as there are components, for a rough answer that saves passes over all
DEVICE_COARSE = 1000  # the same on a device
FARTHEST = 10.0  # of z^T M z, which is 2^0.5 for Gaussian rows and a matrix of unit size
LEAST = 4096  # rows below which a rough answer saves nothing
CACHE = 2**31  # bytes of whitened rows kept in memory, where the rows are in memory
MAPPED_CACHE = 2**28  # the same, where the rows are on disk
DEVICE_SHARE = 0.4  # of the free memory of a GPU that a copy of the rows may take
HOST_BYTES = 2**33  # the same, where the device of torch is the CPU
WORTH_A_KERNEL = 2**28  # numbers in all rows from which compiling a GPU kernel (a second) saves time


class Passes:
    """Passes over the rows (x - mean) @ whitening.T: numpy on the CPU, torch on any other device.

    On the CPU, chunks are distributed over single-threaded workers. On a device ("cuda", "cpu:0"), rows are copied once
    where they fit, and chunk by chunk in every pass where they do not. `index` (m,) are the rows to use, in any order
    and with repetitions; `precision` ("auto", "float32" or "float64") is that of their products.
    """

    rounds = False  # whether averages of rounded products (tf32) are faster

    def __init__(
        self,
        data: Any,
        mean: Float,
        whitening: Float,
        contrast: Contrast,
        *,
        index: Array | None = None,
        precision: str = "auto",
        device: str = "cpu",
    ):
        self.mean, self.whitening, self.contrast, self.device = mean, whitening, contrast, device
        self.n = len(data) if index is None else len(index)
        self.k, self.d = whitening.shape
        self.count = 0  # passes so far
        self._where = {} if device == "cpu" else {"device": device}
        if precision == "auto":
            precision = precision_for(self.n, self.k) if device == "cpu" else "float32"
        narrow = 2 * self.k < self.d or index is not None
        unsafe = precision != "float64" and _is_far_from_round(whitening)
        if device == "cpu":
            self.xp: Any = np
            self.data, self.index = to_numpy(data) if is_tensor(data) else data, index
            self.dtype: Any = np.dtype(precision)
            self.workers = max(1, min(blas_threads(), self.n // 1024))  # now: the solver holds BLAS to one thread
            size = self.n * self.k * self.dtype.itemsize
            self._fits = size <= (MAPPED_CACHE if isinstance(data, np.memmap) else CACHE)
            # Rows that have to be gathered or converted anyway are whitened once and kept, where they fit.
            self._whitens = unsafe or ((narrow or self.data.dtype != self.dtype) and self._fits)
            # Subtracting a mean of the same dtype is faster, but far from the origin float32 rounds it too much.
            rounded = mean.astype(self.dtype)
            shift = np.abs(whitening @ (mean - rounded)).max(initial=0)
            self._subtracted = rounded if shift < ROUNDED_MEAN else mean
        else:
            import torch

            self.xp, self.data, self.workers, self._whitens = torch, data, 1, unsafe or narrow
            self.index = torch.as_tensor(index, device=data.device) if index is not None and is_tensor(data) else index
            self.dtype = getattr(torch, precision)
            self.rounds = precision == "float32" and torch.device(device).type == "cuda"
            # Of rows that are not round, rounded products lose too much: those that fit are whitened once.
            self._whitens |= self.rounds and self.n * self.k * self.dtype.itemsize <= _free_bytes(device)
        self._mean, self._whitening = self.lift(mean), self.lift(whitening)
        self._folded = self.lift(np.eye(self.k)) if self._whitens else self._whitening  # from rows to white rows

    @property
    def few(self) -> int | None:
        """The number of rows to start with, where a rough answer on a few rows saves passes over many."""
        if self.device == "cpu":
            return few_of(self.n, self.k)
        few = DEVICE_COARSE * self.k  # passes over rows that a GPU holds are as fast as the k x k algebra
        return few if self._kept is None and self.n >= 4 * few else None

    def lift(self, matrix: Any) -> Any:
        """Return a matrix as the kind of array that averages are: numpy, or float64 on the device."""
        if self.device == "cpu":
            return matrix
        return self.xp.as_tensor(matrix, dtype=self.xp.float64, device=self.device)

    def averages(self, rotation: Any, *, rough: bool = False) -> Averages:
        """Return the averages at the components s = z @ rotation.T of the whitened rows z; `rotation` is (m, k)."""
        self.count += 1
        matrix = self.lift(rotation) @ self._folded  # (k, r)
        with _tf32() if rough and self.rounds else nullcontext():
            cross, slope, power = self._average(self._sums, matrix)
        return Averages(cross @ matrix.T, slope, power)

    def shape(self, rotation: Float) -> Shape:
        """Return how the components at this rotation are distributed."""
        (sums,) = self._average(self._shape_sums, self.lift(rotation) @ self._folded)
        contrast, third, fourth = to_numpy(sums)
        return Shape(contrast, third, fourth - 3)

    def scores(self, rotation: Float) -> Scores:
        """Return what the errors of the axes are made of where components need not be independent."""
        self.count += 1
        averages = self._average(self._score_sums, self.lift(rotation) @ self._folded)
        return Scores(*map(to_numpy, averages))

    def fourth(self, matrix: Float) -> Fourth:
        """Return fourth moments of the whitened rows z; rows with a far z^T M z count no more than less far ones."""
        self.count += 1
        folded = self._folded
        with _tf32() if self.rounds else nullcontext():
            (product,) = self._average(self._fourth_sums, folded.T @ self.lift(matrix) @ folded)
        return Fourth(to_numpy(folded @ product @ folded.T))

    def _average(self, work: Callable[..., Any], matrix: Any) -> list[Any]:
        _ = self._kept  # computed before the workers need it
        there = self.xp.asarray(matrix.T, dtype=self.dtype)
        totals = self._over_rows(lambda parts: work(parts, there))
        return [sum(parts) / self.n for parts in zip(*totals, strict=True)]

    def _sums(self, parts: list[slice], matrix: Any) -> tuple[Any, Any, Any]:
        cross = self._zeros(*matrix.T.shape)
        slope, power = self._zeros(len(cross)), self._zeros(len(cross))
        product = self._empty(*matrix.T.shape)
        for rows, s in self._components(parts, matrix):
            slopes, powers = self._apply(s)  # s becomes g(s)
            cross += self.xp.matmul(s.T, rows, out=product)
            slope += slopes
            power += powers
        return cross, slope, power

    def _score_sums(self, parts: list[slice], matrix: Any) -> tuple[Any, Any, Any]:
        k = matrix.shape[1]
        cross, second, curvature = (self._zeros(k, k) for _ in range(3))
        for _, s in self._components(parts, matrix):
            g = s + 0.0
            self._apply(g)
            cross += g.T @ s
            second += s.T @ s
            curvature += self.contrast.derivative(s, g).T @ (s * s)
        return cross, second, curvature

    def _fourth_sums(self, parts: list[slice], matrix: Any) -> tuple[Any]:
        total, product = self._zeros(*matrix.shape), self._empty(*matrix.shape)
        for rows, s in self._components(parts, matrix):
            s *= rows
            s = rows * s.sum(1).clip(-FARTHEST, FARTHEST)[:, None]
            total += self.xp.matmul(s.T, rows, out=product)
        return (total,)

    def _shape_sums(self, parts: list[slice], matrix: Any) -> tuple[Any]:
        sums = self._zeros(3, self.k)
        for _, s in self._components(parts, matrix):
            square = s * s
            sums[0] += self.contrast.value(s).sum(0, dtype=self.xp.float64)
            sums[1] += column_sums(square, s)
            sums[2] += column_sums(square, square)
        return (sums,)

    def _components(self, parts: list[slice], matrix: Any) -> Iterator[tuple[Any, Any]]:
        """Yield chunks of rows (m, r) with their components (m, k), in memory that is reused for the next chunk."""
        longest = max((part.stop - part.start for part in parts), default=0)
        room = np.empty((longest, len(matrix)), self.dtype) if self.device == "cpu" else None
        components = self._empty(longest, matrix.shape[1])
        for part in parts:
            rows = self._read(part, room) if self._kept is None else self._kept[part]
            yield rows, self.xp.matmul(rows, matrix, out=components[: len(rows)])

    def _zeros(self, *shape: int) -> Any:
        return self.xp.zeros(shape, dtype=self.xp.float64, **self._where)

    def _empty(self, *shape: int) -> Any:
        return self.xp.empty(shape, dtype=self.dtype, **self._where)

    @cached_property
    def _apply(self) -> Callable[[Any], Sums]:
        """The contrast's `apply`, or one GPU kernel that does the same."""
        if self.rounds and self.contrast.name == "logcosh" and self.n * self.k >= WORTH_A_KERNEL:
            try:
                from congruence.ica._fused import tanh_and_power

                tanh_and_power(self.xp.zeros((1, 1), device=self.device))
                return lambda s: (len(s) - (power := tanh_and_power(s)), power)
            except Exception:  # no triton, or no compiler for it to call, which raises errors of many kinds
                return self.contrast.apply
        return self.contrast.apply

    @cached_property
    def _kept(self) -> Any:
        """A copy of the rows as they are multiplied: whitened ones on the CPU, any that fit on a device; or None."""
        shape = (self.n, self.k if self._whitens else self.d)
        if self.device != "cpu":
            if self.n * shape[1] * self.dtype.itemsize > _free_bytes(self.device):
                return None
            kept = self._empty(*shape)
        elif not self._whitens:
            return None
        else:
            try:
                kept = np.empty(shape, self.dtype) if self._fits else room_for(shape, self.dtype, "the whitened rows")
            except TableError:  # room neither on the disk nor in memory: they are whitened again in every pass
                return None

        def fill(parts: list[slice]) -> None:
            for part in parts:
                kept[part] = self._read(part)

        self._over_rows(fill)
        return kept

    def _read(self, part: slice, room: Array | None = None) -> Any:
        """A chunk of rows, whitened or minus their mean, in the precision of products; in `room` if that helps."""
        rows = self.data[part if self.index is None else self.index[part]]
        rows = to_numpy(rows) if self.device == "cpu" else to_tensor(rows, self.device)
        if room is not None and not self._whitens and rows.dtype == self.dtype:
            return np.subtract(rows, self._subtracted, out=room[: len(rows)], casting="same_kind")
        centred = rows - self._mean  # float64
        return self.xp.asarray(centred @ self._whitening.T if self._whitens else centred, dtype=self.dtype)

    def _over_rows(self, work: Callable[[list[slice]], Any]) -> list[Any]:
        """Distribute all chunks over the workers; the results are in the order of the rows."""
        width = max(self.k, self.d)
        if self.device != "cpu":
            return [work(_slices(0, self.n, max(1, DEVICE_CHUNK // width)))]
        edges = np.linspace(0, self.n, self.workers + 1).astype(int)
        shares = [_slices(a, b, min(LONGEST, max(64, CHUNK // width))) for a, b in pairwise(edges)]
        with single_threaded():
            if self.workers == 1:
                return [work(shares[0])]
            return list(self._threads.map(work, shares))

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        """One pool for all passes: starting threads in each would take longer than a short pass."""
        return ThreadPoolExecutor(self.workers)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_threads"}  # threads cannot be sent


def precision_for(n: int, k: int) -> str:
    """Return the precision in which n rows are multiplied for k components: float64 where they are few."""
    return "float64" if n * k**2 <= SMALL else "float32"


def few_of(n: int, k: int) -> int | None:
    """Return how many of n rows to start with, or None where a rough answer on a few rows saves nothing."""
    few = max(LEAST, k * max(COARSE, k))
    return few if n >= 3 * few else None


def _is_far_from_round(whitening: Float) -> bool:
    """Whether float32 products of rows with this whitening would lose their small directions."""
    with one_thread(len(whitening)):
        squares = np.linalg.eigvalsh(whitening @ whitening.T)  # of the singular values
    return bool(squares.max(initial=0) > ROUND**2 * squares.min(initial=np.inf))


def _slices(start: int, stop: int, step: int) -> list[slice]:
    return [slice(a, min(a + step, stop)) for a in range(start, stop, step)]


def _free_bytes(device: str) -> float:
    import torch

    if torch.device(device).type != "cuda":
        return HOST_BYTES
    return DEVICE_SHARE * float(torch.cuda.mem_get_info(device)[0])


@contextmanager
def _tf32() -> Iterator[None]:
    """Multiply float32 matrices as tf32 inside the block, where the device can."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class DaskPasses:
    """The passes of `Passes` over a dask array: each block on the worker that holds it; only averages are sent."""

    rounds = False

    def __init__(
        self,
        rows: DaskRows,
        mean: Float,
        whitening: Float,
        contrast: Contrast,
        *,
        index: Array | None = None,
        precision: str = "auto",
    ):
        self.mean, self.whitening, self.contrast = mean, whitening, contrast
        self.n = len(rows) if index is None else len(index)
        self.k, self.d = whitening.shape
        self.count = 0
        self.few = few_of(self.n, self.k)
        precision = precision if precision != "auto" else precision_for(self.n, self.k)
        self._passes = rows.each(_block_passes, mean, whitening, contrast, precision, index=index)
        if rows.kept:
            self._passes = persist(self._passes)

    def lift(self, matrix: Float) -> Float:
        """Return a matrix as the kind of array that averages are: as it is."""
        return matrix

    def averages(self, rotation: Float, *, rough: bool = False) -> Averages:
        """As of `Passes`, never rough."""
        return self._pool(Passes.averages, rotation)

    def shape(self, rotation: Float) -> Shape:
        """As of `Passes`."""
        return self._pool(Passes.shape, rotation, counted=False)

    def scores(self, rotation: Float) -> Scores:
        """As of `Passes`."""
        return self._pool(Passes.scores, rotation)

    def fourth(self, matrix: Float) -> Fourth:
        """As of `Passes`."""
        return self._pool(Passes.fourth, matrix)

    def _pool(self, average: Callable[[Passes, Float], T], matrix: Float, *, counted: bool = True) -> T:
        import dask

        self.count += counted
        task, sent = dask.delayed(_block_average), dask.delayed(matrix, traverse=False)
        pooled: T = merged([task(passes, average, sent) for passes in self._passes], _pool)[1]
        return pooled


def _block_passes(rows: Any, part: Partition, mean: Float, white: Float, contrast: Contrast, precision: str) -> Passes:
    return Passes(to_numpy(rows), mean, white, contrast, index=part.index, precision=precision)


def _block_average(passes: Passes, average: Callable[[Passes, Float], T], matrix: Float) -> tuple[int, T]:
    return passes.n, average(passes, matrix)


def _pool(parts: list[tuple[int, Any]]) -> tuple[int, Any]:
    """Join averages over blocks, each with its number of rows."""
    n, kind = sum(size for size, _ in parts), type(parts[0][1])
    names = [field.name for field in fields(kind)]
    return n, kind(*(sum(size / n * getattr(of, name) for size, of in parts) for name in names))


AnyPasses = Passes | DaskPasses
