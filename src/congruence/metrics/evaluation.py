"""What `evaluate_codes` returns: one score a row, with its interval and chance level, and what a page needs to show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.errors import MissingDependencyError
from congruence.metrics.structural import StructuralNearness
from congruence.result import json_text


@dataclass(frozen=True)
class Score:
    """One headline score of one metric."""

    metric: str  # such as "infomec"
    score: str  # such as "infom"
    value: float  # NaN where there is none; see `reason`
    low: float  # 90 % interval over rows (or clusters) drawn anew; NaN where it was not asked for
    high: float
    chance: float  # mean of the same score with the rows of codes and factors paired at random
    range: tuple[float, float]
    direction: str  # "higher is better" or "lower is better"
    reason: str = ""  # why the value is NaN, or infinite; JSON has neither and says null

    @property
    def beats_chance(self) -> bool | None:
        """Whether the whole interval lies on the better side of chance; None where that cannot be said."""
        if any(math.isnan(x) for x in (self.value, self.low, self.high, self.chance)):
            return None
        return self.low > self.chance if self.direction.startswith("higher") else self.high < self.chance


@dataclass(frozen=True)
class FactorRow:
    """What the codes tell of one factor."""

    factor: str
    kind: str
    levels: int  # distinct values
    code: str  # the code that tells most of it; empty where none does
    share: float  # normalised information of that code about the factor
    second: float  # and of the next best code
    linear: float  # R2 of all codes together, on rows held out; NaN where it was not asked for
    nonlinear: float
    explained: bool  # whether any code, or all together, tell more of it than chance


@dataclass(frozen=True)
class CodeRow:
    """What one code tells of the factors."""

    code: str
    factor: str  # the factor it tells most of; empty where it tells nothing
    share: float
    modularity: float  # share of its information that this factor has; NaN for a code that does not vary
    active: bool  # whether it varies enough to count
    idle: bool  # whether it tells no more of any factor than chance


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Learned codes against true factors."""

    name: str
    n: int
    codes: tuple[str, ...]  # names, (L,)
    factors: tuple[str, ...]  # names, (K,)
    scores: tuple[Score, ...]
    matrices: Mapping[str, Float]  # each (K, L): "nmi" always, "importance" with dci, "correlation" with mcc
    per_factor: tuple[FactorRow, ...]
    per_code: tuple[CodeRow, ...]
    order: tuple[int, ...]  # of the codes, that puts the code matched to each factor on the diagonal, the rest after
    structural: StructuralNearness | None  # Definition 2, where it was asked for
    sensitivity: tuple[Mapping[str, float], ...]  # scores for several numbers of bins, where they were asked for
    sample: tuple[Float, Float]  # (m, L) codes and (m, K) factors of some rows, for plots
    levels: Mapping[str, tuple[str, ...]]  # of factors given as words: what each number of the sample stands for
    notes: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[
        Evaluation, ...
    ] = ()  # the same rows with other codes, to compare with: the first is what came before

    @property
    def unexplained(self) -> tuple[str, ...]:
        """Factors that were measured and of which no code tells more than chance."""
        return tuple(row.factor for row in self.per_factor if not row.explained and not math.isnan(row.share))

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Factors of which nothing can be said: they are constant, or no two rows share a class; see `notes`."""
        return tuple(row.factor for row in self.per_factor if math.isnan(row.share))

    @property
    def idle(self) -> tuple[str, ...]:
        """Codes that tell no more of any factor than chance."""
        return tuple(row.code for row in self.per_code if row.idle)

    def __getitem__(self, score: str) -> Score:
        for one in self.scores:
            if one.score == score:
                return one
        raise KeyError(f"no score {score!r}; there are {', '.join(one.score for one in self.scores)}")

    def table(self) -> list[dict[str, Any]]:
        """One row per score: a tidy table. Where there are evaluations beside it, their rows follow, with names."""
        if not self.beside:
            return self._rows()
        return [{"codes": one.name} | row for one in (self, *self.beside) for row in one._rows()]

    def _rows(self) -> list[dict[str, Any]]:
        names = ("metric", "score", "value", "low", "high", "chance", "direction", "reason")
        return [{name: getattr(one, name) for name in names} for one in self.scores]

    def to_frame(self) -> Any:
        """The same as a pandas data frame."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingDependencyError(
                "a data frame needs pandas: pip install pandas; table() does without"
            ) from error
        return pd.DataFrame(self.table())

    def to_dict(self) -> dict[str, Any]:
        """Everything but the sample of rows, as plain dicts, lists and numbers."""
        near = self.structural
        return {
            "name": self.name,
            "n": self.n,
            "codes": list(self.codes),
            "factors": list(self.factors),
            "scores": [{**row, "range": list(one.range)} for row, one in zip(self._rows(), self.scores, strict=True)],
            "matrices": {name: np.asarray(matrix).tolist() for name, matrix in self.matrices.items()},
            "per_factor": [asdict(row) for row in self.per_factor],
            "per_code": [asdict(row) for row in self.per_code],
            "unexplained": list(self.unexplained),
            "unmeasured": list(self.unmeasured),
            "idle": list(self.idle),
            "structural": None if near is None else {group: near.groups[group].to_dict() for group in near.asked},
            "sensitivity": [dict(row) for row in self.sensitivity],
            "notes": list(self.notes),
            "settings": dict(self.settings),
            **({"beside": [one.to_dict() for one in self.beside]} if self.beside else {}),
        }

    def to_json(self) -> str:
        """The same as JSON text."""
        return json_text(self.to_dict())
