"""Pooling of positions: which tokens, patches or pixels of an input become rows of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.checks import check_choice, check_integer
from congruence.errors import InputError

POOLS = ("none", "mean", "cls", "last", "patch")


@dataclass(frozen=True)
class Pooling:
    """How to pool outputs of shape (rows, positions, channels) or (rows, channels, height, width).

    Parameters
    ----------
    kind : {"none", "mean", "cls", "last", "patch"}, default "none"
        "none": each position is one row. "mean": the mean of the positions. "cls": the first position (the class token
        of most models). "last": the last position that is not padding. "patch": one position drawn at random; it
        depends on the seed and the row number, not on the batch.
    skip : int, default 0
        Number of first positions that mean, patch and none leave out, such as a class token.
    seed : int, default 0
        Seed of the random positions.
    """

    kind: str = "none"
    skip: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("pool", self.kind, POOLS)
        check_integer("seed", self.seed, 0)
        if self.skip < 0 or (self.skip and self.kind in ("cls", "last")):
            raise InputError(f"skip must be 0 with pool {self.kind!r} and is never negative; got {self.skip}")


@dataclass(frozen=True, eq=False)
class Pooled:
    """Pooled outputs of one layer for a batch, as tensors on the device or as arrays."""

    values: Any  # (m, d)
    rows: Any = None  # (m,), the row of the batch that each comes from; None if there is one for each
    positions: Any = None  # (m,), with `rows`
    inputs: int = 0  # number of rows of the output before pooling, with `rows`


def pool(output: Any, pooling: Pooling, mask: Any, start: int) -> Pooled:
    """Pool the output of a layer for a batch whose first row has the number `start`.

    `mask`, of shape (rows, positions), is 0 for padding; it is used if its shape fits the output.
    Values are copies, so that a later in-place layer does not change them.
    """
    import torch

    if output.ndim <= 2:  # no positions
        return Pooled(output.reshape(len(output), -1).clone())
    kind, skip = pooling.kind, pooling.skip
    if kind == "mean" and output.ndim > 3 and not skip:
        return Pooled(output.mean(tuple(range(2, output.ndim))))
    tokens = output if output.ndim == 3 else output.flatten(2).transpose(1, 2)  # (b, t, d)
    fits = mask is not None and output.ndim == 3 and tuple(mask.shape) == tuple(tokens.shape[:2])
    n, length = tokens.shape[:2]
    if skip >= length:
        raise InputError(f"skip is {skip}, but the layer has only {length} positions")
    kept = mask.bool() if fits else torch.ones((n, length), dtype=torch.bool, device=tokens.device)
    if kind == "none":
        rows, positions = torch.nonzero(kept[:, skip:], as_tuple=True)
        return Pooled(tokens[rows, positions + skip], rows, positions + skip, n)
    empty = ~kept[:, skip:].any(1)
    if empty.any():
        row, after = start + int(empty.int().argmax()), f" after the first {skip}" if skip else ""
        raise InputError(
            f"row {row} has only padding{after}, so pool {kind!r} has no position to use; leave the row out"
        )
    if kind == "mean" and not fits:
        return Pooled(tokens[:, skip:].mean(1))
    if kind == "mean":
        weights = mask[:, skip:].to(tokens.dtype)[:, :, None]
        return Pooled((tokens[:, skip:] * weights).sum(1) / weights.sum(1))
    seen = kept.cpu().numpy()
    if kind == "cls":
        places = seen.argmax(1)
    elif kind == "last":
        places = length - 1 - seen[:, ::-1].argmax(1)
    else:
        drawn = (np.random.default_rng([pooling.seed, start + i]) for i in range(n))
        places = np.array([rng.choice(skip + np.flatnonzero(row[skip:])) for rng, row in zip(drawn, seen, strict=True)])
    return Pooled(tokens[torch.arange(n, device=tokens.device), torch.as_tensor(places, device=tokens.device)])
