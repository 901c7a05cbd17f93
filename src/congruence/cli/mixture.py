"""`congruence mixture`: what a mixture prior identifies, and whether trainings agree."""

from __future__ import annotations

import shlex
import sys
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
    from congruence.mixture.examination import MixtureExamination

MARKS = {"holds": "✓", "fails": "✕", "ambiguous": "≈", "unknown": "?"}


@interruptible
def mixture(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUNS...", help="Run folders of vade, mfcvae, mixvae or ivae; 'runs/vade-*'.", show_default=False
        ),
    ],
    rows: Annotated[
        int, typer.Option(min=2, help="Rows of codes looked at, the same of every run.", rich_help_panel=given.DATA)
    ] = 2000,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check",
            help="Check the assumptions of the hierarchy, or only compare runs.",
            rich_help_panel=given.METHOD,
        ),
    ] = True,
    seed: given.Seed = 0,
    report: given.Report = None,
    json: given.Json = None,
    csv: Annotated[
        Optional[Path], typer.Option(help="Write a line for every ordered pair as csv.", rich_help_panel=given.OUTPUT)
    ] = None,
    quiet: given.Quiet = False,
) -> None:
    """Does a mixture prior make the model identifiable? Up to what?

    Checks P1 to P3 and F1 to F4 of every training, says which theorem
    follows, and compares trainings: the affine distance of their priors and
    the MCC of their codes, for all ordered pairs. Examples:

        congruence mixture 'runs/vade-*' --report report.html

        congruence mixture runs/vade-0 runs/vade-1 --json -
    """
    from congruence.mixture.examination import examine_runs

    folders = _expanded(runs)
    texts = {"report": report, "json": json, "csv": csv}
    given.check_outputs(texts, folders)
    settings = {"runs": folders, "rows": rows, "assumptions checked": check, "seed": seed}
    settings |= {"command": shlex.join(["congruence", *sys.argv[1:]])}
    with collected_warnings() as warned, progress_bar(shown=not quiet) as progress:
        result = examine_runs(folders, rows=rows, check=check, seed=seed, progress=progress, settings=settings)
        given.write_outputs(_rendered(result, texts), texts)
    for text in warned:
        say(f"note: {text}")
    if not quiet:
        _show(result, stderr=str(json) == "-")


def _expanded(patterns: list[str]) -> list[str]:
    """The folders that names and patterns stand for, each once."""
    found: list[str] = []
    for pattern in patterns:
        path = Path(pattern)
        if any(sign in pattern for sign in "*?[") and not path.exists():
            base = Path(path.anchor) if path.is_absolute() else Path()
            matches = sorted(str(one) for one in base.glob(str(path.relative_to(base))) if one.is_dir())
            if not matches:
                raise InputError(f"no folder matches {pattern}")
            found += matches
        else:
            found.append(pattern)
    return list(dict.fromkeys(found))


def _rendered(result: MixtureExamination, outputs: dict[str, Path | None]) -> dict[str, str]:
    from congruence.mixture.examination import COLUMNS
    from congruence.report import render_mixture, rows_to_csv

    render_as: dict[str, Any] = {
        "report": render_mixture,
        "json": lambda r: r.to_json(),
        "csv": lambda r: rows_to_csv(r.table()) or ",".join(COLUMNS) + "\n",  # of one run the heading alone
    }
    return {name: render_as[name](result) for name, path in outputs.items() if path is not None}


def _show(result: MixtureExamination, *, stderr: bool) -> None:
    console = Console(stderr=stderr, highlight=False)
    console.print(f"[bold]{escape(result.verdict)}[/bold]", soft_wrap=True)
    table = Table(title="assumptions", box=box.SIMPLE_HEAD)
    for heading in ("run", "model", "J", "P1", "P2", "P3", "F1", "F2", "F3", "F4", "row"):
        table.add_column(heading)
    for one in result.runs:
        found = one.assumptions
        names = ("P1", "P2", "P3", "F1", "F2", "F3", "F4")
        marks = ["–"] * 7 if found is None else [MARKS[found.conditions[name].status] for name in names]
        row = "–" if found is None else str(found.row)
        table.add_row(one.name, one.model, str(one.components), *marks, row)
    console.print(table)
    if result.agreement is not None:
        _show_pairs(console, result)
    for note in result.notes:
        console.print(f"note: {escape(note)}", soft_wrap=True)


def _show_pairs(console: Console, result: MixtureExamination) -> None:
    table = Table(title="ordered pairs", box=box.SIMPLE_HEAD)
    for heading in ("source", "target", "affine distance ≤", "without a map", "strong MCC", "weak MCC", "held out"):
        table.add_column(heading, justify="left" if heading in ("source", "target") else "right")
    for row in result.table():
        numbers = (row[name] for name in ("distance", "before", "strong", "weak", "weak_held_out"))
        table.add_row(row["source"], row["target"], *("–" if v is None or v != v else f"{v:.3g}" for v in numbers))
    console.print(table)
