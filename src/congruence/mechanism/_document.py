"""A mechanism examination as a document: what the decoder supports, criteria, theorems, where blocks act, a model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import document as doc
from congruence.document import Block, Cell, Column, Findings, Grid, Group, Heading, Image, Section, Table, Text
from congruence.formatting import count, number, percent
from congruence.mechanism._blocks import write_blocks
from congruence.mechanism.discovery import TYPES
from congruence.mechanism.theorems import IDENTIFIED, ORIGIN, strongest

if TYPE_CHECKING:
    from congruence.mechanism.discovery import FinestParts
    from congruence.mechanism.disentanglement import Disentanglement
    from congruence.mechanism.examination import MechanismExamination
    from congruence.mechanism.profile import BlockProfile
    from congruence.mechanism.theorems import Criterion, Theorem

SHOWN_BLOCKS = 24  # with a picture each
SHOWN_LATENTS = 40  # in the graph
STILL = 1e-3  # degrees
WIDEST = 1200  # columns of a strip; more outputs are pooled by their maximum
STRIP = 50  # ratio of width to height of a strip, about
SHADE = (0xD9, 0x7A, 0x06)  # readable on a light and on a dark page
LABELS = {"M_coord": "M, coordinates", "M_sparsest": "M, sparsest basis"}
_GRADES = (
    "Smaller is closer to the criterion; D, M and S are 0 if blocks act on disjoint outputs. M and S can hold at "
    "larger values: they count outputs, and these scores weight outputs by the size of their derivatives."
)
REMARKS = {
    "holds": "all premises of the theorem hold at the points",
    "conditional": "the premises about the model are assumed, not measured",
    "ambiguous": "the answer depends on what counts as zero",
    "unknown": "some premises are undecided",
    "premise fails": "each theorem has a premise that fails",
}
GLOSSARY = {
    "block": "latents that together form one factor.",
    "certified": "the structure of the decoder proves it for all latents.",
    "supported": "it holds at all points examined; other points were not examined.",
    "refuted": "it fails at one point at least, up to the tolerance.",
    "ambiguous": (
        "the answer depends on what counts as zero: it changes within a decade of tolerance. Trained decoders have no "
        "exact zeros."
    ),
    "assumed": "a premise about a model that was not given. The conclusion is about models that fulfil it.",
    "random directions": (
        "the same number after a random rotation of the latents: what blocks without a meaning would have."
    ),
    "regions not excluded": (
        "n points miss a region that has 3 / n of the latents with a probability of 5 % (rule of three). A criterion "
        "may fail in smaller regions."
    ),
    "unknown": "the points examined do not decide it. “Premise fails”: the theorem does not apply.",
    "irreducible": (
        "a block that does not split into smaller ones of the same type. Otherwise another split may be identified."
    ),
    "at a point": (
        "all criteria are about points. Identification over a whole domain needs Theorem 1: a simply connected domain "
        "with connected slices, and a decoder that is a covering map onto its image."
    ),
}


def describe(examination: MechanismExamination) -> doc.Document:
    """Return the document of a mechanism examination."""
    profile, tolerance, model = examination.profile, examination.check.tolerance, examination.disentanglement
    claim, remark = "Does a theorem identify the blocks?", REMARKS[examination.strongest.strength]
    if model is not None:
        claim = "Are blocks identified and codes disentangled?"
        remark = f"codes at the points: {model.local.status}; over the domain: {model.everywhere.status}"
    return doc.document_of(
        examination,
        "Do the factors act on separate parts of the observation?",
        claim=claim,
        remark=remark,
        sections=tuple(_sections(examination)),
        glossary=tuple(GLOSSARY.items()),
        settings={
            **examination.settings,
            "latents per point": len(profile.graph),
            "outputs per point": int(np.prod(profile.output_shape)),
            "supports are constant for tolerances": f"from {number(tolerance.low, 2)} to {number(tolerance.high, 2)}",
        },
        about="Mechanism",
    )


def _sections(examination: MechanismExamination) -> Iterator[Section]:
    check, profile, blocks = examination.check, examination.profile, examination.blocks_text
    if examination.discovery is not None:
        intro = Text(
            "The finest parts into which the latent directions split at every point, in any basis: a decoder whose "
            "latents were mixed has the same parts. “Along the coordinates” means that each part consists of "
            "latents, without mixing.",
            muted=True,
        )
        parts = [block for one in examination.discovery.found for block in _parts(one)]
        yield Section("Which parts does the decoder have?", (intro, *parts), id="parts")
    many = len(profile.graph) > SHOWN_LATENTS  # to draw their graph, which is the main figure otherwise
    curve = doc.Figure("part_curve", (examination.curve,), examination.curve.sentence, wide=True, brief=many)
    intro = Text(
        "Parts of the latents that act on disjoint outputs, in any basis, against the tolerance below which a "
        "derivative counts as zero. A trained decoder has no exact zeros: its parts are clear where the curve stays "
        f"above 1 while that of random directions does not ({count(examination.curve.points, 'point')}).",
        muted=True,
    )
    yield Section("How many parts are there at each tolerance?", (intro, curve), id="tolerance")
    criteria = _criteria(check.criteria, f"Criteria for the blocks {blocks}, {count(check.points, 'point')}")
    grades = _grades(check.criteria, "Distance from each criterion")
    graded = (Heading("How far are they from holding?"), grades) if grades.rows else ()
    yield Section(f"Which criteria hold for the blocks {blocks}?", (criteria, *graded), id="criteria")
    yield Section("Which theorem applies?", tuple(_theorems(check.theorems)), id="theorems")
    yield Section("Where does each block act?", tuple(_blocks(profile)), id="blocks")
    if examination.disentanglement is not None:
        model = [*_model(examination.disentanglement, profile.names)]
        if examination.model_check is not None:
            own = examination.model_check
            label = f"Criteria for the model in the blocks {write_blocks(own.blocks)} of its codes"
            model += [Heading("Is the model of the same type?"), _criteria(own.criteria, label, brief=False)]
        yield Section("Is the model disentangled?", tuple(model), id="model")


def _parts(parts: FinestParts) -> Iterator[Block]:
    yield Heading(f"Type {parts.type}: parts that {TYPES[parts.type]}")
    yield Text(parts.sentence, brief=True)
    if parts.dims is None:
        return
    seen = np.zeros(0) if parts.followed is None else parts.followed.overlap[np.isfinite(parts.followed.overlap)]
    if len(parts.dims) > 1 and seen.size and parts.followed is not None:
        angle = math.degrees(math.acos(min(1.0, max(-1.0, float(seen.min())))))
        turned = f"rotate by at most {number(angle)}°" if angle > STILL else "do not rotate"
        other = f" {count(parts.followed.lost, 'point')} with other parts." if parts.followed.lost else ""
        yield Text(f"Between neighbouring points, the parts {turned}.{other}", muted=True)
    steps: list[tuple[str, str, str]] = []  # intervals of the tolerance with the same dimensions
    for rtol, dims in parts.sweep:
        text = f"{len(dims)} of {', '.join(map(str, dims))}" if len(dims) > 1 else "one"
        first = steps.pop()[0] if steps and steps[-1][2] == text else number(rtol, 1)
        steps.append((first, number(rtol, 1), text))
    if len(steps) > 1:
        columns = (*doc.columns("tolerance from", "to"), Column("parts at most points", "text"))
        yield Table(f"Parts of type {parts.type} by tolerance", columns, steps, sortable=False)
    for note in parts.notes:
        yield Text(note, muted=True)


def _criteria(criteria: Sequence[Criterion], label: str, brief: bool = True) -> Table:
    columns = (
        *doc.columns("criterion", "verdict", kind="text"),
        *doc.columns("points", "margin"),
        *(Column("margin is the", "text"), Column("worst", "text", brief=False), Column("basis", "text")),
    )
    rows = [
        (
            Cell(LABELS.get(one.name, one.name), below=one.finding.claim),
            doc.badge(one.status),
            doc.share(one.fraction),
            one.margin,
            Cell(one.measures),
            f"row {one.worst}" if one.worst is not None and (one.status != "holds" or one.margin != 0) else "",
            Cell(one.basis, below="; ".join(one.remarks)),
        )
        for one in criteria
    ]
    return Table(label, columns, rows, brief=brief)


def _grades(criteria: Sequence[Criterion], label: str) -> Table:
    """How far each criterion is from holding, compared with random directions."""
    scores = doc.columns("mean over points", "random directions")
    columns = (Column("criterion", "text"), *scores, Column("share", "text"))
    rows = [
        (LABELS.get(one.name, one.name), doc.share(one.typical), doc.share(one.null), one.graded)
        for one in criteria
        if one.graded
    ]
    return Table(label, columns, rows, brief=True, note=_GRADES)


def _theorems(theorems: Sequence[Theorem]) -> Iterator[Block]:
    rows = [
        (
            f"{one.number}{' *' if one.inferred else ''}",
            LABELS.get(one.criterion, one.criterion),
            doc.badge(one.status, "if assumed" if one.strength == "conditional" else ""),
            one.conclusion.basis,
            ", ".join(
                f"{premise.name} ({'assumed' if premise.name in one.assumed else premise.status})"
                for premise in one.open_premises
            ),
        )
        for one in theorems
    ]
    columns = doc.columns("theorem", "type", "verdict", "basis", "open premises", kind="text")
    note = f"{IDENTIFIED} " if any(one.strength in ("holds", "conditional") for one in theorems) else ""
    yield Table("Theorems", columns, rows, brief=True, note=note + ORIGIN)
    for one in theorems:
        name = f"Theorem {one.number}{' *' if one.inferred else ''}"
        summary = f"Premises of {name} (Type {LABELS.get(one.criterion, one.criterion)})"
        premises = (Findings(one.conclusion.premises),)
        yield doc.Details(summary, premises, open=one is strongest(theorems), status=one.status)


def _blocks(profile: BlockProfile) -> Iterator[Block]:
    shape = profile.output_shape
    as_images = len(shape) in (2, 3) and min(shape[-2:]) > 1  # (channels, height, width), or without channels
    images = list(_images(profile, (-1, *shape[-2:]) if as_images else None))
    hidden = len(profile.blocks) - len(images)
    more = f" {hidden} more blocks are omitted." if hidden else ""
    note = (
        "Effect of each block on every output, root mean square over the points. The largest effect has full shade; "
        f"half the shade is a quarter of it.{more}"
    )
    if as_images:
        yield Grid(images, "small")
        yield Text(note, muted=True)
    else:
        rows = [(Cell(image.caption, below=image.detail), Cell("", image=image)) for image in images]
        columns, label = doc.columns("block", "outputs", kind="text"), "Outputs of each block"
        yield Table(label, columns, rows, style="images", sortable=False, header=False, note=note)
    graph: tuple[Block, ...] = ()
    if len(profile.graph) <= SHOWN_LATENTS:
        legend = (
            "Neighbouring dots of one colour are a block. Solid lines stay inside a block; dashed ones join two. "
            "Wider lines: larger overlap."
        )
        figure = doc.Figure("latent_graph", (profile,), brief=True, title="Latents that move a common output")
        graph = (Heading("Which latents move a common output?"), figure, Text(legend, muted=True))
    yield Grid((Group((Heading("How much do blocks overlap?"), _overlap(profile))), *([Group(graph)] if graph else [])))


def _images(profile: BlockProfile, shape: tuple[int, ...] | None) -> Iterator[Image]:
    """How strongly each block moves every output, as an image or a strip."""
    top = float(profile.effects.max()) or 1.0
    for k, (name, effects) in enumerate(zip(profile.names, profile.effects, strict=True)):
        if k == SHOWN_BLOCKS:
            return
        if shape:
            values = effects.reshape(shape).max(0)  # the strongest channel
        else:  # a strip (height, width): few outputs are widened, many are pooled to the strongest
            edges = np.linspace(0, len(effects), min(len(effects), WIDEST) + 1).astype(int)[:-1]
            wide = np.repeat(np.maximum.reduceat(effects, edges), max(1, WIDEST // len(effects)))
            values = np.tile(wide, (max(1, len(wide) // STRIP), 1))
        pixels = np.empty((*values.shape, 4), np.uint8)
        pixels[..., :3] = SHADE
        pixels[..., 3] = np.rint(255 * np.sqrt(np.clip(values / top, 0, 1)))  # the root makes small effects visible
        moved = count(int(profile.shared[k, k]), "output")
        label = f"{name} moves {moved} of {len(effects)}"
        yield Image(pixels, label, name, moved, width="" if shape else "100%", framed=shape is not None)


def _overlap(profile: BlockProfile) -> Table:
    names = profile.names[:SHOWN_BLOCKS]
    rows: list[tuple[str | Cell, ...]] = []
    for i, name in enumerate(names):
        cells = []
        for j, other in enumerate(names):
            value, shared = float(profile.overlap[i, j]), int(profile.shared[i, j])
            hint = f"{name}, {other}: {number(value)}; {count(shared, 'output')} in common"
            cells.append(Cell(str(shared), tint=0.0, hint=hint) if i == j else _tinted(value, hint=hint))
        rows.append((name, *cells))
    note = "0: no output in common. 1: both move every output equally. Diagonal: number of outputs that a block moves."
    columns = (Column("", "text"), *doc.columns(*names))
    return Table("Overlap of blocks", columns, rows, style="heat", sortable=False, note=note)


def _tinted(value: float, hint: str = "") -> Cell:
    text = "0" if value == 0 else f"{value:.2f}" if value >= 0.005 else f"{value:.0e}"
    return Cell(text, tint=round(0.9 * value, 2), hint=hint)


def _model(model: Disentanglement, names: Sequence[str]) -> Iterator[Block]:
    """Whether the codes of a model are disentangled: shares of each code's motion, and the premises of Theorem 1."""
    yield Findings((model.local, model.everywhere), brief=True)
    meaning = "largest share of a code's motion that comes from other factors, at the worst point"
    rows = [("largest leak", percent(model.worst), meaning)]
    if model.sparse is not None:
        meaning = "of points where the model's Jacobian has at most as many non-zeros as the generator's (Theorem 3)"
        rows.append(("as sparse", percent(model.sparse), meaning))
    if np.isfinite(model.misses).any():
        meaning = "of the spread of the outputs: largest distance between the model's and the generator's"
        rows.append(("outputs missed by", percent(float(np.nanmax(model.misses))), meaning))
    yield doc.facts(rows, "Disentanglement", brief=True)
    cells: list[tuple[Any, ...]] = [
        (f"c{j}", *(_tinted(float(value)) for value in row))
        for j, row in enumerate(model.shares[:SHOWN_LATENTS])
        if np.isfinite(row).all()
    ]
    note = "Shares of a code’s squared motion over all points."
    columns = (Column("", "text"), *doc.columns(*names))
    shares = Table("Share of each code’s motion", columns, cells, style="heat", sortable=False, note=note)
    premises = Group((Heading("Premises of Theorem 1"), Findings(model.premises)))
    yield Grid((Group((Heading("Which factor moves which code?"), shares)), premises))
