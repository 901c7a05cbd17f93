"""The one door for arrays: numpy, memory maps, torch tensors and dask arrays in; the same kind out.

Rows may be float16, float32, float64, integers or a tensor on any device. Arithmetic happens on float64
chunks of rows (`Rows`), on the CPU or on a CUDA device; everything of size d x d comes back as numpy float64.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from congruence.errors import InputError, MissingDependencyError

Array = npt.NDArray[Any]
Float = npt.NDArray[np.float64]

CHUNK_BYTES = 32 * 2**20  # of float64 rows; large enough for a fast product, small enough for any machine


def is_tensor(x: object) -> bool:
    """Whether `x` is a torch tensor, found out without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_dask(x: object) -> bool:
    """Whether `x` is a dask array, found out without importing dask."""
    array = sys.modules.get("dask.array")
    return array is not None and isinstance(x, array.Array)


def library(x: Any) -> Any:
    """The library an array is of: torch for a tensor, else numpy; for what both call by the same name."""
    return sys.modules["torch"] if is_tensor(x) else np


def to_numpy(x: Any) -> Array:
    """Return `x` as a numpy array; tensors are detached and brought to the CPU, memory maps stay mapped."""
    if is_tensor(x):
        x = dense(x).detach().cpu()
        if str(x.dtype) == "torch.bfloat16":  # numpy has no bfloat16
            x = x.float()
        x = x.numpy(force=True)  # also where torch only remembers that all is zero
    if hasattr(x, "toarray"):  # scipy sparse
        x = x.toarray()
    if isinstance(x, np.ma.MaskedArray):  # what is masked is missing
        x = np.where(np.ma.getmaskarray(x), np.nan, np.ma.getdata(x))
    return x if isinstance(x, np.memmap) else np.asarray(x)


def dense(x: Any) -> Any:
    """A tensor as a dense one; sparse ones are unpacked."""
    return x if str(x.layout) == "torch.strided" else x.to_dense()


def like(result: Any, original: Any) -> Any:
    """Return `result` as the kind of array that `original` is: same library, device and float dtype."""
    if is_tensor(original):
        import torch

        dtype = original.dtype if original.dtype.is_floating_point else torch.float64
        return torch.as_tensor(result, dtype=dtype, device=original.device)
    dtype = getattr(original, "dtype", None)
    if isinstance(dtype, np.dtype) and np.issubdtype(dtype, np.floating):
        return result.astype(dtype, copy=False)
    return result


def float64_beside(x: Any, original: Any) -> Any:
    """Return `x` in float64 in the library and on the device of `original`, ready to be multiplied with it."""
    if is_tensor(original):
        import torch

        return torch.as_tensor(x, dtype=torch.float64, device=original.device)
    return to_numpy(x).astype(np.float64, copy=False)


def as_matrix(x: Any, name: str = "x", *, finite: bool = True) -> Any:
    """Check that `x` is a non-empty real matrix (rows, dimensions) without NaN or infinity, and return it.

    Tensors are returned as tensors and memory maps as memory maps: nothing is copied here. Of a dask array, nothing is
    computed unless `finite` asks for it.
    """
    if is_tensor(x):
        x = dense(x)
    elif not is_dask(x):
        try:
            x = to_numpy(x)
        except ValueError as error:  # nested lists of unequal length
            raise InputError(f"{name} is ragged: its rows do not all have the same length") from error
    if len(x.shape) != 2:
        hint = "; a single column is x.reshape(-1, 1)" if len(x.shape) == 1 else ""
        raise InputError(f"{name} must be a matrix (rows, dimensions), but has shape {tuple(x.shape)}{hint}")
    if 0 in x.shape:
        raise InputError(f"{name} is empty: its shape is {tuple(x.shape)}")
    if not _is_real(x):
        raise InputError(f"{name} must hold real numbers, but its dtype is {x.dtype}")
    if finite:
        check_finite(x, name)
    return x


def check_finite(x: Any, name: str, *, first: int | None = None) -> None:
    """Raise an error that names the rows of `x` holding NaN or infinity.

    Where x is a chunk of more rows, `first` is the number of its first row.
    """
    bad = np.flatnonzero(~finite_rows(x))
    if bad.size and first is not None:
        raise InputError(f"{name} has NaN or infinite values (row {listing(bad + first)}, and perhaps others after it)")
    if bad.size:
        rows = "1 row" if bad.size == 1 else f"{bad.size} rows"
        raise InputError(f"{name} has NaN or infinite values in {rows} of {len(x)} (row {listing(bad)})")


def finite_rows(x: Any) -> npt.NDArray[np.bool_]:
    """Tell for each row of `x` whether all its values are finite, shape (n,)."""
    if not is_tensor(x) and not np.issubdtype(x.dtype, np.floating):
        return np.ones(len(x), dtype=bool)
    keep = np.empty(len(x), dtype=bool)
    for part in row_chunks(*x.shape):
        # A sum is finite only if every term is (or it overflows, which the second look settles).
        chunk = to_numpy(x[part])
        chunk = chunk if chunk.dtype in (np.float32, np.float64) else chunk.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            keep[part] = np.isfinite(chunk @ np.ones(chunk.shape[1], chunk.dtype))
    for row in np.flatnonzero(~keep):
        keep[row] = bool(np.isfinite(to_numpy(x[row : row + 1])).all())
    return keep


def listing(values: Any, most: int = 5) -> str:
    """Write the first few of `values` for a message: ``3, 17, 52, ...``."""
    shown = ", ".join(str(v) for v in list(values[:most]))
    return shown + (", ..." if len(values) > most else "")


def row_chunks(n: int, d: int, size: int | None = None) -> Iterator[slice]:
    """Slices that walk over n rows of d float64 values in pieces of about `size` bytes, by default `CHUNK_BYTES`."""
    step = max(1, (size or CHUNK_BYTES) // (8 * max(1, d)))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


def resolve_device(device: str, *arrays: Any) -> str:
    """Turn "auto" into the device where the data already lives, and refuse what cannot be had.

    numpy arrays and CPU tensors mean "cpu"; a CUDA tensor means its own device. "cuda" moves the rows there.
    """
    if not isinstance(device, str) or not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise InputError(f"device must be 'auto', 'cpu' or 'cuda' (or 'cuda:1', ...), not {device!r}")
    if device == "auto":
        on = {str(x.device) for x in arrays if is_tensor(x) and x.device.type == "cuda"}
        return on.pop() if len(on) == 1 else "cpu"
    if device == "cpu":
        return device
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("device 'cuda' needs torch: pip install 'congruence[torch]'") from error
    if not torch.cuda.is_available():
        raise InputError(f"device {device!r} was asked for, but torch sees no CUDA device on this machine")
    if int(device.partition(":")[2] or 0) >= torch.cuda.device_count():
        raise InputError(f"device {device!r} was asked for, but torch sees only {torch.cuda.device_count()}")
    return device


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one run, centred, handed out as float64 chunks on the engine that does the arithmetic.

    Subtracting the mean before anything is summed keeps float64 sums exact enough for data far from the origin.
    """

    data: Any  # (n, d) numpy array, memory map or tensor
    device: str = "cpu"
    scale_rows: bool = False  # put every row on the unit sphere first
    order: Array | None = None  # (n,) hand out row order[i] as row i: the rows in another pairing
    blocks: Any = None  # the same rows, in their own order, as `tables.blocks.DaskRows`: there they are summed

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
        """How far storing a number may have moved it, root mean square per dimension, shape (d,)."""
        return self._moments[1]

    @property
    def resolution(self) -> float:
        """The Frobenius norm that the rounding of all stored numbers may have: what is below it may be nothing."""
        return float(np.sqrt(self.n * np.square(self.rounding).sum()))

    @cached_property
    def _moments(self) -> tuple[Float, Float]:
        if self.blocks is None:
            total, squares, largest = self._powers()
        else:
            total, squares, largest = self.blocks.merged(_block_powers, _merge_powers, self.scale_rows)
        if largest.any() and not 1e-140 < largest.max() < 1e140:
            raise InputError("the values are too large or too small to be squared; rescale them")
        return total / self.n, epsilon(self.data) * np.sqrt(squares / self.n)

    def _powers(self) -> tuple[Float, Float, Float]:
        """Of every dimension the sum, the sum of squares, and the largest value without its sign, each (d,)."""
        total, squares, largest = np.zeros(self.d), np.zeros(self.d), np.zeros(self.d)
        with np.errstate(over="ignore", invalid="ignore"):  # values that are too large are refused afterwards
            for part in row_chunks(self.n, self.d):
                chunk = self._raw(part)
                largest = np.maximum(largest, to_numpy(library(chunk).amax(abs(chunk), 0)))
                total += to_numpy(chunk.sum(0))
                squares += to_numpy((chunk * chunk).sum(0))
        return total, squares, largest

    def shuffled(self, order: Array) -> Rows:
        """The same rows in another order, so that they stand beside other rows of another run."""
        return self._with_moments(replace(self, order=order, blocks=None))

    def holding(self, data: Any) -> Rows:
        """Other rows, shape (m, d), centred at the mean of these: a block of them, say."""
        return self._with_moments(replace(self, data=data, order=None, blocks=None))

    def hollow(self) -> Rows:
        """These rows without any, which is what a worker is sent to centre its blocks with."""
        return self.holding(np.empty((0, self.d)))

    def _with_moments(self, again: Rows) -> Rows:
        again.__dict__["_moments"] = self._moments  # those of all rows, in whatever order
        return again

    def take(self, index: slice | Array, width: int | None = None) -> Any:
        """Return the chosen rows minus the mean, float64, zero-padded to `width` columns."""
        chunk = self._raw(index if self.order is None else self.order[index])
        chunk = chunk - self._on_device(self.mean)
        if width is not None and width > self.d:
            padded = self._on_device(np.zeros((chunk.shape[0], width)))
            padded[:, : self.d] = chunk
            return padded
        return chunk

    def _raw(self, index: slice | Array) -> Any:
        chunk = self._on_device(self.data[index])
        if self.scale_rows:
            # First by the largest entry, so that no square can overflow or vanish.
            largest = abs(chunk).max(1)
            chunk = chunk / (largest if isinstance(largest, np.ndarray) else largest.values)[:, None]
            chunk = chunk / (chunk * chunk).sum(1)[:, None] ** 0.5
        return chunk

    def _on_device(self, x: Any) -> Any:
        if self.device == "cpu":
            return to_numpy(x).astype(np.float64, copy=False)
        import torch

        if not is_tensor(x):
            known = x.dtype.isnative and x.dtype.itemsize <= 8
            x = torch.from_numpy(np.array(x, dtype=x.dtype if known else np.float64))  # a copy: maps are read-only
        return x.to(device=self.device, dtype=torch.float64)


def _block_powers(block: Any, part: Any, scale_rows: bool) -> tuple[Float, Float, Float]:
    return Rows(to_numpy(block), scale_rows=scale_rows)._powers()


def _merge_powers(parts: list[tuple[Float, Float, Float]]) -> tuple[Float, Float, Float]:
    total, squares, largest = (np.array(each) for each in zip(*parts, strict=True))
    return total.sum(0), squares.sum(0), largest.max(0)


def _is_real(x: Any) -> bool:
    if is_tensor(x):
        return not (x.dtype.is_complex or str(x.dtype) == "torch.bool")
    return bool(np.issubdtype(x.dtype, np.floating) or np.issubdtype(x.dtype, np.integer))


def epsilon(x: Any) -> float:
    """Return the relative rounding of the dtype; integers are exact, so float64's."""
    if is_tensor(x):
        import torch

        return float(torch.finfo(x.dtype).eps) if x.dtype.is_floating_point else float(np.finfo(np.float64).eps)
    return float(np.finfo(x.dtype).eps) if np.issubdtype(x.dtype, np.floating) else float(np.finfo(np.float64).eps)


def single_threaded() -> AbstractContextManager[Any]:
    """Run BLAS on one thread inside the block, so that several workers can each use their own."""
    limited: AbstractContextManager[Any] = thread_pools().limit(limits=1, user_api="blas")
    return limited


@cache
def thread_pools() -> Any:
    """The pools of threads that numpy and scipy have loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
