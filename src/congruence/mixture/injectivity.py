"""Injectivity of a decoder: F1 to F4 of the hierarchy for a torch module, each with its evidence.

F4: every output has one latent. F3: the same, except for outputs of measure 0. F2: the outputs in some open set have
one latent, and infinitely many only on a set of measure 0. For piecewise affine decoders F4 => F3 => F2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.decoder.regions import linear_pieces
from congruence.errors import InputError
from congruence.mixture.conditions import FAILS, HOLDS, UNKNOWN, Condition, Counterexample, judged
from congruence.mixture.layers import Block, Reading, judge_block, read_decoder
from congruence.mixture.overlaps import MOST_PIECES, Overlaps, overlaps
from congruence.mixture.rectifiers import RANK, LayerVerdict
from congruence.result import Status

MOST_UNITS, MOST_LATENTS = 16, 3  # of a network whose linear pieces are all enumerated
POINTS = 100  # at which the Jacobian is computed
ROWS = 600  # whose pairs are candidates for the search
FOLDS, ROUNDS = 12, 25  # pairs of the search, and its steps
FOUND = "A search found two latents with the same output"
SAME, APART = 1e-9, 1e-3  # relative to the scale of outputs and latents: equal outputs, distinct latents
GENERIC = (
    "Remark 3.5 states that such networks are generically observably injective under conditions on the architecture; "
    "these conditions are not checked here."
)


@dataclass(frozen=True, eq=False)
class DecoderConditions:
    """F1 to F4 for one decoder."""

    conditions: tuple[Condition, ...]  # F1, F2, F3, F4
    latents: int
    outputs: int
    layers: tuple[tuple[str, str, str], ...]  # name, status and reason for every block on its own

    def __getitem__(self, name: str) -> Condition:
        return next(condition for condition in self.conditions if condition.name == name)


def decoder_conditions(decoder: Any, latents: Any, *, seed: int = 0) -> DecoderConditions:
    """Test F1 to F4 for a decoder.

    Parameters
    ----------
    decoder : torch module
        The layers of a `Sequential` of known kinds are used; of others only outputs and Jacobians.
    latents : (n, m)
        Where counterexamples are searched: codes, or draws from the prior.
    seed : int
        Of the search.
    """
    z = np.asarray(to_numpy(latents), dtype=np.float64)
    if z.ndim != 2 or not z.size:
        raise InputError(f"latents must have shape (n, m), not {z.shape}")
    reading = read_decoder(decoder, z.shape[1], seed=seed)
    layers = tuple((block, judge_block(block, seed=seed)) for block in reading.blocks or ())
    found = _not_affine(reading, z, seed) or (
        _too_few_outputs(reading, z, seed)
        or _by_blocks(reading, layers)
        or _by_pieces(reading, seed)
        or _by_search(reading, layers, z, seed)
    )
    blocks = tuple((block.name, verdict.status, verdict.how) for block, verdict in layers)
    return DecoderConditions((reading.f1, *found), reading.latents, reading.outputs, blocks)


def _same(status: Status, evidence: str, *, exact: bool, pair: Counterexample | None = None) -> tuple[Condition, ...]:
    return tuple(judged(name, status, evidence, exact=exact, pair=pair) for name in ("F2", "F3", "F4"))


def _not_affine(reading: Reading, z: Float, seed: int) -> tuple[Condition, ...] | None:
    """Without linear pieces, only a search for two latents with one output remains."""
    if reading.f1.status != FAILS:
        return None
    pair = refute(reading, z, seed=seed)
    said = "The decoder is not piecewise affine, so the hierarchy does not apply to it."
    weak = (judged("F2", UNKNOWN, said), judged("F3", UNKNOWN, said))
    return (*weak, _strongest((), pair, "The decoder is not piecewise affine", FOUND))


def _too_few_outputs(reading: Reading, z: Float, seed: int) -> tuple[Condition, ...] | None:
    """Remark 3.6, also for inner layers: with fewer units than latents, some direction is lost everywhere."""
    m = reading.latents
    widths = [block.matrix.shape[1] for block in reading.blocks or () if block.matrix is not None]
    least = min([reading.outputs, *widths])
    if least >= m:
        return None
    where = "outputs" if reading.outputs == least else "units in one layer"
    said = f"There are {m} latents and {least} {where}, so every linear piece loses a direction (Remark 3.6)."
    return _same(FAILS, said, exact=reading.f1.status == HOLDS, pair=refute(reading, z, seed=seed))


def _by_blocks(reading: Reading, layers: tuple[tuple[Block, LayerVerdict], ...]) -> tuple[Condition, ...] | None:
    """A chain of injective blocks is injective."""
    if not layers or any(verdict.status != HOLDS for _, verdict in layers):
        return None
    how = "; ".join(f"{block.name}: {verdict.how}" for block, verdict in layers)
    return _same(HOLDS, f"Every layer is injective ({how}).", exact=True)


def _by_pieces(reading: Reading, seed: int) -> tuple[Condition, ...] | None:
    """All linear pieces of a small network."""
    if reading.blocks is None or reading.latents > MOST_LATENTS:
        return None
    folding = [block for block in reading.blocks if block.activation]
    if any(block.matrix is None or block.activation not in ("ReLU", "LeakyReLU") for block in folding):
        return None
    if sum(block.matrix.shape[1] for block in folding if block.matrix is not None) > MOST_UNITS:
        return None
    try:
        found = overlaps(linear_pieces(reading.module, latents=reading.latents), seed)
    except InputError:  # layers that cannot be cut into pieces
        return None
    return None if found.pieces > MOST_PIECES else _from_overlaps(found)


def _from_overlaps(found: Overlaps) -> tuple[Condition, ...]:
    pieces = f"The decoder has {found.pieces} linear pieces, {found.full} of full rank."
    results = {
        HOLDS: (
            "Part of the image of one is covered by no other.",
            "Their images overlap in no volume.",
            "No two latents have the same output.",
        ),
        FAILS: (
            "Every part of the image is covered twice or of lower rank.",
            "Their images overlap in volume.",
            "Two latents have the same output.",
        ),
        UNKNOWN: ("There are too many overlaps to resolve.",) * 3,
    }
    return tuple(
        judged(name, status, f"{pieces} {results[status][k]}", exact=status != UNKNOWN, pair=pair)
        for k, (name, status, pair) in enumerate(
            (("F2", found.f2, None), ("F3", found.f3, found.overlap), ("F4", found.f4, found.pair))
        )
    )


def _by_search(
    reading: Reading, layers: tuple[tuple[Block, LayerVerdict], ...], z: Float, seed: int
) -> tuple[Condition, ...]:
    """Evidence on a large network: its first layer, its Jacobian at points, and a search for equal outputs."""
    pair, how = _first_layer(reading, layers)
    local = _local(reading, z, seed)
    flat = [here for here in local if here.lost is not None]
    if pair is None:
        pair, how = refute(reading, z, local, seed=seed), FOUND
    if len(flat) == len(local):
        return _same(FAILS, f"The Jacobian loses rank at all {len(local)} latents examined.", exact=False, pair=pair)
    seen = f"The Jacobian loses rank at {len(flat)} of {len(local)} latents"
    return (*_weaker(reading, local, pair, seen, how), _strongest(layers, pair, seen, how))


def _strongest(
    layers: tuple[tuple[Block, LayerVerdict], ...], pair: Counterexample | None, seen: str, how: str
) -> Condition:
    """F4 of a large network that was not proved: refuted, or unknown."""
    if pair is not None:
        return judged("F4", FAILS, f"{how}; the latents are {pair.apart:.3g} apart.", exact=True, pair=pair)
    open_ = [f"{block.name}: {verdict.how}" for block, verdict in layers if verdict.status != HOLDS]
    why = f" Not every layer is injective on its own ({'; '.join(open_)})." if open_ else ""
    return judged("F4", UNKNOWN, f"{seen}, and a search from {FOLDS} pairs found no two with equal outputs.{why}")


def _weaker(
    reading: Reading, local: list[_Local], pair: Counterexample | None, seen: str, how: str
) -> tuple[Condition, Condition]:
    """F2 and F3 of a large network, from the linear pieces at points: do any two lie in one affine space?"""
    if pair is not None and _overlap_in_volume(reading, pair):
        said = f"{how}, {pair.apart:.3g} apart, around which the images overlap in volume."
        unknown = f"{seen}; whether some outputs have a single latent is unknown."
        return judged("F2", UNKNOWN, unknown), judged("F3", FAILS, said, pair=pair)
    pieces, shared = _shared_spaces(local)
    if reading.outputs > reading.latents and not shared:
        said = f"{seen}, and no two of the {pieces} linear pieces found lie in one affine space, so none overlap."
        return judged("F2", HOLDS, said), judged("F3", HOLDS, said)
    said = (
        f"{seen}. {shared} pairs of the {pieces} linear pieces found lie in one affine space and may overlap. {GENERIC}"
    )
    return judged("F2", UNKNOWN, said), judged("F3", UNKNOWN, said)


def _first_layer(reading: Reading, layers: tuple[tuple[Block, LayerVerdict], ...]) -> tuple[Counterexample | None, str]:
    """Two latents with the same output of the first layer, and so of the decoder."""
    if not layers or layers[0][1].pair is None:
        return None, ""
    pair = layers[0][1].pair
    gap = float(np.linalg.norm(np.diff(reading(np.vstack([pair.first, pair.second])), axis=0)))
    return replace(pair, gap=gap), "The first layer maps two latents to the same output"


@dataclass(frozen=True, eq=False)
class _Local:
    """The linear piece at one latent, seen through a random projection of outputs that keeps affine spaces apart."""

    point: Float  # (m,)
    lost: Float | None  # (m,), a direction that is lost
    matrix: Float  # (k, m)
    shift: Float  # (k,), so that the piece is z -> matrix @ z + shift


def _local(reading: Reading, z: Float, seed: int) -> list[_Local]:
    rng = np.random.default_rng(seed)
    m, n = reading.latents, reading.outputs
    project = np.eye(n) if n <= 4 * m + 4 else rng.normal(size=(4 * m + 4, n)) / np.sqrt(n)
    found = []
    for point in z[rng.permutation(len(z))[:POINTS]]:
        matrix = reading.jacobian(point)
        _, values, vt = np.linalg.svd(matrix, full_matrices=n < m)
        flat = len(values) < m or values[-1] <= RANK * max(values[0], np.finfo(float).tiny)
        seen = project @ matrix
        found.append(_Local(point, vt[-1] if flat else None, seen, project @ reading(point[None])[0] - seen @ point))
    return found


def _shared_spaces(local: list[_Local]) -> tuple[int, int]:
    """How many different pieces keep all directions, and how many pairs of them lie in one affine space."""
    kept: list[_Local] = []
    for here in local:
        known = any(np.allclose(here.matrix, other.matrix, rtol=1e-9, atol=1e-12) for other in kept)
        if here.lost is None and not known:
            kept.append(here)
    shared = 0
    for i, a in enumerate(kept):
        for b in kept[i + 1 :]:
            both = np.column_stack([a.matrix, b.matrix, a.shift - b.shift])
            values = np.linalg.svd(both, compute_uv=False)
            beyond = values[len(a.point) :]
            shared += not beyond.size or bool(beyond[0] <= SAME * values[0])
    return len(kept), shared


def refute(reading: Reading, z: Float, local: list[_Local] | None = None, *, seed: int = 0) -> Counterexample | None:
    """Search for two latents with one output, from the rows of z, (n, m); None proves nothing.

    First along null directions of the Jacobian; then from pairs of distant latents with close outputs, which are moved
    until the outputs agree.
    """
    size = float(np.linalg.norm(z.std(0))) or 1.0
    scale = float(np.linalg.norm(reading(z[:ROWS]).std(0))) or 1.0
    for here in _local(reading, z, seed) if local is None else local:
        for step in size * 10.0 ** -np.arange(1, 7) if here.lost is not None else ():
            pair = _pair(reading, here.point, here.point + step * here.lost)
            if pair.gap <= SAME * scale * min(1.0, step / size):
                return pair
    rows = z[np.random.default_rng(seed).permutation(len(z))[:ROWS]]
    for i, j in _near_in_outputs(rows, reading(rows), size):
        pair = _drawn_together(reading, rows[i], rows[j])
        if pair.gap <= SAME * scale and pair.apart > APART * size:
            return pair
    return None


def _pair(reading: Reading, x: Float, y: Float) -> Counterexample:
    gap = np.linalg.norm(np.diff(reading(np.vstack([x, y])), axis=0))
    return Counterexample(x, y, float(gap), float(np.linalg.norm(x - y)))


def _near_in_outputs(rows: Float, out: Float, size: float) -> list[tuple[int, int]]:
    """Pairs of rows whose outputs are nearest for how far the latents are apart, each row once."""
    from scipy.spatial.distance import cdist

    apart, gap = cdist(rows, rows), cdist(out, out)
    ratio = np.where(apart > 0.05 * size, gap / np.maximum(apart, np.finfo(float).tiny), np.inf)
    ratio[np.tril_indices(len(rows))] = np.inf
    chosen: list[tuple[int, int]] = []
    for flat in np.argsort(ratio, axis=None)[: 20 * FOLDS]:
        i, j = divmod(int(flat), len(rows))
        if np.isfinite(ratio[i, j]) and not any({i, j} & {*pair} for pair in chosen):
            chosen.append((i, j))
        if len(chosen) == FOLDS:
            break
    return chosen


def _drawn_together(reading: Reading, x: Float, y: Float) -> Counterexample:
    """Move two latents by the least that makes their outputs one, as the linear pieces they are on say."""
    m = len(x)
    best = _pair(reading, x, y)
    for _ in range(ROUNDS):
        both = np.hstack([reading.jacobian(x), -reading.jacobian(y)])
        apart = reading(x[None])[0] - reading(y[None])[0]
        step = np.linalg.lstsq(both, -apart, rcond=1e-10)[0]
        x, y = x + step[:m], y + step[m:]
        here = _pair(reading, x, y)
        if here.apart < best.apart / 4:  # they fall into one
            break
        if here.gap < best.gap:
            best = here
        if best.gap == 0:
            break
    return best


def _overlap_in_volume(reading: Reading, pair: Counterexample) -> bool:
    """Whether both linear pieces keep all directions and lie in one affine space."""
    a, b = reading.jacobian(pair.first), reading.jacobian(pair.second)
    ranks = [int(np.linalg.matrix_rank(matrix, rtol=1e-9)) for matrix in (a, b, np.hstack([a, b]))]
    return ranks == [len(pair.first)] * 3
