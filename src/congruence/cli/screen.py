"""What the commands show on the screen: progress and messages on stderr, results on stdout."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison, Pair

F = TypeVar("F", bound=Callable[..., Any])
Progress = Callable[[str, int, int], None]


def interruptible(command: F) -> F:
    """Let Ctrl-C end a command quietly with exit code 130; outputs are written whole or not at all."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            say("interrupted; no file was left half-written")
            raise typer.Exit(130) from None

    return wrapped  # type: ignore[return-value]


def say(text: str) -> None:
    """Print a message for the person at the screen, on stderr."""
    typer.echo(text, err=True)


@contextlib.contextmanager
def progress_bar(*, shown: bool = True) -> Iterator[Progress]:
    """Yield a function progress(what, done, total); the bar is drawn only on a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not (shown and console.is_terminal),
    ) as bar:
        task = bar.add_task("reading", total=None)

        def update(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield update


def show_comparison(result: Comparison, *, stderr: bool = False) -> None:
    """Print the verdict and a short table."""
    console = Console(stderr=stderr, highlight=False)
    console.print(f"[bold]{_plain(result.verdict)}[/bold]", soft_wrap=True)
    console.print(_ladder(result.pairs[0]) if len(result.pairs) == 1 else _overview(result))
    for note in result.advice:
        console.print(f"note: {_plain(note)}", soft_wrap=True)


def _ladder(pair: Pair) -> Table:
    """One pair: a line for every group."""
    table = Table(title=_plain(f"{pair.source} -> {pair.target}, {pair.n} rows, % of the diameter {pair.diameter:.4g}"))
    for heading in ("group", "held out", "95 % interval", "null", "in sample", "sup"):
        table.add_column(heading, justify="left" if heading == "group" else "right", no_wrap=True)
    for name, near in pair.groups.items():
        held = near.held_out
        interval = f"{_percent(held.low)} .. {_percent(held.high)}"
        numbers = (_percent(held.mean), interval, *map(_percent, (near.null, near.mean, near.sup)))
        table.add_row(name, *numbers)
    return table


def _overview(result: Comparison) -> Table:
    """Many pairs: a line for every pair, and one for what unrelated runs would give."""
    groups = list(result.pairs[0].groups)
    table = Table(title="held-out error, % of the diameter", box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("pair", overflow="fold")
    for group in groups:
        table.add_column({"permutation": "perm."}.get(group, group), justify="right", no_wrap=True)
    for pair in result.pairs:
        cells = [_percent(near.held_out.mean) for near in pair.groups.values()]
        table.add_row(_plain(f"{pair.source} -> {pair.target}"), *cells)
    nulls = [sum(pair.groups[g].null for pair in result.pairs) / len(result.pairs) for g in groups]
    table.add_row("unrelated (null)", *map(_percent, nulls), style="dim")
    return table


def _percent(share: float) -> str:
    return "-" if share != share else f"{100 * share:.2f}"


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
