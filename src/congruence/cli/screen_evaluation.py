"""What `congruence evaluate` shows on the screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from congruence.metrics.evaluation import Evaluation

SHOWN = 12  # factors; the report and the JSON have all


def show_evaluation(result: Evaluation, *, stderr: bool = False) -> None:
    """Print what was found, the scores, a line for each factor, and the notes."""
    from congruence.formatting import count
    from congruence.report.evaluation import lead_sentence, missing_sentences, own_codes, shared_sentence

    console = Console(stderr=stderr, highlight=False)
    own = own_codes(result)
    found = [lead_sentence(result, own), shared_sentence(result, own), *missing_sentences(result)]
    console.print(f"[bold]{escape(' '.join(filter(None, found)))}[/bold]", soft_wrap=True)
    sizes = (count(result.n, "row"), count(len(result.codes), "code"), count(len(result.factors), "factor"))
    console.print(", ".join(sizes), soft_wrap=True)
    if result.beside:
        console.print(_beside(result))
    console.print(_scores(result))
    for score in result.scores:
        if score.reason:
            console.print(escape(f"{score.score}: {score.reason}"), soft_wrap=True)
    console.print(_factors(result))
    if result.structural is not None:
        console.print(_structural(result))
    if result.sensitivity:
        console.print(_sensitivity(result))
    for note in result.notes:
        console.print(f"note: {escape(note.replace('slow_resamples', '--slow-resamples'))}", soft_wrap=True)


def show_metrics() -> None:
    """Print every metric with what it promises."""
    from congruence.metrics.registry import METRICS

    console = Console(highlight=False)
    for metric in METRICS.values():
        low, high = (f"{bound:g}" for bound in metric.range)
        console.print(f"[bold]{metric.name}[/bold]  {metric.reference}", soft_wrap=True)
        console.print(f"  scores {', '.join(metric.scores)}", soft_wrap=True)
        console.print(f"  from {low} to {high}, {metric.direction}; {metric.cost}", soft_wrap=True)
        console.print(f"  does not change with {', '.join(sorted(metric.invariant_to))}", soft_wrap=True)


def _scores(result: Evaluation) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("score", "value", "90 % interval", "chance", "best"):
        table.add_column(heading, justify="left" if heading == "score" else "right", no_wrap=True)
    for one in result.scores:
        interval = "-" if math.isnan(one.low) else f"{one.low:.3f} .. {one.high:.3f}"
        best = one.range[1] if one.direction.startswith("higher") else one.range[0]
        table.add_row(one.score, _number(one.value), interval, _number(one.chance), f"{best:g}")
    return table


def _beside(result: Evaluation) -> Table:
    """The scores of all evaluations side by side: what came before, what the screen is about, and others."""
    everyone = (result.beside[0], result, *result.beside[1:])
    table = Table(title="before and after", box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("score", no_wrap=True)
    for one in everyone:
        short = one.name.removeprefix(result.beside[0].name).strip() or "before"
        table.add_column(escape(short), justify="right", overflow="fold")
    for scores in zip(*(one.scores for one in everyone), strict=True):
        table.add_row(scores[0].score, *(_number(score.value) for score in scores))
    return table


def _factors(result: Evaluation) -> Table:
    few = result.per_factor[:SHOWN]
    title = f"first {len(few)} of {len(result.per_factor)} factors" if len(few) < len(result.per_factor) else None
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("factor", overflow="fold")
    table.add_column("kind", no_wrap=True)
    table.add_column("code", overflow="fold")
    for heading in ("share", "next", "R2 lin.", "nonlin.", "found"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in few:
        numbers = (_number(value) for value in (row.share, row.second, row.linear, row.nonlinear))
        found = "-" if math.isnan(row.share) else "yes" if row.explained else "no"
        table.add_row(escape(row.factor), row.kind, escape(row.code) or "-", *numbers, found)
    return table


def _structural(result: Evaluation) -> Table:
    """How near the codes are to the factors up to each group."""
    table = Table(title="distance to the factors, % of their diameter", box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("up to a", "held out", "95 % interval", "null"):
        table.add_column(heading, justify="left" if heading == "up to a" else "right", no_wrap=True)
    assert result.structural is not None
    for group, near in result.structural.groups.items():
        held = near.held_out
        interval = "-" if math.isnan(held.low) else f"{100 * held.low:.2f} .. {100 * held.high:.2f}"
        table.add_row(f"{group} map", f"{100 * held.mean:.2f}", interval, f"{100 * near.null:.2f}")
    return table


def _sensitivity(result: Evaluation) -> Table:
    table = Table(title="scores of binned codes, by the number of bins", box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in result.sensitivity[0]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result.sensitivity:
        table.add_row(*(f"{value:g}" if name == "bins" else _number(value) for name, value in row.items()))
    return table


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"
