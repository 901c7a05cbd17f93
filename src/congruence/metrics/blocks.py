"""Codes and factors in blocks: the slots of an object model, or groups of factors that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.errors import InputError
from congruence.metrics.columns import columns_of
from congruence.metrics.factors import paired
from congruence.metrics.notes import Note
from congruence.metrics.varying import varying


@dataclass(frozen=True, eq=False)
class Blocks:
    """Codes and factors of the same n rows, in blocks of columns."""

    codes: tuple[Float, ...]  # each (n, some)
    factors: tuple[Float, ...]  # each (n, some); constant columns are left out
    names: tuple[str, ...]  # of the blocks of factors
    notes: tuple[Note, ...]

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.codes[0])


def blocks_of(codes: Any, factors: Any, kinds: Any, blocks: Any, factor_blocks: Any) -> Blocks:
    """Cut codes and factors into blocks.

    Parameters
    ----------
    codes : (n, slots, width), or (n, L)
        An array of three axes is in blocks already.
    factors : (n, slots, width), or as for `read_factors`
        An array of three axes is in blocks of continuous factors already.
    kinds : see `read_factors`
        Of factors that are not in blocks already.
    blocks : int or list of lists of column numbers, optional
        How many blocks of the same width the codes (n, L) are in, or which columns each has; by default as many as
        there are blocks of factors.
    factor_blocks : int or list of lists of numbers or names, optional
        The same for the factors; by default each factor is a block.
    """
    flat, slots = _flat(codes, "codes", blocks)
    true, true_slots = _flat(factors, "factors", factor_blocks)
    z, s = paired(flat, true, "continuous" if _in_slots(factors) else kinds)
    groups = _groups(len(s) if true_slots is None else true_slots, len(s), s.names, "factor_blocks")
    live, notes = varying(s)
    table = columns_of(live, unordered=True)
    places = [[live.names.index(s.names[j]) for j in group if s.names[j] in live.names] for group in groups]
    kept = [(k, place) for k, place in enumerate(places) if place]
    code_groups = _groups(len(groups) if slots is None else slots, z.shape[1], None, "blocks")
    return Blocks(
        codes=tuple(z[:, group] for group in code_groups),
        factors=tuple(table.values[:, np.isin(table.owner, place)] for _, place in kept),
        names=tuple(_name(k, groups[k], s.names, true_slots) for k, _ in kept),
        notes=(*s.notes, *notes, *table.notes),
    )


def _in_slots(x: Any) -> bool:
    return len(getattr(x, "shape", ())) == 3


def _flat(x: Any, name: str, blocks: Any) -> tuple[Any, Any]:
    """The matrix (n, L) of an array of three axes and its number of blocks; anything else as it is."""
    if not _in_slots(x):
        return x, blocks
    if blocks is not None:
        raise InputError(f"{name} has three axes and so is in blocks already; leave out which they are")
    return to_numpy(x).reshape(len(x), -1), int(x.shape[1])


def _groups(blocks: Any, width: int, names: Sequence[str] | None, argument: str) -> list[list[int]]:
    """Column numbers of each block."""
    if isinstance(blocks, int | np.integer) and not isinstance(blocks, bool):
        if not 1 <= blocks <= width or width % blocks:
            raise InputError(f"{argument}: {width} columns cannot be cut into {blocks} blocks of the same width")
        return [list(part) for part in np.arange(width).reshape(blocks, -1).tolist()]
    try:
        groups = [[_column(entry, names, width, argument) for entry in block] for block in blocks]
    except TypeError as error:
        raise InputError(f"{argument} must be a number, or a list of lists of columns, not {blocks!r}") from error
    flat = [column for group in groups for column in group]
    if not groups or not all(groups) or len(set(flat)) < len(flat):
        raise InputError(f"{argument} must be blocks that are not empty and share no column, not {blocks!r}")
    return groups


def _column(entry: Any, names: Sequence[str] | None, width: int, argument: str) -> int:
    if names is not None and entry in names:
        return list(names).index(entry)
    if isinstance(entry, int | np.integer) and not isinstance(entry, bool) and 0 <= entry < width:
        return int(entry)
    raise InputError(f"{argument} names {entry!r}, but columns are numbered from 0 to {width - 1}")


def _name(number: int, group: list[int], names: Sequence[str], slots: Any) -> str:
    if isinstance(slots, int | np.integer):
        return f"slot{number}"
    return " + ".join(names[j] for j in group)


def match_blocks(score: Float) -> Array:
    """The block of codes for each block of factors that makes the sum of scores largest; -1 where none is left."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(-score)
    matched = np.full(len(score), -1)
    matched[rows] = columns
    return matched
