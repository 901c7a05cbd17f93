"""The result of `compare_layers`: the nearness of all pairs of layers, and which are closer than chance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from congruence.align.verdict import RELATED
from congruence.arrays import Array, Float
from congruence.formatting import number, percent
from congruence.result import Finding, Result, Status

if TYPE_CHECKING:
    from congruence.document import Document

BEYOND = 3.0  # standard errors; of 37 unrelated columns, the largest exceeds them in one row of twenty
ROUNDING = 1e-9  # a null this close to perfect leaves no range above chance


@dataclass(frozen=True)
class LayerPair:
    """A layer of the source and one of the target; see `LayerComparison` for the numbers."""

    source: str
    target: str
    nearness: float
    null: float
    above_chance: float
    standard_error: float
    nearest: bool  # whether this target layer is the closest to this source layer


class LayerNumbers(TypedDict):
    """The numbers of a comparison of layers in JSON; matrices have a row for each source layer.

    `nearest` names a target layer for each source layer, or is null where nothing is defined.
    """

    source: str
    target: str
    measure: str
    direction: str
    perfect: float
    held_out: bool
    n: int
    source_layers: list[str]
    target_layers: list[str]
    nearness: list[list[float]]
    null: list[list[float]]
    above_chance: list[list[float]]
    standard_error: list[list[float]]
    nearest: list[str | None]


@dataclass(frozen=True, eq=False, repr=False)
class LayerComparison(Result):
    """The nearness of every layer of one run (source) to every layer of another (target).

    `nearness` and `null` have shape (len(source_layers), len(target_layers)) and are read in `direction`. For a group
    of maps they are held-out errors over the diameter of the target layer: 0 is a perfect match, lower is closer. For a
    similarity they are its values in sample. `null` is the same number averaged over random re-pairings of the
    rows; NaN where there were none. Both are NaN for layers without a defined number. `perfect` is
    the number of a layer compared with itself. `standard_error`, of the same shape, is that of the gap between the two:
    over rows (or clusters) for a group of maps, over re-pairings for a similarity; NaN where it is unknown.

    ``result["layer1", "layer2"]`` is one pair; there is a finding for each source layer.
    """

    source: str
    target: str
    source_layers: list[str]
    target_layers: list[str]
    measure: str
    direction: str  # "lower is closer" or "higher is closer"
    perfect: float
    held_out: bool
    nearness: Float
    null: Float
    standard_error: Float
    n: int
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    @cached_property
    def above_chance(self) -> Float:
        """The position of each pair between chance (0) and a perfect match (1), of the shape of `nearness`.

        The null of a layer depends on its shape (one outlying row makes every error a small share of the diameter), so
        target layers are compared by this. Below 0 is worse than chance; NaN where there is no null, or where the null
        is perfect.
        """
        room = self.null - self.perfect
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(abs(room) > ROUNDING, (self.null - self.nearness) / room, np.nan)

    @property
    def judged(self) -> bool:
        """Whether there is a null to judge by."""
        return bool(np.isfinite(self.above_chance).any())

    @cached_property
    def nearest(self) -> Array:
        """The index of the closest target layer of each source layer, -1 where nothing is defined.

        The closest is farthest above chance; without a null, the one of the closest value.
        """
        sign = 1.0 if self.direction.startswith("higher") else -1.0
        closeness = self.above_chance if self.judged else sign * self.nearness
        known = np.where(np.isfinite(closeness), closeness, -np.inf)
        return np.where(np.isfinite(known).any(1), known.argmax(1), -1)

    @property
    def related(self) -> Array:
        """Whether each source layer is closer to its closest target layer than chance; never without a null.

        That is at least 5 % above chance and, where it is known, more than `BEYOND` standard errors from the null.
        """
        return self._above_chance[0]

    @property
    def _above_chance(self) -> tuple[Array, Array]:
        """The layers that are above chance, and those that seem to be but are within `BEYOND` standard errors of it."""
        best = np.arange(len(self.source_layers)), self.nearest
        above = (self.nearest >= 0) & (self.above_chance[best] > 1 - RELATED)
        uncertain = abs(self.null - self.nearness)[best] <= BEYOND * self.standard_error[best]
        return above & ~uncertain, above & uncertain

    @property
    def findings(self) -> tuple[Finding, ...]:
        """One finding for each source layer: is it closer to some target layer than unrelated layers would be?"""
        return tuple(self._finding(i, *flags) for i, flags in enumerate(zip(*self._above_chance, strict=True)))

    def _finding(self, i: int, related: bool, undecided: bool) -> Finding:
        layer, j = self.source_layers[i], int(self.nearest[i])
        claim = f"{layer} of {self.source} is closer to a layer of {self.target} than unrelated layers would be."
        if j < 0:
            return Finding(layer, claim, "unknown", evidence="The measure is undefined for this layer.")
        value, null, above = (float(x[i, j]) for x in (self.nearness, self.null, self.above_chance))
        status: Status = "holds" if related else "ambiguous" if undecided else "fails"
        written = percent if self.held_out else number
        what = f"held-out {self.measure} error" if self.held_out else self.measure
        evidence = f"The closest layer is {self.target_layers[j]}: {what} {written(value)}"
        if math.isnan(above):
            return Finding(layer, claim, "unknown", evidence=f"{evidence}, without a null.", number=value)
        evidence += f", null {written(null)}, {percent(above)} above chance."
        return Finding(layer, claim, status, evidence=evidence, number=value, null=null)

    @property
    def headlines(self) -> tuple[str, ...]:
        """The sentences of the verdict."""
        known, related = self.nearest >= 0, self.related
        if not known.any():
            return ("No pair of layers has a defined value.",)
        if not self.judged:
            return ("There is no null to judge by: set nulls to at least 1.", *self._in_place(known))
        undecided = int(self._above_chance[1].sum())
        rest = (f"Too few rows to decide: {undecided} of {len(related)} layers.",) if undecided else ()
        if not related.any():
            none = f"No layer of {self.source} is closer to a layer of {self.target} than unrelated layers would be."
            return (none, *rest)
        who = "All" if related.all() else f"{related.sum()} of"
        many = f"{who} {len(related)} layers of {self.source} are closer"
        if len(related) == 1:
            many = f"The layer of {self.source} is closer"
        answer = f"{many} to some layer of {self.target} than unrelated layers would be."
        return (answer, *self._in_place(related), *rest)

    def _in_place(self, judged: Array) -> tuple[str, ...]:
        """The number of these layers whose closest layer has the same position, where both runs have as many layers."""
        if len(self.source_layers) != len(self.target_layers) or len(judged) < 2:
            return ()
        in_place = int((judged & (self.nearest == np.arange(len(judged)))).sum())
        return (f"{in_place} of {judged.sum()} are closest to the layer in the same position.",)

    @property
    def verdict(self) -> str:
        """Which layers correspond, in a few sentences."""
        return " ".join(self.headlines)

    def parts(self) -> dict[tuple[str, str], LayerPair]:
        """The pairs by (source layer, target layer)."""
        matrices = (self.nearness, self.null, self.above_chance, self.standard_error)
        pairs = {}
        for i, row in enumerate(self.source_layers):
            for j, column in enumerate(self.target_layers):
                near, null, above, error = (float(x[i, j]) for x in matrices)
                pairs[row, column] = LayerPair(row, column, near, null, above, error, bool(self.nearest[i] == j))
        return pairs

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per pair of layers."""
        return (dict(vars(pair)) for pair in self.parts().values())

    def numbers(self) -> LayerNumbers:
        """The matrices, the names of the layers and the closest layer of each."""
        return {
            "source": self.source,
            "target": self.target,
            "measure": self.measure,
            "direction": self.direction,
            "perfect": self.perfect,
            "held_out": self.held_out,
            "n": self.n,
            "source_layers": list(self.source_layers),
            "target_layers": list(self.target_layers),
            "nearness": self.nearness.tolist(),
            "null": self.null.tolist(),
            "above_chance": self.above_chance.tolist(),
            "standard_error": self.standard_error.tolist(),
            "nearest": [self.target_layers[j] if j >= 0 else None for j in self.nearest],
        }

    def document(self) -> Document:
        """Headline, a heat map of all pairs, and the closest layer of each."""
        from congruence.align._layers_document import describe

        return describe(self)
