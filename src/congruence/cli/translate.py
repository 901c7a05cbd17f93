"""`congruence translate`: keep what was built on the old embeddings when the model is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from congruence.cli import options as given
from congruence.cli.screen import (
    collected_warnings,
    interruptible,
    progress_bar,
    say,
    show_translation,
    show_unpaired,
)
from congruence.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from congruence.tables import Table
    from congruence.translation.translate import Translator

app = typer.Typer(
    no_args_is_help=True,
    help="Carry a new model's embeddings into the space of the old one, and say what is lost.",
)


@app.command()
@interruptible
def fit(
    ctx: typer.Context,
    old: Annotated[Path, typer.Argument(help="Rows embedded by the old model.", show_default=False)],
    new: Annotated[Path, typer.Argument(help="The same rows embedded by the new model.", show_default=False)],
    map: Annotated[
        Optional[Path], typer.Option("--map", help="Write the map (safetensors).", rich_help_panel=given.OUTPUT)
    ] = None,
    id: given.Id = None,
    features: given.Features = None,
    metadata: given.Metadata = None,
    key: given.Key = None,
    labels: Annotated[
        Optional[str],
        typer.Option(help="Metadata column of OLD that a linear probe predicts.", rich_help_panel=given.DATA),
    ] = None,
    group_by: given.GroupBy = None,
    drop_missing: given.DropMissing = False,
    group: Annotated[
        str,
        typer.Option(help="auto, rigid, similarity, linear, permutation.", rich_help_panel=given.METHOD),
    ] = "auto",
    normalize: given.Normalize = None,
    unpaired: Annotated[
        bool,
        typer.Option(
            "--unpaired",
            help="Experimental: the files share no rows; components are matched by their shapes.",
            rich_help_panel=given.METHOD,
        ),
    ] = False,
    components: Annotated[
        Optional[int], typer.Option(help="With --unpaired: how many (10).", rich_help_panel=given.METHOD)
    ] = None,
    keep: Annotated[
        Optional[str],
        typer.Option(help="With --unpaired: carry 'trusted' components, or 'all'.", rich_help_panel=given.METHOD),
    ] = None,
    require: Annotated[
        float,
        typer.Option(help="Share of true neighbours to be found for a go.", rich_help_panel=given.METHOD),
    ] = 0.9,
    folds: given.Folds = 5,
    nulls: given.Nulls = 5,
    bootstrap: given.Bootstrap = 200,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    report: given.Report = None,
    json: given.Json = None,
    fail: Annotated[
        bool, typer.Option("--fail", help="Exit with 1 unless the decision is go.", rich_help_panel=given.OUTPUT)
    ] = False,
    quiet: given.Quiet = False,
) -> None:
    """Fit the map from new to old on rows that both models embedded, and certify it.

    On held-out rows it reports the error, how many true neighbours translated
    vectors find, what a linear probe keeps, how many paired rows are needed,
    and a go or no-go. Example:

        congruence translate fit old.parquet new.parquet --id doc_id --map upgrade.safetensors

    With --unpaired no row needs to be in both files. That is experimental:
    there is nothing to certify it on, and it says how far it trusts itself.
    """
    from congruence.translation.translate import translate

    outputs = {"report": report, "json": json}
    given.check_outputs(outputs | {"map": map}, [old, new])
    if unpaired:
        asked = {"labels": labels, "group-by": group_by, "report": report, "group": None if group == "auto" else group}
        judged = ("require", "folds", "nulls", "bootstrap")
        asked |= dict.fromkeys([name for name in judged if given.was_given(ctx, name)], "given")
        how = {"components": components, "keep": keep, "normalize": normalize, "seed": seed}
        read = {"id": id, "features": features, "metadata": metadata, "key": key}
        _fit_unpaired([old, new], asked, how | {"drop_missing": drop_missing}, read, map, json, fail, quiet)
        return
    for name, value in (("components", components), ("keep", keep)):
        if value is not None:
            raise InputError(f"--{name} means nothing without --unpaired")
    with collected_warnings() as warned, progress_bar(shown=not quiet) as progress:
        tables = given.read_tables([old, new], ["old", "new"], id=id, features=features, metadata=metadata, key=key)
        result = translate(
            *tables,
            group=group,
            normalize=normalize,
            labels=labels,
            cluster=group_by,
            require=require,
            folds=folds,
            nulls=nulls,
            bootstrap=bootstrap,
            seed=seed,
            device=device,
            drop_missing=drop_missing,
            progress=progress,
        )
    for text in warned:
        say(f"note: {text}")
    texts = {}
    if report is not None:
        from congruence.report import render_translation

        texts["report"] = render_translation(result)
    if json is not None:
        texts["json"] = result.to_json()
    if map is not None:
        result.save(map)
    given.write_outputs(texts, outputs)
    if not quiet:
        show_translation(result, stderr=str(json) == "-")
    if fail and result.decision != "go":
        raise typer.Exit(1)


def _fit_unpaired(
    paths: list[Path],
    asked: dict[str, Any],
    how: dict[str, Any],
    read: dict[str, str | None],
    map: Path | None,
    json: Path | None,
    fail: bool,
    quiet: bool,
) -> None:
    """Match the components of two files that share no rows, and say how far that can be trusted."""
    from congruence.translation.unpaired import translate_unpaired

    for name, value in asked.items():
        if value is not None:
            raise InputError(f"--{name} needs rows that both models embedded, so it means nothing with --unpaired")
    with collected_warnings() as warned, progress_bar(shown=not quiet) as progress:
        tables = given.read_tables(paths, ["old", "new"], **read)
        wishes = {name: value for name, value in how.items() if value is not None}
        result = translate_unpaired(*tables, **wishes, progress=progress)
    for text in warned:
        say(f"note: {text}")
    if not quiet:
        show_unpaired(result, stderr=str(json) == "-")
    given.write_outputs({} if json is None else {"json": result.to_json()}, {"json": json})
    if map is not None:
        result.save(map)
    if fail and result.status != "holds":
        raise typer.Exit(1)


@app.command()
@interruptible
def apply(
    map: Annotated[Path, typer.Argument(help="The map that 'fit' wrote.", show_default=False)],
    table: Annotated[Path, typer.Argument(help="Rows to translate, any size.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Where the translated rows go.", rich_help_panel=given.OUTPUT)],
    inverse: Annotated[
        bool, typer.Option("--inverse", help="From the old space to the new.", rich_help_panel=given.METHOD)
    ] = False,
    id: given.Id = None,
    features: given.Features = None,
    metadata: given.Metadata = None,
    key: given.Key = None,
    quiet: given.Quiet = False,
) -> None:
    """Translate a table, a chunk of rows at a time, with its ids and metadata.

    The map and the table are the result of 'fit' and a file of any size. Example:

        congruence translate apply upgrade.safetensors new_full.parquet --out in_old_space.parquet
    """
    from congruence.tables import Stream, stream_table, write_stream
    from congruence.translation.translate import load_translator

    given.check_outputs({}, [map, table], tables={"out": out})
    translator = load_translator(map)
    stream = stream_table(table, id=id, features=features, metadata=metadata, key=key)
    with progress_bar(shown=not quiet) as progress:

        def tick(done: int) -> None:
            progress(f"translating {table.name}", done, stream.n)

        write_stream(Stream(stream.n, _translated(stream.chunks, translator, inverse, tick)), out, id=id or "id")
    if not quiet:
        say(f"{stream.n} rows translated: {out}")


def _translated(
    chunks: Iterator[Table], translator: Translator, inverse: bool, tick: Callable[[int], None]
) -> Iterator[Table]:
    from dataclasses import replace

    import numpy as np

    from congruence.arrays import finite_rows, listing

    done = 0
    for chunk in chunks:
        bad = np.flatnonzero(~finite_rows(chunk.values)) + done
        if bad.size:
            raise InputError(
                f"{chunk.path} has NaN or infinite values (row {listing(bad)}), which cannot be translated"
            )
        carried = (translator.inverse if inverse else translator)(chunk.values)
        yield replace(chunk, values=carried, features=None)
        done += chunk.n
        tick(done)
