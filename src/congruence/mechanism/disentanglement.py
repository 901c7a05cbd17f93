"""Disentanglement: does each block of codes depend on one true factor only, at points and over the domain?

With g the generator and g' the model's decoder, h = g'^-1 o g maps true factors to codes. The model is disentangled if
h is decomposable: every block of codes is a function of one factor (Matthes et al. 2026). At points that is the block
structure of the Jacobian of h; Theorem 1 extends it to the whole domain.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing, to_numpy
from congruence.decoder.prepared_decoder import PreparedDecoder, import_torch
from congruence.errors import InputError
from congruence.mechanism._blocks import Blocks, label_members, read_blocks, write_blocks
from congruence.mechanism._criteria import support_of
from congruence.mechanism.derivatives import decode_rows, jacobian_chunks, jacobians, open_decoder
from congruence.mechanism.domains import LatentDomain
from congruence.result import Finding, Status, as_data, conclude

RTOL = 1e-3  # of the motion of a code: less than this from other factors counts as zero
_ENTANGLED = 0.1  # of it: more than this is entangled
_MISSED = 0.05  # of the spread of the outputs: a point that the model misses by more is left out
_RANK = 1e-6  # of the largest singular value
_STARTS = 3  # random ones, if neither codes nor an encoder are available
_STEPS = 60  # of the search for codes
_CONVERGED = 1e-10  # of the spread of the outputs
_FIRST_DAMPING, _MOST_DAMPING = 1e-2, 1e8
_TINY = np.finfo(float).tiny
_LOCAL = "disentangled", "The codes are disentangled at every point."
_COVERING = "covering", "The decoder is a covering map onto its image."
_INJECTIVE = "injective", "The generator is locally injective."
_EVERYWHERE = "disentangled_domain", "The codes are disentangled over the domain."


@dataclass(frozen=True, eq=False)
class Disentanglement:
    """Whether codes are functions of one factor each, at points (`local`) and over the domain (`everywhere`)."""

    local: Finding
    everywhere: Finding  # the conclusion of Theorem 1, with its premises
    leaks: Float  # (r,) largest share of a code's motion that comes from other factors than the code's, over codes
    factor_of: tuple[int, ...]  # the factor each code belongs to, at most points
    shares: Float  # (codes, K) the share of each code's motion that comes from each factor, over all points
    changes: int  # points at which codes belong to other factors than at most points
    lost: tuple[int, ...]  # factors that the codes do not encode
    misses: Float  # (r,) how far the model's outputs are from the generator's, over their spread; NaN if not known
    blocks: Blocks
    assumed: tuple[str, ...] = ()  # premises that a sample cannot prove
    codes: Float | None = field(default=None, repr=False)  # (r, k) the model's codes, if it has a decoder
    sparse: float | None = None  # share of points where the model's Jacobian is at least as sparse as the generator's
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> float:
        """The largest leak over points; 0 is disentangled."""
        return float(self.leaks.max(initial=0.0))

    @property
    def reached(self) -> Array:
        """Which points the model's outputs do not miss, (r,)."""
        return np.asarray(~(self.misses > _MISSED))  # NaN is not known to be missed

    @property
    def code_blocks(self) -> Blocks:
        """The codes of each factor, in the order of the factors."""
        return tuple(tuple(j for j, i in enumerate(self.factor_of) if i == k) for k in range(len(self.blocks)))

    @property
    def premises(self) -> tuple[Finding, ...]:
        """The premises of Theorem 1, without the codes at the points."""
        return tuple(one for one in self.everywhere.premises if one.name != self.local.name)

    @property
    def headlines(self) -> tuple[str, ...]:
        """The result at the points, and its extension to the domain."""
        n = len(self.leaks)
        if self.local.status == "unknown":
            return ("Whether the codes are disentangled is unknown: the model misses all points.",)
        if self.lost:
            return (f"The codes do not encode factor {write_blocks([self.blocks[k] for k in self.lost])}.",)
        if self.local.status != "holds":
            word = "nearly disentangled" if self.local.status == "ambiguous" else "entangled"
            return (f"The codes are {word} at {n} points.", self.local.evidence)
        return (f"The codes are disentangled at {n} points.", self._over_domain)

    @property
    def _over_domain(self) -> str:
        if self.everywhere.status == "holds":
            return "By Theorem 1 they are disentangled over the domain."
        if self.changes:
            return f"They belong to other factors at {self.changes} of them, so they are not over the domain."
        unproved = next((one for one in self.premises if one.status != "holds" and one.name not in self.assumed), None)
        if unproved is None:
            return "By Theorem 1 this extends to the domain if the decoder is a covering map, which is assumed."
        return f"Theorem 1 is not known to extend this to the domain. {unproved.evidence}"

    def to_dict(self) -> dict[str, Any]:
        """All numbers but those of single points."""
        known = self.misses[np.isfinite(self.misses)]
        mean = float(np.mean(self.leaks)) if len(self.leaks) else float("nan")
        names = ("factor_of", "shares", "changes", "lost", "sparse")
        return {
            "points": len(self.leaks),
            "leak": {"worst": self.worst, "mean": mean},
            **{name: as_data(getattr(self, name)) for name in names},
            "missed": float(known.max()) if known.size else None,
            "assumed": list(self.assumed),
        }


def measure_disentanglement(
    generator: Any,
    decoder: Any,
    z: Any,
    blocks: Any = None,
    *,
    inverse: Any = None,
    codes: Any = None,
    code_blocks: Any = None,
    domain: LatentDomain | None = None,
    covering: bool = False,
    rtol: float = RTOL,
    device: str = "auto",
    seed: int = 0,
) -> Disentanglement:
    """Test whether each code of a model is a function of one true factor; the generator must be known.

    Parameters
    ----------
    generator : torch module or function
        Maps true factors (rows, d) to observations.
    decoder : torch module or function, or None
        The model's decoder, from codes to observations. It need not be invertible: it is inverted point by point.
        None if `inverse` is set, whose outputs are then the codes.
    z : (r, d)
        True factors at which to test.
    blocks : list of lists of latents, or text
        Latents that form a factor, such as [[0, 1], [2]] or "0-1,2"; by default each latent is a factor.
    inverse : torch module or function, optional
        The model's encoder, from observations to codes. With a decoder, the search for codes starts from its outputs.
    codes : (r, k), optional
        The codes of the rows of z, if known.
    code_blocks : list of lists of codes, or text, optional
        Codes that must stay together; each code may belong to any factor by default.
    domain : LatentDomain, optional
        The domain of the true factors; by default the rows of z are a sample of it.
    covering : bool
        Whether the decoder is known to be a covering map onto its image, such as an invertible flow.
    rtol : float
        The share of a code's motion that may come from other factors.
    device : str
        "auto" uses the device of the weights.
    seed : int
        Seed of the starts of the search for codes.
    """
    prepared = open_decoder(generator, z, device)
    d = prepared.dimension
    partition = read_blocks(blocks, d)
    place = domain or LatentDomain.sample(z)
    if place.dimension != d:
        raise InputError(f"domain must have the {d} latents of z; got {place.dimension}")
    rows = to_numpy(prepared.z).astype(np.float64)
    slopes = jacobians(generator, z, device=device)  # (r, m, d)
    if decoder is not None:
        starts = _starts(prepared, rows, inverse, codes, device, seed)
        inner, misses, sparse, found = _differentiate_codes(
            prepared, decoder, rows, slopes, starts, codes is None, device
        )
    elif inverse is not None:
        inner = jacobians(lambda s: inverse(generator(s)), z, device=device)  # (r, k, d)
        misses, sparse, found = np.full(len(rows), np.nan), None, None
    else:
        raise InputError("measure_disentanglement needs decoder, or inverse=, the model's encoder; got neither")
    missed = bool((misses > _MISSED).any())
    evidence = "It is assumed: a sample cannot prove it. Invertible networks are covering maps (covering=True)."
    evidence = "It misses some outputs of the generator." if missed else evidence
    evidence = "It is declared as a covering map by the user (covering=True)." if covering else evidence
    covers = Finding(*_COVERING, "holds" if covering else "unknown", evidence=evidence)
    values = np.linalg.svd(slopes, compute_uv=False)  # full rank makes g injective near a point, not between points
    few = slopes.shape[1] < d
    lost = int((few | ~(values[:, -1] > _RANK * values[:, 0])).sum())
    evidence = f"Its derivative has rank {d} at all {len(rows)} points."
    evidence = f"Its derivative loses a direction at {lost} of {len(rows)} points." if lost else evidence
    injective = Finding(*_INJECTIVE, "unknown" if lost else "holds", evidence=evidence)
    premises = (place.simply_connected(), place.connected_slices(partition), injective, covers)
    result = _judge(inner, misses, rows, partition, code_blocks, premises, rtol)
    assumed = () if covers.status == "holds" or missed else (covers.name,)
    return replace(result, sparse=sparse, codes=found, assumed=assumed)


def _differentiate_codes(
    generator: PreparedDecoder, decoder: Any, rows: Float, slopes: Float, starts: list[Float], search: bool, device: str
) -> tuple[Float, Float, float, Float]:
    """The Jacobian of h at each point, (r, k, d), distances of the outputs, how often it is as sparse, and codes."""
    targets = decode_rows(generator, rows)
    prepared = open_decoder(decoder, starts[0], device)
    if prepared.outputs != targets.shape[1]:
        raise InputError(f"the decoder must have the generator's {targets.shape[1]} outputs; got {prepared.outputs}")
    if search:  # from each start to a local minimum; the best of them counts
        tried, errors = map(np.array, zip(*(_descend(prepared, targets, start) for start in starts), strict=True))
        best, every = np.argmin(errors, axis=0), np.arange(len(targets))
        reached, misses = tried[best, every], errors[best, every]
    else:
        reached, misses = starts[0], _distances(decode_rows(prepared, starts[0]) - targets, targets)
    theirs = jacobians(decoder, reached, device=device)  # (r, m, k)
    fewer = support_of(theirs).sum(axis=(1, 2)) <= support_of(slopes).sum(axis=(1, 2))
    return np.linalg.pinv(theirs, rcond=_RANK) @ slopes, misses, float(fewer.mean()), reached


def _starts(generator: PreparedDecoder, rows: Float, inverse: Any, codes: Any, device: str, seed: int) -> list[Float]:
    """Initial codes: `codes`, the encoder's, or the factors themselves and permutations of their rows."""
    if codes is not None:
        array = to_numpy(codes).astype(np.float64)
        if array.ndim != 2 or len(array) != len(rows):
            raise InputError(f"codes must have a row for each of {len(rows)} rows of z; got shape {array.shape}")
        bad = np.flatnonzero(~np.isfinite(array).all(1))
        if bad.size:
            raise InputError(f"codes have NaN or infinite values (row {listing(bad)})")
        return [array]
    if inverse is not None:
        targets = decode_rows(generator, rows)
        return [decode_rows(open_decoder(inverse, targets.reshape(-1, *generator.output_shape), device), targets)]
    rng = np.random.default_rng(seed)
    return [rows, *(rows[rng.permutation(len(rows))] for _ in range(_STARTS))]


def _distances(left: Float, targets: Float) -> Float:
    """Lengths of differences (r, m), over the root mean square distance of targets from their mean."""
    away = targets - targets.mean(0) if len(targets) > 1 else targets
    return np.asarray(np.linalg.norm(left, axis=1) / (float(np.sqrt(np.square(away).sum(1).mean())) or 1.0))


def _descend(prepared: PreparedDecoder, targets: Float, start: Float) -> tuple[Float, Float]:
    """Codes (r, k) by damped Gauss-Newton steps towards outputs `targets` (r, m), and how far they miss them, (r,)."""
    codes, damping = start.astype(np.float64), np.full(len(start), _FIRST_DAMPING)
    left = targets - decode_rows(prepared, codes)  # (r, m)
    error = _distances(left, targets)
    for _ in range(_STEPS):
        live = np.flatnonzero((error > _CONVERGED) & (damping < _MOST_DAMPING))
        if not live.size:
            break
        tried = codes[live] + _steps(prepared, codes[live], left[live], damping[live])
        left_there = targets[live] - decode_rows(prepared, tried)
        there = _distances(left_there, targets)
        better = there < error[live]  # false for NaN
        codes[live[better]], left[live[better]], error[live[better]] = tried[better], left_there[better], there[better]
        damping[live] *= np.where(better, 0.1, 10.0)
    return codes, error


def _steps(prepared: PreparedDecoder, codes: Float, left: Float, damping: Array) -> Float:
    """Damped Gauss-Newton steps (r, k)."""
    here = replace(prepared, z=import_torch().as_tensor(codes, dtype=prepared.z.dtype, device=prepared.z.device))
    steps, first = [], 0
    for jacobian in jacobian_chunks(here):
        rows = slice(first, first + len(jacobian))
        first += len(jacobian)
        normal = np.einsum("rma,rmb->rab", jacobian, jacobian, optimize=True)
        diagonal = np.einsum("raa->ra", normal)
        diagonal += damping[rows, None] * np.maximum(diagonal, 1e-12 * diagonal.max(axis=1, keepdims=True)) + 1e-300
        pull = np.einsum("rma,rm->ra", jacobian, left[rows], optimize=True)
        try:
            steps.append(np.linalg.solve(normal, pull[:, :, None])[:, :, 0])
        except np.linalg.LinAlgError:  # the decoder is saturated: some directions change no output
            steps.append((np.linalg.pinv(normal, hermitian=True) @ pull[:, :, None])[:, :, 0])
    return np.concatenate(steps)


def _judge(
    inner: Float,
    misses: Float,
    rows: Float,
    partition: Blocks,
    code_blocks: Any,
    premises: tuple[Finding, ...],
    rtol: float,
) -> Disentanglement:
    """Judge the block structure of the Jacobians of h, (r, k, d)."""
    seen = np.asarray(~(misses > _MISSED))  # NaN is not known to be missed
    missed, k = int((~seen).sum()), inner.shape[1]
    codes = read_blocks(code_blocks, k)
    notes = (f"The model misses {missed} of {len(seen)} points, which are left out.",) if missed else ()
    local = Finding(*_LOCAL, "unknown", evidence=f"The model misses all {missed} points.")
    leaks, factor_of, changes, lost = np.zeros(0), (0,) * k, 0, tuple[int, ...]()
    shares = np.full((k, len(partition)), np.nan)
    if seen.any():
        spread, inner = rows.std(0), inner[seen]
        square = np.square(inner * np.where(spread > 0, spread, 1.0))
        moved = np.stack([square[:, :, list(block)].sum(2) for block in partition], axis=2)  # (r, k, K)
        moved /= np.maximum(moved.sum(2).mean(0), _TINY)[:, None]  # in units of how much each code varies
        owners, leaks = _assign(np.stack([moved[:, list(block)].sum(1) for block in codes], axis=1))
        owner = np.array(Counter(map(tuple, owners.tolist())).most_common(1)[0][0])
        changes = int((owners != owner).any(axis=1).sum())
        place = label_members(codes)
        largest = np.maximum(np.linalg.norm(inner, axis=(1, 2)), _TINY)
        for i, block in enumerate(partition):  # do the codes of a factor lose one of its directions at most points?
            part = inner[:, :, list(block)] * (owners[:, place] == i)[:, :, None]
            if k < len(block) or (np.linalg.svd(part, compute_uv=False)[:, -1] <= _RANK * largest).mean() > 0.5:
                lost += (i,)
        worst = float(leaks.max())
        status: Status = "fails" if lost or worst > _ENTANGLED else "holds" if worst <= rtol else "ambiguous"
        evidence = f"Up to {100 * worst:.3g} % of a code's motion comes from other factors."
        local = Finding(*_LOCAL, status, evidence=evidence, number=worst)
        factor_of = tuple(owner[place].tolist())
        total = moved.sum(0)
        shares = total / np.maximum(total.sum(1, keepdims=True), _TINY)
    needed = (local, *premises)
    if changes or local.status == "fails":  # refutes the conclusion of Theorem 1 directly
        evidence = f"Codes belong to other factors at {changes} points." if changes else "They are not at every point."
        everywhere = Finding(*_EVERYWHERE, "fails", evidence=evidence, premises=needed)
    else:
        open_premises = ", ".join(one.name for one in needed if one.status != "holds") or "none"
        everywhere = conclude(*_EVERYWHERE, needed, evidence=f"Open premises of Theorem 1: {open_premises}.")
    return Disentanglement(local, everywhere, leaks, factor_of, shares, changes, lost, misses, partition, notes=notes)


def _assign(together: Float) -> tuple[Array, Float]:
    """The factor that moves each block of codes most, at each point, (r, blocks), and the worst share of the others."""
    total = together.sum(2)  # (r, blocks)
    usual = np.argmax(together.sum(0), axis=1)
    still = total <= 1e-12 * np.maximum(total.mean(0), _TINY)  # a code that does not move keeps its usual factor
    owners = np.where(still, usual, together.argmax(2))
    share = np.where(still, 0.0, (total - together.max(2)) / np.where(still, 1.0, total))
    return owners, np.sqrt(np.maximum(share, 0.0)).max(axis=1)
