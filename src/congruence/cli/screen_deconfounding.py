"""What `congruence deconfound` shows on the screen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from congruence.batches.outcome import Outcome

SHOWN = 12  # targets; the report and the JSON have all
WIDE = 5  # conditions that fit side by side
SHORT = {
    "AUROC within batches": "within",
    "sparsity of trees": "sparse",
    "batch told": "batch",
    "replicates found": "repl.",
}


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
    """A line for each target; where there are many conditions and few targets, one for each condition."""
    few = result.targets[:SHOWN]
    title = f"first {len(few)} of {len(result.targets)} targets" if len(few) < len(result.targets) else None
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    cells = [
        [f"{_number(one.scores[c].mean)} ± {_number(one.scores[c].error)}" for c in result.conditions] for one in few
    ]
    names = [one.name for one in few]
    heads: Sequence[str] = result.conditions
    if len(heads) > WIDE > len(names):
        names, heads, cells = list(heads), names, [list(row) for row in zip(*cells, strict=True)]
    table.add_column("condition" if heads is not result.conditions else "target", overflow="fold")
    for name in heads:
        table.add_column(escape(name), justify="right", overflow="fold")
    for name, row in zip(names, cells, strict=True):
        table.add_row(escape(name), *row)
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
    """A line for each measure, means over the targets; where there are many conditions, a line for each of those."""
    from congruence.report.deconfounding import called, summary

    rows = [{key: v if isinstance(v, str) else _number(v) for key, v in row.items()} for row in summary(result)]
    if len(result.conditions) > WIDE:
        names = {name: called(name) for name in result.conditions} | {"chance": "chance"}
        short = [SHORT.get(row["measure"], row["measure"].partition(" %")[0]) for row in rows]
        rows = [{"": name, **{k: row[key] for k, row in zip(short, rows, strict=True)}} for name, key in names.items()]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in rows[0]:
        table.add_column(heading, justify="left" if heading in ("measure", "") else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row.values()))
    return table


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"
