"""Arrays of any kind: numpy, memory maps, torch tensors and dask arrays in; the same kind out."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from congruence.checks import require
from congruence.errors import InputError

Array = npt.NDArray[Any]
Float = npt.NDArray[np.float64]

CHUNK_BYTES = 32 * 2**20  # of float64 rows; large enough for a fast product, small enough for any machine


def is_tensor(x: object) -> bool:
    """Whether `x` is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_dask(x: object) -> bool:
    """Whether `x` is a dask array; does not import dask."""
    array = sys.modules.get("dask.array")
    return array is not None and isinstance(x, array.Array)


def library(x: Any) -> Any:
    """The module whose functions apply to an array: torch for a tensor, else numpy."""
    return sys.modules["torch"] if is_tensor(x) else np


def to_numpy(x: Any) -> Array:
    """Return `x` as a numpy array; tensors are detached and copied to the CPU, memory maps stay mapped."""
    if is_tensor(x):
        x = dense(x).detach().cpu()
        if str(x.dtype) == "torch.bfloat16":  # numpy has no bfloat16
            x = x.float()
        x = x.numpy(force=True)  # also tensors that torch stores lazily, such as zeros
    if hasattr(x, "toarray"):  # scipy sparse
        x = x.toarray()
    if isinstance(x, np.ma.MaskedArray):  # masked values are missing
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


def to_tensor(x: Any, device: str) -> Any:
    """Return `x` as a tensor on a device; a copy, except of a tensor that is there already."""
    import torch

    if not is_tensor(x):
        known = x.dtype.isnative and x.dtype.itemsize <= 8  # torch has no other byte order and no long double
        # Memory maps may be read-only, which torch does not support; a copy to a GPU needs no other copy before it.
        copied = device.startswith("cpu") or not (known and x.flags.writeable and min(x.strides, default=0) >= 0)
        x = torch.from_numpy(np.array(x, dtype=x.dtype if known else np.float64) if copied else np.asarray(x))
    return x.detach().to(device)


def as_float64_like(x: Any, original: Any) -> Any:
    """Return `x` in float64 in the library and on the device of `original`, ready to be multiplied with it."""
    if is_tensor(original):
        import torch

        return torch.as_tensor(x, dtype=torch.float64, device=original.device)
    return to_numpy(x).astype(np.float64, copy=False)


def as_matrix(x: Any, name: str = "x", *, finite: bool = True) -> Any:
    """Check that `x` is a non-empty real matrix (rows, dimensions) without NaN or infinity, and return it.

    Tensors and memory maps are returned as they are, without a copy. A dask array is computed only if `finite`.
    """
    given = x
    if is_tensor(x):
        x = dense(x)
    elif not is_dask(x):
        try:
            x = to_numpy(x)
        except ValueError as error:  # nested lists of unequal length
            raise InputError(f"{name} is ragged: its rows do not all have the same length") from error
    if len(x.shape) != 2:
        if not x.shape:
            raise InputError(f"{name} must be a matrix (rows, dimensions); got {type(given).__name__}")
        hint = "; a single row is x.reshape(1, -1), a single column x.reshape(-1, 1)" if len(x.shape) == 1 else ""
        raise InputError(f"{name} must be a matrix (rows, dimensions), but has shape {tuple(x.shape)}{hint}")
    if 0 in x.shape:
        raise InputError(f"{name} is empty: its shape is {tuple(x.shape)}")
    if not _is_real(x):
        raise InputError(f"{name} must hold real numbers, but its dtype is {x.dtype}")
    if finite:
        check_finite(x, name)
    return x


def check_finite(x: Any, name: str, *, first: int | None = None) -> None:
    """Raise an error that names the rows of `x` with NaN or infinity.

    If x is a chunk of a larger array, `first` is the number of its first row.
    """
    bad = np.flatnonzero(~finite_rows(x))
    if bad.size and first is not None:
        raise InputError(f"{name} has NaN or infinite values (row {listing(bad + first)}, and perhaps others after it)")
    if bad.size:
        rows = "1 row" if bad.size == 1 else f"{bad.size} rows"
        raise InputError(f"{name} has NaN or infinite values in {rows} of {len(x)} (row {listing(bad)})")


def finite_rows(x: Any) -> npt.NDArray[np.bool_]:
    """Return whether all values of each row of `x` are finite, shape (n,)."""
    if not is_tensor(x) and not np.issubdtype(x.dtype, np.floating):
        return np.ones(len(x), dtype=bool)
    keep = np.empty(len(x), dtype=bool)
    for part in row_chunks(*x.shape):
        # A sum is finite only if every term is; one that overflows is checked again below.
        chunk = to_numpy(x[part])
        chunk = chunk if chunk.dtype in (np.float32, np.float64) else chunk.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            keep[part] = np.isfinite(chunk @ np.ones(chunk.shape[1], chunk.dtype))
    for row in np.flatnonzero(~keep):
        keep[row] = bool(np.isfinite(to_numpy(x[row : row + 1])).all())
    return keep


def listing(values: Any, most: int = 5) -> str:
    """Write the first few of `values` for a message: ``3, 17, 52, ...``."""
    first = ", ".join(str(v) for v in list(values[:most]))
    return first + (", ..." if len(values) > most else "")


def on_sphere(rows: Any) -> Any:
    """Scale every row of a float array or tensor to length 1; rows of zeros stay."""
    largest = library(rows).amax(abs(rows), 1)[:, None]  # first, so that no square can overflow or vanish
    rows = rows / (largest + (largest == 0))
    length = (rows * rows).sum(1)[:, None] ** 0.5
    return rows / (length + (length == 0))


def row_chunks(n: int, d: int, size: int | None = None) -> Iterator[slice]:
    """Yield slices over n rows of d float64 values, each of about `size` bytes, by default `CHUNK_BYTES`."""
    step = max(1, (size or CHUNK_BYTES) // (8 * max(1, d)))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


def resolve_device(device: str, *arrays: Any) -> str:
    """Return the device to compute on: "auto" is that of the arrays; a device that is not available is an error.

    numpy arrays and CPU tensors mean "cpu", a CUDA tensor its own device.
    """
    if not isinstance(device, str) or not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise InputError(f"device must be 'auto', 'cpu' or 'cuda' (or 'cuda:1', ...); got {device!r}")
    if device == "auto":
        on = {str(x.device) for x in arrays if is_tensor(x) and x.device.type == "cuda"}
        return on.pop() if len(on) == 1 else "cpu"
    if device == "cpu":
        return device
    torch = require("torch", "device 'cuda'", "torch")
    if not torch.cuda.is_available():
        raise InputError(f"device {device!r} is not available: torch finds no CUDA device on this machine")
    if int(device.partition(":")[2] or 0) >= torch.cuda.device_count():
        raise InputError(f"device {device!r} is not available: torch finds {torch.cuda.device_count()} CUDA devices")
    return device


def _is_real(x: Any) -> bool:
    if is_tensor(x):
        return not (x.dtype.is_complex or x.is_quantized or re.match(r"torch\.(bool|float8|float4)", str(x.dtype)))
    return x.dtype.kind in "fiu"


def epsilon(x: Any) -> float:
    """Return the relative rounding of the dtype; integers are exact, so float64's."""
    if is_tensor(x):
        info, floating = library(x).finfo, x.dtype.is_floating_point
    else:
        info, floating = np.finfo, np.issubdtype(x.dtype, np.floating)
    return float(info(x.dtype).eps if floating else np.finfo(np.float64).eps)


def single_threaded() -> AbstractContextManager[Any]:
    """Run BLAS on one thread inside the block, so that several workers can each use their own."""
    limited: AbstractContextManager[Any] = thread_pools().limit(limits=1, user_api="blas")
    return limited


@cache
def thread_pools() -> Any:
    """The pools of threads that numpy and scipy have loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
