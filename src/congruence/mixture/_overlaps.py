"""Overlaps of the images of the linear pieces of a network: exact answers on F2, F3 and F4 for small networks.

A ReLU network is affine on each of finitely many polytopes. It is injective (F4) if every piece has full rank and no
two images meet except along shared faces; observably injective (F3) if the images of full-rank pieces overlap in no
volume; weakly injective (F2) if part of the image of some piece is covered by no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from congruence.arrays import Float
from congruence.decoder.regions import Piece, largest_ball
from congruence.mixture.conditions import Counterexample, HierarchyCondition, make_condition
from congruence.mixture.relu_layers import RANK
from congruence.result import Status

_INSIDE = 1e-7  # radius of a ball that counts as volume
_APART = 1e-6  # latents closer than this are one
_MEET = 1e-4  # relative to the stretch of the pieces: outputs closer than this are equal, the rest is rounding
_MOST_CUTS = 2000  # parts of a piece that are examined for one that no other piece covers
_EVIDENCE: dict[str, tuple[str, str, str]] = {  # on F2, F3 and F4
    "holds": (
        "Part of the image of one is covered by no other.",
        "Their images overlap in no volume.",
        "No two latents have the same output.",
    ),
    "fails": (
        "Every part of the image is covered twice or of lower rank.",
        "Their images overlap in volume.",
        "Two latents have the same output.",
    ),
    "unknown": ("There are too many overlaps to resolve.",) * 3,
}
_Region = tuple[Float, Float]  # normals (k, m) and limits (k,): latents with normals @ z <= limits
_Covers = dict[tuple[int, int], _Region]


def judge_pieces(pieces: Sequence[Piece], seed: int = 0) -> tuple[HierarchyCondition, ...]:
    """Decide F2, F3 and F4 from all linear pieces of a network."""
    full = [piece for piece in pieces if _has_full_rank(piece.matrix)]
    overlap = pair = None
    f2: Status = "fails"
    f3: Status = "fails"
    if full:
        covers = _covers(full)
        overlap = next(_overlaps(full, covers), None)
        f3 = "holds" if overlap is None else "fails"
        cuts = [_MOST_CUTS]
        for i, piece in enumerate(full):  # around some latent, every output has one latent
            others = [region for (first, _), region in covers.items() if first == i]
            if _is_uncovered(piece.normals, piece.limits, others, cuts):
                f2 = "holds"
            elif cuts[0] <= 0:
                f2 = "unknown"
            if f2 != "fails":
                break
    lost = next((piece for piece in pieces if not _has_full_rank(piece.matrix)), None)
    if lost is not None:  # two latents with the same output, along the direction that it loses
        centre, radius = largest_ball(*_in_units(lost.normals, lost.limits))
        pair = _pair(lost, centre, lost, centre + 0.9 * radius * np.linalg.svd(lost.matrix)[0][:, -1])
    pair = pair or overlap or _find_collision(full, np.random.default_rng(seed))
    f4: Status = "holds" if pair is None else "fails"
    about = f"The decoder has {len(pieces)} linear pieces, {len(full)} of full rank."
    return tuple(
        make_condition(name, status, f"{about} {_EVIDENCE[status][k]}", exact=status != "unknown", pair=example)
        for k, (name, status, example) in enumerate((("F2", f2, None), ("F3", f3, overlap), ("F4", f4, pair)))
    )


def _has_full_rank(matrix: Float) -> bool:
    """Whether a piece z -> z @ matrix, (m, n), is injective."""
    if matrix.shape[1] < matrix.shape[0]:
        return False
    values = np.linalg.svd(matrix, compute_uv=False)
    return bool(values[-1] > RANK * values[0])


def _in_units(normals: Float, limits: Float) -> _Region:
    """The same region with normals of length 1, since linear programmes have an absolute tolerance."""
    lengths = np.linalg.norm(normals, axis=1)
    lengths = np.where(lengths > 0, lengths, 1.0)
    return normals / lengths[:, None], limits / lengths


def _pair(a: Piece, x: Float, b: Piece, y: Float) -> Counterexample:
    gap = np.linalg.norm(x @ a.matrix + a.shift - y @ b.matrix - b.shift)
    return Counterexample(x, y, float(gap), float(np.linalg.norm(x - y)))


def _covers(full: Sequence[Piece]) -> _Covers:
    """For pieces i, j with images in one affine space: the latents of piece i whose outputs the image of j covers."""
    covers = {}
    for i, a in enumerate(full):
        for j, b in enumerate(full):
            if i == j:
                continue
            inverse = np.linalg.pinv(b.matrix)
            # z' = (z @ A + a - b) @ B^+ has the same output only if A and a - b lie in the row space of B
            offset = a.shift - b.shift
            matrix, shift = a.matrix @ inverse, offset @ inverse
            size = np.abs(a.matrix).max() + np.abs(b.matrix).max()
            same = np.abs(matrix @ b.matrix - a.matrix).max() <= 1e-9 * size
            if same and np.abs(shift @ b.matrix - offset).max() <= 1e-9 * (size + np.abs(offset).max()):
                covers[i, j] = (b.normals @ matrix.T, b.limits - b.normals @ shift)
    return covers


def _overlaps(full: Sequence[Piece], covers: _Covers) -> Iterator[Counterexample]:
    """Pairs of latents of two pieces around which the images overlap in volume."""
    for (i, j), (normals, limits) in covers.items():
        if i < j:
            a, b = full[i], full[j]
            region = _in_units(np.vstack([a.normals, normals]), np.append(a.limits, limits))
            centre, radius = largest_ball(*region)
            if radius > _INSIDE:
                yield _pair(a, centre, b, (centre @ a.matrix + a.shift - b.shift) @ np.linalg.pinv(b.matrix))


def _find_collision(full: Sequence[Piece], rng: np.random.Generator) -> Counterexample | None:
    """Find two latents of different pieces with one output, by linear programmes over both.

    The difference of the two latents is maximised along one random direction and its opposite. If both maxima are 0,
    the difference is 0 for all latents, except for a set of directions of measure 0.
    """
    from scipy.optimize import linprog

    for i, a in enumerate(full):
        m = len(a.matrix)
        for b in full[i + 1 :]:
            size = max(np.abs(a.matrix).max(), np.abs(b.matrix).max())
            equal = np.hstack([a.matrix.T, -b.matrix.T]) / size  # (n, 2 m)
            gap = (b.shift - a.shift) / size
            solved = np.linalg.lstsq(equal, gap, rcond=None)[0]
            if np.abs(equal @ solved - gap).max() > 1e-9 * (np.abs(gap).max() + np.abs(equal).max()):
                continue
            (here, ends), (there, others) = _in_units(a.normals, a.limits), _in_units(b.normals, b.limits)
            limits = np.block([[here, np.zeros((len(here), m))], [np.zeros((len(there), m)), there]])
            least = min(np.linalg.svd(one.matrix, compute_uv=False)[-1] for one in (a, b))
            push = rng.normal(size=m)
            for sign in (1.0, -1.0):
                solution = linprog(
                    np.concatenate([sign * push, -sign * push]),
                    A_ub=limits,
                    b_ub=np.append(ends, others),
                    A_eq=equal,
                    b_eq=gap,
                    bounds=(-1e3, 1e3),
                    method="highs",
                )
                if solution.status != 0:
                    continue
                pair = _pair(a, solution.x[:m], b, solution.x[m:])
                if pair.apart > _APART and pair.gap <= _MEET * least * pair.apart:
                    return pair
    return None


def _is_uncovered(normals: Float, limits: Float, others: Sequence[_Region], cuts: list[int]) -> bool:
    """Whether part of a polytope lies in none of the others, which are subtracted one by one."""
    cuts[0] -= 1
    if largest_ball(*_in_units(normals, limits))[1] <= _INSIDE or cuts[0] <= 0:
        return False
    if not others:
        return True
    for normal, limit in zip(*others[0], strict=True):  # beyond one side of the first, within all sides before
        if _is_uncovered(np.vstack([normals, -normal]), np.append(limits, -limit), others[1:], cuts):
            return True
        normals, limits = np.vstack([normals, normal]), np.append(limits, limit)
    return False
