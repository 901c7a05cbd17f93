"""A translation as a document; here without paired rows: the matched components."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from congruence.document import Cell, Column, Document, Figure, Section, Table, Text, facts, share
from congruence.formatting import count, number

if TYPE_CHECKING:
    from congruence.translation.result import ComponentMatching, Translation

UNPAIRED_GLOSSARY = (
    (
        "confidence",
        "the correlation of a component under the maps of two random halves of the rows, averaged over splits: 1 where "
        "the maps agree, about 0 where they match at random, below 0 where they disagree about the sign.",
    ),
    (
        "distance",
        "Wasserstein distance of order 2 between the distributions of two components of unit variance; 0 is the same "
        "shape.",
    ),
    ("sampling", "the distance that is expected from the number of rows alone."),
    ("next best", "the distance to the nearest other component of the new model."),
    (
        "trusted",
        "a confidence above the limit, and a distance that sampling explains. No component is trusted if more than "
        "half of all shapes have no counterpart.",
    ),
)


def describe(translation: Translation) -> Document:
    """The document of a translation."""
    from congruence.translation._certificate_document import describe_certificate

    return _unpaired(translation, translation.matching) if translation.matching else describe_certificate(translation)


def _unpaired(translation: Translation, matching: ComponentMatching) -> Document:
    k, translator = len(matching.matches), translation.translator
    columns = (
        Column("old"),
        Column("new"),
        *map(Column, ("distance", "sampling", "next best", "confidence", "variance")),
        Column("trusted", "text"),
    )
    rows = [
        (
            match.old,
            Cell(f"{'−' if match.sign < 0 else ''}{match.new}", match.new),
            match.distance,
            match.sampling,
            match.next_best,
            Cell(number(round(match.confidence, 2), 2), match.confidence),
            share(match.share),
            match.trusted,
        )
        for match in matching.matches
    ]
    numbers: list[tuple[str, Any, str]] = [
        ("confidence", matching.confidence, "of the whole map, over all dimensions; at most 1"),
        ("by chance", matching.chance, "95 % quantile for random matches"),
        ("trusted", f"{matching.trusted} of {k}", "components"),
        ("covered", share(matching.covered), "share of the old model’s variance in trusted components"),
    ]
    figure = Figure("match_confidence", (matching, translation.settings.get("trust", math.nan)), brief=True)
    explained = Text(
        "Each model is unmixed on its own, and components are matched by the shapes of their distributions. "
        "A minus means that the sign is reversed.",
        muted=True,
    )
    table = Table("Matched components of the old and the new model", columns, rows, brief=True)
    sections = (
        Section("Which component matches which?", (explained, table), id="matches"),
        Section("How reliable is the map?", (facts(numbers, "Confidence in the whole map", brief=True), figure)),
    )
    mapped = "all components" if translation.settings.get("keep") == "all" else "trusted components only"
    return Document(
        question="From a new model to the old one, without paired rows: can its vectors be translated?",
        headline=translation.headlines[0],
        details=translation.headlines[1:],
        claim="Can all components be matched?",
        status=translation.status,
        remark=f"experimental; {count(k, 'component')}, the map uses {mapped}",
        notes=translation.notes,
        sections=sections,
        reading=(
            "No row was embedded by both models. If both are linear images of the same independent components, and "
            "the components differ in shape, independent component analysis finds them in each model, and they are "
            "matched by their shapes. This cannot be verified without paired rows: everything is repeated on random "
            "halves of the rows, and a component on which two halves disagree is not trusted."
        ),
        glossary=UNPAIRED_GLOSSARY,
        settings={
            "old rows": translation.n_old,
            "new rows": translation.n_new,
            "old dimensions": translator.d_old,
            "new dimensions": translator.d_new,
        }
        | dict(translation.settings),
        title="From a new model to the old one, without paired rows",
    )
