"""Matchings of two dictionaries: mutual nearest features, and the best one-to-one matching above a limit."""

from __future__ import annotations

import numpy as np

from congruence.arrays import Array
from congruence.features._neighbours import Similar
from congruence.stats.matching import match

MOST_DENSE = 2**24  # entries of one connected part that is matched as a dense matrix


def match_mutual(similar: Similar, limit: float) -> tuple[Array, Array]:
    """The partner of each feature of a, shape (m_a,), -1 for none, and its cosine: each is the nearest of the other.

    Of several equally near features the first is the nearest, so that no feature has two partners.
    """
    mutual = (similar.back[similar.nearest] == np.arange(len(similar.nearest))) & (similar.cosine > limit)
    return np.where(mutual, similar.nearest, -1), np.where(mutual, similar.cosine, np.nan)


def match_one_to_one(similar: Similar, limit: float) -> tuple[Array, Array]:
    """The partner of each feature of a, shape (m_a,), -1 for none, and its cosine: the best one-to-one matching.

    Maximises the sum of (cosine - limit) over matched pairs. Only pairs above the limit can contribute, so each
    connected part of their graph is matched on its own, which is exact: a part is solved by the Hungarian method, a
    very large one as a sparse matrix. A feature may stay without a partner.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    m, k = len(similar.nearest), len(similar.back_cosine)
    partner, cosine = np.full(m, -1), np.full(m, np.nan)
    above = similar.values > limit
    rows, columns, values = similar.rows[above], similar.columns[above], similar.values[above].astype(np.float64)
    if not len(rows):
        return partner, cosine
    graph = coo_array((np.ones(len(rows)), (rows, m + columns)), shape=(m + k, m + k))
    part = connected_components(graph, directed=False)[1][rows]
    order = np.argsort(part, kind="stable")
    ends = np.flatnonzero(np.diff(part[order])) + 1
    for edges in np.split(order, ends):
        some = edges[_match_part(rows[edges], columns[edges], values[edges] - limit)]
        partner[rows[some]], cosine[rows[some]] = columns[some], values[some]
    return partner, cosine


def _match_part(rows: Array, columns: Array, gain: Array) -> Array:
    """Which edges of one connected part are in its best matching, as positions."""
    if len(rows) == 1:
        return np.array([0])
    left, i = np.unique(rows, return_inverse=True)
    right, j = np.unique(columns, return_inverse=True)
    if len(left) * len(right) > MOST_DENSE:
        return _match_sparse(i, j, gain, len(left), len(right))
    dense = np.zeros((len(left), len(right)))
    position = np.full(dense.shape, -1)
    dense[i, j], position[i, j] = gain, np.arange(len(rows))
    chosen = position[match(dense)]
    return chosen[chosen >= 0]


def _match_sparse(i: Array, j: Array, gain: Array, m: int, k: int) -> Array:
    """The same for a large part: every feature also has a partner of its own of gain 0, which means no partner."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    # Feature i of a may take column k + i, feature j of b row m + j; these fill each other's places with gain 0.
    rows = np.concatenate([i, np.arange(m), m + np.arange(k), m + j])
    columns = np.concatenate([j, k + np.arange(m), np.arange(k), k + i])
    cost = np.concatenate([-gain, np.zeros(m + k), np.zeros(len(i))]) + gain.max() + 1  # explicit zeros would vanish
    found = min_weight_full_bipartite_matching(coo_array((cost, (rows, columns)), shape=(m + k, m + k)).tocsr())
    real = (found[0] < m) & (found[1] < k)
    edge = {(row, column): at for at, (row, column) in enumerate(zip(i.tolist(), j.tolist(), strict=True))}
    return np.array([edge[pair] for pair in zip(found[0][real].tolist(), found[1][real].tolist(), strict=True)], int)
