"""Blocks of latents: which latents together make one factor."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from congruence.errors import InputError

Blocks = tuple[tuple[int, ...], ...]  # a partition of the latents 0, ..., d - 1

RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")


def read_blocks(blocks: Any, d: int) -> Blocks:
    """Read and check blocks of d latents.

    Parameters
    ----------
    blocks : list of lists of numbers, text, or None
        "0-1,2,3-4" is [[0, 1], [2], [3, 4]]; a plus joins what is not next to each other, as in "0+2,1,3-4". A bare
        number in a list is a block of one. None makes each latent a block.
    d : int
        The number of latents; every one of them must be in exactly one block.
    """
    if blocks is None:
        return tuple((a,) for a in range(d))
    parts = _from_text(blocks) if isinstance(blocks, str) else _from_list(blocks)
    flat = [a for part in parts for a in part]
    outside = sorted({a for a in flat if not 0 <= a < d})
    if outside:
        raise InputError(f"blocks names latent {outside[0]}, but latents are numbered from 0 to {d - 1}")
    if not parts or not all(parts):
        raise InputError(f"blocks must not be empty, not {blocks!r}")
    twice = sorted({a for a in flat if flat.count(a) > 1})
    if twice:
        raise InputError(f"blocks must share no latent, but latent {twice[0]} is in more than one place of {blocks!r}")
    missing = sorted(set(range(d)) - set(flat))
    if missing:
        raise InputError(f"blocks must hold all {d} latents, but latent {missing[0]} is in none of {blocks!r}")
    return tuple(tuple(sorted(part)) for part in parts)


def write_blocks(blocks: Iterable[Iterable[int]]) -> str:
    """The blocks as text that `read_blocks` understands: runs of numbers as ranges."""
    return ",".join(_written(sorted(block)) for block in blocks)


def block_of(blocks: Blocks) -> Any:
    """The number of the block of each latent, shape (d,)."""
    owner = np.empty(sum(len(block) for block in blocks), dtype=int)
    for k, block in enumerate(blocks):
        owner[list(block)] = k
    return owner


def _from_text(text: str) -> list[list[int]]:
    parts = []
    for piece in text.split(","):
        block: list[int] = []
        for run in piece.split("+"):
            found = RANGE.fullmatch(run)
            if not found:
                raise InputError(f"blocks must read like '0-1,2,3-4' (or '0+2,1'), not {text!r}")
            first, last = int(found[1]), int(found[2] or found[1])
            if last < first:
                raise InputError(f"blocks must have ranges that go up, but {run.strip()!r} does not")
            if last - first > 10**6:
                raise InputError(f"blocks has a range of more than a million latents: {run.strip()!r}")
            block.extend(range(first, last + 1))
        parts.append(block)
    return parts


def _from_list(blocks: Any) -> list[list[int]]:
    wrong = f"blocks must be a list of lists of numbers, or text like '0-1,2,3-4', not {blocks!r}"
    try:
        parts = [[part] if isinstance(part, int | np.integer) else list(part) for part in blocks]
    except TypeError:
        raise InputError(wrong) from None
    if any(isinstance(a, bool) or not isinstance(a, int | np.integer) for part in parts for a in part):
        raise InputError(wrong)
    return [[int(a) for a in part] for part in parts]


def _written(block: list[int]) -> str:
    runs: list[list[int]] = []
    for a in block:
        if runs and runs[-1][-1] == a - 1:
            runs[-1].append(a)
        else:
            runs.append([a])
    return "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
