"""The report of an evaluation: which factors have a code of their own, what is missing, and scores beside chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import files
from congruence.document import Cell
from congruence.report.figures import groups_ladder
from congruence.report.figures.against import DRAWN_FACTORS, against_best
from congruence.report.figures.gauge import gauge
from congruence.report.matrices import heat_tables
from congruence.report.page import fill
from congruence.report.questions import FAMILIES, SCORES
from congruence.report.strips import model_section, side_by_side
from congruence.report.words import count, number, ordered, sentence

if TYPE_CHECKING:
    from congruence.metrics.evaluation import Evaluation, FactorRow, Score
    from congruence.models.pictures import Pictures

AHEAD = 3.0  # a code is a factor's own if it tells so many times as much of it as of any other factor
LEAST = 0.1  # and at least so much
LISTED = 12  # names in a sentence
READOUTS = {"linear": "R², linear", "nonlinear": "R², any"}  # of all codes together, shown where they were asked for
STATUS = {True: "holds", False: "fails"}


def write_evaluation_report(result: Evaluation, path: str | Path, pictures: Pictures | None = None) -> None:
    """Write the report of an evaluation to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render_evaluation(result, pictures))


def render_evaluation(result: Evaluation, pictures: Pictures | None = None, before: Pictures | None = None) -> str:
    """Return the report of an evaluation as one HTML page that needs no other file.

    With `pictures` (`congruence.models.pictures.look`) it also shows what the model makes of images, and what each
    of its latents changes; with `before`, the same of the codes that are first in `result.beside`, side by side.
    """
    own = own_codes(result)
    settings = {name: value for name, value in result.settings.items() if name != "command"}
    drawn = against_best(result)
    readouts = [name for name in READOUTS if any(math.isfinite(getattr(row, name)) for row in result.per_factor)]
    return fill(
        "evaluation.html.j2",
        result=result,
        status=_status(result, own),
        is_measured=_is_measured(result),
        lead=lead_sentence(result, own),
        told=missing_sentences(result),
        shared=shared_sentence(result, own),
        scores=[_score(score) for score in result.scores],
        with_intervals=any(math.isfinite(score.low) for score in result.scores),
        families=[FAMILIES.get(name, (name, "")) for name in dict.fromkeys(one.metric for one in result.scores)],
        heats=heat_tables(result),
        model=None if pictures is None else model_section(pictures, result),
        beside=_beside(result),
        moved=None if pictures is None or before is None else side_by_side(before, pictures, result),
        factor_rows=[_factor(row, own, readouts) for row in result.per_factor],
        readouts=[READOUTS[name] for name in readouts],
        code_rows=[_code(row, own) for row in result.per_code],
        drawn=drawn,
        undrawn=len(result.factors) - len(drawn) if len(result.factors) > DRAWN_FACTORS else 0,
        structural=_structural(result),
        sensitivity=_sensitivity(result),
        notes_on=list(result.notes),
        ahead=int(AHEAD),
        least=LEAST,
        command=result.settings.get("command"),
        made={"codes": f"{result.name} ({count(len(result.codes), 'code')})", "factors": result.factors}
        | {"rows": result.n}
        | settings,
    )


def own_codes(result: Evaluation) -> dict[str, str]:
    """The code that each factor has for itself: it tells of this factor, and `AHEAD` times less of any other.

    Rotated codes tell of several factors alike, so none of them is a factor's own. With one factor, only `LEAST`
    counts. Factors without such a code are left out.
    """
    nmi = np.nan_to_num(np.asarray(result.matrices["nmi"], dtype=float))  # (K, L)
    usable = np.array([row.active and not row.idle for row in result.per_code], dtype=bool)
    found = {}
    for i, row in enumerate(result.per_factor):
        others = np.delete(nmi, i, axis=0).max(0, initial=0.0)
        pure = usable & (nmi[i] >= LEAST) & (nmi[i] >= AHEAD * others)
        if row.explained and pure.any():
            found[row.factor] = result.codes[int(np.argmax(np.where(pure, nmi[i], -1.0)))]
    return found


def _status(result: Evaluation, own: dict[str, str]) -> str:
    if not _is_measured(result):
        return "unknown"
    return "partly" if 0 < len(own) < _measured(result) else STATUS[bool(own)]


def _measured(result: Evaluation) -> int:
    return len(result.factors) - len(result.unmeasured)


def _is_measured(result: Evaluation) -> bool:
    return bool(np.isfinite(result.matrices["nmi"]).any())


def lead_sentence(result: Evaluation, own: dict[str, str]) -> str:
    """How many factors have a code of their own."""
    k = _measured(result)
    if not _is_measured(result):
        return "Nothing can be said: no factor could be measured."
    if k == 1:
        subject = "The only factor that could be measured" if result.unmeasured else "The factor"
        return f"{subject} has {'a' if own else 'no'} code that tells of it."
    who = {0: f"None of {k}", k: f"All {k}"}.get(len(own), f"{len(own)} of {k}")
    return f"{who} factors {'has a code of its' if len(own) < 2 else 'have a code of their'} own."


def missing_sentences(result: Evaluation) -> list[str]:
    """Which factors no code explains, and which codes explain nothing."""
    if not _is_measured(result):
        return [sentence(score.reason) for score in result.scores if score.reason][:1]
    lost, idle = result.unexplained, result.idle
    sentences = [
        f"The codes tell nothing of {_names(lost)}." if lost else "The codes tell of every factor more than chance.",
    ]
    if idle:
        sentences.append(f"{count(len(idle), 'code')} {'tells' if len(idle) == 1 else 'tell'} nothing: {_names(idle)}.")
    else:
        sentences.append("Every code tells of some factor.")
    if result.unmeasured:
        sentences.append(f"Not measured, for reasons that the notes give: {_names(result.unmeasured)}.")
    return sentences


def shared_sentence(result: Evaluation, own: dict[str, str]) -> str:
    """Name the factors that codes tell of, but none for them alone."""
    mixed = [row.factor for row in result.per_factor if row.explained and row.factor not in own]
    if not mixed or len(result.factors) == 1 or not _is_measured(result):
        return ""
    return f"Told of, but by no code of {'its' if len(mixed) == 1 else 'their'} own: {_names(mixed)}."


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:LISTED])
    return shown if len(names) <= LISTED else f"{shown} and {len(names) - LISTED} more"


def _score(score: Score) -> dict[str, Any]:
    called, asks = SCORES.get(score.score, (score.score, ""))
    known = math.isfinite(score.low) and math.isfinite(score.high)
    beats = {True: "beaten", False: "not beaten", None: ""}[score.beats_chance]
    return {
        "name": called,
        "id": score.score,
        "asks": asks,
        "value": Cell(_three(score.value), _sorted(score.value)),
        "interval": f"{_three(score.low)} to {_three(score.high)}" if known else "",
        "chance": Cell(_three(score.chance), _sorted(score.chance), beats),
        "bar": gauge(score),
        "reason": sentence(score.reason),
        "better": "higher" if score.direction.startswith("higher") else "lower",
    }


def _factor(row: FactorRow, own: dict[str, str], readouts: Sequence[str]) -> dict[str, Any]:
    code = own.get(row.factor)
    numbers = [row.share, row.second, *(getattr(row, name) for name in readouts)]
    return {
        "name": row.factor,
        "state": "no code" if not row.explained else "shared codes" if code is None else "its own code",
        "kind": row.kind,
        "levels": row.levels,
        "code": code or row.code,
        "cells": [Cell(_three(x), _sorted(x)) for x in numbers],
    }


def _code(row: Any, own: dict[str, str]) -> dict[str, Any]:
    mine = [factor for factor, code in own.items() if code == row.code]
    state = f"{mine[0]}’s own" if mine else "tells nothing" if row.idle else "shared" if row.active else "hardly varies"
    return {
        "name": row.code,
        "state": state,
        "factor": row.factor,
        "cells": [Cell(_three(x), _sorted(x)) for x in (row.share, row.modularity)],
    }


def _structural(result: Evaluation) -> dict[str, Any] | None:
    near = result.structural
    if near is None:
        return None
    groups = [(name, near.groups[name]) for name in ordered(near.groups)]
    about = "from the codes to the factors"
    return {
        "groups": groups,
        "figure": groups_ladder(near.groups, key=f"structural {result.name!r}", about=about) if groups else "",
        "reason": sentence(next(iter(near.reasons.values()), "")),
    }


def _beside(result: Evaluation) -> dict[str, Any] | None:
    """The scores of all evaluations side by side, and what the codes told of factors before."""
    if not result.beside:
        return None
    everyone = (result.beside[0], result, *result.beside[1:])
    rows = [
        (SCORES.get(score.score, (score.score, ""))[0], [Cell(_three(v), _sorted(v)) for v in values])
        for score, *values in zip(
            result.scores, *([one.value for one in each.scores] for each in everyone), strict=True
        )
    ]
    heats = heat_tables(result.beside[0])[:1]
    first = result.beside[0].name
    return {
        "names": [one.name.removeprefix(first).strip() or "before" for one in everyone],
        "rows": rows,
        "heats": heats,
    }


def _sensitivity(result: Evaluation) -> dict[str, Any] | None:
    if not result.sensitivity:
        return None
    names = list(result.sensitivity[0])
    rows = [[_plain(row[name]) for name in names] for row in result.sensitivity]
    return {"head": [SCORES.get(name, (name, ""))[0] for name in names], "rows": rows}


def _plain(value: float) -> Cell:
    whole = float(value).is_integer() and abs(value) >= 2  # a number of bins
    return Cell(f"{value:.0f}" if whole else _three(value), _sorted(value))


def _three(value: float) -> str:
    if not math.isfinite(value) or abs(value) >= 100:
        return number(value)
    text = f"{value:.3f}" if value == 0 or abs(value) >= 0.0005 else number(value, 1)
    return text.replace("-", "−")


def _sorted(value: float) -> float | str:
    return value if math.isfinite(value) else ""
