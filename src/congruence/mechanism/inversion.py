"""The latents at which a decoder gives wanted outputs, by damped Gauss-Newton steps for all rows at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.decoder.probed import Probed, import_torch
from congruence.mechanism.derivatives import jacobian_chunks

STEPS = 60
REST = 1e-10  # of the spread of the outputs: converged
FIRST_DAMPING, MOST_DAMPING = 1e-2, 1e8


@dataclass(frozen=True, eq=False)
class Inverted:
    """Codes of wanted outputs."""

    codes: Float  # (r, k)
    misses: Float  # (r,) distance from the wanted outputs, over their spread; 0 where they are met


def invert(probed: Probed, targets: Float, starts: list[Float]) -> Inverted:
    """Find codes whose outputs are nearest to `targets`, (r, m), from each of several starts (r, k); the best counts.

    The nearest point of what a decoder can give is found as far as steps downhill lead; another start may find another.
    """
    found = [_descended(probed, targets, start) for start in starts]
    best = np.argmin([one.misses for one in found], axis=0)
    rows = np.arange(len(targets))
    return Inverted(
        np.array([one.codes for one in found])[best, rows], np.array([one.misses for one in found])[best, rows]
    )


def spread_of(outputs: Float) -> float:
    """The root mean square distance of outputs (r, m) from their mean; of a single row, its length."""
    away = outputs - outputs.mean(0) if len(outputs) > 1 else outputs
    return float(np.sqrt(np.square(away).sum(1).mean())) or 1.0


def decoded(probed: Probed, z: Float) -> Float:
    """Outputs (r, m) of latents (r, k) in float64."""
    torch = import_torch()
    rows = torch.as_tensor(z, dtype=probed.z.dtype, device=probed.z.device)
    with torch.no_grad():
        out = probed.decode(rows.reshape(len(rows), *probed.latent_shape).clone())
    return to_numpy(out).reshape(len(rows), -1).astype(np.float64)


def _descended(probed: Probed, targets: Float, start: Float) -> Inverted:
    scale = spread_of(targets)
    codes, damping = start.astype(np.float64), np.full(len(start), FIRST_DAMPING)
    left = targets - decoded(probed, codes)  # (r, m)
    error = np.linalg.norm(left, axis=1) / scale
    for _ in range(STEPS):
        live = np.flatnonzero((error > REST) & (damping < MOST_DAMPING))
        if not live.size:
            break
        tried = codes[live] + _steps(probed, codes[live], left[live], damping[live])
        left_there = targets[live] - decoded(probed, tried)
        there = np.linalg.norm(left_there, axis=1) / scale
        better = there < error[live]  # false for NaN
        codes[live[better]], left[live[better]], error[live[better]] = tried[better], left_there[better], there[better]
        damping[live] *= np.where(better, 0.1, 10.0)
    return Inverted(codes, error)


def _steps(probed: Probed, codes: Float, left: Float, damping: Array) -> Float:
    """Damped Gauss-Newton steps (r, k)."""
    here = replace(probed, z=import_torch().as_tensor(codes, dtype=probed.z.dtype, device=probed.z.device))
    steps, first = [], 0
    for jacobian in jacobian_chunks(here):
        rows = slice(first, first + len(jacobian))
        first += len(jacobian)
        normal = np.einsum("rma,rmb->rab", jacobian, jacobian, optimize=True)
        diagonal = np.einsum("raa->ra", normal)
        diagonal += damping[rows, None] * np.maximum(diagonal, 1e-12 * diagonal.max(axis=1, keepdims=True)) + 1e-300
        pull = np.einsum("rma,rm->ra", jacobian, left[rows], optimize=True)
        steps.append(np.linalg.solve(normal, pull[:, :, None])[:, :, 0])
    return np.concatenate(steps)
