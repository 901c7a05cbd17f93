"""Pooling of positions: which tokens, patches or pixels of an input become rows of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array
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
    if output.ndim <= 2:  # no positions
        return Pooled(output.reshape(len(output), -1).clone())
    if pooling.kind == "mean" and output.ndim > 3 and not pooling.skip:
        return Pooled(output.mean(tuple(range(2, output.ndim))))
    tokens = output if output.ndim == 3 else output.flatten(2).transpose(1, 2)  # (b, t, d)
    if mask is not None and (output.ndim > 3 or tuple(mask.shape) != tuple(tokens.shape[:2])):
        mask = None
    if pooling.skip >= tokens.shape[1]:
        raise InputError(f"skip is {pooling.skip}, but the layer has only {tokens.shape[1]} positions")
    if mask is not None and pooling.kind in ("mean", "cls", "last"):
        _check_any(mask[:, pooling.skip :], pooling, start)
    if pooling.kind == "mean":
        return Pooled(_mean(tokens[:, pooling.skip :], None if mask is None else mask[:, pooling.skip :]))
    if pooling.kind == "none":
        return _all(tokens, mask, pooling.skip)
    return Pooled(_chosen(tokens, mask, pooling, start))


def _mean(tokens: Any, mask: Any) -> Any:
    if mask is None:
        return tokens.mean(1)
    weights = mask.to(tokens.dtype)[:, :, None]
    return (tokens * weights).sum(1) / weights.sum(1)


def _check_any(mask: Any, pooling: Pooling, start: int) -> None:
    """Refuse rows that hold only padding."""
    empty = ~mask.bool().any(1)
    if empty.any():
        raise InputError(_only_padding(start + int(empty.int().argmax()), pooling))


def _only_padding(row: int, pooling: Pooling) -> str:
    after = f" after the first {pooling.skip}" if pooling.skip else ""
    return f"row {row} has only padding{after}, so pool {pooling.kind!r} has no position to use; leave the row out"


def _all(tokens: Any, mask: Any, skip: int) -> Pooled:
    import torch

    kept = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device) if mask is None else mask.bool()
    rows, positions = torch.nonzero(kept[:, skip:], as_tuple=True)
    return Pooled(tokens[rows, positions + skip], rows, positions + skip, len(tokens))


def _chosen(tokens: Any, mask: Any, pooling: Pooling, start: int) -> Any:
    import torch

    n, length = tokens.shape[:2]
    kept = np.ones((n, length), bool) if mask is None else mask.bool().cpu().numpy()
    if pooling.kind == "cls":
        places = kept.argmax(1)
    elif pooling.kind == "last":
        places = length - 1 - kept[:, ::-1].argmax(1)
    else:
        places = np.array([_drawn(kept[i], pooling, start + i) for i in range(n)])
    index = torch.as_tensor(places, device=tokens.device)
    return tokens[torch.arange(n, device=tokens.device), index]


def _drawn(kept: Array, pooling: Pooling, row: int) -> int:
    places = pooling.skip + np.flatnonzero(kept[pooling.skip :])
    if not len(places):
        raise InputError(_only_padding(row, pooling))
    return int(np.random.default_rng([pooling.seed, row]).choice(places))
