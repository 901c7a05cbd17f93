"""Derivatives of any order of a decoder, by nested forward mode, in float64 and in chunks that fit into memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_tensor, to_numpy
from congruence.decoder.prepared_decoder import (
    PreparedDecoder,
    check_finite,
    import_torch,
    memory_limit,
    plain_attention,
    point_slices,
    prepare_decoder,
)
from congruence.errors import InputError

Chunks = Iterator[Float]
_FLAT, _FLAT_SINGLE = 1e-9, 1e-4  # relative to the first derivatives, in float64 and float32: rounding error
_PAIRS = 4  # of directions along which second derivatives are tested for being zero ...
_PAIRS_CHUNK = 8  # ... at this many points at a time: most decoders are curved at the first


def open_decoder(decoder: Any, z: Any, device: str = "auto") -> PreparedDecoder:
    """Prepare a decoder and latents z, (r, d), in float64 if possible, since supports and ranks need the precision.

    A module is copied, not changed. A decoder that only works in float32 is used in float32.
    """
    torch = import_torch()
    rows: Any = z if is_tensor(z) else to_numpy(z)
    floats = rows.is_floating_point() if is_tensor(rows) else rows.dtype.kind == "f"  # others are refused as they are

    def prepare(model: Any, dtype: str) -> PreparedDecoder:
        cast = rows
        if floats:
            cast = rows.detach().to(getattr(torch, dtype)) if is_tensor(rows) else rows.astype(dtype)
        return prepare_decoder(model, cast, device)

    try:
        return prepare(copy.deepcopy(decoder).double() if isinstance(decoder, torch.nn.Module) else decoder, "float64")
    except (InputError, RuntimeError) as error:  # a function around float32 weights, or a module that casts inside
        wide = error
    try:
        return prepare(decoder, "float32")
    except InputError as narrow:
        if narrow.__cause__ is not None and isinstance(wide, InputError) and wide.__cause__ is None:
            raise wide from None  # it ran in float64, with an invalid output; it only raises in float32
        raise


def jacobians(
    decoder: Any, z: Any, *, outputs: Array | None = None, chunk: int | None = None, device: str = "auto"
) -> Float:
    """Compute first derivatives at every point.

    Parameters
    ----------
    decoder : torch module or function
        Maps latents (rows, ...) to outputs (rows, ...), as in `congruence.decoder.bilipschitz`.
    z : (r, d)
        Points.
    outputs : (q,) integers, optional
        Which of the m flattened outputs to keep; all by default.
    chunk : int, optional
        Number of points per batch; by default as many as fit into memory.
    device : str
        "auto" uses the device of the weights.

    Returns
    -------
    (r, m, d) array, float64
        Entry (., n, a) is the derivative of output n with respect to latent a.
    """
    prepared = open_decoder(decoder, z, device)
    return _gather(prepared, jacobian_chunks(prepared, outputs=outputs, chunk=chunk))


def jacobian_chunks(prepared: PreparedDecoder, *, outputs: Array | None = None, chunk: int | None = None) -> Chunks:
    """Yield the Jacobians of a few points at a time, (some, m, d)."""
    for values in directional_chunks(prepared, np.eye(prepared.dimension)[:, None, :], outputs=outputs, chunk=chunk):
        yield np.ascontiguousarray(values.transpose(0, 2, 1))


def second_derivatives(
    decoder: Any, z: Any, *, outputs: Array | None = None, chunk: int | None = None, device: str = "auto"
) -> Float:
    """Compute second derivatives at every point, (r, m, d, d), symmetric in the last two axes.

    It takes d (d + 1) / 2 passes, and d^2 numbers for each output. The parameters are those of `jacobians`.
    """
    prepared = open_decoder(decoder, z, device)
    return _gather(prepared, second_derivative_chunks(prepared, outputs=outputs, chunk=chunk))


def second_derivative_chunks(
    prepared: PreparedDecoder, *, outputs: Array | None = None, chunk: int | None = None
) -> Chunks:
    """Yield the second derivatives of a few points at a time, (some, m, d, d)."""
    d = prepared.dimension
    pairs = np.array(list(combinations_with_replacement(range(d), 2)))  # (q, 2)
    for values in directional_chunks(prepared, np.eye(d)[pairs], outputs=outputs, chunk=chunk):
        full = np.empty((values.shape[0], values.shape[2], d, d))
        full[:, :, pairs[:, 0], pairs[:, 1]] = full[:, :, pairs[:, 1], pairs[:, 0]] = values.transpose(0, 2, 1)
        yield full


def directional_chunks(
    prepared: PreparedDecoder, directions: Float, *, outputs: Array | None = None, chunk: int | None = None
) -> Iterator[Float]:
    """Yield the derivatives D^n g(v_1, ..., v_n) along directions (q, n, d) at a few points at a time, (some, q, m)."""
    torch = import_torch()
    m = prepared.outputs
    keep = np.atleast_1d(np.arange(m) if outputs is None else np.asarray(outputs))
    if keep.ndim != 1 or keep.dtype.kind not in "iu" or keep.size == 0 or keep.min() < 0 or keep.max() >= m:
        raise InputError(f"outputs must be integers from 0 to {m - 1}; got {outputs!r}")
    order = directions.shape[1]
    together = max(1, memory_limit(prepared) // (8 * prepared.outputs * 2**order))  # directions of one point that fit
    for rows in point_slices(prepared, chunk, columns=min(len(directions), together) * 2**order):
        z = prepared.z[rows]
        values = np.empty((len(z), len(directions), len(keep)))
        for first in range(0, len(directions), together):
            part = slice(first, first + together)
            along = torch.as_tensor(directions[part], dtype=z.dtype, device=z.device)
            pushed = _push_forward(prepared, z, along)
            values[:, part] = to_numpy(pushed if outputs is None else pushed[:, :, torch.as_tensor(keep)])
        check_finite(values, rows, "derivatives")
        yield values


def difference_chunks(prepared: PreparedDecoder, steps: Float, *, chunk: int | None = None) -> Iterator[Float]:
    """Yield mixed differences over finite steps (q, n, d) at a few points at a time, (some, q, m).

    They need not vanish for piecewise linear decoders, unlike derivatives. Of order 2 it is
    g(s+u+v) - g(s+u) - g(s+v) + g(s), which vanishes for all steps u and v of two blocks, and for all s, exactly where
    g is a sum of functions of either block; of order n the same over all subsets of n steps.
    """
    torch = import_torch()
    order = steps.shape[1]
    subsets = (np.arange(2**order)[:, None] >> np.arange(order)) & 1  # (2^n, n)
    signs = (-1.0) ** (order - subsets.sum(1))
    moves = np.einsum("sn,qnd->sqd", subsets, steps)
    for rows in point_slices(prepared, chunk, columns=len(steps)):
        z = prepared.z[rows]
        total = np.zeros((len(z), len(steps), prepared.outputs))
        for sign, move in zip(signs, moves, strict=True):
            for k, one in enumerate(move):
                moved = z + torch.as_tensor(one, dtype=z.dtype, device=z.device)
                total[:, k] += sign * decode_rows(prepared, moved)
        check_finite(total, rows, "differences")
        yield total


def classify_curvature(prepared: PreparedDecoder, seed: int = 0) -> str:
    """Classify a decoder by its second derivatives: "smooth", "piecewise linear" or "affine".

    "piecewise linear": second derivatives vanish at every point and along every direction tried, while differences
    over finite steps do not. ReLU networks are an example.
    """
    steps = np.random.default_rng(seed).standard_normal((_PAIRS, 2, prepared.dimension)) * step_lengths(prepared)
    small = _FLAT if is_double(prepared) else _FLAT_SINGLE
    slope = 0.0
    first, second = (directional_chunks(prepared, part, chunk=_PAIRS_CHUNK) for part in (steps[:, :1], steps))
    for one, two in zip(first, second, strict=True):
        slope = max(slope, float(np.abs(one).max()))
        if float(np.abs(two).max()) > small * slope:
            return "smooth"
    change = max(float(np.abs(part).max()) for part in difference_chunks(prepared, steps, chunk=_PAIRS_CHUNK))
    return "piecewise linear" if change > small * slope else "affine"


def step_lengths(prepared: PreparedDecoder) -> Float:
    """Return the standard deviation of each latent, (d,), or 1 where it is 0: the unit of steps and directions."""
    spread = to_numpy(prepared.z).astype(np.float64).std(0)
    return np.where(spread > 0, spread, 1.0)


def is_double(prepared: PreparedDecoder) -> bool:
    """Return whether a decoder works in float64, from the latents to the outputs."""
    torch = import_torch()
    with torch.no_grad():
        output = prepared.decode(prepared.z[:1].reshape(1, *prepared.latent_shape).clone())
    return bool(prepared.z.dtype == torch.float64 and output.dtype == torch.float64)


def decode_rows(prepared: PreparedDecoder, z: Any) -> Float:
    """Return the outputs (r, m) of latents (r, k), in float64."""
    torch = import_torch()
    rows = torch.as_tensor(z, dtype=prepared.z.dtype, device=prepared.z.device)
    with torch.no_grad():
        out = prepared.decode(rows.reshape(len(rows), *prepared.latent_shape).clone())
    return to_numpy(out).reshape(len(rows), -1).astype(np.float64)


def _push_forward(prepared: PreparedDecoder, z: Any, along: Any) -> Any:
    """Derivatives at points z, (rows, d), along directions (q, n, d), shape (rows, q, m)."""
    torch = import_torch()

    def differentiate(function: Callable[[Any], Any], v: Any) -> Callable[[Any], Any]:
        return lambda s: torch.func.jvp(function, (s,), (v,))[1]

    def one(s: Any, vectors: Any) -> Any:
        function: Callable[[Any], Any] = prepared.decode_one
        for v in vectors.unbind(0):
            function = differentiate(function, v)
        return function(s)

    each = torch.func.vmap(one, in_dims=(None, 0))  # the point itself is decoded once for all directions
    with plain_attention():
        try:
            return torch.func.vmap(each, in_dims=(0, None))(z, along)
        except (RuntimeError, NotImplementedError, ValueError):  # not every operation can be batched
            pass
        try:
            return torch.stack([torch.stack([one(s, vectors) for vectors in along]) for s in z])
        except (RuntimeError, NotImplementedError) as error:
            order = along.shape[1]
            raise InputError(f"the decoder must allow forward-mode derivatives of order {order}: {error}") from error


def _gather(prepared: PreparedDecoder, chunks: Iterator[Float]) -> Float:
    """All points in one array, filled chunk by chunk so that no chunk is held twice."""
    whole, first = np.empty(0), 0
    for part in chunks:
        if not first:
            whole = np.empty((len(prepared.z), *part.shape[1:]))
        whole[first : first + len(part)] = part
        first += len(part)
    return whole
