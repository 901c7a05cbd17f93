"""The sentences, findings and mean scores of a `Deconfounding`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from congruence.batches._inference import FEWEST_UNITS, LEVEL, ON_ALL
from congruence.formatting import UNDEFINED, count, fixed, signed
from congruence.metrics._estimators import mean_of_finite
from congruence.result import Finding

if TYPE_CHECKING:
    from congruence.batches._inference import Paired
    from congruence.batches.deconfounding import Deconfounding, Score


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
CEILING = 0.97  # AUROC of base above which little can be gained
WHY = {"rotated": ", so the axes matter", "whitened": ", so the gain is not due to whitening alone"}


def kind_of(condition: str) -> str:
    """The kind of a condition, whatever rows it was fitted on."""
    return condition.removesuffix(ON_ALL)


def words_for(condition: str) -> Words:
    """The names of a condition, which state whether it was fitted on all rows."""
    words = WORDS[kind_of(condition)]
    if kind_of(condition) == condition:
        return words
    subject, inside = (f"{one} (fitted on all rows)" for one in (words.subject, words.inside))
    return Words(words.label + ON_ALL, subject, inside, words.meaning)


def headlines_of(result: Deconfounding) -> tuple[str, ...]:
    """The answer, the mean AUROC, targets without a score, reservations, contrasts, and other conditions."""
    main = result.main_condition
    own = result.overall[main].status if main in result.overall else None
    also = [
        f"{f'Also {word}' if own == status else word.capitalize()} than base: {', '.join(names)}."
        for status, word in (("holds", "better"), ("fails", "worse"))
        if (names := [words_for(n).label for n, one in result.overall.items() if one.status == status and n != main])
    ]
    contrasts = filter(None, map(_contrast, result.contrasts))
    return (_answer(result, main), _means(result, main), *_reservations(result), *contrasts, *also)


def _means(result: Deconfounding, main: str) -> str:
    """The mean AUROC of base and of the main condition, and which targets it leaves out."""
    values = ", ".join(f"{words_for(name).label} {three(result.mean(name))}" for name in dict.fromkeys(("base", main)))
    absent = [one.name for one in result.targets if not one.judged] + list(result.skipped)
    scored = len(result.scored)
    if not absent:
        return f"Mean AUROC over {count(scored, 'target')}: {values}."
    total = count(scored + len(absent), "target")
    return f"Mean AUROC over {scored} of {total}: {values} (too few batches or rows for {some_of(absent)})."


def _reservations(result: Deconfounding) -> Iterator[str]:
    """Targets without an interval, nested batches, targets at the ceiling, and the size of the batch effect."""
    few = [one.name for one in result.scored if one.paired and all(p.units < FEWEST_UNITS for p in one.paired.values())]
    if few:
        yield (
            f"{count(len(few), 'target')} scored on fewer than {FEWEST_UNITS} {units_of(result)} "
            f"{'has' if len(few) == 1 else 'have'} no interval: {some_of(few)}."
        )
    if result.nesting is not None:
        column = result.nesting.column
        yield (
            f"The {result.batches} batches are nested in {result.nesting.groups} groups ({column}), which explain "
            f"{percent(result.nesting.share)} of the variance between batches. Training and held-out batches share "
            f"groups, so new groups may be harder: hold them out with cluster={column} (--cluster {column})."
        )
    high = sum(one.scores["base"].mean >= CEILING for one in result.scored)
    if high and 2 * high >= len(result.scored):
        yield (
            f"{high} of {count(len(result.scored), 'target')} {'has' if high == 1 else 'have'} an AUROC of at least "
            f"{CEILING} in the embedding itself, so little can be gained there."
        )
    share = result.variance.get("base", math.nan)
    if math.isfinite(share):
        yield f"Batches explain {percent(share)} of the variance of controls (mean ω² over the features)."


def units_of(result: Deconfounding) -> str:
    """What intervals are computed over."""
    return "groups of batches" if "cluster" in result.settings else "batches"


def some_of(names: Sequence[str], most: int = 4) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def percent(share: float) -> str:
    """A share of the variance in per cent."""
    return f"{100 * share:.1f} %" if share < 0.095 else f"{100 * share:.0f} %"


def _answer(result: Deconfounding, main: str) -> str:
    paired, words = result.overall.get(main), words_for(main)
    if paired is None:
        return f"On held-out batches, the embedding has a mean AUROC of {three(result.mean('base'))}."
    change = f"AUROC {difference(paired)}"
    return {
        "holds": f"{words.subject} improves classification on held-out batches: {change}.",
        "fails": f"{words.subject} worsens classification on held-out batches: {change}.",
        "ambiguous": f"{words.subject} has no clear effect on held-out batches: {change}.",
        "unknown": f"The effect of {words.inside} on held-out batches is unknown: fewer than {FEWEST_UNITS} "
        f"{units_of(result)} could be scored.",
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
        "ambiguous": f"{one.subject} does not clearly differ from {other.inside}: {difference(paired)}.",
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
        evidence=f"AUROC {difference(paired)}, {count(paired.units, 'held-out unit')}."
        if known
        else f"Only {count(paired.units, 'held-out unit')} could be scored.",
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
        means = {
            one: mean_of_finite(np.array([mean_of_finite(of(score)) for score in some])) for one, some in scores.items()
        }
        return MeasureMeans(name, means, chance, short)

    measures = [
        mean("AUROC", lambda score: score.auroc, 0.5, "AUROC"),
        mean("AUROC within batches", lambda score: score.within, 0.5, "within"),
        mean("sparsity", lambda score: score.sparsity, math.nan, "sparsity"),
    ]
    if len(result.variance) == len({kind_of(name) for name in result.conditions}):
        shares = {name: result.variance[kind_of(name)] for name in result.conditions}
        measures.append(MeasureMeans("controls' variance between batches", shares, 0.0, "batch variance"))
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
    if all(one.precision for one in result.targets):
        found = {name: [one.precision[name] for one in result.targets] for name in result.conditions}
        means = {name: mean_of_finite(np.array([one.mean for one in some])) for name, some in found.items()}
        chance = mean_of_finite(np.array([one.chance for one in found["base"]]))
        measures.append(MeasureMeans("mAP among controls", means, chance, "mAP"))
        shares = {
            name: mean_of_finite(np.array([float(one.adjusted <= LEVEL) for one in some if one.queries]))
            for name, some in found.items()
        }
        measures.append(MeasureMeans("targets with mAP above chance", shares, math.nan, "found"))
    return measures


def _concentration(place: int, reading: str, score: Score) -> Any:
    return getattr(score.concentration[place], reading)


def three(value: float) -> str:
    """A score with three decimals."""
    return fixed(value, 3) if math.isfinite(value) else UNDEFINED


def difference(paired: Paired) -> str:
    """A difference with its 95 % interval; if that excludes 0, with the p value for all comparisons together."""
    interval = f"95 % interval {signed(paired.low)} to {signed(paired.high)}"
    if paired.low <= 0 <= paired.high or paired.comparisons < 2:
        return f"{signed(paired.difference)} ({interval})"
    corrected = f"{p_value(paired.adjusted)} corrected for {paired.comparisons} comparisons"
    return f"{signed(paired.difference)} ({interval}; {corrected})"


def p_value(p: float) -> str:
    """A p value in words."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
