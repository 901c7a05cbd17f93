"""What `congruence deconfound` shows on the screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from congruence.deconfound.outcome import Outcome

SHOWN = 12  # targets; the report and the JSON have all


def show_outcome(result: Outcome, *, stderr: bool = False) -> None:
    """Print the answer, the AUROC of each target, what explains it, and the notes."""
    from congruence.report.deconfounding import answer, further_sentences

    console = Console(stderr=stderr, highlight=False)
    console.print(f"[bold]{escape(' '.join([answer(result), *further_sentences(result)]))}[/bold]", soft_wrap=True)
    sizes = f"{result.n} rows x {result.d}, {result.batches} batches, {result.controls} controls"
    console.print(f"{sizes}; AUROC on batches held out, ± standard error over folds", soft_wrap=True)
    console.print(_scores(result))
    console.print(_differences(result))
    console.print(_explained(result))
    for name, reason in result.skipped.items():
        console.print(escape(f"{name} was not judged: {reason}"), soft_wrap=True)
    for note in result.notes:
        console.print(f"note: {escape(note)}", soft_wrap=True)


def _scores(result: Outcome) -> Table:
    few = result.targets[:SHOWN]
    title = f"first {len(few)} of {len(result.targets)} targets" if len(few) < len(result.targets) else None
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("target", overflow="fold")
    for name in result.conditions:
        table.add_column(escape(name), justify="right", overflow="fold")
    for one in few:
        cells = (f"{_number(score.mean)} ± {_number(score.error)}" for score in one.scores.values())
        table.add_row(escape(one.name), *cells)
    return table


def _differences(result: Outcome) -> Table:
    table = Table(title="against base, all targets together", box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("condition", "AUROC", "95 % interval", ""):
        table.add_column(heading, justify="left" if heading in ("condition", "") else "right", no_wrap=True)
    for name, one in result.overall.items():
        interval = "-" if math.isnan(one.low) else f"{one.low:+.3f} .. {one.high:+.3f}"
        difference = "-" if math.isnan(one.difference) else f"{one.difference:+.3f}"
        table.add_row(escape(name), difference, interval, one.verdict)
    return table


def _explained(result: Outcome) -> Table:
    """A line for each measure, means over the targets."""
    from congruence.report.deconfounding import summary

    rows = summary(result)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in rows[0]:
        table.add_column(heading, justify="left" if heading == "measure" else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(value) if isinstance(value, str) else _number(value) for value in row.values()))
    return table


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"
