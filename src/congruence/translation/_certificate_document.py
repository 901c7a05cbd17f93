"""The document of a translation with paired rows: recall, index size, relevance, probe, paired rows and maps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from congruence import document as doc
from congruence.align._document import group_terms
from congruence.document import Block, Cell, Column, Figure, Grid, Table, Text, document_of, facts, share, shares
from congruence.formatting import interval, percent
from congruence.maps._names import ordered_groups
from congruence.translation.certificate import DRIFT, ENOUGH

if TYPE_CHECKING:
    from congruence.result import Status
    from congruence.translation.certificate import Certificate, CurvePoint, Drift, Probe, RelevanceTest, Retrieval
    from congruence.translation.result import Translation

DECISIONS: dict[Status, str] = {"holds": "go", "fails": "no-go", "ambiguous": "unsure", "unknown": "unsure"}
GLOSSARY = (
    (
        "decision",
        "go: the interval of recall@10 lies above the required share; no-go: it lies below; unsure: the interval "
        "contains the required share, there are too few rows, or rows depend on each other. It is about an index of "
        "the stated size.",
    ),
    (
        "recall@10",
        "share of a query’s 10 nearest old vectors, found by its old vector, that its translated vector finds.",
    ),
    ("containment@K", "share of the 10 true nearest old vectors that are among the first K translated results."),
    ("rerank depth", "the smallest K with a containment of 99 %: fetch K results and re-rank them with the new model."),
    (
        "interval",
        "95 %, by Student’s t over queries or clusters; held-out rows of several maps vary more, which is included.",
    ),
    (
        "extrapolated",
        "not measured: the logit of the recall is continued linearly in the logarithm of the index size. The interval "
        "allows the slope to change as it did in simulations.",
    ),
    ("chance", "recall@10 of the translated vectors of other queries."),
    ("of chance", "held-out error relative to that of maps fitted to randomly paired rows."),
)


def describe_certificate(translation: Translation) -> doc.Document:
    """The document of a translation with paired rows."""
    certificate, translator = translation.certificate, translation.translator
    assert certificate is not None
    groups = ordered_groups(translation.candidates)
    blocks = {
        "Which neighbours do translated vectors find?": _retrieval(translation, certificate.retrieval),
        "How does recall depend on the index size?": _sizes(translation, certificate.retrieval),
        "What would full re-embedding return?": _full(certificate.retrieval, certificate.relevance),
        "What does a probe trained on old vectors score?": _probe(certificate.probe),
        "How many paired rows are needed?": _curve(translation, certificate),
        "Which map is needed?": _maps(translation, groups, certificate),
    }
    sections = [doc.Section(title, tuple(parts), id=f"part-{i}") for i, (title, parts) in enumerate(blocks.items())]
    rows, decision = translation.n_new, DECISIONS[translation.status]
    size = f"{certificate.retrieval.index_size:,}"
    return document_of(
        translation,
        "From a new model to the old one: can its vectors be translated?",
        claim="Translate, and keep the old index?",
        status_text=decision,
        remark=(
            f"index of {size} vectors, {rows} paired rows, {translator.d_new} → {translator.d_old} dimensions, "
            f"{translation.group} map"
        ),
        sections=[section for section in sections if section.blocks],
        reading=(
            "Two models embed the same rows. A map takes the vectors of the new model to those of the old one, so "
            "that an index, a probe or a threshold made with the old model can be kept. Everything is measured on rows "
            "that were not used to fit the map or to choose its kind."
        ),
        glossary=(*GLOSSARY, *group_terms(groups)),
        settings={
            "paired rows": rows,
            "index size": certificate.retrieval.index_size,
            "old dimensions": translator.d_old,
            "new dimensions": translator.d_new,
        }
        | dict(translation.settings),
        title=f"From a new model to the old one: {decision}",
    )


def _retrieval(translation: Translation, retrieval: Retrieval) -> Iterator[Block]:
    yield Text(
        f"An index of {retrieval.index_size:,} old vectors is searched with {retrieval.queries:,} queries, "
        "once with the old vector of a query and once with its translated vector. Search is exact.",
        muted=True,
    )
    require = translation.settings.get("require")
    needed = "" if require is None else f"; a go requires {100 * require:g} %"
    ten, one = retrieval.recall_10, retrieval.recall_1

    def row(name: str, value: Cell, meaning: str, *more: Cell) -> tuple[Any, ...]:
        return name, value, *more, *[Cell("", "")] * (3 - len(more)), meaning

    others = (shares(ten.low, ten.high), share(retrieval.before), share(retrieval.chance))
    neighbours = f"share of the 10 nearest old vectors that the translated vector finds{needed}"
    rows = [
        row("recall@10", share(ten.mean, strong=True), neighbours, *others),
        row("recall@1", share(one.mean), "how often both find the same nearest old vector", shares(one.low, one.high)),
    ]
    for point in retrieval.containment:
        first = f"share of the 10 nearest old vectors among the first {point.depth} translated results"
        rows.append(
            row(f"containment@{point.depth}", share(point.share.mean), first, shares(point.share.low, point.share.high))
        )
    if retrieval.itself is not None:
        rows.append(row("itself found", share(retrieval.itself), "how often the nearest old vector is the row’s own"))
    columns = (
        Column("score", "text"),
        *map(Column, ("translated", "95 % interval", "untranslated", "chance")),
        Column("meaning", "text", brief=False),
    )
    label = f"Held-out scores of translated vectors, index of {retrieval.index_size:,} vectors"
    yield Table(label, columns, rows, sortable=False, brief=True)


def _sizes(translation: Translation, retrieval: Retrieval) -> Iterator[Block]:
    points = retrieval.sizes
    if len(points) < 2:
        return
    beyond = any(point.extrapolated for point in points)
    said = "Smaller indexes are random subsets of the one that was searched."
    if beyond:
        said += " Larger ones were not measured: their recall is extrapolated and is no basis for a go."
    yield Text(said, muted=True)
    rows = [
        (
            Cell(f"{point.rows:,}", point.rows, below="extrapolated" if point.extrapolated else "measured"),
            share(point.recall, strong=point.rows == retrieval.index_size),
            shares(point.low, point.high),
        )
        for point in points
    ]
    columns = (Column("index size"), Column("recall@10"), Column("95 % interval"))
    figure = Figure("recall_by_size", (points, translation.settings.get("require", math.nan)), brief=True)
    yield Grid((figure, Table("Recall@10 by index size", columns, rows, sortable=False, brief=True)), "pictures")


def _full(retrieval: Retrieval, relevance: RelevanceTest | None) -> Iterator[Block]:
    if relevance is not None:
        yield from _relevance(relevance)
    if retrieval.full is not None and retrieval.full_old is not None:
        full = retrieval.full
        yield Text(
            "If all documents were embedded again, the new model would search its own vectors. Among the paired rows, "
            f"translated queries find {percent(full.mean)} ({interval(full.low, full.high)}) of the 10 nearest rows of "
            f"the new model; old vectors find {percent(retrieval.full_old)}. Full re-embedding finds all of them by "
            "definition, so the first number is the recall relative to full re-embedding (ARR) where the new model’s "
            "neighbours are taken as the truth."
        )


def _relevance(relevance: RelevanceTest) -> Iterator[Block]:
    systems = {
        "old model": relevance.old,
        "translated queries, old index": relevance.translated,
        "new model, full re-embedding": relevance.new,
    }
    rows = [(name, one.ndcg_10, one.mrr_10, one.recall_10) for name, one in systems.items() if one is not None]
    columns = (Column("ranking", "text"), *map(Column, ("nDCG@10", "MRR@10", "recall@10")))
    label = f"Rankings against relevance judgements, {relevance.queries:,} judged queries"
    yield Table(label, columns, rows, sortable=False, brief=True)
    kept = []
    for name, ratio in (("full re-embedding", relevance.ratio), ("the old model", relevance.ratio_old)):
        if ratio is not None and math.isfinite(ratio.mean):
            kept.append(f"{percent(ratio.mean)} ({interval(ratio.low, ratio.high)}) of the nDCG@10 of {name}")
    said = f"Translation keeps {' and '.join(kept)}." if kept else ""
    if relevance.new is None:
        said += " Full re-embedding cannot be scored: the new vectors of the index are not known."
    if relevance.skipped:
        said += f" Queries without a relevant document in the index, left out: {relevance.skipped}."
    yield Text(said.strip())


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
    recall = certificate.retrieval.recall_10
    by_chance = recall.low <= certificate.retrieval.chance
    yield Text(
        "The recall is that of chance, so this shows nothing." if by_chance else enough_sentence(curve, certificate)
    )
    if not curve:
        return
    figure = Figure("learning_curve", (curve, translation.n_new, translation.settings.get("require", math.nan)))
    rows = [
        (point.rows, share(point.mean, below=interval(point.low, point.high) if point is not curve[-1] else "one draw"))
        for point in curve
    ]
    columns = (Column("paired rows"), Column("recall@10, range of draws"))
    yield Grid((figure, Table("Recall@10 by number of paired rows", columns, rows)), "pictures")


def enough_sentence(curve: list[CurvePoint], certificate: Certificate) -> str:
    """Say how many paired rows are enough: the fewest from which on the recall stays close to the last."""
    enough = certificate.rows_enough
    if enough is None:
        return "There are too few paired rows to say how many would be enough."
    first, last = next(point for point in curve if point.rows == enough), curve[-1]
    if first is last:
        return (
            f"All {last.rows} rows are needed, and more would help: with fewer, the recall is lower by more than "
            f"{100 * ENOUGH:g} percentage points."
        )
    close = (
        f"{percent(first.mean)}, is within {100 * ENOUGH:g} percentage points of the {percent(last.mean)} of "
        f"{last.rows} rows (in a sample of the index)."
    )
    if certificate.still_rising:
        return f"The recall still rises, so more rows would help. That of {enough} paired rows, {close}"
    return f"More paired rows would hardly help: the recall@10 of {enough}, {close}"


def _maps(translation: Translation, groups: list[str], certificate: Certificate) -> Iterator[Block]:
    chosen = (
        "was chosen by the recall@10 of held-out rows; of kinds within one standard error of the best, the simplest is "
        "taken"
    )
    origin = chosen if translation.settings.get("group") == "auto" else "was requested"
    yield Text(f"{origin}. {drift_sentence(certificate.drift)}", strong=f"The {translation.group} map")
    recall = certificate.by_group or {}
    rows = [
        (
            Cell(name, strong=name == translation.group),
            share(recall.get(name, math.nan)),
            share(near.r2.mean, below=interval(near.r2.low, near.r2.high)),
            share(near.of_chance.mean, below=interval(near.of_chance.low, near.of_chance.high)),
        )
        for name, near in ((name, translation.candidates[name]) for name in groups)
    ]
    columns = (Column("map", "text"), *map(Column, ("recall@10, sample", "variance explained", "error of chance")))
    yield Table("Held-out scores by kind of map", columns, rows, brief=True)


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
