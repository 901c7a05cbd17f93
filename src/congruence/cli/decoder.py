"""`congruence decoder`: how much a decoder stretches, and what follows from it."""

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
    from congruence.decoder.examination import Examination

MARKS = {"holds": "✓ holds", "fails": "✕ fails", "unknown": "? unknown"}


@interruptible
def decoder(
    name: given.DecoderName,
    latents: given.Latents,
    id: given.RowId = None,
    features: given.Features = None,
    metadata: given.Metadata = None,
    key: given.Key = None,
    drop_missing: given.DropMissing = False,
    method: Annotated[
        str, typer.Option(help="auto, exact, lanczos or directions.", rich_help_panel=given.METHOD)
    ] = "auto",
    directions: Annotated[
        int, typer.Option(help="Random directions, with that method.", rich_help_panel=given.METHOD)
    ] = 10,
    diameter: Annotated[
        str, typer.Option(help="Of the latents' support; auto takes the rows'.", rich_help_panel=given.METHOD)
    ] = "auto",
    constant: Annotated[
        Optional[float], typer.Option(help="Your own c_D for Theorem 1.", rich_help_panel=given.METHOD)
    ] = None,
    other: Annotated[
        Optional[str],
        typer.Option(
            metavar="MODULE:FUNCTION", help="Decoder of another training: do outputs agree?", rich_help_panel=given.DATA
        ),
    ] = None,
    other_latents: Annotated[
        Optional[str],
        typer.Option(metavar="LATENTS", help="Its latents of the same inputs, row by row.", rich_help_panel=given.DATA),
    ] = None,
    chunk: given.Chunk = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    report: given.Report = None,
    json: given.Json = None,
    csv: Annotated[
        Optional[Path], typer.Option(help="Write a line for every point as csv.", rich_help_panel=given.OUTPUT)
    ] = None,
    quiet: given.Quiet = False,
) -> None:
    """Why is my representation (not) stable? What does the decoder guarantee?

    Imports a decoder from the folder you are in (or from what is installed),
    measures its bi-Lipschitz constant at every row of latents, and says what
    Theorem 1 makes of it. The code of the module is run. Examples:

        congruence decoder mypackage.model:load_decoder latents.npy

        congruence decoder model:decoder latents.parquet --features 'z_*' --report report.html
    """
    from congruence.cli.load_decoder import load_decoder
    from congruence.decoder.examination import examine
    from congruence.decoder.probed import import_torch

    texts = {"report": report, "json": json, "csv": csv}
    given.check_outputs(texts, [latents, *([] if other_latents is None else [other_latents])])
    size = _size(diameter)
    if (other is None) != (other_latents is None):
        raise InputError("--other and --other-latents go together: a decoder and its latents of the same inputs")
    import_torch()
    found = load_decoder(name)
    second = None if other is None else load_decoder(other)
    settings = {"decoder": name, "latents": latents, "method": method, "diameter": diameter, "constant": constant}
    settings |= {"seed": seed, "device": device, "command": shlex.join(["congruence", *sys.argv[1:]])}
    if other is not None:
        settings |= {"other": other, "other latents": other_latents}
    if method == "directions":
        settings["directions"] = directions
    with collected_warnings() as warned, progress_bar(shown=not quiet) as progress:
        wishes = {"id": id, "features": features, "metadata": metadata, "key": key}
        z = _read(latents, drop_missing, **wishes)
        pair = None if other_latents is None else (second, _read(other_latents, drop_missing, **wishes))
        progress("differentiating", 0, 1)
        result = examine(
            found,
            z,
            diameter=size,
            constant=constant,
            method=method,
            directions=directions,
            chunk=chunk,
            device=device,
            seed=seed,
            other=pair,
            settings=settings,
        )
        given.write_outputs(_rendered(result, texts), texts)
    for text in warned:
        say(f"note: {text}")
    if not quiet:
        _show(result, stderr=str(json) == "-")


def _size(text: str) -> float | None:
    """The diameter that was asked for; None for auto."""
    if text == "auto":
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InputError(f"--diameter takes auto or a positive number, not {text}")
    return value


def _read(path: str, drop_missing: bool, **wishes: str | None) -> Any:
    from congruence.tables import expanded, finite_table

    return finite_table(given.read_as_one(expanded([path]), **wishes), drop_missing=drop_missing).values


def _rendered(result: Examination, outputs: dict[str, Path | None]) -> dict[str, str]:
    from congruence.report import render_decoder, rows_to_csv

    render_as: dict[str, Any] = {
        "report": render_decoder,
        "json": lambda r: r.to_json(),
        "csv": lambda r: rows_to_csv(r.stretch.table()),
    }
    return {name: render_as[name](result) for name, path in outputs.items() if path is not None}


def _show(result: Examination, *, stderr: bool) -> None:
    console = Console(stderr=stderr, highlight=False)
    b = result.stretch
    console.print(f"[bold]{escape(result.verdict)}[/bold]", soft_wrap=True)
    table = Table(title=f"bi-Lipschitz constant, {b.dimension} latents -> {b.outputs} outputs", box=box.SIMPLE_HEAD)
    for heading in ("mean", "median", "95 %", "largest", "largest, rescaled", "condition"):
        table.add_column(heading, justify="right", no_wrap=True)
    values = (b.mean, b.quantile(0.5), b.quantile(0.95), b.constant, b.scale_free, float(b.conditions.max()))
    table.add_row(*(f"{value:.4g}" for value in values))
    console.print(table)
    if result.bound is not None:
        console.print(escape(str(result.bound)), soft_wrap=True)
    for premise in result.premises:
        console.print(f"{MARKS[premise.status]:10} {escape(premise.name)}. {escape(premise.evidence)}", soft_wrap=True)
    for note in b.notes:
        console.print(f"note: {escape(note)}", soft_wrap=True)
