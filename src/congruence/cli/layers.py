"""`congruence layers`: which layers of two runs belong together?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from congruence.cli import options as given
from congruence.cli.screen import collected_warnings, interruptible, progress_bar, say
from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.align.layer_nearness import LayerMap


@interruptible
def layers(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN_A RUN_B",
            help="Two patterns in quotes, each for the files of one run's layers; * is the layer.",
            show_default=False,
        ),
    ],
    id: given.Id = None,
    features: given.Features = None,
    metadata: given.Metadata = None,
    key: given.Key = None,
    group_by: given.GroupBy = None,
    drop_missing: given.DropMissing = False,
    measure: Annotated[
        str,
        typer.Option(
            help="similarity (rotation and scale), rigid, linear, permutation, identity, cka, svcca, rsa, ...",
            rich_help_panel=given.METHOD,
        ),
    ] = "similarity",
    normalize: given.Normalize = None,
    folds: given.Folds = 5,
    nulls: given.Nulls = 3,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    report: given.Report = None,
    json: given.Json = None,
    csv: Annotated[
        Optional[Path], typer.Option(help="Write a line for every pair as csv.", rich_help_panel=given.OUTPUT)
    ] = None,
    quiet: given.Quiet = False,
) -> None:
    """Which layer of one run is near which layer of another?

    Measures every pair of layers, such as 'extract' writes them: the held-out
    error that the best rotation and scale leaves, or another measure, beside
    what unrelated layers would give. Examples:

        congruence layers 'run_a.*.parquet' 'run_b.*.parquet' --report layers.html

        congruence layers 'run_a.*.parquet' 'run_b.*.parquet' --measure cka --json -
    """
    from congruence.align.layers import layer_map

    if len(runs) != 2:
        raise InputError(
            f"a map of layers takes two patterns, in quotes so that the shell leaves them alone "
            f"('run_a.*.parquet' 'run_b.*.parquet'), but {len(runs)} names were given"
        )
    (name_a, files_a), (name_b, files_b) = (_layers_of(pattern) for pattern in runs)
    texts = {"report": report, "json": json, "csv": csv}
    given.check_outputs(texts, [*files_a.values(), *files_b.values()])
    wishes = {"id": id, "features": features, "metadata": metadata, "key": key}
    with collected_warnings() as warned, progress_bar(shown=not quiet) as progress:
        tables = given.read_tables([*files_a.values(), *files_b.values()], [*files_a, *files_b], **wishes)
        result = layer_map(
            dict(zip(files_a, tables[: len(files_a)], strict=True)),
            dict(zip(files_b, tables[len(files_a) :], strict=True)),
            measure=measure,
            names=(name_a, name_b if name_b != name_a else f"{name_b}#2"),
            normalize=normalize,
            cluster=group_by,
            folds=folds,
            nulls=nulls,
            seed=seed,
            device=device,
            drop_missing=drop_missing,
            progress=progress,
        )
    for text in warned:
        if text not in result.advice:
            say(f"note: {text}")
    given.write_outputs(_rendered(result, texts), texts)
    if not quiet:
        _show(result, stderr=str(json) == "-")


def _layers_of(pattern: str) -> tuple[str, dict[str, str]]:
    """The name of a run and the file of each of its layers, in the order of their names, numbers as numbers.

    In ``run_a.*.parquet`` the star stands for the layer, and what is before it is the name of the run; in
    ``run_a/*.npy`` that is the folder. Without one star in the name of the files, layers are called after their files.
    """
    from congruence.tables import expanded, unique_names

    paths = expanded([pattern])
    before, star, after = Path(pattern).name.partition("*")
    if star and not any(sign in before + after for sign in "*?[") and "**" not in pattern:
        names = [Path(path).name[len(before) : -len(after) or None] for path in paths]
        names = names if len(set(names)) == len(names) else unique_names(paths)
        run = before.strip("._- ") or Path(pattern).parent.name or pattern
    else:
        names, run = unique_names(paths), pattern
    order = sorted(zip(names, paths, strict=True), key=lambda named: _in_order(named[0]))
    return run, dict(order)


def _in_order(name: str) -> list[tuple[bool, int, str]]:
    """A key by which layers.10 comes after layers.9."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", name)]


def _rendered(result: LayerMap, outputs: dict[str, Path | None]) -> dict[str, str]:
    from congruence.report import render_layers, rows_to_csv

    render_as: dict[str, Any] = {
        "report": render_layers,
        "json": lambda r: r.to_json(),
        "csv": lambda r: rows_to_csv(r.table()),
    }
    return {name: render_as[name](result) for name, path in outputs.items() if path is not None}


def _show(result: LayerMap, *, stderr: bool) -> None:
    """Print the verdict and, for every layer, the nearest one."""
    console = Console(stderr=stderr, highlight=False)
    console.print(f"[bold]{escape(result.verdict)}[/bold]", soft_wrap=True)
    number = _percent if result.held_out else _plain
    unit = "held-out error, % of the diameter" if result.held_out else f"{result.measure}, {result.direction}"
    table = Table(title=escape(f"{unit}; {result.n} rows"), box=box.SIMPLE_HEAD)
    for heading in (f"layer of {result.source}", f"nearest of {result.target}", result.measure, "null"):
        table.add_column(escape(heading), justify="left" if " of " in heading else "right", overflow="fold")
    for i, j in enumerate(result.nearest):
        found = ("-", "-", "-")
        if j >= 0:
            found = (escape(result.columns[j]), number(result.nearness[i, j]), number(result.null[i, j]))
        table.add_row(escape(result.rows[i]), *found)
    console.print(table)
    for note in result.advice:
        console.print(f"note: {escape(note)}", soft_wrap=True)


def _percent(share: float) -> str:
    return "-" if share != share else f"{100 * share:.3g}"


def _plain(value: float) -> str:
    return "-" if value != value else f"{value:.3g}"
