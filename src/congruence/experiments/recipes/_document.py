"""A recipe's result as a document: claims, figures, tables, notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from congruence import document as doc
from congruence.document import Block, Column, Document, Drawn, Findings, Heading, Notes, Section, Table, document_of
from congruence.experiments.recipes.claims import Judgement
from congruence.experiments.recipes.recipe import SCALES
from congruence.experiments.recipes.result import RecipeResult
from congruence.formatting import count
from congruence.result import Finding, Status

READING = (
    "A claim is a statement of the paper in our words, or a question of ours. Its status follows from the numbers "
    "shown with it by the rule below, which is the same for every seed. A rule that was written or changed after "
    "numbers were seen is marked post hoc. A claim that fails is also a result."
)
WORDS = (
    ("holds", "our numbers support the claim, at this scale and with this seed."),
    ("fails", "our numbers contradict the claim."),
    ("ambiguous", "the claim is true in part only, or the interval allows both answers."),
    ("unknown", "there are too few numbers to decide."),
    ("scale", "how much was computed. " + "; ".join(f"{name}: {about}" for name, about in SCALES.items()) + "."),
)


def describe(result: RecipeResult) -> Document:
    """Return the document of a recipe's result."""
    sections = [
        Section("Claims", (Findings(result.findings, brief=True), *_figures(result), *_rules(result)), "claims"),
        Section("Numbers", tuple(_tables(result)), "numbers"),
    ]
    if result.notes:
        sections.append(Section("Differences from the paper", (Notes(result.notes),), "differences"))
    return document_of(
        result,
        result.recipe.question,
        details=(*result.headlines[1:], f"{tally(result.findings)} Source: {result.recipe.source}."),
        claim="Do all claims hold?",
        notes=(),  # they are a section
        sections=sections,
        reading=READING,
        glossary=(*WORDS, *result.terms),
        about=result.recipe.name,
    )


def _rules(result: RecipeResult) -> Iterator[Block]:
    """How every claim is judged."""
    judged = [one for one in result.findings if isinstance(one, Judgement)]
    if judged:
        yield Heading("How claims are judged")
        rows = [
            (one.name, one.source, one.rule, one.margin, "post hoc" if one.post_hoc else "before the run")
            for one in judged
        ]
        head = ("claim", "source", "holds if", "margin", "rule written")
        note = "A claim fails if the whole 95 % interval lies outside, and is ambiguous if part of it does."
        yield Table("Rules", [Column(name, "text") for name in head], rows, note=note)


def _figures(result: RecipeResult) -> Iterator[Block]:
    for place, figure in enumerate(result.figures):
        drawing = None if isinstance(figure.drawing, str) else figure.drawing
        yield Drawn(figure.svg, figure.caption, brief=place == 0, drawing=drawing)


def _tables(result: RecipeResult) -> Iterator[Block]:
    yield doc.Text("What the paper prints, or states in words, next to our results.", muted=True)
    for place, table in enumerate(result.tables):
        yield Heading(table.label)
        yield replace(table, brief=place == 0)


def tally(findings: Sequence[Finding]) -> str:
    """Say how many claims hold, fail, are ambiguous and could not be judged."""
    statuses = [finding.status for finding in findings]
    if statuses == ["holds"]:
        return "The only claim holds."
    parts = [f"{statuses.count('holds')} of {count(len(statuses), 'claim')} hold"]
    words: tuple[tuple[Status, str, str], ...] = (
        ("fails", "fails", "fail"),
        ("ambiguous", "is ambiguous", "are ambiguous"),
        ("unknown", "is unknown", "are unknown"),
    )
    for status, one, many in words:
        if number := statuses.count(status):
            parts.append(f"{number} {one if number == 1 else many}")
    return ", ".join(parts) + "."
