"""Blocks of latents (which latents together form one factor), and partitions in general."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.errors import InputError

Blocks = tuple[tuple[int, ...], ...]  # a partition of the latents 0, ..., d - 1

_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")
_LONGEST = 10**6  # latents of a range


def read_blocks(blocks: Any, d: int) -> Blocks:
    """Read and check blocks of d latents: each latent must be in exactly one.

    "0-1,2,3-4" is [[0, 1], [2], [3, 4]]; a plus joins latents that are not adjacent, as in "0+2,1,3-4". A bare integer
    in a list is a block of one latent. None makes each latent a block.
    """
    if blocks is None:
        return tuple((a,) for a in range(d))
    parts = _parse(blocks) if isinstance(blocks, str) else _check_lists(blocks)
    flat = [a for part in parts for a in part]
    outside = sorted({a for a in flat if not 0 <= a < d})
    if outside:
        raise InputError(f"blocks must name latents from 0 to {d - 1}; got latent {outside[0]}")
    if not parts or not all(parts):
        raise InputError(f"blocks must not be empty; got {blocks!r}")
    twice = sorted({a for a in flat if flat.count(a) > 1})
    if twice:
        raise InputError(f"blocks must be disjoint, but latent {twice[0]} is in more than one place of {blocks!r}")
    missing = sorted(set(range(d)) - set(flat))
    if missing:
        raise InputError(f"blocks must contain all {d} latents, but latent {missing[0]} is in none of {blocks!r}")
    return tuple(tuple(sorted(part)) for part in parts)


def _parse(text: str) -> list[list[int]]:
    parts = []
    for piece in text.split(","):
        block: list[int] = []
        for run in piece.split("+"):
            read = _RANGE.fullmatch(run)
            if not read:
                raise InputError(f"blocks must be written like '0-1,2,3-4' (or '0+2,1'); got {text!r}")
            first, last = int(read[1]), int(read[2] or read[1])
            if not first <= last <= first + _LONGEST:
                raise InputError(f"blocks must have rising ranges of at most {_LONGEST} latents; got {run.strip()!r}")
            block.extend(range(first, last + 1))
        parts.append(block)
    return parts


def _check_lists(blocks: Any) -> list[list[int]]:
    wrong = f"blocks must be a list of lists of integers, or text like '0-1,2,3-4'; got {blocks!r}"
    try:
        parts = [[part] if isinstance(part, int | np.integer) else list(part) for part in blocks]
    except TypeError:
        raise InputError(wrong) from None
    if any(isinstance(a, bool) or not isinstance(a, int | np.integer) for part in parts for a in part):
        raise InputError(wrong)
    return [[int(a) for a in part] for part in parts]


def write_blocks(blocks: Iterable[Iterable[int]]) -> str:
    """Write blocks as text that `read_blocks` understands, with ranges for consecutive latents."""
    texts = []
    for block in blocks:
        runs: list[list[int]] = []
        for a in sorted(block):
            if runs and runs[-1][-1] == a - 1:
                runs[-1].append(a)
            else:
                runs.append([a])
        texts.append("+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs))
    return ",".join(texts)


def label_members(blocks: Blocks) -> Array:
    """Return the number of the block of each member, shape (d,)."""
    labels = np.empty(sum(map(len, blocks)), dtype=int)
    for k, block in enumerate(blocks):
        labels[list(block)] = k
    return labels


def group_labels(labels: Array) -> Blocks:
    """Return the members of each label, ordered by the first member; labels below 0 are left out."""
    return tuple(sorted(tuple(np.flatnonzero(labels == k).tolist()) for k in np.unique(labels[labels >= 0])))


def merge_groups(n: int, groups: Iterable[Any]) -> Blocks:
    """Return the finest partition of 0, ..., n - 1 in which the members of each group are together."""
    labels = np.arange(n)
    for group in groups:
        hit = np.isin(labels, labels[np.asarray(group, dtype=int)])
        labels[hit] = labels[hit].min(initial=n)
    return group_labels(labels)


def connected_blocks(adjacency: Any) -> Blocks:
    """Return the connected components of a symmetric (k, k) adjacency matrix."""
    from scipy.sparse.csgraph import connected_components

    return group_labels(connected_components(np.asarray(adjacency, dtype=np.int8), directed=False)[1])
