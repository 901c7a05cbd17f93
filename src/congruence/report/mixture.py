"""The report of a mixture prior: what the theorems identify, latent spaces of the runs, distances and MCC."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import files
from congruence.report.figures.spaces import paint_spaces
from congruence.report.figures.svg import draw
from congruence.report.page import fill
from congruence.report.words import UNDEFINED, elided, number, sentence

if TYPE_CHECKING:
    from congruence.mixture.agreement import Agreement, PairAgreement
    from congruence.mixture.examination import MixtureExamination

SHOWN = 6  # runs with a picture
POINTS = 400  # rows in each
CONDITIONS = {  # what is asked of a model
    "P1": "the prior is a Gaussian mixture, and the codes fit it",
    "P2": "latents are independent within components, with distinct ratios of variances",
    "P3": "the hidden discrete variables can be counted",
    "F1": "the decoder is piecewise affine",
    "F2": "it is weakly injective",
    "F3": "it is injective but for outputs of measure 0",
    "F4": "it is injective",
}


def write_mixture_report(examination: MixtureExamination, path: str | Path) -> None:
    """Write the report of a mixture prior to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render_mixture(examination))


def render_mixture(examination: MixtureExamination) -> str:
    """Return the report of a mixture prior as one HTML page that needs no other file."""
    found = examination.agreement
    checked = [one for one in examination.runs if one.assumptions is not None]
    settings = {name: value for name, value in examination.settings.items() if name != "command"}
    return fill(
        "mixture.html.j2",
        examination=examination,
        lead=_lead(examination),
        notes_on=[sentence(note) for note in _notes(examination)],
        spaces=_spaces(examination),
        labels_from=examination.labels_from,
        first=examination.spaces[0].name,
        hidden=max(0, len(examination.spaces) - SHOWN),
        tables=[] if found is None else _tables(found),
        facts=[] if found is None else _facts(found),
        conditions=_conditions(checked),
        names=[one.name for one in checked],
        hierarchy=_hierarchy(checked),
        theorems=[] if not checked else _theorems(checked),
        command=examination.settings.get("command"),
        made={
            "models": ", ".join(dict.fromkeys(one.model for one in examination.runs)),
            "components of the prior": ", ".join(str(one.components) for one in examination.runs),
            "rows": len(examination.labels),
        }
        | settings,
    )


def _lead(examination: MixtureExamination) -> str:
    """The answer first: how strong the guarantee is, and whether runs bear it out."""
    checked: list[Any] = [one for one in examination.runs if one.assumptions is not None]
    words = {
        0: "No theorem is shown to apply",
        1: "The prior is identified up to an affine map",
        2: "Prior and decoder are identified up to an affine map",
        3: "The prior is identified up to permutation, scaling and translation",
        4: "Prior and hidden states are identified up to permutation, scaling and translation",
    }
    text = ""
    if checked:
        every = " in every run" if len(checked) == len(examination.runs) else " in every run that was checked"
        several = len(examination.runs) > 1 and max(one.assumptions.row for one in checked) > 0
        text = words[_strongest(checked)] + (every if several else "")
    found = examination.agreement
    if found is None:
        return f"{text}." if text else "One run, whose assumptions were not checked."
    weak = found.spread("weak_held_out" if found.spread("weak_held_out").pairs else "weak")
    seen = f"codes of two runs agree up to a linear map with an MCC of {number(weak.mean)}"
    if not weak.pairs:
        seen = "codes do not vary, so that there is no MCC"
    return f"{text}; {seen}." if text else f"{seen[:1].upper()}{seen[1:]}."


def _notes(examination: MixtureExamination) -> list[str]:
    """What was noted of runs, and of assumptions, each once."""
    told = [note for one in examination.runs if one.assumptions is not None for note in one.assumptions.notes]
    return list(dict.fromkeys([*examination.notes, *told]))


def _spaces(examination: MixtureExamination) -> str:
    spaces = examination.spaces[:SHOWN]
    count = len(examination.labels)
    rows = np.linspace(0, count - 1, min(POINTS, count)).astype(int)
    names = elided([one.name for one in spaces], 16)
    views, titles = [[one.codes[rows, :2] for one in spaces]], ["as learned"]
    found = examination.agreement
    if found is not None:
        first = spaces[0].name
        views.append([found.aligned(one.name, first)[rows, :2] for one in spaces])
        titles.append("aligned")

    def paint(figure: Any) -> None:
        paint_spaces(figure, names, views, examination.labels[rows], titles)

    size = (max(300, 175 * len(spaces)), 40 + 185 * len(views))
    label = f"Codes of {len(spaces)} runs, {' and '.join(titles)}, marked by {examination.labels_from}"
    return draw(paint, size, key="spaces " + " ".join(names), label=label)


def _tables(found: Agreement) -> list[dict[str, Any]]:
    """Matrices over runs: rows are sources, columns targets; darker is farther, or nearer for MCC."""
    names = [one.name for one in found.spaces]
    made = []
    if any(pair.affine is not None for pair in found.pairs):
        top = max((pair.affine.distance for pair in found.pairs if pair.affine is not None), default=0.0)
        made.append(
            {
                "title": "Affine distance of the priors",
                "about": "L2, after the best affine map found from row to column: an upper bound; 0 is best.",
                "rows": _matrix(
                    found, names, lambda pair: math.nan if pair.affine is None else pair.affine.distance, top
                ),
            }
        )
    for title, about, name in (
        ("Strong MCC", "Codes as they are, matched one to one, in sample; 1 is best.", "strong"),
        ("Weak MCC, held out", "After a linear map fitted on other rows; 1 is best.", "weak_held_out"),
    ):
        made.append({"title": title, "about": about, "rows": _matrix(found, names, attrgetter(name), 1.0)})
    return made


def _matrix(
    found: Agreement, names: list[str], value: Callable[[PairAgreement], float], top: float
) -> list[tuple[str, list[dict[str, Any]]]]:
    rows = []
    for source in names:
        cells = []
        for target in names:
            one = math.nan if source == target else value(found[source, target])
            tint = 0.0 if not math.isfinite(one) or top <= 0 else 0.75 * min(max(one / top, 0.0), 1.0)
            text = "" if source == target else UNDEFINED if math.isnan(one) else number(one)
            cells.append({"text": text, "tint": f"{tint:.3f}", "title": f"{source} to {target}"})
        rows.append((source, cells))
    return rows


def _facts(found: Agreement) -> list[tuple[str, str, str]]:
    wanted = (
        ("distance", "affine distance", "of the priors, after the best map found; an upper bound; lower is closer"),
        ("relative", "the same, relative", "of the size of both laws: 0 is the same, 1 no overlap"),
        ("strong", "strong MCC", "codes as they are, in sample; higher is closer, 0 to 1"),
        ("weak", "weak MCC", "codes up to a linear map, in sample; higher is closer, 0 to 1"),
        ("weak_held_out", "weak MCC, held out", "the map fitted on other rows; the number to trust"),
    )
    spreads = [(title, found.spread(name), about) for name, title, about in wanted]
    return [
        (title, f"{number(one.mean)} ± {number(one.deviation, 2)}", f"{about}; {one.pairs} ordered pairs")
        for title, one, about in spreads
        if one.pairs
    ]


def _conditions(checked: list[Any]) -> list[dict[str, Any]]:
    """A row for each condition: its status in every run, and the evidence of the first that is worst."""
    rows = []
    order = ["fails", "ambiguous", "unknown", "holds"]
    for name, about in CONDITIONS.items():
        found = [one.assumptions.conditions[name] for one in checked]
        if not found:
            continue
        worst = min(range(len(found)), key=lambda i: order.index(found[i].status))
        rows.append(
            {
                "name": name,
                "about": about,
                "statuses": [one.status for one in found],
                "evidence": found[worst].evidence + _pair(found[worst].pair),
                "basis": found[worst].basis,
                "of": checked[worst].name if len(checked) > 1 else "",
            }
        )
    return rows


def _pair(pair: Any) -> str:
    """Two latents of one output, where such were found."""
    if pair is None:
        return ""
    first, second = (", ".join(number(float(value)) for value in one) for one in (pair.first, pair.second))
    return f" The latents ({first}) and ({second}) give outputs {number(pair.gap, 2)} apart."


def _hierarchy(checked: list[Any]) -> list[dict[str, Any]]:
    """The rows of Table 1; lit are those that apply in every run."""
    if not checked:
        return []
    rows = []
    strongest = _strongest(checked)
    for i, row in enumerate(checked[0].assumptions.rows):
        status, kind = _together([one.assumptions.rows[i].prior for one in checked])
        rows.append(
            {
                "number": row.number,
                "asks": " + ".join(row.asks),
                "guarantee": row.guarantee,
                "status": status,
                "kind": kind,
                "lit": row.number == strongest,
            }
        )
    return rows


def _strongest(checked: list[Any]) -> int:
    """The strongest row that applies in every run, or 0. One run may reach row 2 and another row 3 without row 2."""
    every = zip(*(one.assumptions.rows for one in checked), strict=True)
    return max((some[0].number for some in every if all(row.prior == "applies" for row in some)), default=0)


def _together(statuses: list[str]) -> tuple[str, str]:
    """What to say of a statement in all runs, and the kind of badge."""
    applies = statuses.count("applies")
    if applies == len(statuses):
        return "applies", "holds"
    if applies:
        return f"applies in {applies} of {len(statuses)}", "ambiguous"
    return ("unknown", "unknown") if "unknown" in statuses else ("does not apply", "fails")


def _theorems(checked: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for i, theorem in enumerate(checked[0].assumptions.theorems):
        each = [one.assumptions.theorems[i] for one in checked]
        status, kind = _together([one.status for one in each])
        missing = dict.fromkeys(name for one in each for name in one.missing)
        rows.append(
            {
                "name": theorem.name,
                "asks": " + ".join(theorem.asks),
                "identifies": theorem.identifies,
                "status": status,
                "kind": kind,
                "missing": ", ".join(missing),
            }
        )
    return rows
