"""The premises of Theorem 1 (Nelson et al. 2026): certified by layers, supported or refuted by a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.decoder.certificates import StretchCertificate, certify_layers
from congruence.decoder.prepared_decoder import PreparedDecoder, import_torch
from congruence.decoder.stretch import BiLipschitz, unseen_share
from congruence.errors import InputError
from congruence.result import Finding, Status

_LARGEST_LAYER = 2**21  # entries of a layer whose singular values are computed unasked: about a second
_SAMPLE = 1000  # rows whose pairwise distances are compared
_PAIRS = 2000  # of rows whose midpoint is compared with the sample
_FAR = 2.0  # times the 99 % quantile of the gaps between neighbours: midpoints farther from every row lie in a hole
_FEW = 0.05  # share of midpoints that may lie in holes by chance
_EQUAL = 1e-5  # of the outputs' diameter: outputs are equal up to rounding if no row differs by more
_DISAGREE = 0.05  # of the outputs' diameter: outputs disagree if 5 % of the rows differ by more
_TOUCHING = 1e-6  # relative to the typical stretch: two distinct rows have the same output


@dataclass(frozen=True, eq=False)
class MeasuredDecoder:
    """One of both decoders of Theorem 1: latents, sampled constant, and a certificate if its layers allow it."""

    prepared: PreparedDecoder
    stretch: BiLipschitz
    certificate: StretchCertificate | None

    @property
    def best(self) -> BiLipschitz | StretchCertificate:
        """The certificate if there is one, else the sampled constant."""
        return self.certificate or self.stretch


def certify(decoder: Any, latent_shape: tuple[int, ...]) -> StretchCertificate | None:
    """Return the certificate of the layers, or None if they do not allow one."""
    try:
        return certify_layers(decoder, latent_shape, largest=_LARGEST_LAYER)
    except InputError:
        return None


def judge_premises(
    first: MeasuredDecoder, second: MeasuredDecoder | None, certified: bool, convex: bool, seed: int
) -> tuple[Finding, ...]:
    """Judge the premises of Theorem 1 for both decoders, and that their outputs agree.

    Parameters
    ----------
    first, second : MeasuredDecoder
        Without the second, its premises are assumed and therefore unknown.
    certified : bool
        Whether the bound uses certificates where there are any.
    convex : bool
        Whether the user declares both supports convex.
    """
    own = _judge_decoder(first, certified, convex, seed)
    if second is None:
        claim = "The decoder of the other training has at most the same constant, is injective, and its codes fill a "
        evidence = "It is assumed: there is no second decoder. Set other and other_latents to measure one."
        others: tuple[Finding, ...] = (Finding("other", claim + "convex set.", "unknown", evidence=evidence),)
    else:
        others = tuple(
            replace(one, name=f"other_{one.name}", claim=f"Other training: {one.claim[0].lower()}{one.claim[1:]}")
            for one in _judge_decoder(second, certified, convex, seed)
        )
    return (*own, *others, _judge_agreement(first.prepared, None if second is None else second.prepared, seed))


def _judge_decoder(one: MeasuredDecoder, certified: bool, convex: bool, seed: int) -> tuple[Finding, ...]:
    used = one.certificate if certified else None
    return (
        _judge_stretch(one.stretch, used),
        _judge_convexity(to_numpy(one.prepared.z).astype(np.float64), convex, seed),
        _judge_injectivity(one, seed),
    )


def _judge_stretch(stretch: BiLipschitz, certificate: StretchCertificate | None) -> Finding:
    """Whether the local bi-Lipschitz constant is finite: certified by the layers, or at every point."""
    name, claim = "bi_lipschitz", "The decoder has a finite bi-Lipschitz constant."
    lost = int(np.isinf(stretch.constants).sum())
    if lost:
        evidence = f"The Jacobian loses a direction at {lost} of {stretch.n} points."
        return Finding(name, claim, "fails", evidence=evidence)
    if certificate is not None:
        evidence = f"It is at most {certificate.constant:.7g}, by {certificate.how}."
        return Finding(name, claim, "holds", "certified", evidence, certificate.constant)
    evidence = (
        f"The largest of {stretch.n} points is {stretch.constant:.4g}, a lower estimate of the supremum. Larger "
        f"constants in a region with less than {100 * unseen_share(stretch.n):.2g} % of the latents are not excluded."
    )
    return Finding(name, claim, "holds", evidence=evidence, number=stretch.constant)


def _judge_convexity(z: Float, declared: bool, seed: int) -> Finding:
    """Whether the midpoints of pairs of rows are close to other rows: holes in the sample refute a convex support."""
    from scipy.spatial import cKDTree

    name, claim = "convex", "The latents fill a convex set."
    given = "It is declared by the user (convex=True)." if declared else ""
    otherwise: Status = "holds" if declared else "unknown"
    if len(z) < 10:
        return Finding(name, claim, otherwise, evidence=given or f"{len(z)} rows are too few to judge.")
    rng = np.random.default_rng(seed)
    tree = cKDTree(z)
    some = z[rng.permutation(len(z))[:_SAMPLE]]
    gaps = tree.query(some, k=2)[0][:, 1]
    pairs = rng.integers(0, len(z), size=(_PAIRS, 2))
    distances = tree.query(z[pairs].mean(1))[0]
    limit = _FAR * float(np.quantile(gaps, 0.99))
    share = float((distances > limit).mean())
    evidence = (
        f"{100 * share:.1f} % of the midpoints of two rows lie in holes. Their median distance to the nearest row is "
        f"{np.median(distances):.3g} (95 % within {np.quantile(distances, 0.95):.3g}); that between neighbouring "
        f"rows is {np.median(gaps):.3g}."
    )
    status: Status = "fails" if share > _FEW else otherwise
    return Finding(name, claim, status, evidence=f"{given} {evidence}".strip(), number=share)


def _judge_injectivity(one: MeasuredDecoder, seed: int) -> Finding:
    """Whether distinct rows have distinct outputs: by a certificate, or the least ratio of distances over pairs."""
    name, claim = "injective", "The decoder is injective."
    if one.certificate is not None and one.certificate.injective:
        evidence = f"No distance is multiplied by less than {one.certificate.low:.7g}, by {one.certificate.how}."
        return Finding(name, claim, "holds", "certified", evidence, one.certificate.low)
    if np.isinf(one.stretch.constants).any():
        return Finding(name, claim, "unknown", evidence="It loses a direction at some points.")
    torch = import_torch()
    z, out = _decoded(one.prepared, seed)
    apart, decoded = (torch.pdist(values).numpy() for values in (z, out))
    if not (apart > 0).any():
        return Finding(name, claim, "unknown", evidence="All rows are the same point.")
    ratio = decoded[apart > 0] / apart[apart > 0]
    least, typical = float(ratio.min()), float(np.median(ratio))
    evidence = f"Distances of {len(ratio)} pairs of rows are multiplied by {least:.3g} to {ratio.max():.3g}."
    return Finding(name, claim, "fails" if least <= _TOUCHING * typical else "unknown", evidence=evidence, number=least)


def _judge_agreement(prepared: PreparedDecoder, other: PreparedDecoder | None, seed: int) -> Finding:
    """Whether two trainings have the same outputs for the same inputs, relative to the diameter of the outputs."""
    name, claim = "agreement", "The reconstructions of both trainings agree."
    if other is None:
        return Finding(name, claim, "unknown", evidence="There is no second decoder to compare with.")
    if len(other.z) != len(prepared.z) or other.outputs != prepared.outputs:
        raise InputError(
            f"other must have {len(prepared.z)} rows and {prepared.outputs} outputs, like decoder; got {len(other.z)} "
            f"and {other.outputs}"
        )
    if other.dimension != prepared.dimension:
        raise InputError(
            f"other_latents must have {prepared.dimension} latents, like latents; got {other.dimension}; Theorem 1 is "
            "about latents of one dimension"
        )
    here, there = (_decoded(one, seed)[1] for one in (prepared, other))
    apart = (here - there).norm(dim=1).numpy()
    size = float(import_torch().pdist(here).max()) if len(here) > 1 else 0.0
    if size == 0:
        return Finding(name, claim, "unknown", evidence="All outputs are the same.")
    worst, most = float(apart.max() / size), float(np.quantile(apart, 0.95) / size)
    evidence = (
        f"The outputs of 95 % of {len(apart)} rows differ by at most {100 * most:.3g} % of their diameter, those of "
        f"all rows by at most {100 * worst:.3g} %."
    )
    if worst > _EQUAL and most <= _DISAGREE:
        evidence += " Theorem 1 is about equal outputs, and says nothing about the codes of outputs that differ."
    status: Status = "holds" if worst <= _EQUAL else "fails" if most > _DISAGREE else "unknown"
    return Finding(name, claim, status, evidence=evidence, number=worst)


def _decoded(prepared: PreparedDecoder, seed: int) -> tuple[Any, Any]:
    """A sample of latents and their outputs, flattened, in float64 on the CPU; the same rows for the same seed."""
    torch = import_torch()
    order = np.random.default_rng(seed).permutation(len(prepared.z))[:_SAMPLE]
    z = prepared.z[torch.as_tensor(np.sort(order), device=prepared.z.device)]
    with torch.no_grad():
        out = torch.cat([prepared.decode(part.reshape(len(part), *prepared.latent_shape)) for part in z.split(256)])
    return z.double().cpu(), out.flatten(1).double().cpu()
