"""What `layer_map` returns: how near all layers are, beside chance, and what that says in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from congruence.align.verdict import RELATED
from congruence.arrays import Array, Float
from congruence.result import json_text

BEYOND = 3.0  # standard errors; of 37 unrelated columns, the farthest goes beyond them in one row of twenty
NOTHING = 1e-9  # a null this near to perfect leaves no room above chance


@dataclass(frozen=True, eq=False)
class LayerMap:
    """How near every layer of one run (source, rows) is to every layer of another (target, columns).

    `nearness` and `null` have shape (len(rows), len(columns)) and are read in `direction`. For a group of maps they are
    held-out errors over the diameter of the target layer: 0 is a perfect match, lower is closer. For a similarity they
    are its values in sample. `null` is the same number after the pairing of rows was destroyed, averaged over
    re-pairings; NaN where there were none. Both are NaN for layers that have no number. `perfect` is the number of a
    layer beside itself. `standard_error`, of the same shape, says how far chance alone moves the gap between the two:
    from row to row (or cluster to cluster) for a group of maps, from re-pairing to re-pairing for a similarity; NaN
    where it is unknown.
    """

    source: str
    target: str
    rows: list[str]
    columns: list[str]
    measure: str
    direction: str  # "lower is closer" or "higher is closer"
    perfect: float
    held_out: bool
    nearness: Float
    null: Float
    n: int
    advice: list[str]
    settings: dict[str, Any]
    standard_error: Float | None = None

    @cached_property
    def above_chance(self) -> Float:
        """How far each pair is on the way from chance (0) to a perfect match (1), shape (len(rows), len(columns)).

        The null of a layer depends on its own shape (one far row makes every error small beside the diameter), so this
        is what columns are compared by. Below 0 is worse than chance; NaN where there is no null, or where even the
        null is perfect.
        """
        room = self.null - self.perfect
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(abs(room) > NOTHING, (self.null - self.nearness) / room, np.nan)

    @cached_property
    def nearest(self) -> Array:
        """The place of the nearest column of each row, shape (len(rows),); -1 where nothing is defined.

        Nearest is farthest above chance; without a null, the closest number.
        """
        sign = 1.0 if self.direction.startswith("higher") else -1.0
        closeness = self.above_chance if np.isfinite(self.above_chance).any() else sign * self.nearness
        known = np.where(np.isfinite(closeness), closeness, -np.inf)
        return np.where(np.isfinite(known).any(1), known.argmax(1), -1)

    @property
    def related(self) -> Array:
        """Whether each row is nearer to its nearest column than chance, shape (len(rows),); never without a null.

        Nearer is at least 5 % above chance and, where it is known, farther from the null than `BEYOND` standard errors.
        """
        return self._above & ~self._blurred

    @property
    def _above(self) -> Array:
        best = np.arange(len(self.rows)), self.nearest
        return (self.nearest >= 0) & (self.above_chance[best] > 1 - RELATED)

    @property
    def _blurred(self) -> Array:
        """Whether chance alone may move a row as far from its null; not where that is unknown."""
        best = np.arange(len(self.rows)), self.nearest
        if self.standard_error is None:
            return np.zeros(len(self.rows), bool)
        return abs(self.null - self.nearness)[best] <= BEYOND * self.standard_error[best]

    @property
    def verdict(self) -> str:
        """Which layers belong together, in plain words."""
        known = self.nearest >= 0
        if not known.any():
            return "No pair of layers has a defined value."
        if not np.isfinite(self.above_chance).any():
            return f"{self._in_place(known)} There is no null to judge by: ask for at least one re-pairing."
        related = self.related
        undecided = int((self._above & self._blurred).sum())
        rest = f" Of {undecided} too few rows leave it open." if undecided else ""
        if not related.any():
            said = f"No layer of {self.source} is nearer to a layer of {self.target} than unrelated layers would be."
            return f"{said}{rest}"
        who = "All" if related.all() else f"{related.sum()} of"
        many = f"{who} {len(self.rows)} layers of {self.source} are nearer"
        if len(self.rows) == 1:
            many = f"The layer of {self.source} is nearer"
        said = f"{many} to some layer of {self.target} than unrelated layers would be. {self._in_place(related)}"
        return f"{said.strip()}{rest}"

    def _in_place(self, judged: Array) -> str:
        """How many of the judged rows are nearest to the column in their place; nothing where places differ."""
        if len(self.rows) != len(self.columns) or len(self.rows) < 2:
            return ""
        found = int((judged & (self.nearest == np.arange(len(self.rows)))).sum())
        return f"{found} of {judged.sum()} are nearest to the one in the same place."

    def table(self) -> Iterator[dict[str, Any]]:
        """A line for every pair of layers."""
        for i, row in enumerate(self.rows):
            for j, column in enumerate(self.columns):
                yield {
                    "source": row,
                    "target": column,
                    "nearness": float(self.nearness[i, j]),
                    "null": float(self.null[i, j]),
                    "above_chance": float(self.above_chance[i, j]),
                    "standard_error": float("nan") if self.standard_error is None else float(self.standard_error[i, j]),
                    "nearest": bool(self.nearest[i] == j),
                }

    def to_dict(self) -> dict[str, Any]:
        """The map as plain numbers; `nearest` names a column for every row, or None."""
        return {
            "source": self.source,
            "target": self.target,
            "measure": self.measure,
            "direction": self.direction,
            "held_out": self.held_out,
            "n": self.n,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "nearness": self.nearness.tolist(),
            "null": self.null.tolist(),
            "above_chance": self.above_chance.tolist(),
            "standard_error": None if self.standard_error is None else self.standard_error.tolist(),
            "nearest": [self.columns[j] if j >= 0 else None for j in self.nearest],
            "verdict": self.verdict,
            "advice": list(self.advice),
            "settings": dict(self.settings),
        }

    def to_json(self) -> str:
        """The map as JSON text; what is undefined is null."""
        return json_text(self.to_dict())

    def __str__(self) -> str:
        lines = [
            self.verdict,
            "",
            f"{'layer of ' + self.source:<32} {'nearest of ' + self.target:<32} {'':>9} {'null':>9}",
        ]
        for i, j in enumerate(self.nearest):
            numbers = f"{self.nearness[i, j]:9.4f} {self.null[i, j]:9.4f}" if j >= 0 else ""
            lines.append(f"{self.rows[i]:<32} {self.columns[j] if j >= 0 else '-':<32} {numbers}")
        return "\n".join([*lines, *(f"note: {advice}" for advice in self.advice)])
