"""Derivatives of any order of a decoder, by nested forward mode, in float64 and in chunks that fit into memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_tensor, listing, to_numpy
from congruence.decoder.probed import Probed, import_torch, probe
from congruence.decoder.spectra import plain_attention
from congruence.errors import InputError

CPU_BYTES, GPU_BYTES = 64 * 2**20, 1024 * 2**20  # of derivatives at a time
FLAT, FLAT_SINGLE = 1e-9, 1e-4  # of the first derivatives, in float64 and float32: what is below is rounding
STEP = 1.0  # of the spread of the latents: the step of differences of a piecewise linear decoder
TRIED = 4  # pairs of directions that show whether a decoder bends ...
AT_FIRST = 8  # ... at so many points at a time, and most do at the first


def opened(decoder: Any, z: Any, device: str = "auto") -> Probed:
    """Try a decoder out at latents z, (r, d), in float64 where it can: supports and ranks need every digit.

    A module is copied and never changed. What works in its own precision only is taken in that.
    """
    torch = import_torch()
    try:
        if isinstance(decoder, torch.nn.Module):
            return probe(copy.deepcopy(decoder).double(), _as_floats(z, "float64"), device)
        return probe(decoder, _as_floats(z, "float64"), device)
    except (InputError, RuntimeError) as error:  # a function around float32 weights, or a module that casts inside
        wide = error
    try:
        return probe(decoder, _as_floats(z, "float32"), device)
    except InputError as narrow:
        if narrow.__cause__ is not None and isinstance(wide, InputError) and wide.__cause__ is None:
            raise wide from None  # it ran in float64, and its answer is at fault; float32 alone made it fail
        raise


def _as_floats(z: Any, dtype: str) -> Any:
    """Floating-point latents in another precision; anything else as it is, to be refused with its reason."""
    if is_tensor(z):
        return z.detach().to(getattr(import_torch(), dtype)) if z.is_floating_point() else z
    array = to_numpy(z)
    return array.astype(dtype) if array.dtype.kind == "f" else array


def jacobians(
    decoder: Any, z: Any, *, outputs: Array | None = None, chunk: int | None = None, device: str = "auto"
) -> Float:
    """First derivatives at every point.

    Parameters
    ----------
    decoder : torch module or function
        Maps latents (rows, ...) to outputs (rows, ...), as in `congruence.decoder.bilipschitz`.
    z : (r, d)
        Points.
    outputs : (q,) whole numbers, optional
        Which of the flattened outputs to keep, all m unless given: what comes back is that much smaller.
    chunk : int, optional
        Points at a time; chosen by memory unless given.
    device : str
        "auto" stays where the weights are.

    Returns
    -------
    (r, m, d) array, float64
        Entry (., n, a) is the derivative of output n by latent a.
    """
    probed = opened(decoder, z, device)
    return _gathered(probed, jacobian_chunks(probed, outputs=outputs, chunk=chunk))


def jacobian_chunks(probed: Probed, *, outputs: Array | None = None, chunk: int | None = None) -> Iterator[Float]:
    """The same, a few points at a time, (some, m, d) each, so that not all have to be held."""
    unit = np.eye(probed.dimension)[:, None, :]  # (d, 1, d)
    for pushed in _derivatives(probed, unit, outputs, chunk):
        yield np.ascontiguousarray(pushed.transpose(0, 2, 1))


def second_derivatives(
    decoder: Any, z: Any, *, outputs: Array | None = None, chunk: int | None = None, device: str = "auto"
) -> Float:
    """Second derivatives at every point, (r, m, d, d), symmetric in the last two; parameters as in `jacobians`.

    Of d latents it takes d (d + 1) / 2 passes, and d^2 numbers for each output.
    """
    probed = opened(decoder, z, device)
    return _gathered(probed, second_derivative_chunks(probed, outputs=outputs, chunk=chunk))


def second_derivative_chunks(
    probed: Probed, *, outputs: Array | None = None, chunk: int | None = None
) -> Iterator[Float]:
    """The same, a few points at a time, (some, m, d, d) each, so that not all have to be held."""
    d = probed.dimension
    pairs = np.array(list(combinations_with_replacement(range(d), 2)))  # (q, 2)
    for pushed in _derivatives(probed, np.eye(d)[pairs], outputs, chunk):
        full = np.empty((pushed.shape[0], pushed.shape[2], d, d))
        full[:, :, pairs[:, 0], pairs[:, 1]] = full[:, :, pairs[:, 1], pairs[:, 0]] = pushed.transpose(0, 2, 1)
        yield full


def directional_derivatives(
    decoder: Any,
    z: Any,
    directions: Any,
    *,
    outputs: Array | None = None,
    chunk: int | None = None,
    device: str = "auto",
) -> Float:
    """Derivatives D^n g(v_1, ..., v_n) along given directions, by n nested products with a direction.

    Parameters
    ----------
    decoder, z, outputs, chunk, device
        As in `jacobians`.
    directions : (q, n, d)
        For each of q derivatives the n directions it is taken along; n is the order.

    Returns
    -------
    (r, q, m) array, float64
    """
    probed = opened(decoder, z, device)
    return _gathered(probed, directional_chunks(probed, directions, outputs=outputs, chunk=chunk))


def directional_chunks(
    probed: Probed, directions: Any, *, outputs: Array | None = None, chunk: int | None = None
) -> Iterator[Float]:
    """The same, a few points at a time, (some, q, m) each."""
    yield from _derivatives(probed, _directions(directions, probed.dimension), outputs, chunk)


def mixed_differences(
    decoder: Any, z: Any, directions: Any, *, chunk: int | None = None, device: str = "auto"
) -> Float:
    """Mixed differences over finite steps, which see what derivatives of piecewise linear decoders do not.

    Of order 2 it is g(s+u+v) - g(s+u) - g(s+v) + g(s), which vanishes for all steps u and v of two blocks, and for all
    s, exactly where g is a sum of functions of either block; of order n the same over all subsets of n steps.

    Parameters
    ----------
    decoder, z, chunk, device
        As in `jacobians`. Points up to the sum of the steps away from z are decoded.
    directions : (q, n, d)
        The n steps of each difference, with their lengths.

    Returns
    -------
    (r, q, m) array, float64
    """
    probed = opened(decoder, z, device)
    return _gathered(probed, difference_chunks(probed, directions, chunk=chunk))


def difference_chunks(probed: Probed, directions: Any, *, chunk: int | None = None) -> Iterator[Float]:
    """The same, a few points at a time, (some, q, m) each."""
    torch = import_torch()
    steps = _directions(directions, probed.dimension)
    order = steps.shape[1]
    subsets = (np.arange(2**order)[:, None] >> np.arange(order)) & 1  # (2^n, n)
    signs = (-1.0) ** (order - subsets.sum(1))
    moves = np.einsum("sn,qnd->sqd", subsets, steps)
    for rows in _slices(probed, chunk, len(steps)):
        z = probed.z[rows]
        total = np.zeros((len(z), len(steps), probed.outputs))
        for sign, move in zip(signs, moves, strict=True):
            for k, one in enumerate(move):
                with torch.no_grad():
                    moved = z + torch.as_tensor(one, dtype=z.dtype, device=z.device)
                    total[:, k] += sign * to_numpy(_decoded(probed, moved))
        _check_finite(total, rows, "differences")
        yield total


def bending(probed: Probed, seed: int = 0) -> str:
    """Classify a decoder by its second derivatives: "smooth", "piecewise linear" or "affine".

    "piecewise linear": second derivatives vanish at every point and along every direction tried, while differences
    over finite steps do not. Rectifiers do that, and derivatives of order 2 and more are empty for them.
    """
    drawn = np.random.default_rng(seed).standard_normal((TRIED, 2, probed.dimension)) * step_lengths(probed)
    small = FLAT if is_double(probed) else FLAT_SINGLE
    slope = 0.0
    first, second = (directional_chunks(probed, part, chunk=AT_FIRST) for part in (drawn[:, :1], drawn))
    for one, two in zip(first, second, strict=True):
        slope = max(slope, float(np.abs(one).max()))
        if float(np.abs(two).max()) > small * slope:
            return "smooth"
    change = max(float(np.abs(moved).max()) for moved in difference_chunks(probed, drawn, chunk=AT_FIRST))
    return "piecewise linear" if change > small * slope else "affine"


def step_lengths(probed: Probed) -> Float:
    """How far to step along each latent for a finite difference, (d,): its standard deviation, or 1 where that is 0."""
    spread = to_numpy(probed.z).astype(np.float64).std(0)
    return np.where(spread > 0, STEP * spread, STEP)


def is_double(probed: Probed) -> bool:
    """Whether a decoder works in float64, from the latents to the outputs."""
    torch = import_torch()
    with torch.no_grad():
        output = probed.decode(probed.z[:1].reshape(1, *probed.latent_shape).clone())
    return bool(probed.z.dtype == torch.float64 and output.dtype == torch.float64)


def _derivatives(probed: Probed, directions: Float, outputs: Array | None, chunk: int | None) -> Iterator[Float]:
    """Derivatives along (q, n, d) directions at a few points at a time, (some, q, m)."""
    torch = import_torch()
    keep = None if outputs is None else _chosen(outputs, probed.outputs)
    width = probed.outputs if keep is None else len(keep)
    order = directions.shape[1]
    together = max(1, _room(probed) // (8 * probed.outputs * 2**order))  # directions of one point that fit
    for rows in _slices(probed, chunk, min(len(directions), together) * 2**order):
        z = probed.z[rows]
        found = np.empty((len(z), len(directions), width))
        for first in range(0, len(directions), together):
            part = slice(first, first + together)
            along = torch.as_tensor(directions[part], dtype=z.dtype, device=z.device)
            pushed = _pushed(probed, z, along)
            found[:, part] = to_numpy(pushed if keep is None else pushed[:, :, torch.as_tensor(keep)])
        _check_finite(found, rows, "derivatives")
        yield found


def _pushed(probed: Probed, z: Any, along: Any) -> Any:
    """Derivatives at points z, (rows, d), along directions (q, n, d), shape (rows, q, m)."""
    torch = import_torch()

    def one(s: Any, vectors: Any) -> Any:
        function: Callable[[Any], Any] = probed.one
        for v in vectors.unbind(0):
            function = _along(function, v)
        return function(s)

    each = torch.func.vmap(one, in_dims=(None, 0))  # the point itself is decoded once for all directions
    try:
        with plain_attention():
            return torch.func.vmap(each, in_dims=(0, None))(z, along)
    except (RuntimeError, NotImplementedError, ValueError):  # not every operation can be done in a batch
        pass
    try:
        with plain_attention():
            return torch.stack([torch.stack([one(s, vectors) for vectors in along]) for s in z])
    except (RuntimeError, NotImplementedError) as error:
        raise InputError(f"the decoder cannot be differentiated forwards {along.shape[1]} times: {error}") from error


def _along(function: Callable[[Any], Any], v: Any) -> Callable[[Any], Any]:
    jvp = import_torch().func.jvp
    return lambda s: jvp(function, (s,), (v,))[1]


def _decoded(probed: Probed, z: Any) -> Any:
    return probed.decode(z.reshape(len(z), *probed.latent_shape).clone()).reshape(len(z), -1).double()


def _directions(directions: Any, dimension: int) -> Float:
    array = to_numpy(directions).astype(np.float64)
    if array.ndim != 3 or array.shape[2] != dimension or 0 in array.shape:
        raise InputError(
            f"directions must have shape (q, order, {dimension}), with at least one of each, not {array.shape}"
        )
    return array


def _chosen(outputs: Any, m: int) -> Array:
    keep = np.atleast_1d(np.asarray(outputs))
    if keep.ndim != 1 or keep.dtype.kind not in "iu" or keep.size == 0 or keep.min() < 0 or keep.max() >= m:
        raise InputError(f"outputs must be numbers from 0 to {m - 1}, not {outputs!r}")
    return keep


def _room(probed: Probed) -> int:
    return GPU_BYTES if probed.z.is_cuda else CPU_BYTES


def _slices(probed: Probed, chunk: int | None, columns: int) -> Iterator[slice]:
    """Slices of points of which `columns` rows of outputs each fit into memory."""
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int | np.integer) or chunk < 1):
        raise InputError(f"chunk must be a number of points of at least 1, not {chunk!r}")
    step = chunk or max(1, _room(probed) // (8 * columns * (probed.outputs + probed.dimension)))
    n = len(probed.z)
    for first in range(0, n, step):
        yield slice(first, min(n, first + step))


def _gathered(probed: Probed, chunks: Iterator[Float]) -> Float:
    """All points in one array, filled piece by piece so that nothing is held twice."""
    first = 0
    whole: Float | None = None
    for part in chunks:
        if whole is None:
            whole = np.empty((len(probed.z), *part.shape[1:]))
        whole[first : first + len(part)] = part
        first += len(part)
    assert whole is not None  # z has rows
    return whole


def _check_finite(values: Float, rows: slice, what: str) -> None:
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if not finite.all():
        bad = rows.start + np.flatnonzero(~finite)
        raise InputError(f"the {what} of the decoder have NaN or infinite values (row {listing(bad)})")
