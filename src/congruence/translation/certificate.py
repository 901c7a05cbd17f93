"""The quality of a translation on rows that its map was not fitted on, as data."""

from __future__ import annotations

from dataclasses import dataclass

from congruence.maps.dependence import Dependence
from congruence.maps.nearness import HeldOut

DRIFT = 0.05  # a nonlinear map that predicts this share of the residual is drift
RISING = 0.01  # increase of the recall over the last step of the curve from which more rows would help
ENOUGH = 0.02  # below the last recall of the learning curve: a point above this has enough rows


@dataclass(frozen=True)
class SizePoint:
    """The recall@10 in an index of this many rows, with a 95 % interval; `extrapolated` where it was not measured."""

    rows: int
    recall: float
    low: float
    high: float
    extrapolated: bool


@dataclass(frozen=True)
class Containment:
    """The share of the 10 true nearest old vectors that are among the first `depth` translated results."""

    depth: int
    share: HeldOut


@dataclass(frozen=True)
class Retrieval:
    """How well translated queries search an index of `index_size` old vectors; every share from 0 to 1.

    `recall_k`: the share of a query's k true nearest old vectors (those of its old vector) that its translated vector
    finds; vectors at equal distance are exchangeable. `itself`: how often the nearest old vector is the query's own,
    where queries are rows that both models embedded; `before`: recall_10 of untranslated vectors; `chance`: that of
    the translated vectors of other queries. `rerank_depth`: the number of translated results that contain 99 % of the
    10 true nearest; None above 1000. `full`: the share of the new model's 10 nearest (what re-embedding everything
    would return) that translated queries find, and `full_old` the share that the old model finds; both among the paired
    rows.
    """

    index_size: int
    queries: int
    recall_1: HeldOut
    recall_10: HeldOut
    itself: float | None
    before: float
    chance: float
    containment: tuple[Containment, ...]
    rerank_depth: int | None
    sizes: tuple[SizePoint, ...]
    full: HeldOut | None = None
    full_old: float | None = None


@dataclass(frozen=True)
class Relevance:
    """Scores of a ranking against known relevant documents, mean over queries (linear gains, first 10 results)."""

    ndcg_10: float
    mrr_10: float
    recall_10: float


@dataclass(frozen=True)
class RelevanceTest:
    """Rankings of the old model, of translated queries and, if known, of the new model, against relevance judgements.

    `ratio` is the nDCG@10 of translated queries over that of full re-embedding (`new`); `ratio_old` is that over the
    old model's. `queries` have a relevant document in the index, `skipped` have none.
    """

    queries: int
    skipped: int
    old: Relevance
    translated: Relevance
    new: Relevance | None
    ratio: HeldOut | None
    ratio_old: HeldOut


@dataclass(frozen=True)
class Probe:
    """A linear probe trained on old vectors, tested on held-out rows: accuracy of classes, or R squared of numbers.

    `ideal` uses the true old vectors, `after` the translated ones, `before` the untranslated ones, and `baseline` none.
    """

    score: str
    ideal: float
    after: float
    before: float
    baseline: float


@dataclass(frozen=True)
class CurvePoint:
    """The recall@10 of maps fitted on this many paired rows, over several draws."""

    rows: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Drift:
    """The share of the linear map's held-out residual that a nonlinear map predicts; `found` if more than 5 %."""

    share: float
    found: bool


@dataclass(frozen=True)
class NearDuplicates:
    """Rows much closer to each other than to most of their neighbours, and their effect on the recall.

    `rows` of `n` have a near-duplicate. `recall` is the recall@10 with rows left out at random, `together` with
    near-duplicates left out together, on a sample; `matters` if that is clearly lower.
    """

    rows: int
    n: int
    recall: float
    together: float
    matters: bool


@dataclass(frozen=True)
class Certificate:
    """The quality of a translation, measured on rows that its maps were not fitted on.

    `by_group` is the recall@10 of every kind of map that was tried, on a sample of the rows. `dependence` and
    `duplicates` say whether rows depend on each other; they are None where clusters or separate queries were given.
    """

    retrieval: Retrieval
    probe: Probe | None
    curve: list[CurvePoint]
    drift: Drift
    relevance: RelevanceTest | None = None
    by_group: dict[str, float] | None = None
    dependence: Dependence | None = None
    duplicates: NearDuplicates | None = None

    @property
    def still_rising(self) -> bool:
        """Whether the learning curve still rises at its end, so that more paired rows would help."""
        return len(self.curve) > 1 and self.curve[-1].mean > self.curve[-2].mean + RISING

    @property
    def rows_enough(self) -> int | None:
        """The smallest number of paired rows from which on the recall stays within 0.02 of the last."""
        if len(self.curve) < 2:
            return None
        below = [i for i, point in enumerate(self.curve) if point.mean < self.curve[-1].mean - ENOUGH]
        return self.curve[max(below, default=-1) + 1].rows

    @property
    def depends(self) -> bool:
        """Whether rows depend on each other so much that the recall may be due to that."""
        return any(one is not None and one.matters for one in (self.dependence, self.duplicates))
