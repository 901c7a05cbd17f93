"""Which rows moved: where runs disagree once the ambiguity they share is removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.maps.groups import GROUPS
from congruence.tables import Table

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison


@dataclass(frozen=True, eq=False)
class MovedRows:
    """How far each row moved between runs: its held-out error, averaged over the pairs, after the map of `group`.

    `disagreement`, shape (n,), is a share of the target's diameter: 0 means that all runs agree on where the row is.
    `by_run` averages over the pairs a run takes part in, so a run that stands apart shows. `null` is what unrelated
    runs give.
    """

    group: str
    disagreement: Float
    by_run: dict[str, Float]
    null: float
    ids: Array | None = field(repr=False)
    metadata: Mapping[str, Array] = field(repr=False)

    def __repr__(self) -> str:
        most = float(np.nanmax(self.disagreement))
        return f"<MovedRows {len(self.disagreement)} rows up to {self.group}: at most {most:.3g}, null {self.null:.3g}>"

    @property
    def order(self) -> Array:
        """The rows from the one that moved most to the one that moved least, shape (n,)."""
        return np.argsort(-self.disagreement, kind="stable")

    def to_table(self) -> Table:
        """A table, most moved first: columns `moved` and `moved_RUN`; ids and metadata, and the row number, beside."""
        order = self.order
        columns = {"moved": self.disagreement} | {f"moved_{name}": values for name, values in self.by_run.items()}
        metadata = {self._row_name(): order} | {name: column[order] for name, column in self.metadata.items()}
        return Table(
            np.column_stack(list(columns.values()))[order],
            "moved",
            None if self.ids is None else self.ids[order],
            metadata,
            tuple(columns),
        )

    def _row_name(self) -> str:
        """A name for the column of row numbers that no metadata has: plates, for one, have rows of their own."""
        name = "Metadata_row"
        while {name, name.removeprefix("Metadata_")} & set(self.metadata):
            name += "_number"
        return name


def moved_rows(comparison: Comparison, group: str | None = None) -> MovedRows:
    """Rank the rows of a comparison by how far they moved; `group` is similarity, or else the largest compared."""
    shared = [g for g in GROUPS if all(g in pair.groups for pair in comparison.pairs)]
    if group is None:
        group = "similarity" if "similarity" in shared or not shared else shared[-1]
    if group not in shared:
        raise InputError(
            f"rows can be ranked by {', '.join(shared) or 'no group'} of this comparison, not by {group!r}"
        )
    errors = [pair.groups[group].errors for pair in comparison.pairs]
    by_run = {
        run.name: np.mean(
            [e for e, p in zip(errors, comparison.pairs, strict=True) if run.name in (p.source, p.target)], axis=0
        )
        for run in comparison.runs
    }
    return MovedRows(
        group=group,
        disagreement=np.mean(errors, axis=0),
        by_run=by_run,
        null=float(np.mean([pair.groups[group].null for pair in comparison.pairs])),
        ids=comparison.ids,
        metadata=comparison.metadata,
    )
