"""A `Deconfounding` as a document: differences from base, scores by target, explanations, feature profiles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import document as doc
from congruence.batches._inference import FEWEST_UNITS, LEVEL
from congruence.batches._verdict import (
    WORDS,
    MeasureMeans,
    kind_of,
    measures_of,
    p_value,
    three,
    units_of,
    words_for,
)
from congruence.batches.conditions import NAMES
from congruence.document import Block, Cell, Column, Details, Figure, Notes, Section, Table, Text, badge, document_of
from congruence.formatting import UNDEFINED, count, elided, signed
from congruence.metrics._estimators import mean_of_finite

if TYPE_CHECKING:
    from congruence.batches._inference import Paired
    from congruence.batches.deconfounding import Deconfounding, Target
    from congruence.batches.retrieval import Precision

WIDE = 5  # conditions that fit next to each other on a terminal
TOP_NOTES = 6  # at the top of the page; more are folded
PANELS = 4  # conditions whose features are drawn
DRAWN = 400  # features of a panel
FEATURES = 40  # listed
MARKS = {"holds": "▲ ", "fails": "▼ "}
SCORES = (
    (
        "AUROC",
        "the probability that a treated row scores above a control; 0.5 is chance, 1 is perfect. Batches without "
        "treated rows are not scored.",
    ),
    ("AUROC within batches", "the same, comparing only rows of the same batch."),
)
INTERVAL = {
    "folds": "95 %, paired; held-out batches (or groups of batches) are the sampling units, and the variance is "
    "increased because folds share training rows (Nadeau and Bengio 2003). It is not corrected for the number of "
    "comparisons; marks and verdicts are, by Holm’s method.",
    "batch": "95 %, paired; batches are the sampling units, for training and for scoring. It is not corrected for the "
    "number of comparisons; marks and verdicts are, by Holm’s method.",
}
EXPLANATIONS = (
    (
        "sparsity",
        "Hoyer’s measure of how few features the splits of the trees use: 0 if all are used equally, 1 if only one is.",
    ),
    (
        "top 25 % − rest",
        "concentration: the AUROC of trees that see only the most used features, against trees that see only the rest.",
    ),
    (
        "batch accuracy",
        "balanced accuracy of a linear prediction of the batch of controls, on held-out rows; invariant to rotations.",
    ),
    (
        "controls' variance between batches",
        "mean ω² over the features, fitted on all rows: 0 if batches do not differ, 1 if only they differ.",
    ),
    (
        "replicate precision",
        "mean average precision of finding the same target on other held-out batches, among other targets; by cosine, "
        "invariant to rotations.",
    ),
    (
        "mAP among controls",
        "mean average precision of finding the rows of a target on other batches among the controls there, for each "
        "held-out row (copairs, Kalinin et al. 2025). p values by permuting the target and controls within batches, "
        "corrected for the false discovery rate over targets.",
    ),
)


def describe(result: Deconfounding) -> doc.Document:
    """The document of a `Deconfounding`."""
    main = words_for(result.main_condition)
    protocol = result.settings.get("protocol", "folds")
    kinds = [name for name in NAMES if any(kind_of(one) == name for one in result.conditions)]
    notes = [*(f"{name} was not scored: {why}." for name, why in result.skipped.items()), *result.notes]
    few = len(notes) <= TOP_NOTES
    more = f"{len(notes) - TOP_NOTES + 1} more notes are at the end of the page and in the JSON."
    return document_of(
        result,
        f"{result.name}: does it generalise to unseen batches?",
        claim=f"Does {main.inside} help on held-out batches?" if result.overall else "Does a condition help?",
        remark=f"{result.n} rows × {result.d} dimensions, {result.batches} batches, {result.controls} controls, "
        f"{len(result.scored)} of {count(len(result.targets) + len(result.skipped), 'target')} scored",
        notes=notes if few else [*notes[: TOP_NOTES - 1], more],
        sections=tuple(_sections(result, [] if few else notes)),
        reading=(
            "A classifier can look good because it knows the batches it was trained on. Here it is scored on batches "
            "that it has never seen and that, unless stated otherwise, the transformation of the embedding has not "
            "seen either. Only the classifier sees the targets."
        ),
        glossary=(
            *SCORES,
            ("interval", INTERVAL[protocol]),
            *EXPLANATIONS,
            *((WORDS[name].label, WORDS[name].meaning) for name in kinds),
        ),
        about=result.name,
    )


def _sections(result: Deconfounding, folded: Sequence[str]) -> Iterator[Section]:
    if result.overall:
        rows = [
            (words_for(name).label, one, [target.paired[name].difference for target in result.targets])
            for name, one in result.overall.items()
        ]
        names = [target.name for target in result.targets]
        figure = Figure("condition_differences", (rows, names), wide=True, brief=True)
        yield Section("Difference from base", (figure, _differences(result)), id="differences")
    yield Section("Scores by target", tuple(_scores(result)), id="targets")
    yield Section("What explains it?", tuple(_explanation(result)), id="why")
    if result.profiles:
        yield Section("Which features carry biology, and which the batch?", tuple(_profiles(result)), id="features")
    if folded:
        yield Section("Notes", (Details(f"All {len(folded)} notes", (Notes(folded),)),), id="notes")


def _differences(result: Deconfounding) -> Table:
    names = ("difference", "95 % interval", "corrected p")
    columns = (Column("condition", "text"), *map(Column, names), Column("better?", "text"))
    rows = [
        (
            words_for(name).label,
            _difference(one, strong=True),
            _score(one.low, _interval(one) or UNDEFINED),
            _score(one.adjusted),
            badge(one.status),
        )
        for name, one in result.overall.items()
    ]
    many = len(result.overall) + len(result.contrasts)
    note = f"Mean over {count(len(result.scored), 'target')}, each counted once."
    note += f" p is corrected for {many} comparisons (Holm), so better or worse needs p ≤ 0.05." if many > 1 else ""
    if any(math.isnan(one.low) for one in result.overall.values()):
        note += f" {UNDEFINED}: fewer than {FEWEST_UNITS} {units_of(result)} could be scored."
    return Table("Difference in AUROC from base, all targets together", columns, rows, brief=True, note=note)


def _scores(result: Deconfounding) -> Iterator[Block]:
    many = sum(math.isfinite(paired.p) for one in result.targets for paired in one.paired.values())
    by_batch = " (one model per batch, scored on all others)" if result.settings.get("protocol") == "batch" else ""
    marks = "No target has an interval of its difference from base, so none is marked. " if result.overall else ""
    if many:
        marks = f"▲ better than base, ▼ worse (p ≤ 0.05, corrected for {count(many, 'comparison')} by Holm’s method); "
        marks += "no mark: no clear difference. "
    yield Text(
        f"AUROC of each target against controls on held-out batches{by_batch}, with its 95 % interval over "
        f"{units_of(result)}. {marks}Click a heading to sort.",
        muted=True,
    )
    labels = [words_for(name).label for name in result.conditions]
    cells = [[_auroc(one, name) for name in result.conditions] for one in result.targets]
    label = "AUROC on held-out batches, with its 95 % interval"
    if len(result.conditions) > WIDE > len(result.targets):  # transposed, it fits a terminal
        names = elided([one.name for one in result.targets], 24)
        columns = (Column("condition", "text"), *map(Column, names))
        yield Table(label, columns, list(zip(labels, *cells, strict=True)), brief=True, note=_below_scores(result))
    else:
        about = {"rows": [one.positives for one in result.targets], "batches": [one.batches for one in result.targets]}
        if "cluster" in result.settings:
            about["scored groups"] = [one.units for one in result.targets]
        if any(one.guides for one in result.targets):
            about["guides"] = [len(one.guides) for one in result.targets]
        columns = (Column("target", "name"), *map(Column, labels), *(Column(name, brief=False) for name in about))
        rows: list[Any] = [
            (one.name, *row, *facts) for one, row, *facts in zip(result.targets, cells, *about.values(), strict=True)
        ]
        footer: Any = ("mean", *(_score(result.mean(name)) for name in result.conditions), *[""] * len(about))
        footer = footer if len(rows) > 1 else ()
        yield Table(label, columns, rows, brief=True, footer=footer, note=_below_scores(result))
    if result.overall:
        columns = (Column("target", "name"), *(Column(words_for(name).label) for name in result.overall))
        rows = [(one.name, *(_difference(one.paired[name]) for name in result.overall)) for one in result.targets]
        few = any(p.units < FEWEST_UNITS for one in result.scored for p in one.paired.values())
        note = f"No interval: fewer than {FEWEST_UNITS} {units_of(result)} could be scored." if few else ""
        yield doc.Heading("Difference from base, with its 95 % interval")
        yield Table("Difference in AUROC from base by target", columns, rows, note=_unscored(result, note))
    if all(one.precision for one in result.targets):
        yield from _precisions(result)


def _precisions(result: Deconfounding) -> Iterator[Block]:
    """Mean average precision of the replicates of each target, with its p value."""
    yield doc.Heading("Are replicates found on other batches? Mean average precision among controls")
    columns = (
        Column("target", "name"),
        *(Column(words_for(name).label) for name in result.conditions),
        Column("chance of base"),
    )

    def cell(found: Precision) -> Cell:
        mark = "* " if found.adjusted <= LEVEL else ""
        below = "" if math.isnan(found.p) else p_value(found.adjusted)
        return _score(found.mean, mark + three(found.mean), below=below)

    rows: list[Any] = [
        (one.name, *(cell(one.precision[name]) for name in result.conditions), _score(one.precision["base"].chance))
        for one in result.targets
    ]
    note = "* above chance: p ≤ 0.05, corrected for the false discovery rate over targets. Chance is the mean over "
    note += "permutations of the target and controls within batches; each condition has its own, and the JSON has all."
    kinds = {kind_of(name) for name in result.conditions}
    same = [WORDS[name].label for name in ("whitened", "ica", "rotated") if name in kinds]
    if len(same) > 1:
        note += f" A rotation does not change cosines, so these are equal, fitted on the same rows: {', '.join(same)}."
    if any(math.isnan(found.mean) for one in result.targets for found in one.precision.values()):
        note += f" {UNDEFINED}: no held-out row has both replicates and controls on another batch with this target."
    yield Table("Mean average precision of replicates among controls", columns, rows, note=note)


def _below_scores(result: Deconfounding) -> str:
    """Draws of random rotations, and why scores or intervals are missing."""
    few = any(one.units < FEWEST_UNITS for one in result.scored)
    note = f"No interval: fewer than {FEWEST_UNITS} {units_of(result)} could be scored." if few else ""
    if any(score.error == 0 for one in result.scored for score in one.scores.values()):
        note += f" “In all”: the AUROC is equal in all {units_of(result)} that are scored, which gives no interval."
    return " ".join(filter(None, (_draws(result), _unscored(result, note.strip()))))


def _unscored(result: Deconfounding, note: str) -> str:
    """A note with the reason of every target without a score."""
    reasons = [f"{one.name}: {', '.join(one.missing)}" for one in result.targets if not one.judged]
    return " ".join(filter(None, (note, f"{UNDEFINED}: {'; '.join(reasons)}." if reasons else "")))


def _draws(result: Deconfounding) -> str:
    """How much random rotations differ: the mean AUROC of each."""
    sentences = []
    for name in result.conditions:
        draws = [one.scores[name].draws for one in result.targets]
        if len(draws[0]) > 1:
            means = ", ".join(three(value) for value in np.nanmean(np.array(draws), axis=0))
            sentences.append(f"Mean AUROC of each draw of “{words_for(name).label}”: {means}.")
    return " ".join(sentences)


def _auroc(target: Target, condition: str) -> Cell:
    score, paired = target.scores[condition], target.paired.get(condition)
    interval = "" if math.isnan(score.low) else f"{three(score.low)} to {three(score.high)}"
    if score.error == 0:
        interval = f"in all {target.units}"
    mark = "" if paired is None else MARKS.get(paired.status, "")
    hint = "" if target.judged else "; ".join(target.missing)
    return _score(score.mean, mark + three(score.mean), hint=hint, below=interval)


def _difference(paired: Paired, **more: Any) -> Cell:
    below = {} if more else {"below": _interval(paired)}
    return _score(paired.difference, signed(paired.difference), **more, **below)


def _explanation(result: Deconfounding) -> Iterator[Block]:
    reading = "a difference of AUROC" if result.settings.get("reading") != "ratio" else "a ratio of AUROC, minus 1"
    compared = (
        "Concentration compares trees that see only the most used features with trees that see only the rest (as "
        f"{reading}). "
    )
    asked = bool(result.targets[0].scores["base"].concentration)
    yield Text(
        f"Means over the targets. Sparse trees use few features. {compared if asked else ''}"
        "The batch is predicted from held-out controls; replicates are searched for across batches.",
        muted=True,
    )
    measures = measures_of(result)
    note = _missing_measures(result, measures)
    labels = [words_for(name).label for name in result.conditions]
    cells = [[*(_score(one.means[name]) for name in result.conditions), _score(one.chance)] for one in measures]
    if len(labels) > WIDE:  # transposed, it fits a terminal
        columns = (Column("condition", "text"), *(Column(one.short) for one in measures))
        rows: list[Any] = list(zip([*labels, "chance"], *cells, strict=True))
        yield Table("Means over the targets", columns, rows, brief=True, note=note)
    else:
        columns = (Column("measure", "text"), *map(Column, labels), Column("chance"))
        rows = [(one.name, *row) for one, row in zip(measures, cells, strict=True)]
        yield Table("Means over the targets", columns, rows, brief=True, note=note)


def _missing_measures(result: Deconfounding, measures: Sequence[MeasureMeans]) -> str:
    """Why measures have no value."""
    alone = "there is one target, so no other targets to rank" if len(result.targets) == 1 else ""
    why = {
        "sparsity": "no model made a split",
        "batch accuracy": "no fold holds out two batches with at least four controls each",
        "replicate precision": alone or "no fold holds out a target on two batches",
        "mAP among controls": "no held-out row has both replicates and controls on another batch",
    }
    blank = [one.name for one in measures if not any(map(math.isfinite, one.means.values()))]
    reasons = [f"{name}: {why.get(name, 'there is a single feature')}" for name in blank]
    return f"{UNDEFINED}: {'; '.join(['sparsity and shares of targets have no chance level', *reasons])}."


def _profiles(result: Deconfounding) -> Iterator[Block]:
    many = any(len(one.technical) > DRAWN for one in result.profiles.values())
    yield Text(
        "One point for each feature, fitted on all rows. Vertical: how well it separates a target from controls of the "
        "same batch. Horizontal: the share of its variance among controls that lies between batches. Top left: "
        "biology alone; top right: biology and batch share a feature. Dashed: the 95 % level of chance for the largest "
        "value over all targets, which is drawn; 5 % of unrelated features lie above it."
        + (f" Of more than {DRAWN} features, the {DRAWN} most biological or technical are drawn." if many else ""),
        muted=True,
    )
    shown = [name for name in NAMES if name in result.profiles][:PANELS]
    profiles = [(words_for(name).label, result.profiles[name]) for name in shown]
    yield Figure("feature_profiles", (profiles, [target.name for target in result.targets]), wide=True)
    columns = (Column("condition", "text"), Column("technical share of the biological features"))
    rows = [(words_for(name).label, _score(mean_of_finite(one.entangled))) for name, one in result.profiles.items()]
    yield Table("Technical share of the biological features", columns, rows, note="Lower is cleaner.")
    yield Details("Features one by one", (_features(result),))


def _features(result: Deconfounding) -> Table:
    """The most biological or technical features of ICA, or of the last condition."""
    name = "ica" if "ica" in result.profiles else list(result.profiles)[-1]
    profile = result.profiles[name]
    strongest, technical = np.nan_to_num(profile.strongest), np.asarray(profile.technical, dtype=float)
    rows: list[Any] = []
    for j in np.argsort(-np.maximum(strongest, np.nan_to_num(technical)), kind="stable")[:FEATURES]:
        i = int(np.argmax(np.nan_to_num(profile.biological[:, j])))
        target = result.targets[i].name if strongest[j] > profile.level else UNDEFINED
        two = [Cell(f"{x:.2f}", x) if math.isfinite(x) else Cell(UNDEFINED, "") for x in (strongest[j], technical[j])]
        rows.append((f"{name}{j}", target, *two))
    columns = (Column("feature", "name"), Column("target", "text"), Column("biological"), Column("technical"))
    note = (
        "The target is the one that the feature separates best from controls, if it exceeds the 95 % level of chance "
        f"({UNDEFINED}: it does not)."
    )
    return Table(
        f"The {len(rows)} most biological or technical features of {words_for(name).label}", columns, rows, note=note
    )


def _score(value: float, text: str | None = None, **more: Any) -> Cell:
    return Cell(three(value) if text is None else text, float(value) if math.isfinite(value) else "", **more)


def _interval(paired: Paired) -> str:
    if math.isnan(paired.low):
        return ""
    return "equal in all" if paired.low == paired.high == 0 else f"{signed(paired.low)} to {signed(paired.high)}"
