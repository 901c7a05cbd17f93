"""What components look like: how each is spread over the rows, and which rows have most and least of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, row_chunks, to_numpy
from congruence.resolve.components import Components
from congruence.resolve.opening import affine
from congruence.tables import Table

PORTRAYED = 12  # components with a histogram and their extreme rows
EXTREMES = 5  # rows at either end of a component
EDGES: Float = np.linspace(-5, 5, 41)  # of the histograms, in standard deviations


@dataclass(frozen=True)
class Loading:
    """How strongly one row has a component."""

    row: int
    value: float  # in standard deviations
    id: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Portrait:
    """How one component is spread over the rows, and which rows have most and least of it."""

    counts: Array  # (40,) rows between neighbours of `EDGES`
    below: int  # rows below the first edge
    above: int  # and from the last edge on
    highest: tuple[Loading, ...]  # from the highest down
    lowest: tuple[Loading, ...]  # from the lowest up


def portraits_of(table: Table, found: Components) -> tuple[Portrait, ...]:
    """Portray the first components, in one pass over the rows."""
    unmixing = found.unmixing.unmixing[:PORTRAYED]
    k = len(unmixing)
    bounds = np.concatenate([[-np.inf], EDGES, [np.inf]])
    counts = np.zeros((k, len(bounds) - 1), dtype=np.int64)
    ends = [_End(k, 1.0), _End(k, -1.0)]
    for part in row_chunks(table.n, table.d):
        rows = to_numpy(table.values[part]).astype(np.float64)
        s = affine(rows, found.unmixing.mean, unmixing.T, np.zeros(k))  # (m, k)
        for j in range(k):
            counts[j] += np.histogram(s[:, j], bounds)[0]
        for end in ends:
            end.update(s, part.start)
    return tuple(
        Portrait(counts[j, 1:-1], int(counts[j, 0]), int(counts[j, -1]), *(end.loadings(table, j) for end in ends))
        for j in range(k)
    )


class _End:
    """The rows seen so far that have most (sign 1) or least (sign -1) of each component."""

    def __init__(self, k: int, sign: float):
        self.sign = sign
        self.values, self.rows = np.zeros((0, k)), np.zeros((0, k), dtype=np.int64)

    def update(self, s: Float, start: int) -> None:
        values = np.concatenate([self.values, self.sign * s])
        rows = np.concatenate([self.rows, np.repeat(np.arange(start, start + len(s))[:, None], s.shape[1], 1)])
        first = np.argsort(-values, axis=0, kind="stable")[:EXTREMES]
        self.values = np.take_along_axis(values, first, 0)
        self.rows = np.take_along_axis(rows, first, 0)

    def loadings(self, table: Table, component: int) -> tuple[Loading, ...]:
        pairs = zip(self.rows[:, component].tolist(), self.values[:, component].tolist(), strict=True)
        return tuple(_loading(table, row, self.sign * value) for row, value in pairs)


def _loading(table: Table, row: int, value: float) -> Loading:
    id = None if table.ids is None else _plain(table.ids[row])
    return Loading(row, value, id, {name: _plain(column[row]) for name, column in table.metadata.items()})


def _plain(value: Any) -> Any:
    """A label as JSON can hold it: numbers and text as they are, times and the like as text."""
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if plain is None or isinstance(plain, str | int | float | bool) else str(value)
