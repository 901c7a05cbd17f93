"""`congruence resolve`: undo the rotation without labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from congruence.cli import _command as cli
from congruence.cli.cluster import on_cluster
from congruence.errors import InputError
from congruence.ica._options import RESAMPLES, ResolveOptions
from congruence.options import METHOD, OUTPUT, option, reading

if TYPE_CHECKING:
    from congruence.progress import Progress
    from congruence.tables import Table

Files = Annotated[
    list[str],
    cli.argument(
        "Embeddings (.npy .parquet .csv .jsonl .safetensors .pt .h5ad ...); several files, a pattern or a folder "
        "are read as one table, - is standard input.",
        metavar="FILE",
    ),
]


@dataclass(frozen=True)
class ResolveOutputs(cli.Outputs):
    """Outputs of `resolve`."""

    out: Path | None = option(None, "Write the components as a table.", panel=OUTPUT)
    model: Path | None = option(None, "Write the fitted model for --apply (safetensors).", panel=OUTPUT)


@cli.command
def resolve(
    ctx: typer.Context,
    files: Files,
    options: ResolveOptions,
    outputs: ResolveOutputs,
    apply: Annotated[
        Path | None,
        cli.flag(help="Use the components of this model; nothing is fitted.", panel=METHOD),
    ] = None,
    inverse: Annotated[
        bool,
        cli.flag("--inverse", help="With --apply: map components back to embeddings.", panel=METHOD),
    ] = False,
    dask: cli.Dask = None,
) -> None:
    """Can the rotation be undone without labels, so that axes are reproducible?

    Whitens the rows and rotates them to independent components, from several
    random starts, and reports which components are identified: distinguishable
    from noise, found from every start, and found again on disjoint halves of
    the rows. Examples:

        congruence resolve x.parquet --out ica.parquet --model ica.safetensors

        congruence resolve x.parquet --components 0.95 --report report.html

        congruence resolve measurements.csv --standardize --components 0.95

        congruence resolve new.parquet --apply ica.safetensors --out new_ica.csv

        congruence resolve 'export/*.parquet' --rows auto --out components.parquet

        congruence resolve big.zarr --dask tcp://scheduler:8786 --out ica.zarr
    """
    from congruence.tables import expanded

    paths = expanded(files)
    if dask is not None and (options.drop_missing or options.cluster):
        flag = "--drop-missing" if options.drop_missing else "--cluster"
        raise InputError(f"{flag} cannot be used with --dask; leave out one of them")
    if apply is not None:
        _refuse_options_of_a_fit(ctx, apply)
        with cli.working(outputs) as progress, on_cluster(dask):
            n = _apply(paths, apply, options, outputs, inverse, dask is not None, progress)
        if not outputs.quiet:
            cli.say(f"{n} rows {'mapped back to embeddings' if inverse else 'resolved'}: {outputs.out}")
        return
    if inverse:
        raise InputError("--inverse needs --apply MODEL")
    if outputs.model is not None and outputs.model.suffix != ".safetensors":
        raise InputError(f"--model {outputs.model} must end in .safetensors")
    cli.check_outputs(outputs, paths, {"out": outputs.out, "model": outputs.model})
    options = _parsed(options, outputs)
    with cli.working(outputs) as progress, on_cluster(dask):
        table = _read(paths, options, dask is not None)
        result = _resolved(table, options, outputs, progress)
    cli.deliver(result, outputs)


def _refuse_options_of_a_fit(ctx: typer.Context, model: Path) -> None:
    """Refuse options that --apply would ignore."""
    used = {"files", "apply", "inverse", "dask", "out", "quiet", "drop_missing", *reading(ResolveOptions())}
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if name not in used and source is not None and source.name == "COMMANDLINE":
            raise InputError(f"--{name.replace('_', '-')} has no effect with --apply: {model} decides")


def _parsed(options: ResolveOptions, outputs: ResolveOutputs) -> ResolveOptions:
    """Convert text to numbers; `resolve` refuses what is not one. A report implies resamples."""
    curve = tuple(int(k) if str(k).isdecimal() else k for k in options.curve)
    rows = int(options.rows) if options.rows.isdecimal() else options.rows
    runs = RESAMPLES if options.stability is None and outputs.report is not None else options.stability
    return replace(options, components=_number(options.components), rows=rows, curve=curve, stability=runs)


def _number(text: str | None) -> Any:
    """An integer, a share, or the text itself; 1.0 stays a float, which `resolve` refuses."""
    try:
        number = float(text or "")
    except ValueError:
        return text
    return int(number) if (number.is_integer() and number != 1) or text == "1" else number


def _read(paths: list[str], options: ResolveOptions, lazily: bool) -> Table:
    """Read files as one table."""
    from congruence.tables.parts import lazy_parts, read_parts

    return (lazy_parts if lazily else read_parts)(paths, **_wishes(paths, options))


def _wishes(paths: list[str], options: ResolveOptions) -> dict[str, Any]:
    """The options for reading the files; those that do not apply to them are refused."""
    from congruence.tables.inputs import check_options

    wishes = {name: value for name, value in reading(options).items() if value is not None}
    check_options(paths, [name for name in wishes if name != "id"])
    return wishes


def _resolved(table: Table, options: ResolveOptions, outputs: ResolveOutputs, progress: Progress) -> Any:
    """Fit, then write the model and the components."""
    from congruence.ica import resolve as resolve_rows
    from congruence.ica import write_components
    from congruence.tables import check_table_path

    if outputs.out is not None:
        check_table_path(outputs.out, table)
    applied: dict[str, Any] = dict.fromkeys(reading(options))  # to the table
    result = resolve_rows(table, options=replace(options, **applied), progress=progress)
    if outputs.model is not None:
        result.ica.save(outputs.model)
    if outputs.out is not None:
        chosen: dict[str, Any] = {"id": options.id, "drop_missing": options.drop_missing}
        write_components(table, result.ica, outputs.out, **chosen, progress=progress)
    return result


def _apply(
    paths: list[str],
    model: Path,
    options: ResolveOptions,
    outputs: ResolveOutputs,
    inverse: bool,
    lazily: bool,
    progress: Progress,
) -> int:
    """Write the components of the rows, or with `inverse` the embeddings of components; return how many rows."""
    from congruence.ica import load_ica, write_components
    from congruence.tables import stream_parts

    if outputs.out is None:
        raise InputError("--apply needs --out, the table to write")
    cli.check_outputs(outputs, [*paths, model], {"out": outputs.out})
    ica = load_ica(model)
    whole = lazily or options.drop_missing  # the number of remaining rows must be known before writing
    rows = _read(paths, options, lazily) if whole else stream_parts(paths, **_wishes(paths, options))
    chosen: dict[str, Any] = {"inverse": inverse, "id": options.id, "drop_missing": options.drop_missing}
    return write_components(rows, ica, outputs.out, **chosen, progress=progress)
