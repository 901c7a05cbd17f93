"""A sample of the joined rows that depends on their ids and a seed alone, not on their order or the other rows."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from congruence.arrays import Array
from congruence.tables.table import as_labels

LEAST_CLUSTERS = 2  # of which one can be held out


@dataclass(frozen=True, eq=False)
class Sample:
    """Which of the paired rows were sampled, and how."""

    rows: Array  # (m,) increasing positions among the paired rows
    of: int  # the number of paired rows
    note: str


def sample_by_hash(
    n: int, rows: int, seed: int, *, ids: Array | None = None, cluster: Array | None = None
) -> Sample | None:
    """Sample `rows` of n rows: those whose ids have the least hashes. None if there are no more than that.

    The hash of a row depends on its id (without ids, on its position) and on the seed alone: a row that is in the
    sample of a table is in the sample of any part of this table that holds it. With `cluster`, clusters are taken
    whole, by the hash of their label, until at least `rows` rows and two clusters are reached.

    Parameters
    ----------
    n : int
        The number of paired rows.
    rows : int
        How many to sample.
    seed : int
        Another seed gives another sample.
    ids : array of shape (n,), optional
        Integers or text; an integer has the hash of its text, as 1 and "1" are the same id for a join.
    cluster : array of shape (n,), optional
        Labels of clusters.
    """
    if rows >= n:
        return None
    if cluster is None:
        keys = np.arange(n) if ids is None else ids
        chosen = np.sort(np.argsort(hash_labels(keys, seed), kind="stable")[:rows])
        by = "their position" if ids is None else "their id"
        return Sample(chosen, n, f"{rows:,} of {n:,} rows were sampled by a hash of {by} (seed {seed}).")
    labels, unit, sizes = np.unique(as_labels(cluster), return_inverse=True, return_counts=True)
    order = np.argsort(hash_labels(labels, seed), kind="stable")
    count = max(int(np.searchsorted(np.cumsum(sizes[order]), rows)) + 1, LEAST_CLUSTERS)
    if count >= len(labels):
        return None
    chosen = np.flatnonzero(np.isin(unit, order[:count]))
    note = (
        f"{len(chosen):,} of {n:,} rows were sampled: {count:,} of {len(labels):,} clusters, by a hash of their label"
    )
    return Sample(chosen, n, f"{note} (seed {seed}).")


def hash_labels(labels: Array, seed: int) -> Array:
    """BLAKE2b of the UTF-8 text of each label, keyed by the seed: the same on every machine, shape (n,), uint64."""
    keyed = blake2b(digest_size=8, key=str(seed).encode())
    digests = bytearray()
    for label in as_labels(labels).astype(str).tolist():
        one = keyed.copy()
        one.update(label.encode("utf-8", "surrogatepass"))
        digests += one.digest()
    return np.frombuffer(bytes(digests), dtype=">u8").astype(np.uint64)
