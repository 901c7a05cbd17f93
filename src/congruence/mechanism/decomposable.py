"""Disentanglement: does each block of codes move with one true factor only, at points and over the domain?

With g the generator and g' the model's decoder, h = g'^-1 o g carries true factors to codes. The model is disentangled
where h is decomposable: every block of codes is a function of one factor (Matthes et al. 2026). At points that is the
block structure of the Jacobian of h; Theorem 1 carries it to the whole domain.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing, to_numpy
from congruence.decoder.probed import Probed
from congruence.errors import InputError
from congruence.mechanism.blocks import Blocks, block_of, read_blocks, write_blocks
from congruence.mechanism.derivatives import jacobians, opened
from congruence.mechanism.domains import LatentDomain
from congruence.mechanism.inversion import decoded, invert, spread_of
from congruence.mechanism.supports import supports
from congruence.result import Finding, Status, conclude

RTOL = 1e-3  # of the motion of a code: less than this from other factors counts as zero
PLAIN = 0.1  # of it: more than this is entangled
APART = 0.05  # of the spread of the outputs: a point that the model misses by more is left out
RANK = 1e-6  # of the largest singular value
STARTS = 3  # random ones, where no codes are given to start from
LOCAL = "disentangled", "The codes are disentangled at every point."
EVERYWHERE = "disentangled_domain", "The codes are disentangled over the domain."


@dataclass(frozen=True, eq=False)
class Disentanglement:
    """Whether codes are functions of one factor each, at points (`local`) and over the domain (`everywhere`)."""

    local: Finding
    everywhere: Finding  # the conclusion of Theorem 1, with its premises
    leaks: Float  # (r,) the share of a code's motion that comes from other factors than its own, of the worst code
    factor_of: tuple[int, ...]  # the factor each code belongs to, at most points
    shares: Float  # (codes, K) the share of each code's motion that comes from each factor, over all points
    changes: int  # points at which codes belong to other factors than at most points
    lost: tuple[int, ...]  # factors that the codes do not encode
    misses: Float  # (r,) how far the model's outputs are from the generator's, over their spread; NaN if not known
    blocks: Blocks
    assumed: tuple[str, ...] = ()  # premises that points cannot show
    sparse: float | None = None  # share of points where the model's Jacobian has no more non-zeros than the generator's
    notes: tuple[str, ...] = field(default=())

    @property
    def worst(self) -> float:
        """The largest leak over points; 0 is disentangled."""
        return float(self.leaks.max(initial=0.0))

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
        """What holds at the points, and what follows over the domain."""
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
        open_premises = [one for one in self.premises if one.status != "holds"]
        if {one.name for one in open_premises} <= set(self.assumed):
            return "By Theorem 1 this extends to the domain if the decoder is a covering map, which points cannot show."
        first = next(one for one in open_premises if one.name not in self.assumed)
        return f"Theorem 1 does not extend this to the domain. {first.evidence}"

    def to_dict(self) -> dict[str, Any]:
        """All numbers but those of single points."""
        known = self.misses[np.isfinite(self.misses)]
        return {
            "points": len(self.leaks),
            "leak": {"worst": self.worst, "mean": float(np.mean(self.leaks)) if len(self.leaks) else float("nan")},
            "factor_of": list(self.factor_of),
            "shares": self.shares.tolist(),
            "changes": self.changes,
            "lost": list(self.lost),
            "sparse": self.sparse,
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
    """Test whether a model's codes are functions of one true factor each, given the generator.

    Parameters
    ----------
    generator : torch module or function
        Maps true factors (rows, d) to observations.
    decoder : torch module or function, or None
        The model's own, from codes to observations. It need not be invertible: h is found point by point. None where
        `inverse` is given: then the codes are its outputs.
    z : (r, d)
        True factors at which to test.
    blocks : as in `read_blocks`
        Which of the d latents together are a factor; each for itself unless given.
    inverse : torch module or function, optional
        The model's encoder, from observations to codes. With a decoder, the search for codes starts from its outputs.
    codes : (r, k), optional
        The codes of the rows of z, if known.
    code_blocks : as in `read_blocks`, optional
        Codes that must stay together; each code may belong to any factor unless given.
    domain : LatentDomain, optional
        The domain of the true factors; the rows of z stand for it unless given.
    covering : bool
        Whether the decoder is known to be a covering map onto its image, such as an invertible flow.
    rtol : float
        The share of a code's motion that may come from other factors.
    """
    opened_generator = opened(generator, z, device)
    d = opened_generator.dimension
    partition = read_blocks(blocks, d)
    place = domain or LatentDomain.sample(z)
    if place.dimension != d:
        raise InputError(f"domain has {place.dimension} latents, but z has {d}")
    rows = to_numpy(opened_generator.z).astype(np.float64)
    slopes = jacobians(generator, z, device=device)  # (r, m, d)
    if decoder is None:
        if inverse is None:
            raise InputError("pass the model's decoder, or inverse=, its encoder")
        inner = jacobians(lambda s: inverse(generator(s)), z, device=device)  # (r, k, d)
        misses, sparse = np.full(len(rows), np.nan), None
    else:
        inner, misses, sparse = _through(opened_generator, decoder, rows, slopes, inverse, codes, device, seed)
    covers = _covering(covering, misses)
    premises = (place.simply_connected(), place.connected_slices(partition), _injective(slopes), covers)
    found = _judged(inner, misses, rows, partition, code_blocks, premises, rtol)
    assumed = () if covers.status == "holds" or _misses(misses) else (covers.name,)
    return replace(found, sparse=sparse, assumed=assumed)


def _through(
    generator: Probed, decoder: Any, rows: Float, slopes: Float, inverse: Any, codes: Any, device: str, seed: int
) -> tuple[Float, Float, float]:
    """The Jacobian of h at each point, (r, k, d), distances of the outputs, and how often the decoder is as sparse."""
    targets = decoded(generator, rows)
    starts = _starts(rows, targets, generator.output_shape, inverse, codes, device, seed)
    probed = opened(decoder, starts[0], device)
    if probed.outputs != targets.shape[1]:
        raise InputError(f"the decoder has {probed.outputs} outputs, but the generator has {targets.shape[1]}")
    if codes is None:
        found = invert(probed, targets, starts)
        reached, misses = found.codes, found.misses
    else:
        reached = starts[0]
        misses = np.linalg.norm(decoded(probed, reached) - targets, axis=1) / spread_of(targets)
    theirs = jacobians(decoder, reached, device=device)  # (r, m, k)
    fewer = supports(theirs).sum(axis=(1, 2)) <= supports(slopes).sum(axis=(1, 2))
    return np.linalg.pinv(theirs, rcond=RANK) @ slopes, misses, float(fewer.mean())


def _starts(
    rows: Float, targets: Float, shape: tuple[int, ...], inverse: Any, codes: Any, device: str, seed: int
) -> list[Float]:
    """Codes to start from: those given, the encoder's, or the factors themselves and permutations of their rows."""
    if codes is not None:
        given = to_numpy(codes).astype(np.float64)
        if given.ndim != 2 or len(given) != len(rows):
            raise InputError(f"codes must have a row for each of {len(rows)} rows of z, not shape {given.shape}")
        bad = np.flatnonzero(~np.isfinite(given).all(1))
        if bad.size:
            raise InputError(f"codes have NaN or infinite values (row {listing(bad)})")
        return [given]
    if inverse is not None:
        return [decoded(opened(inverse, targets.reshape(len(rows), *shape), device), targets)]
    rng = np.random.default_rng(seed)
    return [rows, *(rows[rng.permutation(len(rows))] for _ in range(STARTS))]


def _injective(slopes: Float) -> Finding:
    """A derivative of full rank makes g injective near that point; nothing is known between points."""
    name, claim = "injective", "The generator is locally injective."
    values = np.linalg.svd(slopes, compute_uv=False)
    d = slopes.shape[2]
    full = (values[:, -1] > RANK * values[:, 0]) & (slopes.shape[1] >= d)
    if full.all():
        evidence = f"Its derivative has rank {d} at all {len(slopes)} points."
        return Finding(name, claim, "holds", evidence=evidence)
    lost = int((~full).sum())
    evidence = f"Its derivative loses a direction at {lost} of {len(slopes)} points."
    return Finding(name, claim, "unknown", evidence=evidence)


def _covering(known: bool, misses: Float) -> Finding:
    name, claim = "covering", "The decoder is a covering map onto its image."
    if known:
        return Finding(name, claim, "holds", "certified", "It was given as a covering map (covering=True).")
    if _misses(misses):
        return Finding(name, claim, "unknown", evidence="It misses some outputs of the generator.")
    evidence = "It is assumed: points cannot show it. Invertible networks are covering maps (covering=True)."
    return Finding(name, claim, "unknown", evidence=evidence)


def _misses(misses: Float) -> bool:
    """Whether the model misses some outputs of the generator; NaN is not known."""
    return bool((misses > APART).any())


def _judged(
    inner: Float,
    misses: Float,
    rows: Float,
    partition: Blocks,
    code_blocks: Any,
    premises: tuple[Finding, ...],
    rtol: float,
) -> Disentanglement:
    """Read the block structure off the Jacobians of h, (r, k, d)."""
    seen = ~(misses > APART)  # NaN counts as met
    missed = int((~seen).sum())
    notes = (f"The model misses {missed} of {len(seen)} points, which are left out.",) if missed else ()
    codes = read_blocks(code_blocks, inner.shape[1])
    if not seen.any():
        none = (0,) * inner.shape[1]
        shares = np.full((inner.shape[1], len(partition)), np.nan)
        evidence = f"The model misses all {missed} points."
        local = Finding(*LOCAL, "unknown", evidence=evidence)
        everywhere = _everywhere(local, 0, premises)
        return Disentanglement(local, everywhere, np.zeros(0), none, shares, 0, (), misses, partition, notes=notes)
    moved = _moved(inner[seen], rows, partition)
    owners, leaks = _owners(np.stack([moved[:, list(block)].sum(1) for block in codes], axis=1))
    owner = np.array(Counter(map(tuple, owners.tolist())).most_common(1)[0][0])
    changes = int((owners != owner).any(axis=1).sum())
    place = block_of(codes)
    lost = _lost(inner[seen], owners[:, place], partition)
    worst = float(leaks.max())
    status: Status = "fails" if lost or worst > PLAIN else "holds" if worst <= rtol else "ambiguous"
    evidence = f"At most {100 * worst:.3g} % of a code's motion comes from factors that are not its own."
    local = Finding(*LOCAL, status, evidence=evidence, number=worst)
    total = moved.sum(0)
    return Disentanglement(
        local=local,
        everywhere=_everywhere(local, changes, premises),
        leaks=leaks,
        factor_of=tuple(map(int, owner[place])),
        shares=total / np.maximum(total.sum(1, keepdims=True), np.finfo(float).tiny),
        changes=changes,
        lost=lost,
        misses=misses,
        blocks=partition,
        notes=notes,
    )


def _moved(inner: Float, rows: Float, partition: Blocks) -> Float:
    """How far each code moves with each factor, squared, (r, k, K), all in units of how much they vary."""
    spread = rows.std(0)
    square = np.square(inner * np.where(spread > 0, spread, 1.0))
    moved = np.stack([square[:, :, list(block)].sum(2) for block in partition], axis=2)
    moved /= np.maximum(moved.sum(2).mean(0), np.finfo(float).tiny)[:, None]
    return moved


def _owners(together: Float) -> tuple[Array, Float]:
    """The factor that moves each block of codes most, at each point, (r, blocks), and the worst share of the others."""
    total = together.sum(2)  # (r, blocks)
    usual = np.argmax(together.sum(0), axis=1)
    still = total <= 1e-12 * np.maximum(
        total.mean(0), np.finfo(float).tiny
    )  # a code that does not move belongs to its usual factor
    owners = np.where(still, usual, together.argmax(2))
    others = total - together.max(2)
    share = np.where(still, 0.0, others / np.where(still, 1.0, total))
    return owners, np.sqrt(np.maximum(share, 0.0)).max(axis=1)


def _lost(inner: Float, owners: Array, partition: Blocks) -> tuple[int, ...]:
    """Factors of which the codes that belong to them lose a direction at most points."""
    lost = []
    largest = np.linalg.norm(inner, axis=(1, 2))
    for k, block in enumerate(partition):
        own = inner[:, :, list(block)] * (owners == k)[:, :, None]  # (r, codes, latents of the factor)
        if own.shape[1] < len(block):
            lost.append(k)
            continue
        values = np.linalg.svd(own, compute_uv=False)[:, -1]
        if (values <= RANK * np.maximum(largest, np.finfo(float).tiny)).mean() > 0.5:
            lost.append(k)
    return tuple(lost)


def _everywhere(local: Finding, changes: int, premises: tuple[Finding, ...]) -> Finding:
    """The conclusion of Theorem 1; codes that are entangled at a point, or change factors, refute it directly."""
    needed = (local, *premises)
    if changes:
        evidence = f"Codes belong to other factors at {changes} points."
        return Finding(*EVERYWHERE, "fails", evidence=evidence, premises=needed)
    if local.status == "fails":
        return Finding(*EVERYWHERE, "fails", evidence="They are not at every point.", premises=needed)
    open_premises = ", ".join(one.name for one in needed if one.status != "holds")
    evidence = f"Premises of Theorem 1 that are not shown: {open_premises or 'none'}."
    return conclude(*EVERYWHERE, needed, evidence=evidence)
