"""A mechanism examination as a document: what the decoder supports, criteria, theorems, where blocks act, a model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.document import (
    Block,
    Cell,
    Column,
    Details,
    Document,
    Figure,
    Findings,
    Grid,
    Group,
    Heading,
    Image,
    Section,
    Table,
    Text,
    badge,
    facts,
    share,
)
from congruence.formatting import count, number, percent
from congruence.mechanism.discovery import TYPES
from congruence.mechanism.theorems import IDENTIFIED, strongest

if TYPE_CHECKING:
    from congruence.mechanism.discovery import Discovery, FinestParts
    from congruence.mechanism.disentanglement import Disentanglement
    from congruence.mechanism.examination import MechanismExamination
    from congruence.mechanism.profile import BlockProfile
    from congruence.mechanism.theorems import Criterion, Theorem

SHOWN_BLOCKS = 24  # with a picture each
SHOWN_LATENTS = 40  # in the graph
STILL = 1e-3  # degrees
WIDEST = 1200  # columns of a strip; more outputs are pooled, the strongest shown
STRIP = 50  # how many times a strip is wider than high, about
SHADE = (0xD9, 0x7A, 0x06)  # readable on a light and on a dark page
LABELS = {"M_coord": "M, coordinates", "M_sparsest": "M, sparsest basis"}
REMARKS = {
    "holds": "all premises of the theorem hold",
    "conditional": "the theorem assumes a model whose Jacobian is as sparse",
    "ambiguous": "the answer depends on what counts as zero",
    "unknown": "some premises are undecided",
    "premise fails": "each theorem has a premise that fails",
}
GLOSSARY = (
    ("block", "latents that together form one factor."),
    ("certified", "the structure of the decoder proves it for all latents."),
    ("supported", "it holds at all points examined, which proves nothing about the points between."),
    ("refuted", "it fails at one point at least, up to the tolerance."),
    (
        "ambiguous",
        "the answer depends on what counts as zero: it changes within a decade of tolerance. Trained decoders have no "
        "exact zeros.",
    ),
    ("unknown", "the points examined do not decide it. “Premise fails”: the theorem says nothing here."),
    (
        "irreducible",
        "a block that does not split into smaller ones of the same type. Otherwise another split may be identified.",
    ),
    (
        "at a point",
        "all criteria are about points. Identification over a whole domain needs Theorem 1: a simply connected domain "
        "with connected slices, and a decoder that is a covering map onto its image.",
    ),
)


def describe(examination: MechanismExamination) -> Document:
    """The document of a mechanism examination."""
    check, profile = examination.check, examination.profile
    headline, *details = examination.headlines
    tolerance, model = check.tolerance, examination.disentanglement
    return Document(
        question="Do the factors act on separate parts of the observation?",
        headline=headline,
        details=details,
        claim="Does a theorem identify the blocks?"
        if model is None
        else "Are blocks identified and codes disentangled?",
        status=examination.status,
        remark=REMARKS[examination.strongest.strength] if model is None else _remark(model),
        notes=examination.notes,
        sections=tuple(_sections(examination)),
        glossary=GLOSSARY,
        settings={
            **examination.settings,
            "latents per point": len(profile.graph),
            "outputs per point": int(np.prod(profile.output_shape)),
            "supports are constant for tolerances": f"from {number(tolerance.low, 2)} to {number(tolerance.high, 2)}",
        },
        title=f"Mechanism: {headline}",
    )


def _remark(model: Disentanglement) -> str:
    return f"codes at the points: {model.local.status}; over the domain: {model.everywhere.status}"


def _sections(examination: MechanismExamination) -> Iterator[Section]:
    check, profile = examination.check, examination.profile
    if examination.discovery is not None:
        yield Section("Which parts does the decoder have?", tuple(_discovery(examination.discovery)), id="parts")
    title = f"Which criteria hold for the blocks {examination.blocks_text}?"
    label = f"Criteria for the blocks {examination.blocks_text}, {count(check.points, 'point')}"
    yield Section(title, (_criteria(check.criteria, label),), id="criteria")
    yield Section("Which theorem applies?", tuple(_theorems(check.theorems)), id="theorems")
    yield Section("Where does each block act?", tuple(_blocks(profile)), id="blocks")
    if examination.disentanglement is not None:
        blocks = tuple(_model(examination.disentanglement, profile.names))
        yield Section("Is the model disentangled?", blocks, id="model")


def _discovery(discovery: Discovery) -> Iterator[Block]:
    yield Text(
        "The finest parts into which the latent directions split at every point, in any basis: a decoder whose latents "
        "were mixed has the same parts. “Along the coordinates” means that the given latents need no mixing.",
        muted=True,
    )
    for found in discovery.found:
        yield Heading(f"Type {found.type}: parts that {TYPES[found.type]}")
        yield Text(found.sentence, brief=True)
        followed = _followed(found)
        if followed:
            yield Text(followed, muted=True)
        steps = _steps(found)
        if len(steps) > 1:
            columns = (Column("tolerance from"), Column("to"), Column("parts at most points", "text"))
            yield Table(f"Parts of type {found.type} by tolerance", columns, steps, sortable=False)
        for note in found.notes if found.dims is not None else ():
            yield Text(note, muted=True)


def _steps(found: FinestParts) -> list[tuple[str, str, str]]:
    """How the parts change with the tolerance: intervals of it with the same dimensions."""
    steps: list[tuple[str, str, str]] = []
    for rtol, dims in found.sweep:
        text = f"{len(dims)} of {', '.join(map(str, dims))}" if len(dims) > 1 else "one"
        same = bool(steps) and steps[-1][2] == text
        first = steps.pop()[0] if same else number(rtol, 1)
        steps.append((first, number(rtol, 1), text))
    return steps


def _followed(found: FinestParts) -> str:
    if found.followed is None or found.dims is None or len(found.dims) < 2:
        return ""
    seen = found.followed.overlap[np.isfinite(found.followed.overlap)]
    if not seen.size:
        return ""
    angle = math.degrees(math.acos(min(1.0, max(-1.0, float(seen.min())))))
    turned = f"turn by at most {number(angle)}°" if angle > STILL else "do not turn"
    other = f" {count(found.followed.lost, 'point')} with other parts." if found.followed.lost else ""
    return f"From point to nearest point, the parts {turned}.{other}"


def _criteria(criteria: tuple[Criterion, ...], label: str) -> Table:
    columns = (
        Column("criterion", "text"),
        Column("verdict", "text"),
        Column("points"),
        Column("margin"),
        Column("margin is the", "text"),
        Column("worst", "text", brief=False),
        Column("basis", "text"),
    )
    rows = []
    for one in criteria:
        telling = one.worst is not None and (one.status != "holds" or one.margin != 0)
        rows.append(
            (
                Cell(LABELS.get(one.name, one.name), below=one.finding.claim),
                badge(one.status),
                share(one.fraction),
                one.margin,
                Cell(one.measures),
                f"row {one.worst}" if telling else "",
                Cell(one.basis, below="; ".join(one.remarks)),
            )
        )
    return Table(label, columns, rows, brief=True)


def _theorems(theorems: tuple[Theorem, ...]) -> Iterator[Block]:
    columns = (
        Column("theorem", "text"),
        Column("type", "text"),
        Column("verdict", "text"),
        Column("basis", "text"),
        Column("premises that are not shown", "text"),
    )
    rows = [
        (
            str(one.number),
            LABELS.get(one.criterion, one.criterion),
            badge(one.status),
            one.conclusion.basis,
            ", ".join(f"{premise.name} ({premise.status})" for premise in one.open_premises),
        )
        for one in theorems
    ]
    note = IDENTIFIED if any(one.strength in ("holds", "conditional") for one in theorems) else ""
    yield Table("Theorems", columns, rows, brief=True, note=note)
    for one in theorems:
        summary = f"Premises of Theorem {one.number} (Type {LABELS.get(one.criterion, one.criterion)})"
        premises = Findings(one.conclusion.premises)
        yield Details(summary, (premises,), open=one is strongest(theorems), status=one.status)


def _blocks(profile: BlockProfile) -> Iterator[Block]:
    shape = _image_shape(profile)
    images = list(_images(profile, shape))
    hidden = len(profile.blocks) - len(images)
    more = f" {hidden} more blocks are not shown." if hidden else ""
    note = (
        "How far each block moves every output, root mean square over the points. The largest effect has full shade; "
        f"half the shade is a quarter of it.{more}"
    )
    if shape is not None:
        yield Grid(images, "small")
        yield Text(note, muted=True)
    else:
        rows = [(Cell(image.caption, below=image.detail), Cell("", image=image)) for image in images]
        columns = (Column("block", "text"), Column("outputs", "text"))
        label = "Outputs of each block"
        yield Table(label, columns, rows, style="images", sortable=False, header=False, note=note)
    overlap = Group((Heading("How much do blocks overlap?"), _overlap(profile)))
    if len(profile.graph) > SHOWN_LATENTS:
        yield Grid((overlap, Group((Figure("block_overlap", (profile, SHOWN_BLOCKS), brief=True),))))
        return
    graph = Group(
        (
            Heading("Which latents move a common output?"),
            Figure("latent_graph", (profile,), brief=True),
            Text(
                "Neighbouring dots of one colour are a block. Solid lines stay inside a block; dashed ones join two. "
                "Wider lines: larger overlap.",
                muted=True,
            ),
        )
    )
    yield Grid((overlap, graph))


def _image_shape(profile: BlockProfile) -> tuple[int, int, int] | None:
    """(channels, height, width) where outputs are images."""
    shape = profile.output_shape
    if len(shape) in (2, 3) and min(shape[-2:]) > 1:
        return (1, *shape) if len(shape) == 2 else shape  # type: ignore[return-value]
    return None


def _images(profile: BlockProfile, shape: tuple[int, int, int] | None) -> Iterator[Image]:
    """How strongly each block moves every output, as an image or a strip."""
    top = float(profile.effects.max()) or 1.0
    for k, (name, effects) in enumerate(zip(profile.names, profile.effects, strict=True)):
        if k == SHOWN_BLOCKS:
            return
        values = effects.reshape(shape).max(0) if shape else _strip(effects)  # the strongest channel
        moved = count(int(profile.shared[k, k]), "output")
        label = f"{name} moves {moved} of {len(effects)}"
        width = "" if shape else "100%"
        yield Image(_shaded(values / top), label, name, moved, width=width, framed=shape is not None)


def _strip(effects: Any) -> Any:
    """Effects as a strip (height, width): few outputs are widened, many are pooled to the strongest."""
    if len(effects) > WIDEST:
        edges = np.linspace(0, len(effects), WIDEST + 1).astype(int)[:-1]
        effects = np.maximum.reduceat(effects, edges)
    wide = np.repeat(effects, max(1, WIDEST // len(effects)))
    return np.tile(wide, (max(1, len(wide) // STRIP), 1))


def _shaded(values: Any) -> Any:
    """Values (height, width) from 0 to 1 as pixels, shaded by their square root so that small ones are visible."""
    pixels = np.empty((*values.shape, 4), np.uint8)
    pixels[..., :3] = SHADE
    pixels[..., 3] = np.rint(255 * np.sqrt(np.clip(values, 0, 1)))
    return pixels


def _overlap(profile: BlockProfile) -> Table:
    names = profile.names[:SHOWN_BLOCKS]
    rows: list[tuple[str | Cell, ...]] = []
    for i, name in enumerate(names):
        cells = []
        for j, other in enumerate(names):
            value, shared = float(profile.overlap[i, j]), int(profile.shared[i, j])
            hint = f"{name}, {other}: {number(value)}; {count(shared, 'output')} in common"
            tint = 0.0 if i == j else round(0.9 * value, 2)
            cells.append(Cell(str(shared) if i == j else _short(value), tint=tint, hint=hint))
        rows.append((name, *cells))
    columns = (Column("", "text"), *(Column(name) for name in names))
    note = "0: no output in common. 1: both move every output alike. Diagonal: number of outputs that a block moves."
    return Table("Overlap of blocks", columns, rows, style="heat", sortable=False, note=note)


def _short(value: float) -> str:
    return "0" if value == 0 else f"{value:.2f}" if value >= 0.005 else f"{value:.0e}"


def _model(found: Disentanglement, names: tuple[str, ...]) -> Iterator[Block]:
    """Whether the codes of a model are disentangled: shares of each code's motion, and the premises of Theorem 1."""
    yield Findings((found.local, found.everywhere), brief=True)
    meaning = "of a code's motion, from factors that are not its own, at the worst point"
    rows = [("largest leak", percent(found.worst), meaning)]
    if found.sparse is not None:
        meaning = "of points where the model's Jacobian has no more non-zeros than the generator's (Theorem 3)"
        rows.append(("as sparse", percent(found.sparse), meaning))
    if np.isfinite(found.misses).any():
        meaning = "of the spread of the outputs: largest distance between the model's and the generator's"
        rows.append(("outputs missed by", percent(float(np.nanmax(found.misses))), meaning))
    yield facts(rows, "Disentanglement", brief=True)
    cells: list[tuple[str | Cell, ...]] = [
        (f"c{j}", *(Cell(_short(float(value)), tint=round(0.9 * float(value), 2)) for value in row))
        for j, row in enumerate(found.shares[:SHOWN_LATENTS])
        if np.isfinite(row).all()
    ]
    columns = (Column("", "text"), *(Column(name) for name in names))
    note = "Shares of a code’s squared motion over all points."
    shares = Group(
        (
            Heading("Which factor moves which code?"),
            Table("Share of each code’s motion", columns, cells, style="heat", sortable=False, note=note),
        )
    )
    yield Grid((shares, Group((Heading("Premises of Theorem 1"), Findings(found.premises)))))
