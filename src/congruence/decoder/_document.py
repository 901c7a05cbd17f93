"""A decoder examination as a document: constants, their distribution, bounds of Theorem 1, and its premises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from congruence.document import (
    Block,
    Cell,
    Column,
    Document,
    Figure,
    Findings,
    Grid,
    Heading,
    Section,
    Table,
    Text,
    facts,
    share,
)
from congruence.formatting import number

if TYPE_CHECKING:
    from congruence.decoder.bounds import Bound
    from congruence.decoder.examination import DecoderExamination
    from congruence.decoder.stretch import BiLipschitz

_KNOWN = {
    "certified": "The constant is certified.",
    "sampled": "The constant was sampled at points: it is a lower estimate, not a certificate.",
    "given": "The constant was supplied by the user.",
}
_REMARKS = {
    "fails": "a premise is refuted",
    "ambiguous": "a premise is ambiguous",
    "unknown": "a sample cannot establish all premises",
    "holds": "all premises hold",
}
_GLOSSARY = (
    (
        "bi-Lipschitz constant",
        "Λ: short lengths at a point are multiplied by a factor between 1 / Λ and Λ. 1 is an isometry; infinity means "
        "that a direction is lost.",
    ),
    ("rescaled", "the constant after all latents are multiplied by the factor that minimises it."),
    ("lower estimate", "only the points in the table were examined; elsewhere the decoder may stretch more."),
    ("unknown", "the sample does not refute a premise, and cannot prove it."),
    ("vacuous", "no better than the bound for any two sets of this size (Jung’s theorem)."),
)


def describe(examination: DecoderExamination) -> Document:
    """The document of a decoder examination."""
    b = examination.stretch
    headline, *details = examination.headlines
    failing = examination.theorem1.basis == "premise fails"
    return Document(
        question="How much does the decoder stretch lengths, and what does that guarantee?",
        headline=headline,
        details=details,
        claim="Does Theorem 1 guarantee a rigid motion?",
        status=examination.status,
        remark=_REMARKS["fails" if failing else examination.status],
        notes=examination.notes,
        sections=(
            Section("The bi-Lipschitz constant", tuple(_constants(b)), id="constant"),
            Section("What does Theorem 1 guarantee?", tuple(_theorem(examination)), id="theorem"),
        ),
        glossary=_GLOSSARY,
        settings={**examination.settings, "latents per point": b.dimension, "outputs per point": b.outputs},
        title=f"Decoder: {headline}",
    )


def _constants(b: BiLipschitz) -> Iterator[Block]:
    rows = [
        ("mean", number(b.mean, 4), "over points; what the paper plots, not a bound"),
        ("median", number(b.quantile(0.5), 4), ""),
        ("95th percentile", number(b.quantile(0.95), 4), ""),
        ("largest", number(b.constant, 4), "a lower estimate of what Theorem 1 needs"),
        ("largest, rescaled", number(b.scale_free, 4), f"after dividing lengths by {number(b.scale, 4)}"),
        ("stretch", f"{number(b.s_min.min())} to {number(b.s_max.max())}", "least and largest singular value"),
        ("isometry defect", number(b.isometry_defect), "largest deviation of a singular value from 1"),
        ("condition", number(float(b.conditions.max())), "largest ratio of the singular values at one point"),
    ]
    yield facts(rows, f"Bi-Lipschitz constant, {b.dimension} latents to {b.outputs} outputs", brief=True)
    finite = bool(np.isfinite(b.constants).any())
    figures = []
    if finite:
        figures.append(Figure("stretch_histogram", (b,), caption="Over the points", brief=True))
    if b.spectra is not None and b.s_max.max() > 0:
        figures.append(Figure("stretch_spectrum", (b,), caption="In each direction", brief=not finite))
    if figures:
        yield Heading("At which points, and in which direction?")
        yield Grid(figures, "halves")


def _theorem(examination: DecoderExamination) -> Iterator[Block]:
    bound = examination.bound
    if bound is None:
        yield Text("All latents are the same point, so there is nothing to bound.")
    else:
        yield Text(
            "If all premises hold, two trainings with this bi-Lipschitz constant differ by a rigid motion and a "
            f"distance of at most {number(bound.epsilon)}, in units of the latents. {_KNOWN[bound.basis]}"
        )
        if bound.vacuous:
            yield Text("", strong="The bound is vacuous: it holds for any two sets of this size.")
        yield _bounds(bound)
    yield Heading("Its premises")
    yield Findings(examination.premises, brief=True)


def _bounds(bound: Bound) -> Table:
    constant = f"c = {number(bound.isometric_constant, 4)}, {bound.isometric_constant_from}"
    rows = [
        ("form of the paper", bound.paper, f"{constant}; {bound.reason}"),
        ("general form", bound.general, "of this package; applies for every constant"),
        ("trivial", bound.trivial, "holds for any two sets of this size"),
    ]
    columns = (Column("bound", "text"), Column("distance"), Column("share of the diameter"), Column("reason", "text"))
    cells = [
        (name, value, Cell("", "") if value is None else share(value / bound.diameter), reason)
        for name, value, reason in rows
    ]
    return Table("Bounds of Theorem 1", columns, cells, brief=True)
