"""Notes of several metrics, each said once and with those that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from congruence.metrics.factors import Factors

VERBS = ("was ", "has ", "is ")


def gathered(notes: Mapping[str, Iterable[str]], s: Factors) -> list[str]:
    """Notes by metric as sentences: the same of several factors in one, with the metrics that say it in front.

    How kinds of factors were chosen is no matter of one metric, so that comes first and without them.
    """
    by_metric: dict[str, list[str]] = {}
    for metric, sentences in notes.items():
        for sentence in _joined(dict.fromkeys(one for one in sentences if one not in s.notes), s.names):
            by_metric.setdefault(sentence, []).append(metric.replace("_", " "))
    return [*_joined(s.notes, s.names), *(f"{', '.join(who)}: {sentence}" for sentence, who in by_metric.items())]


def _joined(sentences: Iterable[str], names: Iterable[str]) -> list[str]:
    """Sentences that begin with the name of a factor and then say the same become one."""
    joined: dict[str, list[str]] = {}
    for sentence in sentences:
        name = max((one for one in names if sentence.startswith(f"{one} ")), key=len, default="")
        joined.setdefault(sentence[len(name) :].lstrip(), []).append(name)
    return [_sentence(rest, subjects) for rest, subjects in joined.items()]


def _sentence(rest: str, subjects: list[str]) -> str:
    if len(subjects) < 2:
        return f"{subjects[0]} {rest}".lstrip()
    verb = next((verb for verb in VERBS if rest.startswith(verb)), "")
    return f"{', '.join(subjects)}: {rest[len(verb) :]}"
