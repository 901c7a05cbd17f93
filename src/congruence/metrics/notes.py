"""Remarks of metrics: text that keeps the factors and the metrics it is about, so that equal remarks can be merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict


class NoteData(TypedDict):
    """A note in JSON."""

    text: str
    factors: list[str]
    metrics: list[str]


class Note(str):
    """A remark as a sentence; what it says, and about which factors and metrics, are attributes.

    >>> Note("cut into 10 bins of equal width", ["hue", "size"], ["mig"])
    'hue, size: cut into 10 bins of equal width (mig).'
    """

    text: str
    factors: tuple[str, ...]
    metrics: tuple[str, ...]

    def __new__(cls, text: str, factors: Iterable[str] = (), metrics: Iterable[str] = ()) -> Note:
        """Make a note; `text` names none of the factors, and needs no full stop."""
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
    """A note about these factors; none where there are no such factors."""
    factors = tuple(factors)
    return (Note(text, factors),) if factors else ()


def merge_notes(general: Iterable[Note], by_metric: Mapping[str, Iterable[Note]]) -> tuple[Note, ...]:
    """Merge notes with the same text: one note for all its factors, and for all metrics that have the same factors.

    `general` notes belong to no metric: they come first, and are dropped where a metric repeats them.
    """
    general = tuple(general)
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for metric, notes in by_metric.items():
        for one in _by_text(one for one in notes if one not in general):
            merged.setdefault((one.text, one.factors), []).append(metric)
    return (*_by_text(general), *(Note(text, factors, metrics) for (text, factors), metrics in merged.items()))


def _by_text(notes: Iterable[Note]) -> list[Note]:
    factors: dict[str, dict[str, None]] = {}
    for one in notes:
        factors.setdefault(one.text, {}).update(dict.fromkeys(one.factors))
    return [Note(text, names) for text, names in factors.items()]
