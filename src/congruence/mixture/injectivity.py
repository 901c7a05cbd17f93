"""Injectivity of a decoder: F1 to F4 of the hierarchy for a torch module, each with its evidence.

F4: every output has one latent. F3: the same, except for outputs of measure 0. F2: the outputs in some open set have
one latent, and infinitely many only on a set of measure 0. For piecewise affine decoders F4 => F3 => F2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.decoder.regions import linear_pieces
from congruence.errors import InputError
from congruence.mixture._blocks import PiecewiseDecoder, read_decoder
from congruence.mixture._overlaps import judge_pieces
from congruence.mixture.conditions import Counterexample, HierarchyCondition, make_condition
from congruence.mixture.relu_layers import RANK, LayerVerdict
from congruence.result import Status

_MOST_UNITS, _MOST_LATENTS = 16, 3  # of a network whose linear pieces are all enumerated
_MOST_PIECES = 60  # all pairs are compared
_POINTS = 100  # at which the Jacobian is computed
_ROWS = 600  # whose pairs are candidates for the search
_PAIRS, _ROUNDS = 12, 25  # pairs of the search, and its steps
_COLLISION = "A search found two latents with the same output"
_SAME, _APART = 1e-9, 1e-3  # relative to the scale of outputs and latents: equal outputs, distinct latents
_GENERIC = (
    "Remark 3.5 states that such networks are generically observably injective under conditions on the architecture; "
    "these conditions are not checked here."
)
_Conditions = tuple[HierarchyCondition, ...]
_Verdicts = list[tuple[str, LayerVerdict]]  # of every block, by name


@dataclass(frozen=True, eq=False)
class DecoderConditions:
    """F1 to F4 for one decoder."""

    conditions: _Conditions  # F1, F2, F3, F4
    latents: int
    outputs: int
    layers: tuple[tuple[str, str, str], ...]  # name, status and reason for every block by itself

    def __getitem__(self, name: str) -> HierarchyCondition:
        return next(condition for condition in self.conditions if condition.name == name)


def decoder_conditions(decoder: Any, latents: Any, *, seed: int = 0) -> DecoderConditions:
    """Test F1 to F4 for a decoder, a torch module.

    A `Sequential` of known layers is analysed layer by layer, other modules by their outputs and Jacobians.
    Counterexamples are searched at `latents` (n, m): codes, or draws from the prior.
    """
    z = np.asarray(to_numpy(latents), dtype=np.float64)
    if z.ndim != 2 or not z.size:
        raise InputError(f"latents must have shape (n, m); got {z.shape}")
    network = read_decoder(decoder, z.shape[1], seed=seed)
    verdicts = [(block.name, block.judge(seed)) for block in network.blocks or ()]
    widths = [block.matrix.shape[1] for block in network.blocks or () if block.matrix is not None]
    least, m = min([network.outputs, *widths]), network.latents
    conditions: _Conditions
    if network.f1.status == "fails":  # only a search for two latents with one output remains
        evidence = "The decoder is not piecewise affine, so the hierarchy does not apply to it."
        f4 = _judge_f4([], _refute(network, z, seed=seed), "The decoder is not piecewise affine", _COLLISION)
        conditions = make_condition("F2", "unknown", evidence), make_condition("F3", "unknown", evidence), f4
    elif least < m:  # Remark 3.6, also for inner layers
        where = "outputs" if network.outputs == least else "units in one layer"
        evidence = f"There are {m} latents and {least} {where}, so every linear piece loses a direction (Remark 3.6)."
        pair = _refute(network, z, seed=seed)
        conditions = _same("fails", evidence, exact=network.f1.status == "holds", pair=pair)
    elif verdicts and all(verdict.status == "holds" for _, verdict in verdicts):
        how = "; ".join(f"{name}: {verdict.how}" for name, verdict in verdicts)
        conditions = _same("holds", f"Every layer is injective ({how}).", exact=True)
    else:
        conditions = _judge_all_pieces(network, seed) or _judge_by_search(network, verdicts, z, seed)
    blocks = tuple((name, verdict.status, verdict.how) for name, verdict in verdicts)
    return DecoderConditions((network.f1, *conditions), network.latents, network.outputs, blocks)


def _same(status: Status, evidence: str, *, exact: bool, pair: Counterexample | None = None) -> _Conditions:
    return tuple(make_condition(name, status, evidence, exact=exact, pair=pair) for name in ("F2", "F3", "F4"))


def _judge_all_pieces(network: PiecewiseDecoder, seed: int) -> _Conditions | None:
    """All linear pieces of a small network."""
    folding = [block for block in network.blocks or () if block.activation]
    units = sum(_MOST_UNITS + 1 if block.matrix is None else block.matrix.shape[1] for block in folding)
    supported = all(block.activation in ("ReLU", "LeakyReLU") for block in folding)
    if network.blocks is None or not supported or network.latents > _MOST_LATENTS or units > _MOST_UNITS:
        return None
    try:
        pieces = linear_pieces(network.module, latents=network.latents)
    except InputError:  # layers that cannot be cut into pieces
        return None
    return judge_pieces(pieces, seed) if len(pieces) <= _MOST_PIECES else None


def _judge_by_search(network: PiecewiseDecoder, verdicts: _Verdicts, z: Float, seed: int) -> _Conditions:
    """Evidence on a large network: its first layer, its Jacobian at points, and a search for equal outputs."""
    pieces = _pieces_at_points(network, z, seed)
    flat = [piece for piece in pieces if piece.lost is not None]
    pair = verdicts[0][1].pair if verdicts else None
    if pair is not None:
        pair = _pair(network, pair.first, pair.second)
        how = "The first layer maps two latents to the same output"
    else:
        pair, how = _refute(network, z, pieces, seed=seed), _COLLISION
    if len(flat) == len(pieces):
        return _same("fails", f"The Jacobian loses rank at all {len(pieces)} latents examined.", exact=False, pair=pair)
    seen = f"The Jacobian loses rank at {len(flat)} of {len(pieces)} latents"
    f4 = _judge_f4(verdicts, pair, seen, how)
    if pair is not None and _overlap_in_volume(network, pair):
        unknown = f"{seen}; whether some outputs have a single latent is unknown."
        evidence = f"{how}, {pair.apart:.3g} apart, around which the images overlap in volume."
        return make_condition("F2", "unknown", unknown), make_condition("F3", "fails", evidence, pair=pair), f4
    distinct, shared = _count_shared_spaces(pieces)
    if network.outputs > network.latents and not shared:
        status: Status = "holds"
        evidence = f"{seen}, and no two of the {distinct} sampled pieces lie in one affine space, so none overlap."
    else:
        status = "unknown"
        evidence = (
            f"{seen}. {shared} pairs of the {distinct} sampled linear pieces lie in one affine space and may overlap. "
            f"{_GENERIC}"
        )
    return make_condition("F2", status, evidence), make_condition("F3", status, evidence), f4


def _judge_f4(verdicts: _Verdicts, pair: Counterexample | None, seen: str, how: str) -> HierarchyCondition:
    """F4 of a network without a proof: refuted, or unknown."""
    if pair is not None:
        evidence = f"{how}; the latents are {pair.apart:.3g} apart."
        return make_condition("F4", "fails", evidence, exact=True, pair=pair)
    undecided = [f"{name}: {verdict.how}" for name, verdict in verdicts if verdict.status != "holds"]
    why = f" Not every layer is injective by itself ({'; '.join(undecided)})." if undecided else ""
    evidence = f"{seen}, and a search from {_PAIRS} pairs of latents found no equal outputs.{why}"
    return make_condition("F4", "unknown", evidence)


@dataclass(frozen=True, eq=False)
class _LocalPiece:
    """The linear piece z -> matrix @ z + shift at one latent, after a random projection of the outputs.

    The projection keeps distinct affine spaces distinct.
    """

    point: Float  # (m,)
    lost: Float | None  # (m,), a direction that is lost
    matrix: Float  # (k, m)
    shift: Float  # (k,)


def _pieces_at_points(network: PiecewiseDecoder, z: Float, seed: int) -> list[_LocalPiece]:
    rng = np.random.default_rng(seed)
    m, n = network.latents, network.outputs
    project = np.eye(n) if n <= 4 * m + 4 else rng.normal(size=(4 * m + 4, n)) / np.sqrt(n)
    pieces = []
    for point in z[rng.permutation(len(z))[:_POINTS]]:
        jacobian = network.jacobian(point)
        _, values, vt = np.linalg.svd(jacobian, full_matrices=n < m)
        flat = len(values) < m or values[-1] <= RANK * max(values[0], np.finfo(float).tiny)
        matrix = project @ jacobian
        shift = project @ network(point[None])[0] - matrix @ point
        pieces.append(_LocalPiece(point, vt[-1] if flat else None, matrix, shift))
    return pieces


def _count_shared_spaces(pieces: list[_LocalPiece]) -> tuple[int, int]:
    """The number of distinct pieces of full rank, and of pairs of them that lie in one affine space."""
    distinct: list[_LocalPiece] = []
    for piece in pieces:
        known = any(np.allclose(piece.matrix, other.matrix, rtol=1e-9, atol=1e-12) for other in distinct)
        if piece.lost is None and not known:
            distinct.append(piece)
    shared = 0
    for i, a in enumerate(distinct):
        for b in distinct[i + 1 :]:
            both = np.column_stack([a.matrix, b.matrix, a.shift - b.shift])
            values = np.linalg.svd(both, compute_uv=False)
            beyond = values[len(a.point) :]
            shared += not beyond.size or bool(beyond[0] <= _SAME * values[0])
    return len(distinct), shared


def _refute(
    network: PiecewiseDecoder, z: Float, pieces: list[_LocalPiece] | None = None, *, seed: int
) -> Counterexample | None:
    """Search for two latents with one output, from the rows of z, (n, m); None proves nothing.

    First along null directions of the Jacobian; then from pairs of distant latents with close outputs, which are moved
    until the outputs agree.
    """
    size = float(np.linalg.norm(z.std(0))) or 1.0
    scale = float(np.linalg.norm(network(z[:_ROWS]).std(0))) or 1.0
    for piece in _pieces_at_points(network, z, seed) if pieces is None else pieces:
        for step in size * 10.0 ** -np.arange(1, 7) if piece.lost is not None else ():
            pair = _pair(network, piece.point, piece.point + step * piece.lost)
            if pair.gap <= _SAME * scale * min(1.0, step / size):
                return pair
    rows = z[np.random.default_rng(seed).permutation(len(z))[:_ROWS]]
    for i, j in _candidate_pairs(rows, network(rows), size):
        pair = _equalise_outputs(network, rows[i], rows[j])
        if pair.gap <= _SAME * scale and pair.apart > _APART * size:
            return pair
    return None


def _pair(network: PiecewiseDecoder, x: Float, y: Float) -> Counterexample:
    gap = np.linalg.norm(np.diff(network(np.vstack([x, y])), axis=0))
    return Counterexample(x, y, float(gap), float(np.linalg.norm(x - y)))


def _candidate_pairs(rows: Float, outputs: Float, size: float) -> list[tuple[int, int]]:
    """Pairs of rows with the smallest ratio of the distances of outputs and latents, each row once."""
    from scipy.spatial.distance import cdist

    apart, gap = cdist(rows, rows), cdist(outputs, outputs)
    ratio = np.where(apart > 0.05 * size, gap / np.maximum(apart, np.finfo(float).tiny), np.inf)
    ratio[np.tril_indices(len(rows))] = np.inf
    chosen: list[tuple[int, int]] = []
    for flat in np.argsort(ratio, axis=None)[: 20 * _PAIRS]:
        i, j = divmod(int(flat), len(rows))
        if np.isfinite(ratio[i, j]) and not any({i, j} & {*pair} for pair in chosen):
            chosen.append((i, j))
    return chosen[:_PAIRS]


def _equalise_outputs(network: PiecewiseDecoder, x: Float, y: Float) -> Counterexample:
    """Move two latents by the least amount that equalises their outputs on their linear pieces, repeatedly."""
    m = len(x)
    best = _pair(network, x, y)
    for _ in range(_ROUNDS):
        both = np.hstack([network.jacobian(x), -network.jacobian(y)])
        difference = network(x[None])[0] - network(y[None])[0]
        step = np.linalg.lstsq(both, -difference, rcond=1e-10)[0]
        x, y = x + step[:m], y + step[m:]
        pair = _pair(network, x, y)
        if pair.apart < best.apart / 4:  # they converge to one latent
            break
        if pair.gap < best.gap:
            best = pair
        if best.gap == 0:
            break
    return best


def _overlap_in_volume(network: PiecewiseDecoder, pair: Counterexample) -> bool:
    """Whether both linear pieces have full rank and lie in one affine space."""
    a, b = network.jacobian(pair.first), network.jacobian(pair.second)
    ranks = [int(np.linalg.matrix_rank(matrix, rtol=1e-9)) for matrix in (a, b, np.hstack([a, b]))]
    return ranks == [len(pair.first)] * 3
