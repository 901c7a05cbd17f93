"""What `congruence train` shows on the screen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from congruence.cli.trainings import Told
    from congruence.models.training import Moment

ENDS = {"steps": "done", "patience": "no improvement", "diverged": "diverged", "interrupted": "interrupted"}


@contextlib.contextmanager
def training_bars(names: Sequence[str], *, shown: bool = True) -> Iterator[Callable[[str, Moment], None]]:
    """Yield a function tell(name, moment); a bar for each run is drawn only on a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[now]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bars:
        tasks = {name: bars.add_task(escape(name), total=None, now="waiting") for name in names}

        def tell(name: str, moment: Moment) -> None:
            now = f"{moment.step}/{moment.steps}  loss {moment.loss:.4f}  PSNR {_number(moment.psnr)}"
            bars.update(tasks[name], completed=moment.step, total=moment.steps, now=now)

        yield tell


def show_trainings(results: Sequence[Told]) -> None:
    """Print a line for each run."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("run", "ended", "steps", "loss", "PSNR", "time"):
        table.add_column(heading, justify="left" if heading in ("run", "ended") else "right", no_wrap=True)
    for one in results:
        cells = (ENDS.get(one.ended, one.ended), str(one.steps), f"{one.loss:.5f}", _number(one.psnr))
        table.add_row(escape(str(one.folder)), *cells, _time(one.seconds))
    Console(highlight=False).print(table)


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.2f}"


def _time(seconds: float) -> str:
    if seconds != seconds:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
