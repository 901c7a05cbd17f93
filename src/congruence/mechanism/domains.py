"""The domain of the latents (a box, a union of boxes, or a sample), and the premises of Theorem 1 about it.

Results for boxes are `certified`, results for a sample are `supported`, and undecided ones are `unknown`. Heuristics
judge whether a sample is connected, has no holes and has connected slices; they certify nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.formatting import count
from congruence.mechanism._blocks import Blocks, connected_blocks, read_blocks
from congruence.result import Basis, Finding, Status

_CELLS = 100_000  # values of a factor at which slices are examined
_ROWS = 1000  # of a sample that are examined
_FEWEST = 30  # rows of a sample or a slice
_FAR = 3.0  # times the longest of the other steps between neighbours: a gap
_SHARE = 0.05  # of the rows: beyond a gap this is a piece and not some outliers
_PAIRS = 2000  # of rows whose midpoint is examined
_SLICES = 12  # values at which each factor is fixed
_BAND = 0.1  # of the rows: those nearest to the value are the slice
_SIMPLE = "simply_connected", "The latents fill a simply connected set."
_CONNECTED_SLICES = "connected_slices", "The set that remains when one factor is fixed is connected."


@dataclass(frozen=True, eq=False)
class LatentDomain:
    """The set of possible latents; create it with `box`, `boxes` or `sample`."""

    kind: str  # "box", "boxes" or "sample"
    low: Float  # (b, d) corners of closed boxes; of a sample, those of the box around it
    high: Float
    rows: Float | None = None  # (n, d), of a sample

    @classmethod
    def box(cls, low: Any, high: Any) -> LatentDomain:
        """Create the box from corner `low` to corner `high`, (d,) each; infinite ends are allowed."""
        return cls.boxes([(low, high)])

    @classmethod
    def boxes(cls, corners: Any) -> LatentDomain:
        """Create the union of closed boxes from pairs of corners (low, high), (d,) each; touching boxes connect."""
        try:
            pairs = [(np.atleast_1d(to_numpy(a)), np.atleast_1d(to_numpy(b))) for a, b in corners]
            low, high = (np.stack(side).astype(np.float64) for side in zip(*pairs, strict=True))
        except (TypeError, ValueError) as error:
            message = "corners must be pairs (low, high), all with the same number of latents"
            raise InputError(f"{message}; got {corners!r}") from error
        if low.ndim != 2 or low.shape != high.shape:
            raise InputError(f"corners must be two rows of d numbers each; got shapes {low.shape} and {high.shape}")
        if np.isnan(low).any() or np.isnan(high).any():
            raise InputError("corners must be numbers; got NaN (for a box without an end, use infinity)")
        flat = np.argwhere(~(low < high))
        if len(flat):
            k, a = flat[0]
            raise InputError(f"box {k} must have low < high, but latent {a} has {low[k, a]:g} and {high[k, a]:g}")
        return cls("box" if len(low) == 1 else "boxes", low, high)

    @classmethod
    def sample(cls, z: Any) -> LatentDomain:
        """Create a domain from rows of latents (n, d), a sample of an unknown set."""
        rows = to_numpy(as_matrix(z, "z")).astype(np.float64)
        return cls("sample", rows.min(0)[None], rows.max(0)[None], rows)

    @property
    def dimension(self) -> int:
        """The number of latents."""
        return int(self.low.shape[1])

    def contains(self, z: Any) -> Array:
        """Return which rows of z, (n, d), lie in the domain, (n,); for a sample: in the box around it."""
        rows = to_numpy(z)[:, None, :]
        inside = np.all((rows >= self.low) & (rows <= self.high), axis=2)  # (n, boxes)
        return np.asarray(np.any(inside, axis=1))

    def simply_connected(self) -> Finding:
        """Judge whether the domain is connected and every loop in it can be contracted."""
        if self.kind == "box":
            return _finding(_SIMPLE, "holds", "A box is convex.")
        if self.rows is not None:
            return _judge_sample(_thin(self.rows))
        touching = _touching(self.low, self.high)
        pieces = len(connected_blocks(touching))
        if pieces > 1:
            return _finding(_SIMPLE, "fails", f"The boxes form {pieces} separate pieces.")
        loops = count_loops(touching)
        if loops is None:
            return _finding(_SIMPLE, "unknown", "The loops of this union of boxes could not be decided.")
        if loops:
            return _finding(_SIMPLE, "fails", f"{count(loops, 'loop')} around a hole cannot be contracted.")
        return _finding(_SIMPLE, "holds", "Every loop through the boxes can be contracted.")

    def connected_slices(self, blocks: Any) -> Finding:
        """Judge whether the set that remains when the value of any one factor is fixed is connected.

        This is our interpretation of the paper's (K-1)-slices: one factor is fixed, the other K - 1 vary.
        """
        partition = read_blocks(blocks, self.dimension)
        if self.kind == "box":
            return _finding(_CONNECTED_SLICES, "holds", "Slices of a box are boxes.")
        if len(partition) == 1:
            return _finding(_CONNECTED_SLICES, "holds", "There is only one factor; a point remains.")
        if self.rows is not None:
            return _judge_sample_slices(self.rows, partition)
        for block in partition:
            rest = [a for a in range(self.dimension) if a not in block]
            touching = _touching(self.low[:, rest], self.high[:, rest])
            low, high = self.low[:, list(block)], self.high[:, list(block)]
            values = [_places(low[:, a], high[:, a]) for a in range(len(block))]
            if np.prod([float(len(one)) for one in values]) > _CELLS:
                reason = f"Latents {', '.join(map(str, block))} have too many different values to examine every slice."
                return _finding(_CONNECTED_SLICES, "unknown", reason)
            for at in product(*values):
                there = ((low <= at) & (np.array(at) <= high)).all(axis=1)
                pieces = len(connected_blocks(touching[np.ix_(there, there)])) if there.any() else 0
                if pieces > 1:
                    where = ", ".join(f"z{a} = {value:.4g}" for a, value in zip(block, at, strict=True))
                    return _finding(_CONNECTED_SLICES, "fails", f"With {where} fixed, {pieces} pieces remain.")
        return _finding(_CONNECTED_SLICES, "holds", "Every slice of the boxes is connected.")


def _finding(about: tuple[str, str], status: Status, evidence: str, basis: Basis = "certified") -> Finding:
    """A premise by its name and claim; `basis` is that of a premise that holds."""
    return Finding(*about, status, basis if status == "holds" else None, evidence)


def _touching(low: Float, high: Float) -> Array:
    """Which closed boxes (b, d) have a point in common."""
    return np.asarray(np.all((low[:, None] <= high[None]) & (low[None] <= high[:, None]), axis=2))


def _places(low: Float, high: Float) -> list[float]:
    """A value at each end of the intervals and one between any two neighbouring ends: all slices there are."""
    ends = np.unique(np.concatenate([low, high]))
    finite = ends[np.isfinite(ends)]
    if not len(finite):
        return [0.0]
    between = (finite[1:] + finite[:-1]) / 2
    beyond = [finite[0] - 1.0] * bool(np.isneginf(ends[0])) + [finite[-1] + 1.0] * bool(np.isposinf(ends[-1]))
    return [float(value) for value in np.sort(np.concatenate([finite, between, beyond]))]


def count_loops(touching: Array) -> int | None:
    """Count independent loops that cannot be contracted in a connected union of boxes; `touching` is (b, b).

    Boxes that meet pairwise meet all together, so the union can be contracted to the complex of all cliques of the
    graph of touching boxes (nerve theorem). Its loops are words in the edges outside a spanning tree, with a relation
    for each triangle. 0 is certainly simply connected: triangles removed all edges. More than 0 counts loops modulo 2
    (first homology), so the set is certainly not simply connected. None: undecided.
    """
    reached, tree, stack = {0}, set(), [0]
    while stack:
        here = stack.pop()
        for there in np.flatnonzero(touching[here]).tolist():
            if there not in reached:
                reached.add(there)
                tree.add((min(here, there), max(here, there)))
                stack.append(there)
    upper = np.triu(touching, 1)
    outside = [(i, j) for i, j in np.argwhere(upper).tolist() if (i, j) not in tree]
    edges = dict.fromkeys(tree, 0) | {edge: number for number, edge in enumerate(outside, start=1)}
    relations = [  # the way around each triangle i < j < k; a negative number is an edge passed backwards
        (edges[i, j], edges[j, k], -edges[i, k])
        for i, j in zip(*map(np.ndarray.tolist, np.nonzero(upper)), strict=True)
        for k in np.flatnonzero(upper[i] & upper[j]).tolist()
    ]
    if _removes_all(len(outside), relations):
        return 0
    basis: dict[int, int] = {}  # of the relations modulo 2, by the highest bit
    for relation in relations:
        row = 0
        for edge in map(abs, relation):
            row ^= (1 << edge) if edge else 0
        while row and row.bit_length() in basis:
            row ^= basis[row.bit_length()]
        if row:
            basis[row.bit_length()] = row
    return len(outside) - len(basis) or None


def _removes_all(number: int, relations: list[tuple[int, int, int]]) -> bool:
    """Whether relations of one letter (it is trivial) and of two (one is the other) make every edge trivial."""
    same = list(range(number + 1))  # edge -> the signed edge it equals

    def root(letter: int) -> int:
        while same[abs(letter)] != abs(letter):
            letter = same[abs(letter)] * (1 if letter > 0 else -1)
        return letter

    changed = True
    while changed:
        changed = False
        for relation in relations:
            word: list[int] = []
            for letter in map(root, relation):  # an edge followed by itself backwards cancels
                if word and word[-1] == -letter:
                    word.pop()
                elif letter:
                    word.append(letter)
            if len(word) > 1 and word[0] == -word[-1]:  # the word is a loop: its ends meet
                word = word[1:-1]
            if len(word) == 1:
                same[abs(word[0])] = 0
                changed = True
            elif len(word) == 2 and abs(word[0]) != abs(word[1]):  # a b = 1, so b is a backwards
                same[abs(word[1])] = -word[0] if word[1] > 0 else word[0]
                changed = True
    return all(root(edge) == 0 for edge in range(number + 1))


def _judge_sample(z: Float) -> Finding:
    """Whether thinned rows (n, d) are connected and midpoints of two rows are close to rows.

    A set that contains the midpoints of its points is convex, and so without loops.
    """
    from scipy.spatial import cKDTree

    if len(z) < _FEWEST:
        return _finding(_SIMPLE, "unknown", f"{len(z)} rows are too few to judge by.")
    gap = _find_gap(z)
    if gap is not None:
        pieces = f"two pieces of {gap[0]} and {gap[1]} rows, {gap[2]:.1f} times as far apart as neighbours"
        return _finding(_SIMPLE, "fails", f"The rows form {pieces}.")
    tree = cKDTree(z)
    gaps = tree.query(z, k=2)[0][:, 1]
    pairs = np.random.default_rng(0).integers(0, len(z), size=(_PAIRS, 2))
    away = tree.query(z[pairs].mean(1))[0]
    holes = float((away > 2 * np.quantile(gaps, 0.99)).mean())
    text = f"{100 * holes:.1f} % of the midpoints of two rows lie in holes"
    if holes > _SHARE:
        return _finding(_SIMPLE, "unknown", f"{text}; rows do not decide whether a loop surrounds a hole.")
    return _finding(_SIMPLE, "holds", f"{text}, as in a convex set.", "supported")


def _judge_sample_slices(rows: Float, partition: Blocks) -> Finding:
    """Whether rows with nearly the same value of one factor are connected, for several values of each factor."""
    z = standardise(rows)
    examined = 0
    for block in partition:
        inside, outside = list(block), [a for a in range(z.shape[1]) if a not in block]
        for k in _spread_rows(z[:, inside]):
            near = np.argsort(np.linalg.norm(z[:, inside] - z[k, inside], axis=1), kind="stable")
            near = near[: int(_BAND * len(z))]
            if len(near) < _FEWEST:
                reason = f"{len(rows)} rows leave {len(near)} for a slice, which are too few to judge by."
                return _finding(_CONNECTED_SLICES, "unknown", reason)
            examined += 1
            gap = _find_gap(_thin(z[near][:, outside]))
            if gap is not None:
                where = ", ".join(f"z{a}" for a in block) + " near " + ", ".join(f"{v:.3g}" for v in rows[k, inside])
                reason = f"Rows with {where} form two pieces of {gap[0]} and {gap[1]} rows."
                return _finding(_CONNECTED_SLICES, "fails", reason)
    reason = f"All {examined} slices examined are connected."
    return _finding(_CONNECTED_SLICES, "holds", reason, "supported")


def _spread_rows(z: Float) -> list[int]:
    """Rows spread over the values that a factor takes, each the farthest from those before."""
    chosen = [int(np.argmin(np.linalg.norm(z - np.median(z, axis=0), axis=1)))]
    from_middle = np.linalg.norm(z - z[chosen[0]], axis=1)
    inner = from_middle <= np.quantile(from_middle, 1 - _SHARE)  # outliers are no slices
    away = from_middle
    while len(chosen) < _SLICES:
        chosen.append(int(np.argmax(np.where(inner, away, -1.0))))
        away = np.minimum(away, np.linalg.norm(z - z[chosen[-1]], axis=1))
    return chosen


def _find_gap(z: Float) -> tuple[int, int, float] | None:
    """The rows on either side of a step far longer than the others of the shortest tree, and how much longer."""
    from scipy.cluster.hierarchy import fcluster, linkage

    tree: Any = linkage(z, method="single")
    steps = tree[:, 2]
    typical = float(np.quantile(steps, 0.95))
    for step in np.flatnonzero(steps > _FAR * typical)[::-1]:
        label = fcluster(tree, t=(steps[step] + steps[step - 1]) / 2, criterion="distance")
        sizes = np.sort(np.bincount(label)[1:])[::-1]
        if len(sizes) > 1 and sizes[1] >= _SHARE * len(z):
            return int(sizes[0]), int(sizes[1]), float(steps[step] / max(typical, np.finfo(float).tiny))
    return None


def _thin(rows: Float) -> Float:
    """At most `_ROWS` different rows, always the same ones, standardised; copies would count as neighbours."""
    different = np.unique(rows, axis=0)
    return standardise(different[np.random.default_rng(0).permutation(len(different))[:_ROWS]])


def standardise(rows: Float) -> Float:
    """Scale columns to mean 0 and standard deviation 1; constant columns become 0."""
    spread = rows.std(0)
    return np.asarray((rows - rows.mean(0)) / np.where(spread > 0, spread, 1.0))
