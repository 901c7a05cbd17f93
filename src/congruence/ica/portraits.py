"""The first components with their histograms, and with the names of the rows that have most and least of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.ica.components import Components, first_components
from congruence.ica.profile import profile_components
from congruence.tables import Table

PORTRAYED = 12  # components
EXTREMES = 5  # rows at either end of a component


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

    counts: Array  # (b,) rows in each bin of `profile.EDGES`; the first and last also hold what lies beyond
    highest: tuple[Loading, ...]  # from the highest down
    lowest: tuple[Loading, ...]  # from the lowest up


def portraits_of(table: Table, found: Components) -> tuple[Portrait, ...]:
    """Portray the first components, in one pass over the rows."""
    first = first_components(found.unmixing, PORTRAYED)
    profile = profile_components(table.values, first, rows=EXTREMES)
    return tuple(
        Portrait(
            profile.counts[j],
            _loadings(table, profile.highest[j], profile.highest_values[j]),
            _loadings(table, profile.lowest[j], profile.lowest_values[j]),
        )
        for j in range(first.k)
    )


def _loadings(table: Table, rows: Array, values: Array) -> tuple[Loading, ...]:
    return tuple(_loading(table, row, value) for row, value in zip(rows.tolist(), values.tolist(), strict=True))


def _loading(table: Table, row: int, value: float) -> Loading:
    id = None if table.ids is None else _plain(table.ids[row])
    return Loading(row, value, id, {name: _plain(column[row]) for name, column in table.metadata.items()})


def _plain(value: Any) -> Any:
    """A label as JSON can hold it: numbers and text as they are, times and the like as text."""
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if plain is None or isinstance(plain, str | int | float | bool) else str(value)
