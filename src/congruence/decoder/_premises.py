"""The premises of Theorem 1 (Nelson et al. 2026): certified by layers, supported or refuted by a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.decoder.certificates import StretchCertificate
from congruence.decoder.prepared_decoder import PreparedDecoder, import_torch
from congruence.decoder.stretch import BiLipschitz, unseen_share
from congruence.errors import InputError
from congruence.result import Finding, Status

_SAMPLE = 1000  # rows whose pairwise distances are compared
_PAIRS = 2000  # of rows whose midpoint is compared with the sample
_FAR = 2.0  # times the 99 % quantile of the gaps between neighbours: midpoints farther from every row lie in a hole
_FEW = 0.05  # share of midpoints that may lie in holes by chance
_EQUAL = 1e-5  # of the outputs' diameter: outputs are equal up to rounding if no row differs by more
_DISAGREE = 0.05  # of the outputs' diameter: outputs disagree if 5 % of the rows differ by more
_TOUCHING = 1e-6  # relative to the typical stretch: two distinct rows have the same output
_SEGMENTS = 500  # between two rows, on which distances are compared with the constant at the rows
_SHORT = 0.01  # of the longest such segment: distances of shorter ones are mostly rounding
_LONGER = 1.01  # times the largest stretch at the rows: a distance is multiplied by more than the constant allows


@dataclass(frozen=True, eq=False)
class MeasuredDecoder:
    """One of both decoders of Theorem 1: latents, sampled constant, and a certificate if its layers allow it."""

    prepared: PreparedDecoder
    stretch: BiLipschitz
    certificate: StretchCertificate | None
    seed: int

    @cached_property
    def decoded(self) -> tuple[Any, Any]:
        """A sample of latents and their outputs, flattened, in float64 on the CPU; the same rows for the same seed."""
        torch = import_torch()
        order = np.random.default_rng(self.seed).permutation(len(self.prepared.z))[:_SAMPLE]
        z = self.prepared.z[torch.as_tensor(np.sort(order), device=self.prepared.z.device)]
        return z.double().cpu(), _decode(self.prepared, z)

    @property
    def best(self) -> BiLipschitz | StretchCertificate:
        """The certificate if there is one, else the sampled constant."""
        return self.certificate or self.stretch


def judge_premises(
    first: MeasuredDecoder, second: MeasuredDecoder | None, certified: bool, convex: bool
) -> tuple[Finding, ...]:
    """Judge the premises of Theorem 1 for both decoders, and that their outputs agree.

    Without the second decoder its premises are assumed, and therefore unknown. `certified`: the bound uses
    certificates where there are any. `convex`: the user declares both supports convex.
    """

    def judge(one: MeasuredDecoder) -> tuple[Finding, ...]:
        convexity = _judge_convexity(to_numpy(one.prepared.z).astype(np.float64), convex, one.seed)
        return _judge_stretch(one, one.certificate if certified else None), convexity, _judge_injectivity(one)

    if second is None:
        claim = "The decoder of the other training has at most the same constant, is injective, and its codes fill a "
        evidence = "It is assumed: there is no second decoder. Set other and other_latents to measure one."
        others: tuple[Finding, ...] = (Finding("other", claim + "convex set.", "unknown", evidence=evidence),)
    else:
        others = tuple(
            replace(one, name=f"other_{one.name}", claim=f"Other training: {one.claim[0].lower()}{one.claim[1:]}")
            for one in judge(second)
        )
    return (*judge(first), *others, _judge_agreement(first, second))


def _judge_stretch(one: MeasuredDecoder, certificate: StretchCertificate | None) -> Finding:
    """Whether the bi-Lipschitz constant of the bound holds: certified by the layers, or for all that was sampled.

    In a convex set no distance is multiplied by more than the largest stretch at a point, so points between two rows
    can refute the constant that was measured at the rows.
    """
    stretch, name = one.stretch, "bi_lipschitz"
    if certificate is not None:
        claim = f"The bi-Lipschitz constant is at most {certificate.constant:.7g}."
        return Finding(name, claim, "holds", "certified", f"By {certificate.how}.", certificate.constant)
    claim = f"The bi-Lipschitz constant is at most {stretch.constant:.4g}, the largest at the points."
    if lost := int(np.isinf(stretch.constants).sum()):
        evidence = f"The Jacobian loses a direction at {lost} of {stretch.n} points."
        return Finding(name, "The decoder has a finite bi-Lipschitz constant.", "fails", evidence=evidence)
    allowed, longest = float(stretch.s_max.max()), _largest_multiple(one)
    if longest > _LONGER * allowed:
        evidence = (
            f"Between two rows a distance is multiplied by {longest:.4g}, and short lengths at the rows by at most "
            f"{allowed:.4g}: the constant is larger between them, or the latents do not fill a convex set."
        )
        return Finding(name, claim, "fails", evidence=evidence, number=stretch.constant)
    evidence = (
        f"It was measured at {stretch.n} points. Even if they are a random sample, larger constants in a region with "
        f"less than {100 * unseen_share(stretch.n):.2g} % of the latents are not excluded."
    )
    return Finding(name, claim, "holds", evidence=evidence, number=stretch.constant)


def _largest_multiple(one: MeasuredDecoder) -> float:
    """The largest factor by which the distance of a row from a point between it and another row is multiplied."""
    torch = import_torch()
    (z, out), rng = one.decoded, np.random.default_rng(one.seed)
    ends = torch.as_tensor(rng.integers(0, len(z), size=(2, _SEGMENTS)))
    at = torch.as_tensor(rng.uniform(size=(_SEGMENTS, 1)))
    middle = z[ends[0]] + at * (z[ends[1]] - z[ends[0]])
    decoded = _decode(one.prepared, middle.to(one.prepared.z))
    lengths, multiplied = ((a[ends] - b).norm(dim=2) for a, b in ((z, middle), (out, decoded)))  # (2, segments)
    long = lengths > max(_SHORT * float(lengths.max()), np.finfo(float).tiny)
    return float((multiplied[long] / lengths[long]).max()) if long.any() else 0.0


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


def _judge_injectivity(one: MeasuredDecoder) -> Finding:
    """Whether distinct rows have distinct outputs: by a certificate, or the least ratio of distances over pairs.

    A certificate for all pairs of latents bounds the composition of both decoders without derivatives.
    """
    name, claim = "injective", "The decoder is injective, and smooth or certified for all pairs of latents."
    if one.certificate is not None and one.certificate.injective:
        evidence = f"No distance is multiplied by less than {one.certificate.low:.7g}, by {one.certificate.how}."
        return Finding(name, claim, "holds", "certified", evidence, one.certificate.low)
    if np.isinf(one.stretch.constants).any():
        return Finding(name, claim, "unknown", evidence="It loses a direction at some points.")
    torch = import_torch()
    z, out = one.decoded
    apart, decoded = (torch.pdist(values).numpy() for values in (z, out))
    if not (apart > 0).any():
        return Finding(name, claim, "unknown", evidence="All rows are the same point.")
    ratio = decoded[apart > 0] / apart[apart > 0]
    least, typical = float(ratio.min()), float(np.median(ratio))
    evidence = f"Distances of {len(ratio)} pairs of rows are multiplied by {least:.3g} to {ratio.max():.3g}."
    return Finding(name, claim, "fails" if least <= _TOUCHING * typical else "unknown", evidence=evidence, number=least)


def _judge_agreement(first: MeasuredDecoder, second: MeasuredDecoder | None) -> Finding:
    """Whether two trainings have the same outputs for the same inputs, relative to the diameter of the outputs."""
    name, claim = "agreement", "The reconstructions of both trainings agree."
    if second is None:
        return Finding(name, claim, "unknown", evidence="There is no second decoder to compare with.")
    prepared, other = first.prepared, second.prepared
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
    here, there = first.decoded[1], second.decoded[1]
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


def _decode(prepared: PreparedDecoder, z: Any) -> Any:
    """The outputs of latents (rows, d), flattened, in float64 on the CPU."""
    torch = import_torch()
    with torch.no_grad():
        out = [prepared.decode(part.reshape(len(part), *prepared.latent_shape)) for part in z.split(256)]
    return torch.cat(out).flatten(1).double().cpu()
