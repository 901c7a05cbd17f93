"""What the commands show on the screen: progress and messages on stderr, results on stdout."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from congruence.errors import CongruenceWarning
from congruence.progress import Progress

if TYPE_CHECKING:
    from congruence.translation.translate import Translation
    from congruence.translation.unpaired_translation import UnpairedTranslation

F = TypeVar("F", bound=Callable[..., Any])


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
def collected_warnings() -> Iterator[list[str]]:
    """Yield a list that holds, after the block, what was warned of in it: to be said at the end, not in between."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CongruenceWarning)
        yield texts
    texts += dict.fromkeys(str(warning.message) for warning in caught)


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


def show_translation(result: Translation, *, stderr: bool = False) -> None:
    """Print the decision and what it rests on."""
    console = Console(stderr=stderr, highlight=False)
    console.print(f"[bold]{_plain(result.verdict)}[/bold]", soft_wrap=True)
    table = Table(title=_plain(f"new -> old, {result.n} paired rows, {result.group} map"), box=box.SIMPLE_HEAD)
    for heading in ("held-out", "translated", "as is", "chance"):
        table.add_column(heading, justify="left" if heading == "held-out" else "right", no_wrap=True)
    found = result.certificate.retrieval
    ten = f"{_percent(found.recall_10.mean)} ({_percent(found.recall_10.low)} .. {_percent(found.recall_10.high)})"
    table.add_row("recall@10, %", ten, _percent(found.before), _percent(found.chance))
    table.add_row("recall@1, %", _percent(found.recall_1.mean), "", "")
    table.add_row("nearest is itself, %", _percent(found.itself), "", "")
    table.add_row("rank agreement", f"{found.rank_agreement:.3f}", "", "")
    probe = result.certificate.probe
    if probe is not None:
        name = f"probe, {probe.score} (ideal {probe.ideal:.3f})"
        table.add_row(name, f"{probe.after:.3f}", f"{probe.before:.3f}", f"{probe.baseline:.3f}")
    for name, near in result.candidates.items():
        held = near.held_out.mean
        table.add_row(f"error of the {name} map, %", _percent(held), "", _percent(near.null))
    console.print(table)
    for note in result.advice:
        console.print(f"note: {_plain(note)}", soft_wrap=True)


def show_unpaired(result: UnpairedTranslation, *, stderr: bool = False) -> None:
    """Print the verdict and, for every component of the old model, its match and how far it is trusted."""
    console = Console(stderr=stderr, highlight=False)
    console.print(f"[bold]{_plain(result.verdict)}[/bold]", soft_wrap=True)
    title = f"experimental: confidence {result.confidence:.2f} in all, by chance up to {result.chance:.2f}"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("old", "new", "distance", "sampling", "next best", "confidence", "variance %", "trusted"):
        table.add_column(heading, justify="right")
    for match in result.matches:
        distances = (f"{value:.3f}" for value in (match.distance, match.sampling, match.next_best))
        partner = f"{'-' if match.sign < 0 else ''}{match.new}"
        numbers = (*distances, f"{match.confidence:.2f}", _percent(match.share))
        table.add_row(str(match.old), partner, *numbers, "yes" if match.trusted else "no")
    console.print(table)


def _percent(share: float) -> str:
    """A share in percent, to three significant digits; next to nothing is 0."""
    if share != share:
        return "-"
    return f"{100 * share:#.3g}".rstrip(".") if share >= 1e-6 else "0"


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
