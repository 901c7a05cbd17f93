"""What the commands show on the screen: progress and messages on stderr, results on stdout."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import typer
from rich.console import Console

from congruence.errors import CongruenceWarning
from congruence.progress import Progress

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
