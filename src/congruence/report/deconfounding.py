"""The report of `deconfound`: does it help on batches never seen, how sure is that, and what explains it?"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import files
from congruence.document import Cell
from congruence.report.figures.carriers import carrier_rows, carriers_figure
from congruence.report.figures.differences import differences_figure
from congruence.report.page import fill
from congruence.report.words import count, sentence

if TYPE_CHECKING:
    from congruence.batches.outcome import Outcome, Paired, Target

CALLED = {
    "base": ("base", "the embedding as it is"),
    "whitened": ("whitened", "principal components of unit variance"),
    "ica": ("ICA", "whitened and rotated to independent components"),
    "rotated": ("random rotation", "whitened and rotated at random: axes that mean nothing"),
    "standardised": ("standardised", "each batch minus the mean of its controls, over their deviation"),
    "tvn": ("TVN", "whitened by the controls, each batch aligned on its own controls"),
    "harmony": ("Harmony", "batches moved together in clusters, all rows at once"),
}
STATUS = {"better": "holds", "worse": "fails", "no difference seen": "ambiguous", "unknown": "unknown"}
LISTED = 500  # targets in the table


def write_deconfounding_report(result: Outcome, path: str | Path) -> None:
    """Write the report of `deconfound` to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render_deconfounding(result))


def render_deconfounding(result: Outcome) -> str:
    """Return the report of `deconfound` as one HTML page that needs no other file."""
    asked = asked_condition(result)
    paired = result.overall.get(asked)
    settings = {name: value for name, value in result.settings.items() if name != "command"}
    kinds = [name for name in CALLED if any(_kind(one) == name for one in result.conditions)]
    return fill(
        "deconfounding.html.j2",
        result=result,
        asked=called(asked),
        status="unknown" if paired is None else STATUS[paired.verdict],
        lead=answer(result),
        told=further_sentences(result),
        figure=differences_figure(result, called) if result.overall else "",
        heads=[called(name) for name in result.conditions],
        rows=[_target(one) for one in result.targets[:LISTED]],
        together=_together(result),
        unlisted=max(0, len(result.targets) - LISTED),
        summary=[{key: _cell(value) for key, value in row.items()} for row in summary(result)],
        spreads=_spreads(result),
        carriers=carriers_figure(result, called),
        carrying=carrier_rows(result),
        entangled=_entangled(result),
        kinds=[CALLED[name] for name in kinds],
        reading=result.settings.get("reading", "difference"),
        notes_on=[*(sentence(f"{name} was not judged: {why}") for name, why in result.skipped.items()), *result.notes],
        by_batch=result.settings.get("protocol") == "batch",
        command=result.settings.get("command"),
        made={"embedding": f"{result.name} ({result.d} dimensions)", "rows": result.n, "batches": result.batches}
        | {"controls": result.controls}
        | settings,
    )


def called(name: str) -> str:
    """What a condition is called on a page."""
    kind = _kind(name)
    return CALLED.get(kind, (kind, ""))[0] + name[len(kind) :]


def _kind(name: str) -> str:
    return name.partition(",")[0]


def asked_condition(result: Outcome) -> str:
    """The condition that the answer is about: ICA, or else the one with the highest mean."""
    if "ica" in result.overall:
        return "ica"
    means = {name: result.mean(name) for name in result.overall}
    known = {name: value for name, value in means.items() if not math.isnan(value)}
    return max(known, key=lambda name: known[name]) if known else next(iter(result.overall), "base")


def answer(result: Outcome) -> str:
    """Say in a sentence whether ICA (or the best condition) helps on batches never seen."""
    asked = asked_condition(result)
    paired = result.overall.get(asked)
    if paired is None:
        return f"On batches never seen, the embedding has AUROC {_three(result.mean('base'))}."
    verdict = paired.verdict
    who = called(asked)
    if verdict == "unknown":
        return f"Whether {who} helps on batches never seen cannot be said: too few folds could be judged."
    how = f"AUROC {_signed(paired.difference)}, 95 % interval {_signed(paired.low)} to {_signed(paired.high)}"
    if verdict == "no difference seen":
        return f"No gain from {who} shows on batches never seen ({how})."
    return f"{who[:1].upper()}{who[1:]} {'helps' if verdict == 'better' else 'hurts'} on batches never seen ({how})."


def further_sentences(result: Outcome) -> list[str]:
    """What the answer leaves open: is it the axes or the whitening, and is there something better?"""
    told = []
    asked = asked_condition(result)
    targets = count(len(result.targets), "target")
    shown = ", ".join(f"{called(name)} {_three(result.mean(name))}" for name in dict.fromkeys(("base", asked)))
    told.append(f"Mean AUROC of {targets}: {shown}.")
    if asked == "ica":
        for other, why in (("rotated", "so the axes matter"), ("whitened", "so it is more than whitening")):
            if other in result.conditions:
                told.append(_beside(result.against("ica", other), other, why))
    if f"{asked}, fitted on all" in result.conditions:
        seen = result.against(f"{asked}, fitted on all", asked)
        how = f"{_signed(seen.difference)}, {_signed(seen.low)} to {_signed(seen.high)}"
        told.append(f"Had {called(asked)} seen the held-out batches when it was fitted: {how}.")
    best = [name for name, one in result.overall.items() if one.verdict == "better" and name != asked]
    if best:
        told.append(f"Better than base by more than chance: {', '.join(called(name) for name in best)}.")
    return [text for text in told if text]


def _beside(paired: Paired, other: str, why: str) -> str:
    name, how = called(other), f"{_signed(paired.difference)}, {_signed(paired.low)} to {_signed(paired.high)}"
    if paired.verdict == "better":
        return f"ICA is better than {name} ({how}), {why}."
    if paired.verdict == "worse":
        return f"ICA is worse than {name} ({how})."
    return f"From {name}, ICA cannot be told ({how})." if paired.verdict != "unknown" else ""


def summary(result: Outcome) -> list[dict[str, str | float]]:
    """One row per measure, a column for each condition and one for chance: means over the targets."""
    reading = result.settings.get("reading", "difference")
    scores = {name: [one.scores[name] for one in result.targets] for name in result.conditions}

    def row(measure: str, of: Callable[[Any], Any], chance: float) -> dict[str, str | float]:
        means = {called(name): _mean([_mean(of(score)) for score in some]) for name, some in scores.items()}
        return {"measure": measure, **means, "chance": chance}

    rows = [
        row("AUROC", lambda score: score.auroc, 0.5),
        row("AUROC within batches", lambda score: score.within, 0.5),
        row("sparsity of trees", lambda score: score.sparsity, math.nan),
    ]
    for j, one in enumerate(result.targets[0].scores["base"].concentration):
        how = "−" if reading == "difference" else "/"
        called_so = f"top {100 * one.share:g} % {how} rest{'' if reading == 'difference' else ' − 1'}"
        rows.append(row(called_so, partial(_concentrated, j, reading), 0.0))
    for measure, levels in (("batch told", result.leakage), ("replicates found", result.retrieval)):
        if levels:
            means = {called(name): one.mean for name, one in levels.items()}
            rows.append({"measure": measure, **means, "chance": levels["base"].by_chance})
    return rows


def _concentrated(place: int, reading: str, score: Any) -> Any:
    return getattr(score.concentration[place], reading)


def _mean(values: Any) -> float:
    good = [float(value) for value in values if math.isfinite(value)]
    return float(np.mean(good)) if good else math.nan


def _target(one: Target) -> dict[str, Any]:
    cells = []
    for name, score in one.scores.items():
        paired = one.paired.get(name)
        hint = "" if paired is None or math.isnan(paired.low) else f"{_signed(paired.low)} to {_signed(paired.high)}"
        mark = "" if paired is None else {"better": "▲", "worse": "▼"}.get(paired.verdict, "")
        text = _three(score.mean) if math.isnan(score.error) else f"{_three(score.mean)} ± {_three(score.error)}"
        cells.append({"text": text, "value": _sorted(score.mean), "hint": hint, "mark": mark})
    about = [count(one.positives, "row"), count(one.batches, "batch").replace("batchs", "batches")]
    about += [count(len(one.guides), "guide")] if one.guides else []
    return {"name": one.name, "about": ", ".join(about), "cells": cells}


def _together(result: Outcome) -> list[dict[str, Any]]:
    """The line of all targets together."""
    cells = []
    for name in result.conditions:
        paired = result.overall.get(name)
        known = paired is not None and not math.isnan(paired.low)
        hint = f"{_signed(paired.low)} to {_signed(paired.high)}" if known and paired is not None else ""
        mark = "" if paired is None else {"better": "▲", "worse": "▼"}.get(paired.verdict, "")
        cells.append(
            {"text": _three(result.mean(name)), "value": _sorted(result.mean(name)), "hint": hint, "mark": mark}
        )
    return cells


def _spreads(result: Outcome) -> list[tuple[str, str]]:
    """How much random rotations differ among themselves: the mean AUROC of each."""
    found = []
    for name in result.conditions:
        draws = [one.scores[name].draws for one in result.targets]
        if draws and len(draws[0]) > 1:
            means = np.nanmean(np.array(draws), axis=0)
            found.append((called(name), ", ".join(_three(value) for value in means)))
    return found


def _entangled(result: Outcome) -> list[tuple[str, str]]:
    return [(called(name), _three(_mean(one.entangled))) for name, one in result.carriers.items()]


def _cell(value: str | float) -> Cell:
    return Cell(value, value) if isinstance(value, str) else Cell(_three(value), _sorted(value))


def _three(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{value:.3f}".replace("-", "−")


def _signed(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{value:+.3f}".replace("-", "−")


def _sorted(value: float) -> float | str:
    return value if math.isfinite(value) else ""
