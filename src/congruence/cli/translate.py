"""`congruence translate`: keep an index or a probe of old embeddings when the model is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from congruence.cli import _command as cli
from congruence.errors import InputError
from congruence.options import METHOD, OUTPUT, ReadOptions, option, reading
from congruence.translation._options import TranslateOptions

if TYPE_CHECKING:
    from congruence.tables import Table
    from congruence.translation.translator import Translator

app = typer.Typer(
    no_args_is_help=True, help="Map a new model's embeddings into the space of the old one, and measure the loss."
)


@dataclass(frozen=True)
class FitOutputs(cli.Outputs):
    """Outputs of `translate fit`."""

    map: Path | None = option(None, "Write the translator (.safetensors), for 'translate apply'.", panel=OUTPUT)

    def files(self) -> dict[str, Path]:
        """All but the translator."""
        return {name: path for name, path in super().files().items() if name != "map"}


@app.command()
@cli.command
def fit(
    old: Annotated[str, typer.Argument(help="Rows embedded by the old model.", show_default=False)],
    new: Annotated[str, typer.Argument(help="The same rows embedded by the new model.", show_default=False)],
    options: TranslateOptions,
    outputs: FitOutputs,
    fail: Annotated[
        bool, typer.Option("--fail", help="Exit with 1 unless the decision is go.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Fit the map from new to old on rows that both models embedded, and test it.

    Reports, on held-out rows, the error, the share of true neighbours that
    translated vectors find, the score of a linear probe, the number of paired
    rows that are needed, and a go or no-go. Example:

        congruence translate fit old.parquet new.parquet --id doc_id --map upgrade.safetensors

    With --unpaired no row needs to be in both files. That is experimental: the
    map cannot be tested on held-out rows, and is never called a go.
    """
    from congruence.translation._translate import translate

    if outputs.map is not None and outputs.map.suffix != ".safetensors":
        raise InputError(f"--map {outputs.map} must end in .safetensors")
    cli.check_outputs(outputs, [old, new], {"map": outputs.map})
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
    map: Annotated[Path, typer.Argument(help="The translator that 'fit' wrote.", show_default=False)],
    table: Annotated[Path, typer.Argument(help="Rows to translate, any size.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Write the translated rows as a table.", rich_help_panel=OUTPUT)],
    options: ReadOptions,
    inverse: Annotated[
        bool, typer.Option("--inverse", help="Map from the old space to the new.", rich_help_panel=METHOD)
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Translate a table, a chunk of rows at a time, with its ids and metadata.

    Takes the result of 'fit' and a file of any size. Example:

        congruence translate apply upgrade.safetensors new_full.parquet --out in_old_space.parquet
    """
    from congruence.tables import Stream, stream_table, write_stream
    from congruence.translation.translator import load_translator

    outputs = cli.Outputs(quiet=quiet)
    cli.check_outputs(outputs, [map, table], {"out": out})
    translator = load_translator(map)
    stream = stream_table(table, **reading(options))
    with cli.working(outputs) as progress:

        def tick(done: int) -> None:
            progress(f"translating {table.name}", done, stream.n)

        chunks = _translate_chunks(stream.chunks, translator, inverse, tick)
        write_stream(Stream(stream.n, chunks), out, id=options.id or "id")
    if not quiet:
        cli.say(f"{stream.n} rows translated: {out}")


def _translate_chunks(
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
        values = (translator.inverse if inverse else translator)(chunk.values)
        yield replace(chunk, values=values, features=None)
        done += chunk.n
        tick(done)
