"""What every metric returns: its scores, why a score is undefined, and notes on how it was computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypedDict


class NoteData(TypedDict):
    """A note in JSON."""

    text: str
    factors: list[str]
    metrics: list[str]


class Note(str):
    """A sentence on how a score was computed, with the factors and metrics that it is about as attributes.

    >>> Note("cut into 10 bins of equal width", ["hue", "size"], ["mig"])
    'hue, size: cut into 10 bins of equal width (mig).'

    Parameters
    ----------
    text : str
        The statement, without the names of the factors; a full stop is added.
    factors : iterable of str, default ()
        The factors that it is about.
    metrics : iterable of str, default ()
        The metrics that it is about.
    """

    text: str
    factors: tuple[str, ...]
    metrics: tuple[str, ...]

    def __new__(cls, text: str, factors: Iterable[str] = (), metrics: Iterable[str] = ()) -> Note:
        """Compose the sentence."""
        factors, metrics = tuple(factors), tuple(metrics)
        subject = f"{', '.join(factors)}: " if factors else ""
        source = f" ({', '.join(metrics)})" if metrics else ""
        stop = "" if text.endswith(".") and not source else "."
        note = super().__new__(cls, f"{subject}{text}{source}{stop}")
        note.text, note.factors, note.metrics = text, factors, metrics
        return note

    def __getnewargs__(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:  # type: ignore[override]
        return self.text, self.factors, self.metrics

    def to_dict(self) -> NoteData:
        """The note as plain data."""
        return {"text": self.text, "factors": list(self.factors), "metrics": list(self.metrics)}


def note_if(factors: Iterable[str], text: str) -> tuple[Note, ...]:
    """A note about these factors; none without factors."""
    factors = tuple(factors)
    return (Note(text, factors),) if factors else ()


def merge_notes(general: Iterable[Note], by_metric: Mapping[str, Iterable[Note]]) -> tuple[Note, ...]:
    """Merge notes with the same text: one note for all its factors, and for all metrics that have the same factors.

    `general` notes belong to no metric. They come first, and are dropped from the notes of metrics.
    """
    general = tuple(general)
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for metric, notes in by_metric.items():
        for one in _merge_factors(one for one in notes if one not in general):
            merged.setdefault((one.text, one.factors), []).append(metric)
    return (*_merge_factors(general), *(Note(text, factors, metrics) for (text, factors), metrics in merged.items()))


def _merge_factors(notes: Iterable[Note]) -> list[Note]:
    factors: dict[str, dict[str, None]] = {}
    for one in notes:
        factors.setdefault(one.text, {}).update(dict.fromkeys(one.factors))
    return [Note(text, names) for text, names in factors.items()]


@dataclass(frozen=True, eq=False, kw_only=True)
class MetricResult:
    """Scores of one metric; subclasses add the scores and the numbers behind them as fields."""

    headline: ClassVar[tuple[str, ...]] = ()  # fields that are headline scores

    reasons: dict[str, str]  # why a score is not finite
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline scores by name."""
        return {name: getattr(self, name) for name in self.headline}
