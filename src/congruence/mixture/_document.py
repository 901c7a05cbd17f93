"""An examination of mixture priors as a document: hierarchy, assumptions, theorems, latent spaces, agreement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import document as doc
from congruence.document import Block, Cell, Column, Figure, Group, Heading, Section, Table, Text
from congruence.formatting import UNDEFINED, elided, number
from congruence.mixture._assumptions import combine_runs, missing, needed
from congruence.mixture.conditions import NAMES
from congruence.result import STATUSES, Finding

if TYPE_CHECKING:
    from congruence.mixture.agreement import SpaceAgreement
    from congruence.mixture.examination import MixtureExamination

_SHOWN = 6  # runs with a picture
_POINTS = 400  # rows in each
_TINT = 0.75  # of the strongest cell of a matrix
_REMARKS = {
    "holds": "the theorems apply",
    "fails": "nothing is identified",
    "ambiguous": "a premise is ambiguous, or holds in some runs only",
    "unknown": "no theorem is known to apply",
}
_SPREADS = (
    ("standardised", "affine distance", "in units of the target’s spread; an upper bound; lower is closer"),
    ("relative", "relative affine distance", "relative to the norms of both densities: 0 is equal, 1 is no overlap"),
    ("strong", "strong MCC", "codes as learned, in sample; higher is closer, 0 to 1"),
    ("weak", "weak MCC", "codes up to a linear map, in sample; higher is closer, 0 to 1"),
    ("weak_held_out", "weak MCC, held out", "the linear map is fitted on other rows; the number to report"),
)
_TABLE = (
    "The rows of Table 1 of Kivva et al., from weak to strong. If the table lists F4 and the theorems need F2, the "
    "theorems are used: F4 is then needed only to identify the decoder as well."
)
_GLOSSARY = {
    "identified": (
        "every model that satisfies the same assumptions and has the same distribution of the data has this prior, or "
        "decoder, up to the stated maps. The statement is about the distribution, not about finite samples or "
        "optimisation."
    ),
    "certified": "decided exactly, up to rounding. “Supported” means supported by a sample or a test.",
    "unknown": "the evidence does not decide; “not refuted” is no support.",
    "distinct": (
        "no two components of the prior are equal. Otherwise their weights, and so P(U, Z), are not determined."
    ),
    "power": (
        "the probability with which the test of P1 refutes the prior if the noise within components has another shape. "
        "P1 is called supported only from 90 % on."
    ),
    "theorem numbers": (
        "those of the published text of Kivva et al. (2022). Its appendices, with the proofs, appendix H (generic "
        "injectivity) and appendix J (the affine distance), were not available and are not used."
    ),
    "affine distance": (
        "the L2 distance between two prior densities after the best affine map found, in latents in which the target "
        "has covariance 1, so that it does not depend on the scale of the latents. In the JSON, “distance” is in the "
        "latents of the target as they are."
    ),
    "MCC": "the mean correlation of latents matched one to one: “strong” as learned, “weak” after a linear map (CCA).",
    "noise": (
        "noise of a known distribution on the outputs changes nothing: the distribution of f(Z) follows from that of "
        "the data by deconvolution."
    ),
    "other mixtures": (
        "Remark 2.1 extends the results to other exponential-family mixtures with analytic densities that are closed "
        "under affine maps. Only Gaussian mixtures are examined here."
    ),
}


def describe(result: MixtureExamination) -> doc.Document:
    """The document of an examination."""
    first = result.findings[0]
    remark = _REMARKS[first.status] + (", as far as the sample shows" if first.basis == "supported" else "")
    return doc.document_of(
        result,
        "Does the mixture prior make the model identifiable?",
        claim="Prior identified, at least up to an affine map?",
        remark=remark if result.checked else "not checked",
        sections=tuple(_sections(result)),
        reading=(
            "Kivva et al. (2022) prove what the distribution of the data determines if the latents Z follow a Gaussian "
            "mixture with components U and the decoder f is piecewise affine. Their theorems need the assumptions P1 "
            "to P3 on the prior and F1 to F4 on the decoder."
        ),
        glossary=tuple(_GLOSSARY.items()),
        about="Mixture prior",
    )


def _sections(result: MixtureExamination) -> Iterator[Section]:
    if result.checked:
        blocks: tuple[Block, ...] = (_hierarchy(result), Text(_TABLE, muted=True))
        yield Section("Which row of the hierarchy is reached?", blocks, id="hierarchy")
        blocks = (_runs(result), Heading("Evidence"), _evidence(result), Heading("Theorems"), _theorems(result))
        yield Section("Which assumptions hold?", blocks, id="assumptions")
    if result.spaces:
        yield Section("What do the latent spaces look like?", tuple(_spaces(result)), id="spaces")
    if result.agreement is not None:
        yield Section("Do the runs agree?", tuple(_agreement(result.agreement)), id="agreement")


def _hierarchy(result: MixtureExamination) -> Table:
    """The rows of Table 1; the strongest that holds in every run is marked."""
    checked = result.checked
    rows: list[tuple[Any, ...]] = []
    for same in zip(*(one.rows for one in checked.values()), strict=True):
        each = dict(zip(checked, (row.prior for row in same), strict=True))
        finding = combine_runs(each)
        best = "strongest" if same[0].number == result.row else ""
        cells = (Cell(str(same[0].number), same[0].number, below=best), " + ".join(needed(finding)), finding.claim)
        rows.append((*cells, _here(finding, list(each.values()))))
    return Table(
        "Rows of Table 1",
        doc.columns("row", "needs", "then identified", "here", kind="text"),
        rows,
        sortable=False,
        brief=True,
        marked=result.row - 1 if result.row else None,
    )


def _here(finding: Finding, each: list[Finding], below: str = "") -> Cell:
    """The badge of a finding, with the number of runs in which it holds where that is not all or none."""
    held = sum(one.status == "holds" for one in each)
    text = f"holds in {held} of {len(each)}" if 0 < held < len(each) else finding.status
    return Cell(text, STATUSES.index(finding.status), below=below, status=finding.status)


def _runs(result: MixtureExamination) -> Table:
    rows = []
    for run in result.runs:
        marks: list[Any] = [None] * (len(NAMES) + 1)
        if run.assumptions is not None:
            statuses = [finding.status for finding in run.assumptions.premises.values()]
            marks = [*(Cell("", STATUSES.index(one), status=one) for one in statuses), run.assumptions.row]
        about = f"{run.model}, J = {run.components}" if run.model else f"J = {run.components}"
        rows.append((Cell(run.name, below=about), *marks))
    columns = (Column("run", "name"), *doc.columns(*NAMES, kind="text"), Column("row"))
    note = "row: the strongest row of Table 1 that holds, 0 for none. J: the number of components of the prior."
    return Table("Assumptions", columns, rows, sortable=False, brief=True, note=note)


def _evidence(result: MixtureExamination) -> doc.Findings:
    """The findings on every condition, with the evidence of the run in which it is worst."""
    fits = [one.data.finding for one in result.checked.values() if one.data is not None]
    equal = [one.distinct for one in result.checked.values() if one.distinct.status != "holds"]
    noise = [f for one in result.checked.values() for f in one.general if f.name == "noise"]
    return doc.Findings((*(result[name] for name in NAMES), *equal, *noise[:1], *fits), brief=len(result.runs) == 1)


def _theorems(result: MixtureExamination) -> Table:
    rows = []
    for i, theorem in enumerate(result.theorems):
        each = [one.theorems[i] for one in result.checked.values()]
        lacking = dict.fromkeys(name for one in each for name in missing(one))
        below = f"not known to hold: {', '.join(lacking)}" if lacking else ""
        rows.append((theorem.name, " + ".join(needed(theorem)), _here(theorem, each, below), theorem.claim))
    return Table("Theorems", doc.columns("statement", "needs", "here", "claim", kind="text"), rows)


def _spaces(result: MixtureExamination) -> Iterator[Block]:
    """Codes of the runs, as learned and mapped onto the first run."""
    spaces, agreement = result.spaces[:_SHOWN], result.agreement
    n = len(result.labels)
    rows = np.linspace(0, n - 1, min(_POINTS, n)).astype(int)
    names = elided([one.name for one in spaces], 16)
    labels, learned = result.labels[rows], [one.codes[rows, :2] for one in spaces]
    title = f"Marked by {result.labels_from}"
    if agreement is None:
        yield Figure("latent_space", (names, learned, labels), brief=True, title=title)
        yield Text(f"The first two latents of each row, marked by {result.labels_from}.", muted=True)
        return
    first = spaces[0].name
    aligned = [agreement.aligned(one.name, first)[rows, :2] for one in spaces]
    yield Figure("latent_spaces", (names, [learned, aligned], labels, ("as learned", "aligned")), wide=True)
    yield Figure(
        "latent_space", (names, aligned, labels), caption=f"All runs, aligned onto {names[0]}", brief=True, title=title
    )
    hidden = len(result.spaces) - len(spaces)
    yield Text(
        f"Codes of the same rows, marked by {result.labels_from}; the first two latents of each. Aligned: after the "
        f"affine map from the prior of a run to that of {first}, which does not use the pairing of the rows; without "
        "this map, after the linear map that fits the codes best."
        + (f" {hidden} more runs are omitted." if hidden else ""),
        muted=True,
    )


def _agreement(agreement: SpaceAgreement) -> Iterator[Block]:
    spreads = [(title, agreement.spread(name), about) for name, title, about in _SPREADS]
    lines = []
    for title, one, about in (spread for spread in spreads if spread[1].pairs):
        deviation = f" ± {number(one.deviation, 2)}" if one.varies else ""
        lines.append((title, number(one.mean) + deviation, f"{about}; {one.pairs} ordered pairs"))
    yield doc.facts(lines, "Mean ± standard deviation over ordered pairs")
    yield doc.Grid(tuple(_matrices(agreement)), "halves")
    yield Heading("Ordered pairs")
    scores = doc.columns("affine distance ≤", "without a map", "strong MCC", "weak MCC", "held out")
    columns = (*doc.columns("source", "target", kind="name"), *scores)
    rows: list[tuple[Any, ...]] = []
    for pair in agreement.pairs:
        affine = pair.affine
        distances = (None, None) if affine is None else (affine.standardised, affine.unit * affine.before.distance)
        rows.append((pair.source, pair.target, *distances, pair.strong, pair.weak, pair.weak_held_out))
    yield Table("Ordered pairs", columns, rows, brief=True)


def _matrices(agreement: SpaceAgreement) -> Iterator[Group]:
    """Matrices over runs: rows are sources, columns targets; stronger is farther, or closer for MCC."""
    pairs = {(pair.source, pair.target): pair for pair in agreement.pairs}
    distances = {names: pair.affine.standardised for names, pair in pairs.items() if pair.affine is not None}
    if distances:
        about = "L2, in units of the spread of the column, after the best affine map found from row to column: an "
        about += "upper bound; 0 is best."
        yield _matrix(agreement, "Affine distance of the priors", about, distances, max(distances.values()))
    about = "Codes as learned, matched one to one, in sample; 1 is best."
    yield _matrix(agreement, "Strong MCC", about, {names: pair.strong for names, pair in pairs.items()})
    about = "After a linear map fitted on other rows; 1 is best."
    yield _matrix(agreement, "Weak MCC, held out", about, {names: pair.weak_held_out for names, pair in pairs.items()})


def _matrix(
    agreement: SpaceAgreement, title: str, about: str, values: Mapping[tuple[str, str], float], top: float = 1.0
) -> Group:
    names = [one.name for one in agreement.spaces]
    rows: list[tuple[Any, ...]] = []
    for source in names:
        cells: list[Cell] = []
        for target in names:
            one = values.get((source, target), math.nan)
            tint = _TINT * min(max(one / top, 0.0), 1.0) if math.isfinite(one) and top > 0 else 0.0
            text = "" if source == target else UNDEFINED if math.isnan(one) else number(one)
            cells.append(Cell(text, hint=f"{source} to {target}", tint=round(tint, 3)))
        rows.append((source, *cells))
    columns = (Column("", "name"), *doc.columns(*names))
    return Group((Heading(title), Table(title, columns, rows, style="heat", sortable=False, note=about)))
