"""Singular values of the Jacobian at many points: all, the extreme ones, or the stretch of random directions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.decoder.prepared_decoder import (
    PreparedDecoder,
    check_finite,
    import_torch,
    plain_attention,
    point_slices,
)
from congruence.errors import InputError

_FIRST_TEST = 16  # steps of Lanczos before the first test of convergence; later tests are less frequent
_STEPS = 600  # of Lanczos at most
_RESIDUAL = 1e-4  # relative residual at which a singular value has converged; its error is mostly the square


def exact_spectra(prepared: PreparedDecoder, chunk: int | None) -> Float:
    """All singular values of the Jacobian at every point, from the largest down, shape (n, min(d, p)).

    For float32 Jacobians the eigenvalues of J^T J in float64 are as accurate, and faster: squaring loses only digits
    that these Jacobians do not have.
    """
    torch = import_torch()
    spectra = []
    for rows in point_slices(prepared, chunk, columns=prepared.dimension):
        jacobians = _jacobians(prepared, prepared.z[rows])  # (rows, p, d)
        check_finite(jacobians, rows, "Jacobian")
        exact = jacobians.double()
        if jacobians.dtype == torch.float64:
            values = torch.linalg.svdvals(exact)
        else:
            tall = exact if exact.shape[1] >= exact.shape[2] else exact.mT
            values = torch.linalg.eigvalsh(tall.mT @ tall).clamp_min(0).sqrt().flip(-1)
        spectra.append(to_numpy(values))
    return np.concatenate(spectra)


def _jacobians(prepared: PreparedDecoder, z: Any) -> Any:
    """The Jacobians at the rows of z, (rows, p, d): in forward or reverse mode, whichever takes fewer passes."""
    torch = import_torch()
    forward = prepared.dimension <= prepared.outputs
    modes = (torch.func.jacfwd, torch.func.jacrev) if forward else (torch.func.jacrev, torch.func.jacfwd)
    for mode in modes:
        try:
            with plain_attention():
                return torch.func.vmap(mode(prepared.decode_one))(z)
        except (RuntimeError, NotImplementedError, ValueError):  # not every operation has every derivative in a batch
            continue
    try:
        return torch.stack([torch.autograd.functional.jacobian(prepared.decode_one, row) for row in z])
    except RuntimeError as error:
        raise InputError(f"the decoder cannot be differentiated: {error}") from error


def extreme_values(prepared: PreparedDecoder, chunk: int | None, seed: int) -> tuple[Float, Float, int]:
    """The smallest and the largest singular value at every point, (n,) each, and at how many points they converged.

    Golub-Kahan-Lanczos bidiagonalisation by products with the Jacobian and its transpose; the Jacobian is never formed.
    Only right singular vectors are stored and reorthogonalised (Simon and Zha 2000). Both values are those of the
    Jacobian on a subspace: the smallest converges from above, the largest from below.
    """
    starts = np.random.default_rng(seed)
    steps = min(prepared.dimension, prepared.outputs, _STEPS)
    parts = []
    for rows in point_slices(prepared, chunk, columns=8, vectors=steps):
        start = starts.standard_normal((rows.stop - rows.start, prepared.dimension))
        parts.append(_bidiagonalise(prepared, rows, start, steps))
    low, high, converged = zip(*parts, strict=True)
    return np.concatenate(low), np.concatenate(high), sum(converged)


def _bidiagonalise(prepared: PreparedDecoder, rows: slice, start: Float, steps: int) -> tuple[Float, Float, int]:
    torch = import_torch()
    z = prepared.z[rows]
    push, pull = _products(prepared)
    n, tiny = len(z), torch.finfo(z.dtype).tiny  # where a length is 0, all directions are used
    v = torch.as_tensor(start, dtype=z.dtype, device=z.device)
    v = v / v.norm(dim=1, keepdim=True)
    basis = torch.zeros(n, steps + 1, prepared.dimension, dtype=z.dtype, device=z.device)
    diagonal, above = np.zeros((n, steps)), np.zeros((n, steps))
    low, high, done = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, dtype=bool)
    u, beta, next_test = None, None, _FIRST_TEST
    for k in range(steps):
        basis[:, k] = v
        new = push(z, v)
        check_finite(new, rows, "Jacobian")
        if u is not None:
            new = new - beta * u
        alpha = new.norm(dim=1, keepdim=True)
        u = new / alpha.clamp_min(tiny)
        new = pull(z, u) - alpha * v
        for _ in range(2):  # once is not orthogonal up to rounding
            so_far = basis[:, : k + 1]
            new = new - (so_far.mT @ (so_far @ new[:, :, None]))[:, :, 0]
        beta = new.norm(dim=1, keepdim=True)
        v = new / beta.clamp_min(tiny)
        diagonal[:, k], above[:, k] = to_numpy(alpha)[:, 0], to_numpy(beta)[:, 0]
        whole = k + 1 == min(prepared.dimension, prepared.outputs)
        if k + 1 < min(next_test, steps):
            continue
        next_test = (9 * next_test) // 8
        for i in np.flatnonzero(~done):
            part = diagonal[i, : k + 1], above[i, : k + 1]
            done[i] = whole or _converged(*part, z.dtype)
            if done[i] or k + 1 == steps:
                values = np.linalg.svd(np.diag(part[0]) + np.diag(part[1][:-1], 1), compute_uv=False)
                low[i], high[i] = values[-1], values[0]
        if done.all():
            break
    return low, high, int(done.sum())


def _converged(diagonal: Float, above: Float, dtype: Any) -> bool:
    """Whether both extreme singular values of the bidiagonal matrix B are those of the Jacobian, by their residuals."""
    from scipy.linalg import eigh_tridiagonal

    k = len(diagonal)
    squares = diagonal**2  # B B^T is tridiagonal, and its eigenvectors are the left singular vectors
    squares[:-1] += above[:-1] ** 2
    off_diagonal = above[:-1] * diagonal[1:]
    floor = 0.0
    for end in (k - 1, 0):
        value, vector = eigh_tridiagonal(squares, off_diagonal, select="i", select_range=(end, end))
        size = math.sqrt(max(float(value[0]), 0.0))
        floor = floor or float(import_torch().finfo(dtype).eps) * size  # below it lies only rounding
        if above[-1] * abs(float(vector[-1, 0])) > _RESIDUAL * size + floor:
            return False
    return True


def sampled_stretch(prepared: PreparedDecoder, directions: int, chunk: int | None, seed: int) -> tuple[Float, Float]:
    """The smallest and largest stretch of random unit directions at every point, (n,) each."""
    torch = import_torch()
    rng = np.random.default_rng(seed)
    push, _ = _products(prepared)
    stretches = []
    for rows in point_slices(prepared, chunk, columns=directions):
        z = prepared.z[rows]
        drawn = rng.standard_normal((len(z), directions, prepared.dimension))
        drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
        unit = torch.as_tensor(drawn, dtype=z.dtype, device=z.device).flatten(0, 1)
        moved = push(z.repeat_interleave(directions, dim=0), unit)
        stretches.append(to_numpy(moved.double().norm(dim=1)).reshape(len(z), directions))
        check_finite(stretches[-1], rows, "Jacobian")
    lengths = np.concatenate(stretches)
    return lengths.min(axis=1), lengths.max(axis=1)


def _products(prepared: PreparedDecoder) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """Products J v and J^T u for many points at once: (n, d), (n, d) -> (n, p) and (n, d), (n, p) -> (n, d)."""
    torch = import_torch()

    def vectorise(product: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def products(z: Any, vectors: Any) -> Any:
            try:
                with plain_attention():
                    return torch.func.vmap(product)(z, vectors)
            except (RuntimeError, NotImplementedError, ValueError):  # not every operation can be batched
                pass
            try:
                return torch.stack([product(one, vector) for one, vector in zip(z, vectors, strict=True)])
            except (RuntimeError, NotImplementedError) as error:
                raise InputError(
                    f"products with the Jacobian of this decoder are not available ({error}); use method='exact'"
                ) from error

        return products

    push = vectorise(lambda z, v: torch.func.jvp(prepared.decode_one, (z,), (v,))[1])
    return push, vectorise(lambda z, u: torch.func.vjp(prepared.decode_one, z)[1](u)[0])
