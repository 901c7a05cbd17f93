"""`congruence translate`: keep an index or a probe of old embeddings when the model is replaced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Optional

import typer

from congruence.cli import _command as cli
from congruence.cli.cluster import on_cluster
from congruence.errors import InputError
from congruence.options import DATA, OUTPUT, option
from congruence.translation._options import FORMATS, ApplyOptions, TranslateOptions

app = typer.Typer(
    no_args_is_help=True, help="Map a new model's embeddings into the space of the old one, and measure the loss."
)


@dataclass(frozen=True)
class FitOutputs(cli.Outputs):
    """Outputs of `translate fit`."""

    map: Path | None = option(None, "Write the translator (.safetensors), for 'translate apply'.", panel=OUTPUT)


@app.command()
@cli.command
def fit(
    old: Annotated[str, cli.argument("Rows embedded by the old model.")],
    new: Annotated[str, cli.argument("The same rows embedded by the new model.")],
    options: TranslateOptions,
    outputs: FitOutputs,
    queries: Annotated[
        Optional[tuple[str, str]],
        cli.flag(
            "--queries",
            help="The same queries embedded by both models: fit on documents, certify on queries.",
            panel=DATA,
            metavar="OLD_Q NEW_Q",
        ),
    ] = None,
    fail: Annotated[bool, cli.flag("--fail", help="Exit with 1 unless the decision is go.", panel=OUTPUT)] = False,
) -> None:
    """Fit the map from new to old on rows that both models embedded, and test it.

    Reports, on held-out rows, the share of true neighbours that translated
    vectors find in an index of a stated size, the depth at which re-ranking
    recovers them, the number of paired rows that are needed, and a go or
    no-go. Example:

        congruence translate fit old.parquet new.parquet --map map.safetensors

    With --unpaired no row needs to be in both files. That is experimental: the
    map cannot be tested on held-out rows, and is never called a go.
    """
    from congruence.translation._translate import translate

    if outputs.map is not None and outputs.map.suffix != ".safetensors":
        raise InputError(f"--map {outputs.map} must end in .safetensors")
    more = [path for path in (*(queries or ()), options.index, options.qrels) if path is not None]
    cli.check_outputs(outputs, [old, new, *more], {"map": outputs.map})
    options = replace(options, queries=queries)
    with cli.working(outputs) as progress:
        result = translate(old, new, options=options, progress=progress)
    result = cli.deliver(result, outputs)
    if outputs.map is not None:
        result.save(outputs.map)
    if fail and result.status != "holds":
        raise typer.Exit(1)


@app.command()
@cli.command
def apply(
    map: Annotated[Path, cli.argument("The translator that 'fit' wrote.")],
    table: Annotated[str, cli.argument("Rows to translate: a file of any size, a pattern or a folder.")],
    out: Annotated[Path, cli.flag(help="Table to write; for a pattern or a folder, a folder.", panel=OUTPUT)],
    options: ApplyOptions,
    dask: cli.Dask = None,
    quiet: Annotated[bool, cli.flag("--quiet", "-q", help="Print no progress.", panel=OUTPUT)] = False,
) -> None:
    """Translate tables of any size; ids and all other columns stay as they are.

    The files of a pattern or of a folder are translated one by one into a
    folder of the same names. The same command resumes after an interruption.

    For example:

        congruence translate apply map.safetensors new.parquet --out as_old.npy

        congruence translate apply map.safetensors 'new/*.parquet' --out as_old
    """
    from congruence.translation._apply import apply_files, is_many

    outputs = cli.Outputs(quiet=quiet)
    if not is_many(table):
        cli.check_outputs(outputs, [map, table], {"out": out})
    with cli.working(outputs) as progress, on_cluster(dask):
        done = apply_files(map, table, out, options=options, progress=progress)
    if quiet:
        return
    before = f" ({done.before} of them before)" if done.before else ""
    parts = f" in {done.parts} parts{before}" if done.parts else ""
    cli.say(f"{done.rows} rows{parts} translated: {out}")
    if done.flag:
        cli.say(f"{done.far} of them are far from the rows of the fit: column {done.flag}")
    if done.left:
        cli.say(f"note: {out} also holds parts whose input is gone: {', '.join(done.left[:5])}")


@app.command()
@cli.command
def export(
    map: Annotated[Path, cli.argument("The translator that 'fit' wrote.")],
    to: Annotated[str, cli.flag(help=f"Format: {', '.join(FORMATS)}.", panel=OUTPUT)],
    out: Annotated[
        Path,
        cli.flag(help="File (.onnx, .py) or, for sentence-transformers, folder to write.", panel=OUTPUT),
    ],
    quiet: Annotated[bool, cli.flag("--quiet", "-q", help="Print nothing.", panel=OUTPUT)] = False,
) -> None:
    """Write a translator for programs without congruence.

    For example:

        congruence translate export map.safetensors --to onnx --out map.onnx

        congruence translate export map.safetensors --to numpy --out map.py
    """
    from congruence.translation.export import export_translator
    from congruence.translation.translator import load_translator

    for path in export_translator(load_translator(map), out, to):
        if not quiet:
            cli.say(f"written: {path}")
