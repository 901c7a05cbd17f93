"""The result of `compare_layers`: the nearness of all pairs of layers, and which are closer than chance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, cast

import numpy as np

from congruence.align.similarities import above_chance
from congruence.align.verdict import HEADLINES, RELATED, dependence_sentence
from congruence.arrays import Array, Float
from congruence.formatting import number, percent
from congruence.result import Finding, Result, Status, as_data

if TYPE_CHECKING:
    from congruence.document import Document
    from congruence.maps.dependence import Dependence

LEVEL = 0.05  # of the test of a layer
FEWEST = 19  # re-pairings with which a p value can reach it


@dataclass(frozen=True)
class LayerPair:
    """A layer of the source and one of the target; see `LayerComparison` for the numbers."""

    source: str
    target: str
    nearness: float
    null: float
    above_chance: float
    share_of_chance: float
    p: float
    low: float  # of the 95 % interval over seeds and rows; NaN without several seeds
    high: float
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
    share_of_chance: list[list[float]]
    p: list[list[float]]
    p_layer: list[float]
    by_seed: list[list[list[list[float]]]] | None
    interval: list[list[list[float]]] | None
    dependence: dict[str, Any] | None
    nearest: list[str | None]


@dataclass(frozen=True, eq=False, repr=False)
class LayerComparison(Result):
    """The nearness of every layer of one run (source) to every layer of another (target).

    `nearness` and `null` have shape (len(source_layers), len(target_layers)) and are read in `direction`. For a group
    of maps they are held-out errors over the diameter of the target layer: 0 is a perfect match, lower is closer. For a
    similarity they are its values in sample. `null` is the same number averaged over random re-pairings of the
    rows; NaN where there were none. Both are NaN for layers without a defined number. `perfect` is
    the number of a layer compared with itself.

    `p`, of the same shape, is the p value of each pair by the null of the maximum over all pairs: the share of the
    re-pairings, which are the same for all pairs, in which any two layers are as close, each pair measured in standard
    deviations of its own null. `p_layer`, shape (len(source_layers),), is the p value of a source layer by the maximum
    over its own pairs. Both are NaN below 19 re-pairings.

    Where a run has several seeds, all numbers are means over pairs of seeds; `by_seed`, shape (seeds of the source,
    seeds of the target, source layers, target layers), has the nearness of each pair, and `interval` the ends of the
    95 % interval of its mean for new seeds and new rows. Both are None otherwise.

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
    p: Float
    p_layer: Float
    n: int
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    by_seed: Float | None = None
    interval: tuple[Float, Float] | None = None
    dependence: Dependence | None = None  # of the rows of the closest pair, unless clusters or blocks were given

    @cached_property
    def above_chance(self) -> Float:
        """The position of each pair between chance (0) and a perfect match (1), of the shape of `nearness`.

        The null of a layer depends on its shape (one outlying row makes every error a small share of the diameter), so
        target layers are compared by this. Below 0 is worse than chance; NaN where there is no null, or where the null
        is perfect.
        """
        above: Float = above_chance(self.nearness, self.null, self.perfect)
        return above

    @property
    def share_of_chance(self) -> Float:
        """1 - `above_chance`: for a group of maps, the held-out error over its null."""
        return 1 - self.above_chance

    @property
    def judged(self) -> bool:
        """Whether there is a null."""
        return bool(np.isfinite(self.above_chance).any())

    @property
    def tested(self) -> bool:
        """Whether there are enough re-pairings for a test."""
        return bool(np.isfinite(self.p_layer).any())

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
        """Whether each source layer is closer to some target layer than unrelated layers would be, p <= 0.05.

        By the maximum over all pairs: if the runs are unrelated, any layer is called related in 5 % of the cases.
        """
        return np.asarray(np.where(np.isfinite(self.p), self.p, 1.0).min(1) <= LEVEL)

    @property
    def _undecided(self) -> Array:
        """The layers that are not called related but may be: by their own pairs, or by how far above chance."""
        best = np.arange(len(self.source_layers)), self.nearest
        above = (self.nearest >= 0) & (self.above_chance[best] > 1 - RELATED)
        return ~self.related & np.isfinite(self.p_layer) & (above | (self.p_layer <= LEVEL))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """One finding for each source layer: is it closer to some target layer than unrelated layers would be?"""
        flags = zip(self.related, self._undecided, strict=True)
        return tuple(self._finding(i, *both) for i, both in enumerate(flags))

    def _finding(self, i: int, related: bool, undecided: bool) -> Finding:
        layer, j = self.source_layers[i], int(self.nearest[i])
        claim = f"{layer} of {self.source} is closer to a layer of {self.target} than unrelated layers would be."
        if j < 0:
            return Finding(layer, claim, "unknown", evidence="The measure is undefined for this layer.")
        value, null, above = (float(x[i, j]) for x in (self.nearness, self.null, self.above_chance))
        status: Status = "holds" if related else "ambiguous" if undecided else "fails"
        evidence, written = f"The closest layer is {self.target_layers[j]}: ", percent if self.held_out else number
        evidence += f"held-out {self.measure} error " if self.held_out else f"{self.measure} "
        if math.isnan(above):
            text = f"{evidence}{written(value)}, without a null."
            return Finding(layer, claim, "unknown", evidence=text, number=value)
        if self.held_out:
            evidence += f"{percent(1 - above)} of chance ({percent(value)} of the diameter)"
        else:
            evidence += f"{number(value)}, null {number(null)}, {percent(above)} above chance"
        p = float(self.p_layer[i])
        if math.isnan(p):
            return Finding(layer, claim, "unknown", evidence=f"{evidence}; not tested.", number=value, null=null)
        if self.interval is not None:
            low, high = (written(float(end[i, j])) for end in self.interval)
            unit = " of the diameter" if self.held_out else ""
            evidence += f"; 95 % interval over seeds and rows {low} to {high}{unit}"
        evidence += f"; p {number(p)}, over all pairs {number(float(np.nanmin(self.p[i])))}."
        return Finding(layer, claim, status, evidence=evidence, number=value, null=null)

    @property
    def headlines(self) -> tuple[str, ...]:
        """The sentences of the verdict."""
        known, related = self.nearest >= 0, self.related
        if not known.any():
            return ("No pair of layers has a defined value.",)
        if not self.judged:
            return (f"There is no null to judge by: set nulls to at least {FEWEST}.", *self._in_place(known))
        if self.dependence is not None and self.dependence.matters:
            return (HEADLINES["dependent"], dependence_sentence(self.dependence), *self._in_place(known))
        if not self.tested:
            return ("There are too few re-pairings to judge by.", *self._in_place(known))
        undecided = int(self._undecided.sum())
        rest = (f"Too few rows to decide: {undecided} of {len(related)} layers.",) if undecided else ()
        if not related.any():
            none = f"No layer of {self.source} is closer to a layer of {self.target} than unrelated layers would be."
            return (none, *rest)
        who = "All" if related.all() else f"{related.sum()} of"
        many = f"{who} {len(related)} layers of {self.source} are closer"
        if len(related) == 1:
            many = f"The layer of {self.source} is closer"
        answer = f"{many} to some layer of {self.target} than unrelated layers would be."
        return (answer, *self._in_place(related), *self._seeds(), *rest)

    def _in_place(self, judged: Array) -> tuple[str, ...]:
        """The number of these layers whose closest layer has the same position, where both runs have as many layers."""
        if len(self.source_layers) != len(self.target_layers) or len(judged) < 2:
            return ()
        in_place = int((judged & (self.nearest == np.arange(len(judged)))).sum())
        return (f"{in_place} of {judged.sum()} are closest to the layer in the same position.",)

    def _seeds(self) -> tuple[str, ...]:
        """In how many pairs of seeds the closest layer is the one of the mean, where there are several."""
        if self.by_seed is None:
            return ()
        known = np.isfinite(self.by_seed)
        sign = 1.0 if self.direction.startswith("higher") else -1.0
        pairs = self.by_seed.shape[0] * self.by_seed.shape[1]
        best = np.where(known, sign * self.by_seed, -np.inf).argmax(-1)  # (seeds, seeds, source layers)
        mean = np.where(np.isfinite(self.nearness), sign * self.nearness, -np.inf).argmax(-1)
        same = int((best == mean).all(-1).sum())
        return (f"The closest layers are the same in {same} of {pairs} pairs of seeds.",)

    def parts(self) -> dict[tuple[str, str], LayerPair]:
        """The pairs by (source layer, target layer)."""
        none = np.full(self.nearness.shape, np.nan)
        ends = (none, none) if self.interval is None else self.interval
        matrices = (self.nearness, self.null, self.above_chance, self.share_of_chance, self.p, *ends)
        pairs = {}
        for i, row in enumerate(self.source_layers):
            for j, column in enumerate(self.target_layers):
                near, null, above, share, p, low, high = (float(x[i, j]) for x in matrices)
                nearest = bool(self.nearest[i] == j)
                pairs[row, column] = LayerPair(row, column, near, null, above, share, p, low, high, nearest)
        return pairs

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per pair of layers."""
        return (dict(vars(pair)) for pair in self.parts().values())

    def numbers(self) -> LayerNumbers:
        """The matrices, the names of the layers and the closest layer of each."""
        values: dict[str, Any] = {name: getattr(self, name) for name in LayerNumbers.__annotations__}
        values["nearest"] = [self.target_layers[j] if j >= 0 else None for j in self.nearest]
        return cast(LayerNumbers, as_data(values))

    def document(self) -> Document:
        """Headline, a heat map of all pairs, and the closest layer of each."""
        from congruence.align._layers_document import describe

        return describe(self)
