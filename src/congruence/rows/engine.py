"""Rows and reductions over them: chunk by chunk in memory or on a device, block by block where dask has them.

`reduce_rows` runs one function on all rows or on every block, and merges the results in the order of the rows. A state
such as `Moments` has three methods: `update` includes a chunk, `merge` joins two states, `finish` returns the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np

from congruence.arrays import (
    Array,
    Float,
    as_float64_like,
    as_matrix,
    check_finite,
    epsilon,
    is_dask,
    is_tensor,
    library,
    like,
    listing,
    on_sphere,
    row_chunks,
    to_numpy,
    to_tensor,
)
from congruence.errors import InputError
from congruence.memory import room_for
from congruence.rows.blocks import DaskRows, Partition, merged

CACHE_BYTES = 2**22  # of rows summed at a time: they stay in the processor's cache
DEVICE_BYTES = 2**30  # the same on a GPU, which is idle between chunks
KEPT_BYTES = 2**27  # of centred float64 rows kept in memory; more are centred again whenever they are used
DEVICE_SHARE = 0.4  # of the free memory of a GPU that the rows of one run may take
LIMIT = 1e125  # largest absolute values between its inverse and this: squares, and products of two squares, are precise


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one run, centred and in float64: numpy on the CPU, tensors on any other device.

    Subtracting the mean before anything is summed keeps float64 sums precise for data far from the origin. Rows for a
    GPU are copied there once (`placed`), and those of a small run are kept centred.
    """

    data: Any  # (n, d) numpy array, memory map or tensor
    device: str = "cpu"
    scale_rows: bool = False  # scale every row to unit length first
    order: Array | None = None  # (n,) row i is data[order[i]]: the rows in another pairing
    blocks: Any = None  # the same rows, unordered, as `DaskRows`, which are then summed by their workers

    dtype = np.dtype(np.float64)

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.data.shape[0])

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return int(self.data.shape[1])

    @property
    def mean(self) -> Float:
        """The mean row, shape (d,)."""
        return self._moments[0]

    @property
    def rounding(self) -> Float:
        """The error that storing a number may have caused, root mean square per dimension, shape (d,)."""
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[Float, Float]:
        source = self.data if self.blocks is None else self.blocks
        total, squares, largest = reduce_rows(source, _powers, _merge_powers, self.device, self.scale_rows)
        sizes = largest[largest > 0]  # of columns: a small one is not hidden by the others
        if sizes.size and not 1 / LIMIT < sizes.min() <= sizes.max() < LIMIT:
            raise InputError("the values are too large or too small to be squared; rescale them")
        return total / self.n, epsilon(self.data) * np.sqrt(squares / self.n)

    @cached_property
    def _centred(self) -> Float | None:
        """All rows as they are used, on the CPU and where they fit; None where they are centred chunk by chunk."""
        wide = 8 * self.n * self.d
        if self.device != "cpu" or isinstance(self.data, np.memmap) or wide > min(KEPT_BYTES, 2 * self.data.nbytes):
            return None  # what is kept takes at most twice the memory of the rows themselves
        return np.asarray(self._raw(slice(None)) - self.mean)

    def placed(self) -> Rows:
        """The same rows, copied to their GPU to be read there many times; rows that do not fit stay where they are."""
        there = is_tensor(self.data) and str(self.data.device) == self.device
        # torch knows no other byte order and no long double, and what it makes of them would hide their rounding
        foreign = not is_tensor(self.data) and not (self.data.dtype.isnative and self.data.dtype.itemsize <= 8)
        if self.device == "cpu" or there or foreign:
            return self
        import torch

        size = self.data.dtype.itemsize * self.n * self.d
        free = torch.cuda.mem_get_info(self.device)[0] if self.device.startswith("cuda") else np.inf
        if size > DEVICE_SHARE * free:
            return self
        parts = [to_tensor(self.data[part], self.device) for part in row_chunks(self.n, self.d, DEVICE_BYTES)]
        return replace(self, data=parts[0] if len(parts) == 1 else torch.cat(parts))

    def with_order(self, order: Array) -> Rows:
        """The same rows in another order."""
        rows = self._replace(order=order)
        rows.__dict__["_centred"] = self._centred
        return rows

    def with_data(self, data: Any = None) -> Rows:
        """Other rows, shape (m, d), centred at the mean of these; no rows by default, to be sent to workers."""
        return self._replace(data=np.empty((0, self.d)) if data is None else data, order=None)

    def _replace(self, **changes: Any) -> Rows:
        rows = replace(self, blocks=None, **changes)
        rows.__dict__["_moments"] = self._moments
        return rows

    def __getitem__(self, index: slice | Array) -> Any:
        return self.take(index)

    def take(self, index: slice | Array, width: int | None = None) -> Any:
        """Return the chosen rows minus the mean, float64, zero-padded to `width` columns."""
        index = index if self.order is None else self.order[index]
        if self._centred is None:
            chunk = self._raw(index) - self._on_device(self.mean)
        else:
            chunk = self._centred[index] if isinstance(index, slice) else self._centred.take(index, axis=0)
        if width is not None and width > self.d:
            padded = self._on_device(np.zeros((chunk.shape[0], width)))
            padded[:, : self.d] = chunk
            return padded
        return chunk

    def points(self, index: Array) -> tuple[Any, float]:
        """Return the chosen rows minus their median, float64, and the rounding of their entries, for distances.

        The mean may be so far from most rows, where a few are far, that subtracting it loses the others' digits.
        """
        raw = self._raw(index if self.order is None else self.order[index])
        largest = np.median(to_numpy(library(raw).amax(abs(raw), 1)))
        centre = raw.median(0).values if is_tensor(raw) else np.median(raw, axis=0)
        return raw - centre, min(float(self.rounding.max()), epsilon(self.data) * float(largest))

    def _raw(self, index: slice | Array) -> Any:
        chunk = self._on_device(self.data[index])
        return on_sphere(chunk) if self.scale_rows else chunk

    def _on_device(self, x: Any) -> Any:
        if self.device == "cpu":
            return to_numpy(x).astype(np.float64, copy=False)
        return to_tensor(x, self.device).double()


def chunk_bytes(device: str) -> int | None:
    """The bytes of float64 rows that are summed at a time: more on a GPU, which waits between chunks."""
    return None if device == "cpu" else DEVICE_BYTES


def _powers(data: Any, part: Partition, device: str, scale_rows: bool) -> tuple[Float, Float, Float]:
    """The sum, the sum of squares and the largest absolute value of every dimension, each (d,)."""
    rows = Rows(data, device, scale_rows)
    total, squares, largest = np.zeros((3, rows.d))
    with np.errstate(over="ignore", invalid="ignore"):  # values that are too large are refused afterwards
        for some in row_chunks(rows.n, rows.d, chunk_bytes(device)):
            chunk = rows._raw(some)
            largest = np.maximum(largest, to_numpy(library(chunk).amax(abs(chunk), 0)))
            total += to_numpy(chunk.sum(0))
            squares += to_numpy((chunk * chunk).sum(0))
    return total, squares, largest


def _merge_powers(a: tuple[Float, ...], b: tuple[Float, ...]) -> tuple[Float, ...]:
    return a[0] + b[0], a[1] + b[1], np.maximum(a[2], b[2])


@dataclass(frozen=True, eq=False)
class Moments:
    """Number, mean and scatter sum (x - mean)(x - mean)^T of the rows seen so far, in float64.

    Every chunk is centred at its own mean before it is squared (Chan, Golub & LeVeque 1979), so that rows far from the
    origin lose no precision.
    """

    n: int
    mean: Float  # (d,)
    scatter: Float  # (d, d)
    epsilon: float = 0.0  # relative rounding of the numbers as they were stored, the coarsest of all chunks

    @classmethod
    def empty(cls, d: int) -> Moments:
        """The moments of no rows of width d."""
        return cls(0, np.zeros(d), np.zeros((d, d)))

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return len(self.mean)

    @property
    def rounding(self) -> Float:
        """The error that storing a number may have caused, root mean square per dimension, shape (d,)."""
        return self.epsilon * np.sqrt(np.diag(self.scatter) / max(self.n, 1) + self.mean**2)

    def update(self, chunk: Any, *, before: int = 0) -> Moments:
        """Return the moments with the rows of `chunk`, (m, d), included; messages count rows from `before + n` on."""
        if chunk.shape[1] != self.d:
            raise InputError(f"a chunk has {chunk.shape[1]} columns, but the rows before it have {self.d}")
        rows = as_float64_like(chunk, chunk)
        mean = rows.mean(0)
        rows = rows - mean
        scatter = to_numpy(rows.T @ rows)
        if not np.isfinite(scatter).all():
            check_finite(chunk, "x", first=before + self.n)
            raise InputError("the values are too large to be squared; rescale them")
        return self.merge(Moments(len(rows), to_numpy(mean), scatter, epsilon(chunk)))

    def merge(self, other: Moments) -> Moments:
        """Return the moments of the rows of both."""
        if self.d != other.d:
            raise InputError(f"cannot merge moments of rows with {self.d} and {other.d} columns")
        if self.n == 0 or other.n == 0:
            return other if self.n == 0 else self
        n, shift = self.n + other.n, other.mean - self.mean
        scatter = self.scatter + other.scatter + np.outer(shift, shift) * (self.n * other.n / n)
        return Moments(n, self.mean + shift * (other.n / n), scatter, max(self.epsilon, other.epsilon))

    def finish(self) -> Float:
        """Return the population covariance (divided by n), shape (d, d)."""
        if self.n == 0:
            raise InputError("there are no rows to compute a covariance of")
        return self.scatter / self.n


def moments_of(chunks: Iterable[Any], *, before: int = 0) -> Moments:
    """Return the moments of chunks of rows, each of shape (m, d); messages count the rows from `before` on."""
    total: Moments | None = None
    for chunk in chunks:
        chunk = as_matrix(chunk, "a chunk", finite=False)
        total = (total or Moments.empty(chunk.shape[1])).update(chunk, before=before)
    if total is None:
        raise InputError("there are no rows: the chunks are empty")
    return total


def row_moments(
    data: Any, device: str = "cpu", index: Array | None = None, mean: Float | None = None, matrix: Float | None = None
) -> Moments:
    """Read rows once for their moments, or for those of (x - mean) @ matrix; `index` chooses rows."""
    moments: Moments = reduce_rows(data, _block_moments, Moments.merge, device, mean, matrix, index=index)
    return moments


def _block_moments(data: Any, part: Partition, device: str, mean: Float | None, matrix: Float | None) -> Moments:
    n, size = len(data) if part.index is None else len(part.index), CACHE_BYTES if device == "cpu" else DEVICE_BYTES
    slices = row_chunks(n, data.shape[1], size)
    chunks = (data[some if part.index is None else part.index[some]] for some in slices)
    if device != "cpu":
        chunks = (to_tensor(chunk, device) for chunk in chunks)
    if mean is not None and matrix is not None:
        chunks = (map_chunk(chunk, mean, matrix) for chunk in chunks)
    return moments_of(chunks, before=part.first)


def reduce_rows(
    data: Any,
    work: Callable[..., Any],
    merge: Callable[[Any, Any], Any],
    *shared: Any,
    index: Array | None = None,
    aligned: Sequence[Any] = (),
) -> Any:
    """Return work(rows, partition, *aligned, *shared) over all rows; `DaskRows` are reduced block by block and merged.

    `work` reduces the rows of one block, whose `Partition` holds the number of the first row and the positions in
    `index`: the rows to use, rising for a dask array. `merge` joins the results of two neighbouring blocks. `shared`
    are the same for every block; of the arrays `aligned`, with n rows, each block gets its own part.
    """
    if not isinstance(data, DaskRows):
        return work(data, Partition(0, index), *aligned, *shared)
    tasks = data.each(partial(_block_or_error, work), *shared, index=index, aligned=aligned)
    total = merged(tasks, partial(_merge_all, merge))
    if isinstance(total, InputError):
        raise total
    return total


def _block_or_error(work: Callable[..., Any], rows: Any, *arguments: Any) -> Any:
    """The result of one block; errors are returned, so that the first of several in the order of the rows is raised."""
    try:
        return work(to_numpy(rows), *arguments)
    except InputError as error:
        return error


def _merge_all(merge: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    error = next((part for part in parts if isinstance(part, InputError)), None)
    return reduce(merge, parts) if error is None else error


def map_chunk(chunk: Any, mean: Float, matrix: Float, *, scale_rows: bool = False, first: int = 0) -> Any:
    """Return (chunk - mean) @ matrix in float64, in the library and on the device of the chunk.

    With `scale_rows`, rows are scaled to unit length first; messages count rows from `first` on.
    """
    rows = unit_chunk(chunk, first) if scale_rows else as_float64_like(chunk, chunk)
    return (rows - as_float64_like(mean, chunk)) @ as_float64_like(matrix, chunk)


def unit_chunk(chunk: Any, first: int = 0, name: str = "X") -> Any:
    """Return rows scaled to unit length, in float64; rows of zeros are refused, numbered from `first` on."""
    rows = as_float64_like(chunk, chunk)
    empty = np.flatnonzero(to_numpy((rows == 0).all(1)))
    if empty.size:
        raise InputError(f"{name} has rows that are all zero and so have no direction (row {listing(empty + first)})")
    with np.errstate(invalid="ignore"):  # infinite values become NaN, which is refused where moments are summed
        return on_sphere(rows)


def unit_rows(x: Any) -> Any:
    """Return a copy of x, shape (n, d), with rows of unit length; kind, device and float dtype are kept.

    A large copy is stored in a temporary file, and dask arrays stay lazy.
    """
    if is_tensor(x):
        return like(unit_chunk(x), x)
    dtype = x.dtype if np.issubdtype(x.dtype, np.floating) else np.dtype(np.float64)
    if is_dask(x):
        return x.map_blocks(_unit_block, dtype, dtype=dtype, meta=np.empty((0, 0), dtype))
    out = room_for(x.shape, dtype, "X")
    for part in row_chunks(*x.shape):
        out[part] = unit_chunk(x[part], part.start)
    return out


def _unit_block(rows: Any, to: Any, block_info: Any = None) -> Any:
    return unit_chunk(rows, _first_row(block_info) or 0).astype(to)


def map_rows(x: Any, before: Float, matrix: Float, after: Float, *, scale_rows: bool = False) -> Any:
    """Return (x - before) @ matrix + after, computed in float64 chunks; kind, device and dtype of x are kept."""
    if is_tensor(x):
        return like(map_chunk(x, before, matrix, scale_rows=scale_rows) + as_float64_like(after, x), x)
    dtype = x.dtype if np.issubdtype(x.dtype, np.floating) else np.dtype(np.float64)
    if is_dask(x):
        chunks = (x.chunks[0], (matrix.shape[1],))
        shape: dict[str, Any] = {"chunks": chunks, "dtype": dtype, "meta": np.empty((0, 0), dtype)}
        return x.map_blocks(_map_block, before, matrix, after, scale_rows=scale_rows, **shape)
    out = np.empty((len(x), matrix.shape[1]), dtype)
    for part in row_chunks(len(x), max(matrix.shape)):
        out[part] = map_chunk(x[part], before, matrix, scale_rows=scale_rows, first=part.start) + after
    return out


def _map_block(
    rows: Any, before: Float, matrix: Float, after: Float, scale_rows: bool = False, block_info: Any = None
) -> Any:
    first = _first_row(block_info)
    check_finite(rows, "X", first=first)
    return like(map_rows(unit_chunk(rows, first or 0) if scale_rows else rows, before, matrix, after), rows)


def _first_row(block_info: Any) -> int | None:
    """The number of the first row of a block of a dask array; None where block sizes are unknown."""
    first = block_info[0]["array-location"][0][0] if block_info else 0
    return None if np.isnan(first) else int(first)
