"""`congruence mechanism`: whether blocks of latents act on separate parts of what is decoded."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from congruence.cli import options as given
from congruence.cli.screen import collected_warnings, interruptible, progress_bar, say
from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.mechanism.examination import Examination
    from congruence.tables import Table

MARKS = {"holds": "✓ holds", "fails": "✕ fails", "ambiguous": "≈ ambiguous", "unknown": "? unknown"}


@interruptible
def mechanism(
    name: given.DecoderName,
    latents: given.Latents,
    blocks: Annotated[
        Optional[str],
        typer.Option(
            help="Latents that make a factor, e.g. '0-1,2,3-4' or '0+2,1'; found where not given.",
            rich_help_panel=given.METHOD,
        ),
    ] = None,
    model: Annotated[
        Optional[str],
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Decoder of a model of this generator's data: are its codes disentangled?",
            rich_help_panel=given.DATA,
        ),
    ] = None,
    codes: Annotated[
        Optional[str],
        typer.Option(
            metavar="CODES", help="The model's codes of the same rows; else searched for.", rich_help_panel=given.DATA
        ),
    ] = None,
    types: Annotated[
        str, typer.Option(help="What to look for where no blocks are given.", rich_help_panel=given.METHOD)
    ] = "D,S,H2",
    id: given.RowId = None,
    features: given.Features = None,
    metadata: given.Metadata = None,
    key: given.Key = None,
    drop_missing: given.DropMissing = False,
    points: Annotated[
        int, typer.Option(min=1, help="Rows to look at, drawn with the seed.", rich_help_panel=given.DATA)
    ] = 64,
    rtol: Annotated[
        Optional[float],
        typer.Option(help="What counts as zero, of the largest derivative; 1e-6.", rich_help_panel=given.METHOD),
    ] = None,
    atol: Annotated[
        float,
        typer.Option(help="The same, as it is. Blocks are found by --rtol alone.", rich_help_panel=given.METHOD),
    ] = 0.0,
    scale: Annotated[
        str,
        typer.Option(
            help="global, or column: latents have units of their own. Blocks are found by --rtol alone.",
            rich_help_panel=given.METHOD,
        ),
    ] = "global",
    orders: Annotated[
        str, typer.Option(help="Orders of derivatives that must not mix blocks.", rich_help_panel=given.METHOD)
    ] = "2,3",
    budget: Annotated[
        int, typer.Option(min=1, help="Sets of outputs tried for Type S at a point.", rich_help_panel=given.METHOD)
    ] = 200_000,
    chunk: given.Chunk = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    report: given.Report = None,
    json: given.Json = None,
    csv: Annotated[
        Optional[Path], typer.Option(help="Write a line for every criterion as csv.", rich_help_panel=given.OUTPUT)
    ] = None,
    quiet: given.Quiet = False,
) -> None:
    """Do the factors act on separate parts of the world?

    Imports a decoder from the folder you are in (or from what is installed),
    and checks blocks of its latents against the criteria of mechanistic
    independence; without --blocks it finds the blocks that the decoder
    supports. The code of the module is run. Examples:

        congruence mechanism mypackage.model:load_decoder latents.npy --blocks '0-1,2,3-4' --report report.html

        congruence mechanism model:decoder latents.parquet --features 'z_*' --json -
    """
    from congruence.cli.load_decoder import load_decoder
    from congruence.decoder.probed import import_torch
    from congruence.mechanism.examination import examine

    texts = {"report": report, "json": json, "csv": csv}
    given.check_outputs(texts, [latents, *([] if codes is None else [codes])])
    wanted = _orders(orders)
    if codes is not None and model is None:
        raise InputError("--codes are those of a model: give its decoder with --model")
    import_torch()
    found = load_decoder(name)
    second = None if model is None else load_decoder(model)
    settings = {"decoder": name, "latents": latents, "blocks": blocks or "found", "atol": atol}
    settings |= {"scale": scale, "orders": orders, "budget": budget, "rows drawn": points, "seed": seed}
    settings |= {"device": device, "command": shlex.join(["congruence", *sys.argv[1:]])}
    if model is not None:
        settings |= {"model": model, "codes": codes or "searched for"}
    if rtol is not None:
        settings["rtol"] = rtol
    if blocks is None:
        settings["types"] = types
    with collected_warnings() as warned, progress_bar(shown=not quiet) as progress:
        read = _table_at(latents, id=id, features=features, metadata=metadata, key=key)
        z, told = _paired(read, None if codes is None else _codes_at(codes, id), drop_missing)
        progress("differentiating", 0, 1)
        result = examine(
            found,
            z,
            blocks,
            model=second,
            codes=told,
            types=tuple(dict.fromkeys(one.strip() for one in types.split(","))),
            points=points,
            rtol=rtol,
            atol=atol,
            scale=scale,
            orders=wanted,
            budget=budget,
            chunk=chunk,
            device=device,
            seed=seed,
            settings=settings,
        )
        given.write_outputs(_rendered(result, texts), texts)
    for text in warned:
        if text not in result.notes:
            say(f"note: {text}")
    if not quiet:
        _show(result, stderr=str(json) == "-")


def _orders(text: str) -> tuple[int, ...]:
    try:
        orders = tuple(dict.fromkeys(int(one) for one in text.split(",")))
    except ValueError:
        orders = ()
    if not orders or min(orders) < 2:
        raise InputError(f"--orders takes numbers of at least 2, such as 2,3, not {text!r}")
    return orders


def _table_at(path: str, **wishes: str | None) -> Table:
    from congruence.tables import expanded

    return given.read_as_one(expanded([path]), **wishes)


def _codes_at(path: str, id: str | None) -> Table:
    """The codes with the ids of the latents, where such a file can have any; else rows are paired by position."""
    from congruence.tables import honours

    return _table_at(path, id=id if honours(path, "features") else None)


def _paired(latents: Table, codes: Table | None, drop_missing: bool) -> tuple[Any, Any]:
    """Latents and the codes of the same rows: a row that one of them lacks, or has NaN in, is left out of both."""
    from congruence.tables import finite_table, join_tables

    if codes is None:
        return _floats(finite_table(latents, drop_missing=drop_missing).values), None
    if latents.n != codes.n and (latents.ids is None or codes.ids is None):
        raise InputError(f"--codes must have a row for each of {latents.n} rows of latents, not {codes.n}")
    both = [replace(latents, name="latents"), replace(codes, name="codes")]
    joined = join_tables(both, drop_missing=drop_missing)
    if any(joined.unmatched.values()):
        raise InputError(
            f"--codes must have the rows of the latents, but {joined.unmatched['latents']} of these have no codes and "
            f"{joined.unmatched['codes']} codes no latents"
        )
    return _floats(joined.values[0]), _floats(joined.values[1])


def _floats(values: Any) -> Any:
    """Whole numbers as floats: a table of them may well hold latents."""
    return values.astype(float) if values.dtype.kind in "iub" else values


def _rendered(result: Examination, outputs: dict[str, Path | None]) -> dict[str, str]:
    from congruence.report import render_mechanism, rows_to_csv

    render_as: dict[str, Any] = {
        "report": render_mechanism,
        "json": lambda r: r.to_json(),
        "csv": lambda r: rows_to_csv(_table(r)),
    }
    return {name: render_as[name](result) for name, path in outputs.items() if path is not None}


def _table(result: Examination) -> list[dict[str, Any]]:
    """A row for each criterion."""
    return [{name: value for name, value in one.to_dict().items() if name != "sweep"} for one in result.check.verdicts]


def _show(result: Examination, *, stderr: bool) -> None:
    console = Console(stderr=stderr, highlight=False)
    if result.discovery is not None:
        for found in result.discovery.found:
            console.print(escape(found.sentence), soft_wrap=True)
    console.print(f"[bold]{escape(result.check.verdict)}[/bold]", soft_wrap=True)
    table = Grid(title=f"blocks {result.blocks_text}, {result.portrait.points} points", box=box.SIMPLE_HEAD)
    for heading in ("criterion", "verdict", "points", "margin", "of", "evidence"):
        table.add_column(
            heading, justify="right" if heading in ("points", "margin") else "left", no_wrap=heading != "of"
        )
    for one in result.check.verdicts:
        share = "–" if isnan(one.fraction) else f"{100 * one.fraction:.3g} %"
        margin = "–" if isnan(one.margin) else f"{one.margin:.3g}"
        table.add_row(one.criterion, MARKS[one.status], share, margin, one.measures, one.evidence)
    console.print(table)
    for theorem in result.check.theorems:
        console.print(escape(str(theorem)), soft_wrap=True)
    if result.disentanglement is not None:
        console.print(f"[bold]{escape(result.disentanglement.verdict)}[/bold]", soft_wrap=True)
    for note in result.notes:
        console.print(f"note: {escape(note)}", soft_wrap=True)
