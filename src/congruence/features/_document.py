"""A match of features as a document: cosines and chance, split features, and single features with their top rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import document as doc
from congruence.document import Block, Cell, Column, Figure, Heading, Section, Table, Text, share
from congruence.features._match import shown_features
from congruence.features.feature_match import EXPLAINED, LEVELS, PairMatch, chance_text
from congruence.formatting import number, percent

if TYPE_CHECKING:
    from congruence.features.feature_match import FeatureMatch

BINS = 6  # of the frequency of activation, each with as many features
ROWS = 3  # shown of a feature
FLAT = "Features are matched above the chance limit only, so curves are flat below it."

GLOSSARY = {
    "comes back": (
        "a feature is matched with one of the other dictionary, with a cosine of at least the required one and above "
        "the chance limit."
    ),
    "chance limit": (
        "the cosine that unrelated features exceed with the probability of the setting “level”; see null dictionary."
    ),
    "null dictionary": (
        "a dictionary that has no feature in common with the first: the second one, rotated at random; or features "
        "drawn from a Gaussian with its mean and covariance. Chance is the share that comes back from it by the same "
        "matching, the larger of the two kinds."
    ),
    "one-to-one": (
        "the matching that maximises the sum of cosines above the chance limit. Each feature has at most one partner."
    ),
    "distinct": (
        "the partner of a feature is more similar to it than any other feature of its own dictionary. Of several "
        "similar features in both dictionaries, such as copies, it is not determined which one comes back."
    ),
    "mean cosine of all features": (
        "of the best one-to-one matching of all features, also those below the chance limit (PW-MCC in the "
        "literature). It is above 0 for unrelated dictionaries too."
    ),
}


def describe(result: FeatureMatch) -> doc.Document:
    """The document of a match of features."""
    first = result.dictionaries[0]
    pair = result.pairs[0]
    sections = [
        Section("How similar are matched features?", tuple(_similarity(result)), id="similarity"),
        Section("Every two dictionaries", tuple(_pairs(result)), id="pairs"),
        Section("Are features without a partner split or merged?", tuple(_splits(pair)), id="splits"),
        Section("Do frequent features come back more often?", tuple(_frequencies(result)), id="frequency"),
        Section("Single features", tuple(_features(result)), id="features"),
    ]
    return doc.document_of(
        result,
        f"Do the features of {first.name} come back?",
        claim="Do the features come back?",
        remark=f"{first.m:,} features in {first.d} dimensions, {result.settings['matching']} matching",
        sections=[section for section in sections if section.blocks],
        reading=(
            "A dictionary holds features: directions of one space, such as the decoder rows of a sparse autoencoder. "
            "If training again, with another seed, gives the same features, they are a property of the data and the "
            "method rather than of the seed. A feature that comes back need not be true or interpretable."
        ),
        glossary=tuple(GLOSSARY.items()),
        settings={"dictionaries": ", ".join(f"{one.name} ({one.m:,})" for one in result.dictionaries)}
        | dict(result.settings),
        about=f"Features of {first.name}",
    )


def _similarity(result: FeatureMatch) -> Iterator[Block]:
    pair = result.pairs[0]
    first, second = result.dictionaries[:2]
    known = pair.cosine[np.isfinite(pair.cosine)]
    curves = [(one.target, *one.curve()) for one in result.first_pairs]
    figures = (
        Figure(
            "cosine_histogram",
            (pair, first.number, second.number),
            "Cosine of each feature with its nearest one",
            brief=True,
        ),
        Figure("share_curve", (curves, LEVELS, pair.least), "Share that comes back, by the required cosine", FLAT),
    )
    yield doc.Grid(figures, "halves")
    low, high = result.interval
    others = len(result.dictionaries) - 1
    where = {1: "the other dictionary", 2: "both other dictionaries"}.get(others, f"all {others} others")
    everywhere = f"of {result.dictionaries[0].m:,} features, in {where}"
    rows: list[tuple[str, Any, str]] = [
        ("come back", share(result.share, below=f"{percent(low)} to {percent(high)}"), everywhere),
        ("by chance", _chance(result), "the same matching with null dictionaries"),
        ("chance limit", number(pair.null.limit), f"cosine that {percent(result.settings['level'])} exceed by chance"),
        ("median cosine", number(float(np.median(known))) if len(known) else None, "of matched features"),
        ("nearest is as similar", share(pair.near), "of all features, also if that is the partner of another one"),
        ("distinct", share(pair.distinct), "of those that come back: nearer to their partner than to any own feature"),
        ("mean largest cosine", number(float(pair.nearest_cosine.mean())), "of each feature with its nearest one"),
        ("mean cosine of all features", _bounds(pair.full), "best one-to-one matching of all features"),
        ("soft matching", _bounds(pair.soft), "the same if a feature may have parts of several partners"),
    ]
    if result.codes is not None:
        correlation = result.codes.correlation[pair.comes_back]
        middle = float(np.nanmedian(correlation)) if np.isfinite(correlation).any() else math.nan
        which = "rows that no rotation was fitted on" if result.rotation else "the given rows"
        rows.append(("correlation of codes", number(middle), f"median over features that come back, on {which}"))
    for name, explained in result.rotation.items():
        rows.append((f"rotation of {name}", number(explained), "held-out R² of the rotation into the first space"))
    yield doc.facts(rows, f"{pair.source} and {pair.target}", brief=True)


def _chance(one: FeatureMatch | PairMatch) -> Cell:
    return Cell(chance_text(one.chance, one.chance_limit), one.chance)


def _bounds(full: tuple[float, float]) -> str:
    low, high = map(number, full)
    return low if low == high else f"{low} to {high}"


def _pairs(result: FeatureMatch) -> Iterator[Block]:
    if len(result.pairs) < 2:
        return
    low, high = result.over_seeds
    numbers = doc.columns("come back", "by chance", "chance limit", "mean largest cosine")
    columns = (*doc.columns("from", "to", kind="name"), *numbers)
    rows = [
        (pair.source, pair.target, share(pair.share), _chance(pair), pair.null.limit, pair.nearest_cosine.mean())
        for pair in result.pairs
    ]
    yield Table("Share of features that come back, every two dictionaries", columns, rows, brief=True)
    yield Text(
        f"On average {percent(result.mean_pair_share)} come back; for other seeds {percent(low)} to {percent(high)} "
        "(95 %, jackknife over dictionaries)."
    )


def _splits(pair: PairMatch) -> Iterator[Block]:
    found = [(pair.source, pair.target, pair.split), (pair.target, pair.source, pair.merged)]
    rows = [
        (one, other, len(split.features), share(split.share), share(split.chance), float(np.median(split.explained)))
        for one, other, split in found
        if split is not None
    ]
    if not rows:
        return
    yield Text(
        "A feature without a partner may be split into several features of the other dictionary, or be one of several "
        f"that are merged there. It counts as explained if at least {100 * EXPLAINED:g} % of it (squared cosine) lies "
        "in the span of three features of the other dictionary.",
        muted=True,
    )
    numbers = doc.columns("tested", "explained by three", "by chance", "median squared cosine")
    columns = (*doc.columns("features of", "in the span of", kind="name"), *numbers)
    yield Table("Features without a partner in the span of three others", columns, rows, brief=True)


def _frequencies(result: FeatureMatch) -> Iterator[Block]:
    if result.codes is None:
        return
    frequency, back = result.codes.frequency, result.comes_back
    active = frequency > 0
    if active.sum() < 2 * BINS or len(np.unique(frequency[active])) < BINS:
        return
    edges = np.quantile(frequency[active], np.linspace(0, 1, BINS + 1))
    place = np.clip(np.searchsorted(edges, frequency, side="right") - 1, 0, BINS - 1)
    bins = [np.flatnonzero(active & (place == k)) for k in range(BINS)]
    rows = [
        (
            doc.shares(float(frequency[some].min()), float(frequency[some].max())),
            len(some),
            share(float(back[some].mean())),
        )
        for some in bins
        if len(some)
    ]
    if not active.all():
        never = np.flatnonzero(~active)
        rows.append((Cell("never", -1), len(never), share(float(back[never].mean()))))
    columns = doc.columns("active on", "features", "come back")
    yield Table("Features that come back, by the share of rows on which they are active", columns, rows)


def _features(result: FeatureMatch) -> Iterator[Block]:
    pair, first, second = result.pairs[0], *result.dictionaries[:2]
    codes, labels = result.codes, result.labels
    matched, lonely = [], []
    for at in shown_features(pair):
        has_partner = bool(pair.partner[at] >= 0)
        more: list[Any] = []
        if codes is not None:
            more = [share(float(codes.frequency[at])), *([float(codes.correlation[at])] if has_partner else [])]
        if codes is not None and labels is not None:
            tops = [doc.label_cell(labels[row], doc.CONTEXT_LETTERS) for row in codes.top.get(at, ())[:ROWS]]
            hint = " · ".join(cell.hint or cell.text for cell in tops)
            more.append(Cell(" · ".join(cell.text for cell in tops), hint=hint))
        if has_partner:
            below = "" if pair.comes_back[at] else "less than required"
            cosine = Cell(number(float(pair.cosine[at])), float(pair.cosine[at]), below=below)
            matched.append((int(first.number[at]), int(second.number[pair.partner[at]]), cosine, *more))
        else:
            lonely.append((int(first.number[at]), float(pair.nearest_cosine[at]), *more))
    last = (Column("rows with the largest codes", "text"),) if codes is not None and labels is not None else ()
    active = ("active on",) if codes is not None else ()
    correlation = ("correlation of codes",) if codes is not None else ()
    for title, names, rows in (
        ("with the most similar partners in", ("feature", "partner", "cosine", *active, *correlation), matched),
        ("that are farthest from all of", ("feature", "largest cosine", *active), lonely),
    ):
        if rows:
            yield Heading(f"Features of {first.name} {title} {second.name}")
            yield Table(f"Features of {first.name} {title} {second.name}", (*doc.columns(*names), *last), rows)
    yield Text("The csv has all features.", muted=True)
