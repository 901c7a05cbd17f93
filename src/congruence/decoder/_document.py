"""A decoder examination as a document: constants, their distribution, bounds of Theorem 1, and its premises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from congruence import document as doc
from congruence.decoder.stretch import unseen_share
from congruence.document import Block, Cell, Figure, Findings, Heading, Section, Text
from congruence.formatting import number, percent

if TYPE_CHECKING:
    from congruence.decoder.bounds import Bound
    from congruence.decoder.certificates import StretchCertificate
    from congruence.decoder.examination import DecoderExamination
    from congruence.decoder.stretch import BiLipschitz

_KNOWN = {
    "certified": "The constants are certified by the layers.",
    "sampled": "Constants were sampled at points: they are lower estimates, so the bound is an estimate as well.",
    "given": "The constants were supplied by the user.",
}
_REMARKS = {
    "fails": "the codes are farther apart than the bound",
    "premise fails": "a premise is refuted",
    "ambiguous": "a premise is ambiguous",
    "unknown": "a sample cannot establish all premises",
    "vacuous": "the bound is vacuous",
    "holds": "all premises hold",
}
_GLOSSARY = {
    "bi-Lipschitz constant": (
        "Λ: short lengths at a point are multiplied by a factor between 1 / Λ and Λ. 1 is an isometry; infinity means "
        "that a direction is lost."
    ),
    "rescaled": "the constant after all latents are multiplied by the factor that minimises it.",
    "lower estimate": "only the points in the table were examined; elsewhere the decoder may stretch more.",
    "unknown": "the sample does not refute a premise, and cannot prove it.",
    "vacuous": "no better than the bound for any two sets of this size (Jung’s theorem).",
    "similarity": "a rigid motion and one factor for all lengths.",
    "diameter": "the largest distance between two rows of latents, unless it was given.",
    "form of the paper": (
        "c √(2 L + L²) times the diameter, with Λ = 1 + L. The text of the paper that we have lacks its formulas: this "
        "one is from notes on the paper, and agrees with our derivation. The constant c is ours, or yours."
    ),
    "certified": "proved for all latents by the singular values of the layers; “supported” is by the sample only.",
}


def describe(examination: DecoderExamination) -> doc.Document:
    """The document of a decoder examination."""
    b, other = examination.stretch, examination.other
    constants = [*_constants(b, examination.certificate)]
    if other is not None:
        constants.append(Heading("The decoder of the other training"))
        constants += _constants(other, examination.other_certificate, brief=False)
    reason: str = examination.status
    if examination.best.basis == "premise fails":
        reason = "premise fails"
    elif reason == "unknown" and examination.bounds and all(one.vacuous for one in examination.bounds.values()):
        reason = "vacuous"
    return doc.document_of(
        examination,
        "How much does the decoder stretch lengths, and what does that guarantee?",
        claim="Does Theorem 1 guarantee a rigid motion or a similarity?",
        remark=_REMARKS[reason],
        sections=(
            Section("The bi-Lipschitz constant", constants, id="constant"),
            Section("What does Theorem 1 guarantee?", tuple(_theorem(examination)), id="theorem"),
        ),
        glossary=tuple(_GLOSSARY.items()),
        settings={**examination.settings, "latents per point": b.dimension, "outputs per point": b.outputs},
        about="Decoder",
    )


def _constants(b: BiLipschitz, certificate: StretchCertificate | None, brief: bool = True) -> Iterator[Block]:
    rows = [
        ("mean", number(b.mean, 4), "over points; what the paper plots, not a bound"),
        ("median", number(b.quantile(0.5), 4), ""),
        ("95th percentile", number(b.quantile(0.95), 4), ""),
        ("largest", number(b.constant, 4), "a lower estimate of what Theorem 1 needs"),
        ("largest, rescaled", number(b.scale_free, 4), f"after dividing lengths by {number(b.scale, 4)}"),
        ("stretch", f"{number(b.s_min.min())} to {number(b.s_max.max())}", "least and largest singular value"),
        ("isometry defect", number(b.isometry_defect), "largest deviation of a singular value from 1"),
        ("condition", number(float(b.conditions.max())), "largest ratio of the singular values at one point"),
        ("regions not excluded", percent(unseen_share(b.n)), f"of the latents: {b.n} points may miss smaller ones"),
    ]
    if certificate is not None:
        rows.append(("certified", f"≤ {number(certificate.constant, 4)}", f"everywhere, by {certificate.how}"))
    yield doc.facts(rows, f"Bi-Lipschitz constant, {b.dimension} latents to {b.outputs} outputs", brief=brief)
    finite = bool(np.isfinite(b.constants).any())
    figures = []
    if finite:
        figures.append(Figure("stretch_histogram", (b,), caption="Over the points", brief=brief))
    if b.spectra is not None and b.s_max.max() > 0:
        figures.append(Figure("stretch_spectrum", (b,), caption="In each direction", brief=brief and not finite))
    if figures:
        yield Heading("At which points, and in which direction?")
        yield doc.Grid(figures, "halves")


def _theorem(examination: DecoderExamination) -> Iterator[Block]:
    if not examination.bounds:
        yield Text("All latents are the same point, so there is nothing to bound.")
    else:
        yield Findings(examination.findings, brief=True)
        bounds = tuple(examination.bounds.values())
        if all(bound.vacuous for bound in bounds):
            yield Text("", strong="The bound is vacuous: it holds for any two sets of this size.")
        elif bounds[0].vacuous:
            yield Text("", strong="Up to a rigid motion the bound is vacuous; up to a similarity it is not.")
        yield Text(_KNOWN[bounds[0].basis], muted=True)
        yield _bounds(bounds)
    yield Heading("Its premises")
    yield Findings(examination.premises, brief=True)


def _bounds(bounds: Sequence[Bound]) -> doc.Table:
    rows = []
    for bound in bounds:
        up_to = {"rigid": "rigid motion", "similarity": "similarity"}[bound.up_to]
        constant = f"c = {number(bound.isometric_constant, 4)}, {bound.isometric_constant_from}"
        forms = [("form of the paper", bound.paper, f"{constant}; {bound.reason}")]
        if bound.other is not None:  # for the product of both constants, not the larger one
            needs = "of this package; needs a product of at most 2"
            forms.append(("form of the paper, both constants", bound.sharp, needs))
        forms.append(("general form", bound.general, "of this package; applies for every constant"))
        forms.append(("trivial", bound.trivial, "holds for any two sets of this size"))
        for name, value, reason in forms:
            part = Cell("", "") if value is None else doc.share(value / bounds[0].diameter)
            rows.append((up_to, name, value, part, reason))
    texts = doc.columns("up to a", "bound", kind="text")
    columns = (*texts, *doc.columns("distance", "share of the diameter"), doc.Column("reason", "text"))
    return doc.Table("Bounds of Theorem 1", columns, rows, brief=True)
