"""The finest Type-D parts at a point, in any basis: from the hat matrix of the Jacobian, whose rows are the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.mechanism.graphs import as_stack, grouped
from congruence.mechanism.splitting import Splitting, split
from congruence.mechanism.supports import RTOL

RANK = 1e-8  # of the largest singular value, after columns were brought to length 1
SMALLEST = 0.5  # of a dimension: outputs that together hold less are too faint for the tolerance


@dataclass(frozen=True, eq=False)
class HatTree:
    """The hat matrix of a Jacobian, as the strongest tree of links between outputs: every tolerance can be read off it.

    P = J J^+ depends on the column space of J alone, so that no change of latents alters it.
    """

    jacobian: Float  # (m, d)
    lengths: Float  # (d,) of its columns; 1 for those that are 0
    rows: Float  # (m, k) whitened: P is rows @ rows.T
    back: Float  # (d, k): whitened directions as directions of the latents
    idle: Float  # (d, d - k): what no output notices
    ends: Array  # (links, 2) outputs
    weights: Float  # (links,)

    def components(self, rtol: float) -> tuple[Array, ...]:
        """The outputs of each component when links up to `rtol` are cut; faint ones are left out."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        kept = self.ends[self.weights > rtol].T
        m = len(self.rows)
        _, label = connected_components(coo_array((np.ones(kept.shape[1]), tuple(kept)), shape=(m, m)), directed=False)
        held = np.bincount(label, weights=np.square(self.rows).sum(1))  # the trace of P: dimensions
        label = np.where(held[label] < SMALLEST, -1, label)
        return tuple(np.array(part) for part in grouped(label))

    def dims(self, rtol: float) -> tuple[int, ...]:
        """Dimensions of the parts at a tolerance, from the smallest."""
        held = (float(np.square(self.rows[part]).sum()) for part in self.components(rtol))
        return tuple(sorted(round(one) for one in held))

    def splitting(self, rtol: float) -> Splitting:
        """The parts at a tolerance: directions that move the outputs of one component and no others."""
        found = self.components(rtol)
        spans = [self.rows[part].T @ self.rows[part] for part in found]  # (k, k), projections where parts are exact
        sizes = [round(float(np.trace(span))) for span in spans]
        notes = []
        if sum(sizes) != self.rows.shape[1]:
            notes.append("At this tolerance the outputs do not split, so all directions form one part.")
            found, sizes = (np.sort(np.concatenate(found)),), [self.rows.shape[1]]
            spans = [np.eye(self.rows.shape[1])]
        # eigenvectors from the largest eigenvalue down; the first `size` of them span the part
        parts = [
            self.back @ np.linalg.eigh(span)[1][:, ::-1][:, :size] for span, size in zip(spans, sizes, strict=True)
        ]
        return split(self.jacobian, parts, self.idle, rows=found, notes=notes)


def finest_disjoint(jacobian: Any, *, rtol: float = RTOL) -> Splitting:
    """The finest parts of the latent directions that act on disjoint outputs, in any basis; unique and exact.

    Two outputs are linked where the hat matrix J J^+ has an entry for them; the components of that graph are those of
    the linear matroid of the rows of J. Directions that move one component alone make a part.

    Parameters
    ----------
    jacobian : (m, d)
        With m <= d nothing can be learned: every invertible square Jacobian falls into d parts.
    rtol : float
        Links up to it are cut: the cosine of two whitened rows, times the shorter's length over the longest's.
    """
    return hat_tree(as_stack(jacobian)[0]).splitting(rtol)


def hat_tree(jacobian: Float) -> HatTree:
    """Whiten the rows of a Jacobian (m, d) and join them to the tree of strongest links; O(m^2 d), memory O(m d)."""
    lengths = np.linalg.norm(jacobian, axis=0)
    lengths[lengths == 0] = 1.0
    u, s, vt = np.linalg.svd(jacobian / lengths, full_matrices=False)
    rank = int((s > RANK * s[0]).sum()) if s[0] > 0 else 0
    rows = u[:, :rank]
    back = vt[:rank].T / s[:rank] / lengths[:, None]
    idle = np.linalg.svd(vt[:rank] * lengths, full_matrices=True)[2][rank:].T
    live = np.flatnonzero(np.abs(jacobian).max(axis=1, initial=0.0) > 0)  # of images, mostly a few
    ends, weights = _strongest_tree(rows[live])
    return HatTree(jacobian, lengths, rows, back, idle, live[ends], weights)


def _strongest_tree(rows: Float) -> tuple[Array, Float]:
    """The maximum spanning tree of the links between outputs (Prim), a row of the hat matrix at a time."""
    size = np.linalg.norm(rows, axis=1)
    unit = rows / np.where(size > 0, size, 1.0)[:, None]
    size = size / max(float(size.max(initial=0.0)), np.finfo(float).tiny)
    m = len(rows)
    name, best, source = np.arange(m), np.zeros(m), np.zeros(m, dtype=int)
    ends, weights = np.zeros((max(m - 1, 0), 2), dtype=int), np.zeros(max(m - 1, 0))
    for k in range(1, m):  # those before k are in the tree
        link = np.abs(unit[k:] @ unit[k - 1]) * np.minimum(size[k:], size[k - 1])
        better = link > best[k:]
        best[k:][better], source[k:][better] = link[better], name[k - 1]
        j = k + int(np.argmax(best[k:]))
        for array in (unit, size, name, best, source):
            array[[k, j]] = array[[j, k]]
        ends[k - 1], weights[k - 1] = (source[k], name[k]), best[k]
    return ends, weights


def global_components(trees: Sequence[HatTree], rtol: float) -> tuple[Array, ...]:
    """The outputs of each component when a link at any point counts; outputs that nothing moves are left out.

    It needs no coordinates: outputs are the same at every point, for any latents.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    m = len(trees[0].rows)
    kept = np.concatenate([tree.ends[tree.weights > rtol] for tree in trees]).T
    _, label = connected_components(coo_array((np.ones(kept.shape[1]), tuple(kept)), shape=(m, m)), directed=False)
    acting = np.zeros(m, dtype=bool)
    for tree in trees:
        for part in tree.components(rtol):
            acting[part] = True
    return tuple(np.array(part) for part in grouped(np.where(acting, label, -1)))
