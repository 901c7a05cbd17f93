"""The premises of Theorem 1 (Nelson et al. 2026), as far as a sample of latents can support or refute them."""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.decoder.probed import Probed, import_torch
from congruence.decoder.stretch import BiLipschitz
from congruence.errors import InputError
from congruence.result import Finding

SAMPLE = 1000  # rows whose pairwise distances are compared
PAIRS = 2000  # of rows whose midpoint is compared with the sample
FAR = 2.0  # times the gap that all but 1 % of the rows have: a midpoint so far from every row lies in a hole
FEW = 0.05  # share of midpoints in holes that may be chance
AGREE, DISAGREE = 0.01, 0.05  # of the outputs' diameter: all rows are within the first, or many beyond the second
TOUCHING = 1e-6  # of the typical stretch: two rows that are apart but decode to the same output


def premises_of_theorem1(probed: Probed, stretch: BiLipschitz, other: Probed | None, seed: int) -> tuple[Finding, ...]:
    """Judge the premises: a finite constant, convex support, an injective decoder, reconstructions that agree."""
    return (
        bounded_stretch(stretch),
        convex_support(to_numpy(probed.z).astype(np.float64), seed),
        injective_decoder(probed, stretch, seed),
        agreeing_outputs(probed, other, seed),
    )


def bounded_stretch(stretch: BiLipschitz) -> Finding:
    """Whether the local bi-Lipschitz constant is finite at every point."""
    claim = "The decoder has a finite bi-Lipschitz constant."
    lost = int(np.isinf(stretch.constants).sum())
    if lost:
        evidence = f"The Jacobian loses a direction at {lost} of {stretch.n} points."
        return Finding("bi_lipschitz", claim, "fails", evidence=evidence)
    evidence = f"The largest of {stretch.n} points is {stretch.constant:.4g}, a lower estimate of the supremum."
    return Finding("bi_lipschitz", claim, "holds", evidence=evidence, number=stretch.constant)


def convex_support(z: Float, seed: int) -> Finding:
    """Whether midpoints of rows lie where rows are: holes in the sample speak against a convex support."""
    from scipy.spatial import cKDTree

    name, claim = "convex", "The latents fill a convex set."
    if len(z) < 10:
        return Finding(name, claim, "unknown", evidence=f"{len(z)} rows are too few to judge by.")
    rng = np.random.default_rng(seed)
    tree = cKDTree(z)
    some = z[rng.permutation(len(z))[:SAMPLE]]
    gaps = tree.query(some, k=2)[0][:, 1]
    pairs = rng.integers(0, len(z), size=(PAIRS, 2))
    away = tree.query(z[pairs].mean(1))[0]
    limit = FAR * float(np.quantile(gaps, 0.99))
    share = float((away > limit).mean())
    evidence = (
        f"{100 * share:.1f} % of the midpoints of two rows lie in holes. Their median distance to the nearest row is "
        f"{np.median(away):.3g} (95 % within {np.quantile(away, 0.95):.3g}); that between neighbouring rows is "
        f"{np.median(gaps):.3g}."
    )
    return Finding(name, claim, "fails" if share > FEW else "unknown", evidence=evidence, number=share)


def injective_decoder(probed: Probed, stretch: BiLipschitz, seed: int) -> Finding:
    """Whether rows that are apart stay apart: the least ratio of distances over pairs of rows."""
    name, claim = "injective", "The decoder is injective."
    if np.isinf(stretch.constants).any():
        return Finding(name, claim, "unknown", evidence="It loses a direction at some points.")
    torch = import_torch()
    z, out = _decoded(probed, seed)
    apart, decoded = (torch.pdist(values).numpy() for values in (z, out))
    if not (apart > 0).any():
        return Finding(name, claim, "unknown", evidence="All rows are the same point.")
    ratio = decoded[apart > 0] / apart[apart > 0]
    least, typical = float(ratio.min()), float(np.median(ratio))
    evidence = f"Distances of {len(ratio)} pairs of rows are multiplied by {least:.3g} to {ratio.max():.3g}."
    return Finding(name, claim, "fails" if least <= TOUCHING * typical else "unknown", evidence=evidence, number=least)


def agreeing_outputs(probed: Probed, other: Probed | None, seed: int) -> Finding:
    """Whether two trainings give the same outputs for the same inputs, relative to the diameter of the outputs."""
    name, claim = "agreement", "The reconstructions of both trainings agree."
    if other is None:
        return Finding(name, claim, "unknown", evidence="Only one decoder was given.")
    if len(other.z) != len(probed.z) or other.outputs != probed.outputs:
        raise InputError(
            f"the other decoder must have the same rows and outputs, but it has {len(other.z)} rows and "
            f"{other.outputs} outputs, not {len(probed.z)} and {probed.outputs}"
        )
    here, there = (_decoded(one, seed)[1] for one in (probed, other))
    apart = (here - there).norm(dim=1).numpy()
    size = float(import_torch().pdist(here).max()) if len(here) > 1 else 0.0
    if size == 0:
        return Finding(name, claim, "unknown", evidence="All outputs are the same.")
    worst, most = float(apart.max() / size), float(np.quantile(apart, 0.95) / size)
    evidence = (
        f"The outputs of 95 % of {len(apart)} rows differ by at most {100 * most:.3g} % of their diameter, those of "
        f"all rows by at most {100 * worst:.3g} %."
    )
    status = "holds" if worst <= AGREE else "fails" if most > DISAGREE else "unknown"
    return Finding(name, claim, status, evidence=evidence, number=worst)  # type: ignore[arg-type]


def _decoded(probed: Probed, seed: int) -> tuple[Any, Any]:
    """Some rows of latents and their outputs, flattened, in float64 on the CPU; the same rows for the same seed."""
    torch = import_torch()
    order = np.random.default_rng(seed).permutation(len(probed.z))[:SAMPLE]
    z = probed.z[torch.as_tensor(np.sort(order), device=probed.z.device)]
    with torch.no_grad():
        out = torch.cat([probed.decode(part.reshape(len(part), *probed.latent_shape)) for part in z.split(256)])
    return z.double().cpu(), out.flatten(1).double().cpu()
