"""Clusters of the components of many fits, and how compact and isolated each is (Icasso).

References
----------
Himberg, Hyvärinen & Esposito 2004, "Validating the independent components of neuroimaging time series via clustering
and visualization".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float

LARGEST = 6000  # components in all: their dissimilarities and the copy the clustering makes take 300 MB
BLOCK = 512  # components whose similarities to all others are held at once


@dataclass(frozen=True, eq=False)
class Clusters:
    """The clusters of the components of several fits, as seen from the components of the first.

    Every component of the first fit lies in exactly one cluster. A cluster that holds several of them is reported for
    each of these, with `shared`; clusters that hold none of them are counted as `strays`.
    """

    quality: Float  # (k,) mean similarity inside its cluster minus mean similarity to all outside, -1 to 1, 1 is ideal
    size: Array  # (k,) components in its cluster; one of every fit is ideal
    shared: Array  # (k,) whether its cluster holds another component of the first fit
    strays: int  # clusters without any component of the first fit
    runs: int  # fits whose components were clustered


def cluster_components(runs: Sequence[Float], largest: int = LARGEST) -> Clusters | None:
    """Cluster the components of several fits into as many clusters as the first fit has components.

    Agglomerative clustering with average linkage on one minus the absolute correlation. `runs` are the components of
    each fit, (k, r), as unit vectors whose products are correlations. Memory grows with the square of the number of
    components: where they are more than `largest`, the first fit is clustered with as many of the others as fit, evenly
    chosen. None where not even two others fit.
    """
    others = len(runs) - 1
    used = min(largest // max(1, *(len(run) for run in runs)) - 1, others)
    if used < 2:
        return None
    chosen = np.unique(np.linspace(1, others, used).round().astype(int))
    every = np.concatenate([runs[0], *(runs[i] for i in chosen)]).astype(np.float32)  # (m, r)
    k = len(runs[0])
    label = _labels(every, k)
    quality, size = quality_index(every, label)
    held, own = np.bincount(label[:k], minlength=len(size)), label[:k]
    return Clusters(quality[own], size[own], held[own] > 1, int((held == 0).sum()), 1 + len(chosen))


def quality_index(every: Array, label: Array) -> tuple[Float, Array]:
    """Return the quality index and the size of every cluster, each of shape (clusters,).

    Iq(C) = mean |r_ij| over i != j in C, minus mean |r_ij| over i in C and j outside. The first term is 0 for a single
    component, and not its similarity to itself. The second term is 0 where there is only one cluster.
    """
    size = np.bincount(label)
    among = np.zeros((len(size), len(size)))  # sums of |r| between clusters
    member = np.eye(len(size), dtype=np.float32)[label]  # (m, clusters)
    for part, similarity in _similarities(every):
        among += member[part].T.astype(np.float64) @ (similarity @ member)
    own = np.bincount(label, np.einsum("ij,ij->i", every, every, dtype=np.float64))
    inside = (np.diag(among) - own) / np.maximum(size * (size - 1), 1)
    outside = (among.sum(1) - np.diag(among)) / np.maximum(size * (len(label) - size), 1)
    return inside - outside, size


def _labels(every: Array, k: int) -> Array:
    """The cluster of every component, numbered from 0, shape (m,)."""
    from scipy.cluster import hierarchy

    m = len(every)
    apart = np.empty(m * (m - 1) // 2)  # the upper triangle, row by row
    filled = 0
    for part, similarity in _similarities(every):
        for i, row in zip(range(part.start, part.stop), similarity, strict=True):
            apart[filled : filled + m - i - 1] = 1 - np.minimum(row[i + 1 :], 1)
            filled += m - i - 1
    tree = hierarchy.linkage(apart, "average")
    return np.unique(hierarchy.fcluster(tree, k, "maxclust"), return_inverse=True)[1]


def _similarities(every: Array) -> Iterator[tuple[slice, Array]]:
    """The |correlation| of some components with all, block by block, each of shape (block, m)."""
    for start in range(0, len(every), BLOCK):
        part = slice(start, min(start + BLOCK, len(every)))
        yield part, np.abs(every[part] @ every.T)
