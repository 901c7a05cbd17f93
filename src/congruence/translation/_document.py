"""A translation as a document: held-out scores of translated vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from congruence.align._document import group_terms
from congruence.document import Block, Cell, Column, Document, Figure, Grid, Section, Table, Text, facts, share, shares
from congruence.formatting import interval, number, percent
from congruence.maps._names import ordered_groups
from congruence.translation._unpaired_document import describe_unpaired
from congruence.translation.certificate import DRIFT, ROUNDING

if TYPE_CHECKING:
    from congruence.result import Status
    from congruence.translation.certificate import Certificate, CurvePoint, Drift, Probe, Retrieval
    from congruence.translation.result import Translation

DECISIONS: dict[Status, str] = {"holds": "go", "fails": "no-go", "ambiguous": "unsure", "unknown": "unsure"}
GLOSSARY = (
    (
        "decision",
        "go: the interval of recall@10 lies above the required share; no-go: it lies below; unsure: the interval "
        "contains the required share, or there are too few rows.",
    ),
    ("interval", "95 %, from resampling rows."),
)


def describe(translation: Translation) -> Document:
    """The document of a translation."""
    if translation.matching:
        return describe_unpaired(translation, translation.matching)
    return _paired(translation)


def _paired(translation: Translation) -> Document:
    certificate, translator = translation.certificate, translation.translator
    assert certificate is not None
    groups = ordered_groups(translation.candidates)
    blocks = {
        "Which neighbours do translated vectors find?": _retrieval(translation, certificate.retrieval),
        "What does a probe trained on old vectors score?": _probe(certificate.probe),
        "How many paired rows are needed?": _curve(translation, certificate),
        "Which group of maps is needed?": _maps(translation, groups, certificate),
    }
    sections = [Section(title, tuple(parts), id=f"part-{i}") for i, (title, parts) in enumerate(blocks.items())]
    rows, decision = translation.n_new, DECISIONS[translation.status]
    return Document(
        question="From a new model to the old one: can its vectors be translated?",
        headline=translation.headlines[0],
        details=translation.headlines[1:],
        claim="Translate, and keep the old index?",
        status=translation.status,
        status_text=decision,
        remark=f"{rows} paired rows, {translator.d_new} → {translator.d_old} dimensions, {translation.group} map",
        notes=translation.notes,
        sections=[section for section in sections if section.blocks],
        reading=(
            "Two models embed the same rows. A map carries the vectors of the new model onto those of the old one (the "
            "target), so that an index, a probe or a threshold made with the old model can be kept. Everything is "
            "measured on rows that were not used to fit the map."
        ),
        glossary=(*GLOSSARY, *group_terms(groups)),
        settings={
            "paired rows": rows,
            "old dimensions": translator.d_old,
            "new dimensions": translator.d_new,
            "old diameter": number(translation.diameter, 4),
        }
        | dict(translation.settings),
        title=f"From a new model to the old one: {decision}",
    )


def _retrieval(translation: Translation, retrieval: Retrieval) -> Iterator[Block]:
    yield Text(
        "The old vectors are searched with held-out rows, once with the old vector of a row and once with its "
        "translated vector.",
        muted=True,
    )
    require = translation.settings.get("require")
    needed = "" if require is None else f"; a go requires {100 * require:g} %"
    ten, one = retrieval.recall_10, retrieval.recall_1

    def row(name: str, value: Cell | float, meaning: str, *more: Cell) -> tuple[Any, ...]:
        return name, value, *more, *[Cell("", "")] * (3 - len(more)), meaning

    others = (shares(ten.low, ten.high), share(retrieval.before), share(retrieval.chance))
    neighbours = f"share of a row’s 10 nearest old vectors that its translated vector finds{needed}"
    ranks = "Spearman correlation of the two rankings of the whole index; 1 is best"
    same = "how often both find the same nearest old vector"
    rows = [
        row("recall@10", share(ten.mean, strong=True), neighbours, *others),
        row("recall@1", share(one.mean), same, shares(one.low, one.high)),
        row("itself found", share(retrieval.itself), "how often the nearest old vector is the row’s own"),
        row("rank agreement", retrieval.rank_agreement, ranks),
    ]
    columns = (
        Column("score", "text"),
        *map(Column, ("translated", "95 % interval", "untranslated", "chance")),
        Column("meaning", "text", brief=False),
    )
    yield Table("Held-out scores of translated vectors", columns, rows, sortable=False, brief=True)


def _probe(probe: Probe | None) -> Iterator[Block]:
    if probe is None:
        return
    yield Text(
        f"The {probe.score} of a linear probe trained on old vectors, on rows held out from the probe and the map.",
        muted=True,
    )
    nothing = "always the most frequent class" if probe.score == "accuracy" else "always the mean"
    rows: list[tuple[str, Any, str]] = [
        ("old vectors", probe.ideal, "as the probe was trained"),
        ("translated vectors", probe.after, "new vectors through the map, then the same probe"),
        ("untranslated vectors", probe.before, "new vectors without the map"),
        ("no vectors", probe.baseline, nothing),
    ]
    yield facts(rows, f"Probe trained on old vectors, {probe.score}", brief=True)


def _curve(translation: Translation, certificate: Certificate) -> Iterator[Block]:
    curve = [point for point in certificate.curve if math.isfinite(point.mean)]
    yield Text(enough_sentence(curve, certificate))
    if not curve:
        return
    chosen = translation.candidates.get(translation.group)
    figure = Figure("learning_curve", (curve, translation.n_new, chosen.null if chosen else math.nan))
    rows = [
        (point.rows, share(point.mean), shares(point.low, point.high) if point.low < point.high else "one draw")
        for point in curve
    ]
    columns = (Column("paired rows"), Column("error"), Column("range of draws"))
    yield Grid((figure, Table("Error by number of paired rows", columns, rows)), "pictures")


def enough_sentence(curve: list[CurvePoint], certificate: Certificate) -> str:
    """Say how many paired rows seem enough: the fewest from which on the error stays within 10 % of the last."""
    enough = certificate.rows_enough
    if enough is None:
        return "There are too few paired rows to say how many would be enough."
    first, last = next(point for point in curve if point.rows == enough), curve[-1]
    if last.mean < ROUNDING:
        return f"{enough} paired rows are enough: the remaining error is rounding."
    if first is last:
        return f"All {last.rows} rows are needed, and more would help: with fewer, the error is more than 10 % larger."
    text = (
        f"About {enough} paired rows seem enough: their error, {percent(first.mean)}, is within 10 % of the "
        f"{percent(last.mean)} that {last.rows} rows leave."
    )
    return f"{text} The error still decreases, so more rows would help." if certificate.still_falling else text


def _maps(translation: Translation, groups: list[str], certificate: Certificate) -> Iterator[Block]:
    chosen = "was chosen: the smallest group that no larger one clearly improves upon on held-out rows"
    origin = chosen if translation.settings.get("group") == "auto" else "was requested"
    yield Text(f"{origin}. {drift_sentence(certificate.drift)}", strong=f"The {translation.group} map")
    figure = Figure(
        "groups_ladder",
        (translation.candidates,),
        options={"key": "ladder", "about": "from new vectors to old"},
        brief=True,
    )
    nears = [(name, translation.candidates[name]) for name in groups]
    rows = [
        (
            Cell(name, strong=name == translation.group),
            share(near.of_chance.mean, below=interval(near.of_chance.low, near.of_chance.high)),
            share(near.held_out.mean, below=interval(near.held_out.low, near.held_out.high)),
            share(near.null),
        )
        for name, near in nears
    ]
    columns = (Column("group", "text"), *map(Column, ("of chance", "held out, of diameter", "null")))
    label = f"Held-out error by group of maps; the old diameter is {number(translation.diameter, 4)}"
    yield Grid((figure, Table(label, columns, rows, brief=True)), "pictures")


def drift_sentence(drift: Drift) -> str:
    """Say whether the models differ by more than a linear map can undo."""
    if not math.isfinite(drift.share):
        return "There are too few rows to test for a nonlinear difference."
    predicted = f"a nonlinear map predicts {percent(drift.share)} of the residual of the best linear map"
    if drift.found:
        return f"The models differ by more than a linear map: {predicted}. No map fitted here can undo that."
    if drift.share > DRIFT:
        return "The residual of the best linear map is rounding, so there is no nonlinear difference to undo."
    return f"There is no sign of a nonlinear difference: {predicted}; more than {100 * DRIFT:.0f} % would be one."
