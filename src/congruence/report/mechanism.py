"""The report of mechanistic independence: which criteria hold, which theorem applies, and where each block acts."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import files
from congruence.report.figures.svg import HEAT, HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE, draw
from congruence.report.page import fill
from congruence.report.strips import png
from congruence.report.words import STATUSES, count, number, percent, sentence

if TYPE_CHECKING:
    from congruence.mechanism.decomposable import Disentanglement
    from congruence.mechanism.discovery import Found
    from congruence.mechanism.examination import Examination
    from congruence.mechanism.portrait import Portrait
    from congruence.mechanism.supports import Tolerance
    from congruence.mechanism.theorems import Theorem
    from congruence.mechanism.verdicts import Verdict

SHOWN_BLOCKS = 24  # with a picture each
SHOWN_LATENTS = 40  # in the graph
STILL = 1e-3  # degrees
WIDEST = 1200  # columns of a strip; more outputs are put together, the strongest shown
SHADE = (0xD9, 0x7A, 0x06)  # readable on either page, more or less of it
BADGES = {  # of a theorem: how it is marked, and the kind of badge
    "applies": ("✓", "holds"),
    "conditional": ("≈", "ambiguous"),
    "does not apply": ("✕", "fails"),
    "unknown": ("?", "unknown"),
}
_MARKS = {name: mark for name, (mark, _) in STATUSES.items()}
LEADS = {  # what a theorem that applies rests on
    "D": "they act on disjoint outputs",
    "M_coord": "no latent moves all that one of another block moves",
    "M_sparsest": "no direction in one moves all that one in another moves",
    "S": "mixing them moves more outputs",
    "H2": "they add up",
}
CRITERIA = {  # what is asked of the blocks
    "D": "no output moves with two blocks",
    "M_coord": "no latent moves all outputs that a latent of another block moves",
    "M_sparsest": "the same, in the basis of each block that moves the fewest outputs",
    "S": "bases that mix blocks move more outputs than those that do not",
    "H2": "blocks add up: no second derivative mixes them",
    "H3": "no third derivative mixes blocks",
    "IMA": "derivatives by different blocks are orthogonal",
}


def write_mechanism_report(examination: Examination, path: str | Path) -> None:
    """Write the report of mechanistic independence to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render_mechanism(examination))


def render_mechanism(examination: Examination) -> str:
    """Return the report of mechanistic independence as one HTML page that needs no other file."""
    check, portrait, discovery = examination.check, examination.portrait, examination.discovery
    settings = {name: value for name, value in examination.settings.items() if name != "command"}
    return fill(
        "mechanism.html.j2",
        examination=examination,
        lead=_lead(examination),
        notes_on=[sentence(note) for note in examination.notes],
        verdicts=[_verdict(one) for one in check.verdicts],
        theorems=[_theorem(one) for one in check.theorems],
        identifies=next((one.identifies for one in check.theorems if one.status in ("applies", "conditional")), ""),
        pictures=_pictures(portrait),
        is_image=_image_shape(portrait) is not None,
        hidden=max(0, len(portrait.blocks) - SHOWN_BLOCKS),
        overlap=_overlap(portrait),
        graph=_graph(portrait) if 1 < len(portrait.graph) <= SHOWN_LATENTS else "",
        latents=len(portrait.graph),
        found=[_found(one) for one in discovery.found] if discovery is not None else [],
        model=None if examination.disentanglement is None else _model(examination.disentanglement, portrait.names),
        command=examination.settings.get("command"),
        made={
            "points": portrait.points,
            "latents of a point": len(portrait.graph),
            "outputs of a point": int(np.prod(portrait.output_shape)),
            "tolerance": f"{check.tolerance.rtol:g}",
            "supports stay the same for tolerances": _steady(check.tolerance),
        }
        | settings,
    )


def _lead(examination: Examination) -> str:
    """The answer first: the first theorem that identifies the blocks, and what it rests on."""
    named = examination.blocks_text.replace(",", ", ").replace("-", "\u2011")  # ranges stay on one line
    for status, words in (("applies", ""), ("conditional", ", for models whose Jacobian is as sparse")):
        for theorem in examination.check.theorems:
            if theorem.status == status:
                why = LEADS.get(theorem.criterion, f"no derivative of order {theorem.criterion[1:]} mixes them")
                return f"Theorem {theorem.number} identifies the blocks {named}{words}: {why}."
    if examination.blocks_from == "none" and examination.discovery is not None:
        for found in examination.discovery.found:
            if found.dims is not None and len(found.dims) > 1:
                return f"The decoder has {len(found.dims)} parts of type {found.type}, but its latents mix them."
    return f"No theorem is seen to identify the blocks {named}."


def _steady(tolerance: Tolerance) -> str:
    return f"from {number(tolerance.low, 2)} to {number(tolerance.high, 2)}"


def _verdict(verdict: Verdict) -> dict[str, Any]:
    telling = verdict.worst is not None and (verdict.status != "holds" or verdict.margin != 0)
    about = CRITERIA.get(verdict.criterion, f"no derivative of order {verdict.criterion[1:]} mixes blocks")
    return {
        "name": _named(verdict.criterion),
        "about": about,
        "status": verdict.status,
        "share": percent(verdict.fraction),
        "margin": number(verdict.margin),
        "measures": verdict.measures.rstrip(","),
        "worst": f"row {verdict.worst}" if telling else "",
        "evidence": verdict.evidence,
        "note": verdict.note,
    }


def _named(criterion: str) -> str:
    return criterion.replace("M_coord", "M, coordinates").replace("M_sparsest", "M, sparsest basis")


def _theorem(theorem: Theorem) -> dict[str, Any]:
    mark, kind = BADGES[theorem.status]
    premises = [(_MARKS.get(c.status, "≈"), _named(c.name), c.status, c.evidence) for c in theorem.conditions]
    return {
        "number": theorem.number,
        "name": _named(theorem.criterion),
        "status": theorem.status,
        "mark": mark,
        "kind": kind,
        "premises": premises,
    }


def _pictures(portrait: Portrait) -> list[dict[str, Any]]:
    """How strongly each block moves every output, as an image or a strip."""
    shape = _image_shape(portrait)
    top = float(portrait.effects.max()) or 1.0
    shown = []
    for k, (name, effects) in enumerate(zip(portrait.names, portrait.effects, strict=True)):
        if k == SHOWN_BLOCKS:
            break
        values = effects.reshape(shape).max(0) if shape else _narrowed(effects)[None]  # the strongest channel
        moved = int(portrait.shared[k, k])
        about = f"{name} moves {count(moved, 'output')} of {len(effects)}"
        shown.append({"name": name, "about": about, "address": _shaded(values / top), "moved": moved})
    return shown


def _image_shape(portrait: Portrait) -> tuple[int, int, int] | None:
    """(channels, height, width) where outputs are images."""
    shape = portrait.output_shape
    if len(shape) in (2, 3) and min(shape[-2:]) > 1:
        return (1, *shape) if len(shape) == 2 else shape  # type: ignore[return-value]
    return None


def _narrowed(effects: Any) -> Any:
    if len(effects) <= WIDEST:
        return effects
    edges = np.linspace(0, len(effects), WIDEST + 1).astype(int)[:-1]
    return np.maximum.reduceat(effects, edges)


def _shaded(values: Any) -> str:
    """Values (height, width) from 0 to 1 as the address of a picture, shaded by their root so that faint ones show."""
    pixels = np.empty((*values.shape, 4), np.uint8)
    pixels[..., :3] = SHADE
    pixels[..., 3] = np.rint(255 * np.sqrt(np.clip(values, 0, 1)))
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def _overlap(portrait: Portrait) -> list[tuple[str, list[dict[str, Any]]]]:
    """The overlap matrix as rows of cells."""
    rows = []
    for i, name in enumerate(portrait.names[:SHOWN_BLOCKS]):
        cells = []
        for j, other in enumerate(portrait.names[:SHOWN_BLOCKS]):
            value, shared = float(portrait.overlap[i, j]), int(portrait.shared[i, j])
            title = f"{name}, {other}: {number(value)}; {count(shared, 'output')} in common"
            text = str(shared) if i == j else _short(value)
            cells.append({"text": text, "tint": 0.0 if i == j else round(0.9 * value, 2), "title": title})
        rows.append((name, cells))
    return rows


def _short(value: float) -> str:
    return "0" if value == 0 else f"{value:.2f}" if value >= 0.005 else f"{value:.0e}"


def _graph(portrait: Portrait) -> str:
    """G_D: latents on a circle, block by block; an edge where two of them move a common output."""
    order = [a for block in portrait.blocks for a in block]
    angle = {a: 2 * math.pi * k / len(order) for k, a in enumerate(order)}
    place = {a: (math.sin(t), math.cos(t)) for a, t in angle.items()}
    owner = {a: k for k, block in enumerate(portrait.blocks) for a in block}
    edges = [(a, b) for a in order for b in order if a < b and portrait.graph[a, b]]
    across = sum(owner[a] != owner[b] for a, b in edges)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for a, b in edges:
            apart = owner[a] != owner[b]
            width = 1.0 + 4.0 * float(portrait.near[a, b])
            dashes = (4, 2) if apart else (None, None)
            axes.plot(*zip(place[a], place[b], strict=True), color=NULL if apart else MUTED, linewidth=width,
                      dashes=dashes, zorder=1)  # fmt: skip
        colours = (HELD_OUT, LINEAR, SOURCE, ICA, HEAT, INK)
        for a in order:
            axes.plot(*place[a], "o", markersize=13, color=colours[owner[a] % len(colours)], zorder=2)
            x, y = (1.22 * v for v in place[a])
            axes.text(x, y, f"z{a}", ha="center", va="center", fontsize=12.5)
        axes.set(xlim=(-1.45, 1.45), ylim=(-1.35, 1.35), aspect="equal")
        axes.set_axis_off()

    label = f"Graph of {count(len(order), 'latent')}: {count(len(edges), 'edge')}, {across} of them between blocks"
    return draw(paint, (430, 400), key=f"graph {portrait.names!r}", label=label)


def _found(found: Found) -> dict[str, Any]:
    """What discovery says of one type, and how it changes with the tolerance."""
    steps: list[tuple[str, str, str]] = []
    for rtol, dims in found.sweep:
        text = f"{len(dims)} of {', '.join(map(str, dims))}" if len(dims) > 1 else "one"
        if steps and steps[-1][2] == text:
            steps[-1] = (steps[-1][0], number(rtol, 1), text)
        else:
            steps.append((number(rtol, 1), number(rtol, 1), text))
    return {
        "found": found,
        "sentence": found.sentence.partition(": ")[2],
        "steps": steps,
        "followed": _followed(found),
    }


def _model(found: Disentanglement, names: tuple[str, ...]) -> dict[str, Any]:
    """Whether the codes of a model are disentangled: shares of each code's motion, and the premises of Theorem 1."""
    rows = [
        (f"c{j}", [{"text": _short(float(value)), "tint": round(0.9 * float(value), 2)} for value in row])
        for j, row in enumerate(found.shares[:SHOWN_LATENTS])
        if np.isfinite(row).all()
    ]
    facts = [
        (
            "largest leak",
            percent(found.worst),
            "of a code's motion, from factors that are not its own, at the worst point",
        )
    ]
    if found.sparse is not None:
        meaning = "of points, where the model's Jacobian has no more non-zeros than the generator's (Theorem 3)"
        facts.append(("as sparse", percent(found.sparse), meaning))
    if np.isfinite(found.misses).any():
        meaning = "of the spread of the outputs, between the model's and the generator's, at most"
        facts.append(("outputs missed by", percent(float(np.nanmax(found.misses))), meaning))
    return {"found": found, "names": names, "rows": rows, "facts": facts}


def _followed(found: Found) -> str:
    if found.followed is None or found.dims is None or len(found.dims) < 2:
        return ""
    seen = found.followed.overlap[np.isfinite(found.followed.overlap)]
    if not seen.size:
        return ""
    angle = math.degrees(math.acos(min(1.0, max(-1.0, float(seen.min())))))
    lost = f"; at {count(found.followed.lost, 'point')} there are other parts" if found.followed.lost else ""
    turned = f"turn by at most {number(angle)}°" if angle > STILL else "do not turn"
    return f"From point to nearest point, parts {turned}{lost}."
