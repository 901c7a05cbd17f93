"""What the commands show on the screen: progress and messages on stderr, results on stdout."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from congruence.errors import CongruenceWarning
from congruence.progress import Progress

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison, Pair
    from congruence.translation.translate import Translation
    from congruence.translation.unpaired_translation import UnpairedTranslation

F = TypeVar("F", bound=Callable[..., Any])
SHOWN_PAIRS = 4  # with their similarities side by side; the report and the JSON have all


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


def show_comparison(result: Comparison, *, stderr: bool = False) -> None:
    """Print the verdict and a short table."""
    console = Console(stderr=stderr, highlight=False)
    console.print(f"[bold]{_plain(result.verdict)}[/bold]", soft_wrap=True)
    console.print(_plain(_basis(result)), soft_wrap=True)
    console.print(_ladder(result.pairs[0]) if len(result.pairs) == 1 else _overview(result))
    if result.pairs[0].similarities:
        console.print(_similarities(result))
    for note in result.advice:
        console.print(f"note: {_plain(note)}", soft_wrap=True)


def _basis(result: Comparison) -> str:
    """What was compared, how rows were paired, and the word for the verdict."""
    widths = sorted({run.d for run in result.runs})
    width = f"{widths[0]}" if len(widths) == 1 else f"{widths[0]} to {widths[-1]} (zero-padded)"
    statuses = Counter(pair.verdict.status for pair in result.pairs)
    verdict = ", ".join(f"{word} in {count}" if len(statuses) > 1 else word for word, count in statuses.items())
    pairing = result.settings.get("paired", "by position")
    return f"{result.pairs[0].n} rows x {width} dimensions, paired {pairing}; only a rotation and a scale: {verdict}"


def _ladder(pair: Pair) -> Table:
    """One pair: a line for every group."""
    bound = "" if pair.diameter_exact else "at least "
    title = f"{pair.source} -> {pair.target}, % of the diameter {bound}{pair.diameter:.4g}"
    table = Table(title=_plain(title))
    for heading in ("group", "held out", "95 % interval", "null", "in sample", "sup"):
        table.add_column(heading, justify="left" if heading == "group" else "right", no_wrap=True)
    for name, near in pair.groups.items():
        held = near.held_out
        interval = f"{_percent(held.low)} .. {_percent(held.high)}" if held.low == held.low else "-"
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


def _similarities(result: Comparison) -> Table:
    """The further measures that were asked for: a line for each, a column for every pair while they fit."""
    from congruence.align.similarities import MEASURES

    few = result.pairs[:SHOWN_PAIRS]
    title = "similarities, in sample" + (f", first {len(few)} pairs" if len(few) < len(result.pairs) else "")
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("measure", no_wrap=True)
    for pair in few:
        table.add_column(_plain(f"{pair.source} -> {pair.target}"), justify="right", overflow="fold")
    table.add_column("direction", no_wrap=True)
    for name in few[0].similarities:
        values = (pair.similarities[name] for pair in few)
        table.add_row(name, *("-" if v != v else f"{v:.4g}" for v in values), MEASURES[name].direction)
    return table


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
