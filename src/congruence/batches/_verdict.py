"""The sentences, findings and mean scores of a `Deconfounding`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from congruence.batches._numbers import mean_of
from congruence.batches.deconfounding import ON_ALL
from congruence.formatting import UNDEFINED, count
from congruence.result import Finding

if TYPE_CHECKING:
    from congruence.batches.deconfounding import Deconfounding, Paired, Score


class Words(NamedTuple):
    """The names of a condition: as a label, at the start of a sentence and within one; and its meaning."""

    label: str
    subject: str
    inside: str
    meaning: str


WORDS = {
    "base": Words("base", "The embedding", "the embedding", "the embedding unchanged"),
    "whitened": Words("whitened", "Whitening", "whitening", "principal components scaled to unit variance"),
    "ica": Words("ICA", "ICA", "ICA", "whitened and rotated to independent components"),
    "rotated": Words(
        "random rotation", "A random rotation", "a random rotation", "whitened and rotated at random: arbitrary axes"
    ),
    "standardised": Words(
        "standardised",
        "Standardisation",
        "standardisation",
        "each batch minus the mean of its controls, divided by their standard deviation",
    ),
    "tvn": Words("TVN", "TVN", "TVN", "whitened by the controls, each batch aligned on its own controls"),
    "harmony": Words("Harmony", "Harmony", "Harmony", "batches aligned within clusters, all rows at once"),
}
WHY = {"rotated": ", so the axes matter", "whitened": ", so the gain is not due to whitening alone"}


def kind_of(condition: str) -> str:
    """The kind of a condition, whatever rows it was fitted on."""
    return condition.removesuffix(ON_ALL)


def words_for(condition: str) -> Words:
    """The names of a condition, which state whether it was fitted on all rows."""
    words = WORDS[kind_of(condition)]
    if kind_of(condition) == condition:
        return words
    return Words(
        words.label + ON_ALL,
        f"{words.subject} (fitted on all rows)",
        f"{words.inside} (fitted on all rows)",
        words.meaning,
    )


def headlines_of(result: Deconfounding) -> tuple[str, ...]:
    """The answer, the mean AUROC, the contrasts of the main condition, and other conditions that beat base."""
    main = result.main_condition
    values = ", ".join(f"{words_for(name).label} {three(result.mean(name))}" for name in dict.fromkeys(("base", main)))
    means = f"Mean AUROC over {count(len(result.targets), 'target')}: {values}."
    better = [words_for(n).label for n, one in result.overall.items() if one.status == "holds" and n != main]
    also = [f"Also better than base: {', '.join(better)}."] if better else []
    return (_answer(result, main), means, *filter(None, map(_contrast, result.contrasts)), *also)


def _answer(result: Deconfounding, main: str) -> str:
    paired, words = result.overall.get(main), words_for(main)
    if paired is None:
        return f"On held-out batches, the embedding has a mean AUROC of {three(result.mean('base'))}."
    change = f"AUROC {difference(paired)}"
    return {
        "holds": f"{words.subject} improves classification on held-out batches: {change}.",
        "fails": f"{words.subject} worsens classification on held-out batches: {change}.",
        "ambiguous": f"{words.subject} has no clear effect on held-out batches: {change}.",
        "unknown": f"The effect of {words.inside} on held-out batches is unknown: too few folds could be scored.",
    }[paired.status]


def _contrast(paired: Paired) -> str:
    one, other = words_for(paired.condition), words_for(paired.reference)
    if paired.status == "unknown":
        return ""
    if kind_of(paired.condition) == paired.reference:
        return f"When {other.inside} is fitted on the held-out batches too, the AUROC changes by {difference(paired)}."
    return {
        "holds": f"{one.subject} is better than {other.inside}: {difference(paired)}{WHY.get(paired.reference, '')}.",
        "fails": f"{one.subject} is worse than {other.inside}: {difference(paired)}.",
        "ambiguous": f"{one.subject} is indistinguishable from {other.inside}: {difference(paired)}.",
    }[paired.status]


def findings_of(result: Deconfounding) -> tuple[Finding, ...]:
    """A finding for each condition against base, the main one first, and for each contrast of the main one."""
    main = result.main_condition
    order = sorted(result.overall, key=lambda name: name != main)
    findings = [
        _finding(name, f"{words_for(name).subject} improves the AUROC on held-out batches.", result.overall[name])
        for name in order
    ]
    for one in result.contrasts:
        claim = f"{words_for(one.condition).subject} is better than {words_for(one.reference).inside}."
        findings.append(_finding(f"{one.condition} against {one.reference}", claim, one))
    return tuple(findings)


def _finding(name: str, claim: str, paired: Paired) -> Finding:
    known = not math.isnan(paired.low)
    return Finding(
        name,
        claim,
        paired.status,
        evidence=f"AUROC {difference(paired)}, {count(paired.folds, 'fold')}."
        if known
        else f"Only {count(paired.folds, 'fold')} could be scored.",
        number=paired.difference if math.isfinite(paired.difference) else None,
        interval=(paired.low, paired.high) if known else None,
        null=0.0,
    )


@dataclass(frozen=True)
class MeasureMeans:
    """The mean of one measure over targets, by condition, and its chance level."""

    name: str
    means: dict[str, float]
    chance: float
    short: str  # for narrow tables

    def to_dict(self) -> dict[str, Any]:
        """The measure as plain data."""
        return {"measure": self.name, "means": dict(self.means), "chance": self.chance}


def measures_of(result: Deconfounding) -> list[MeasureMeans]:
    """AUROC, sparsity, concentration, batch accuracy and replicate precision: means over the targets."""
    reading = result.settings.get("reading", "difference")

    def mean(name: str, of: Callable[[Any], Any], chance: float, short: str) -> MeasureMeans:
        scores = {one: [target.scores[one] for target in result.targets] for one in result.conditions}
        means = {one: mean_of(np.array([mean_of(of(score)) for score in some])) for one, some in scores.items()}
        return MeasureMeans(name, means, chance, short)

    measures = [
        mean("AUROC", lambda score: score.auroc, 0.5, "AUROC"),
        mean("AUROC within batches", lambda score: score.within, 0.5, "within"),
        mean("sparsity", lambda score: score.sparsity, math.nan, "sparsity"),
    ]
    for j, one in enumerate(result.targets[0].scores["base"].concentration):
        name = f"top {100 * one.share:g} % {'− rest' if reading == 'difference' else '/ rest − 1'}"
        measures.append(mean(name, partial(_concentration, j, reading), 0.0, f"top {100 * one.share:g} %"))
    for name, short, levels in (
        ("batch accuracy", "batch", result.leakage),
        ("replicate precision", "replicates", result.retrieval),
    ):
        if levels:
            means = {condition: one.mean for condition, one in levels.items()}
            measures.append(MeasureMeans(name, means, levels["base"].by_chance, short))
    return measures


def _concentration(place: int, reading: str, score: Score) -> Any:
    return getattr(score.concentration[place], reading)


def three(value: float) -> str:
    """A score with three decimals."""
    return UNDEFINED if not math.isfinite(value) else f"{value:.3f}".replace("-", "−")


def signed(value: float) -> str:
    """A difference of scores with its sign and three decimals."""
    return UNDEFINED if not math.isfinite(value) else f"{value:+.3f}".replace("-", "−")


def difference(paired: Paired) -> str:
    """A difference with its 95 % interval."""
    return f"{signed(paired.difference)} (95 % interval {signed(paired.low)} to {signed(paired.high)})"
