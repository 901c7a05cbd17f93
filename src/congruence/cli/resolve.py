"""`congruence resolve`: undo the rotation without labels."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from congruence.cli import options as given
from congruence.cli.apply_components import apply_components
from congruence.cli.cluster import on_cluster
from congruence.cli.screen import collected_warnings, interruptible, progress_bar, say
from congruence.cli.screen_resolution import show_resolution
from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.ica.estimator import ICA
    from congruence.ica.resolution import Resolution
    from congruence.tables import Table

STABILITY = 20  # bootstrap runs for a report
APPLYING = {
    "ctx",
    "files",
    "apply",
    "inverse",
    "out",
    "id",
    "features",
    "metadata",
    "key",
    "drop_missing",
    "dask",
    "quiet",
}


@interruptible
def resolve(
    ctx: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Embeddings (.npy .npz .csv .parquet .arrow .feather .h5ad .zarr .safetensors .pt); "
            "several files, or a pattern, are read as one table.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Optional[Path], typer.Option(help="Write the components as a table.", rich_help_panel=given.OUTPUT)
    ] = None,
    model: Annotated[
        Optional[Path],
        typer.Option(help="Write what --apply needs (safetensors).", rich_help_panel=given.OUTPUT),
    ] = None,
    apply: Annotated[
        Optional[Path],
        typer.Option(help="Take the components of this model; nothing is fitted.", rich_help_panel=given.METHOD),
    ] = None,
    inverse: Annotated[
        bool,
        typer.Option("--inverse", help="With --apply: from components to embeddings.", rich_help_panel=given.METHOD),
    ] = False,
    id: given.RowId = None,
    features: given.Features = None,
    metadata: given.Metadata = None,
    key: given.Key = None,
    group_by: given.GroupBy = None,
    drop_missing: given.DropMissing = False,
    components: Annotated[
        Optional[str],
        typer.Option(
            metavar="N|SHARE",
            help="How many, or the share of the variance to keep (64 or 0.95).",
            rich_help_panel=given.METHOD,
        ),
    ] = None,
    contrast: Annotated[
        str, typer.Option(help="logcosh, exp (heavy tails) or cube (kurtosis).", rich_help_panel=given.METHOD)
    ] = "logcosh",
    no_whiten: Annotated[
        bool, typer.Option("--no-whiten", help="Only rotate the rows as they are.", rich_help_panel=given.METHOD)
    ] = False,
    starts: Annotated[
        int, typer.Option(help="Random starts, to see whether they agree.", rich_help_panel=given.METHOD)
    ] = 3,
    rows: Annotated[
        str,
        typer.Option(help="Rows that decide the rotation: all, auto or a number.", rich_help_panel=given.METHOD),
    ] = "all",
    tol: Annotated[
        float, typer.Option(help="Stop when components turn by less (radians).", rich_help_panel=given.METHOD)
    ] = 1e-4,
    max_iter: Annotated[int, typer.Option(help="Passes over the rows at most.", rich_help_panel=given.METHOD)] = 500,
    stability: Annotated[
        Optional[int],
        typer.Option(
            help=f"Refit on so many resamples of the rows; {STABILITY} for a report, 0 for none.",
            rich_help_panel=given.METHOD,
            show_default=False,
        ),
    ] = None,
    curve: Annotated[
        Optional[str],
        typer.Option(help="Stability for several numbers of components (8,16,32).", rich_help_panel=given.METHOD),
    ] = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    dask: given.Dask = None,
    report: given.Report = None,
    json: given.Json = None,
    csv: Annotated[
        Optional[Path], typer.Option(help="Write the table of components as csv.", rich_help_panel=given.OUTPUT)
    ] = None,
    quiet: given.Quiet = False,
) -> None:
    """Can I undo the rotation without labels, and get axes that come back every time?

    Whitens the rows and rotates them to independent components, from several
    starts, and says which components are identified: told from noise, and the
    same from every start. Examples:

        congruence resolve embeddings.parquet --out components.parquet --model ica.safetensors

        congruence resolve embeddings.parquet --components 0.95 --report report.html

        congruence resolve new.parquet --apply ica.safetensors --out components.parquet

        congruence resolve 'export/*.parquet' --rows auto --out components.parquet

        congruence resolve big.zarr --dask tcp://scheduler:8786 --out components.zarr
    """
    from congruence.tables import expanded

    paths = expanded(files)
    wishes = {"id": id, "features": features, "metadata": metadata, "key": key}
    if dask is not None:
        _refuse_with_dask({"drop-missing": drop_missing, "group-by": group_by})
    if apply is not None:
        _refuse_options_of_a_fit(ctx, apply)
        with on_cluster(dask):
            apply_components(
                paths,
                apply,
                out,
                inverse=inverse,
                drop_missing=drop_missing,
                quiet=quiet,
                wishes=wishes,
                lazily=dask is not None,
            )
        return
    if inverse:
        raise InputError("--inverse goes with --apply MODEL, which knows the way back")
    texts = {"report": report, "json": json, "csv": csv}
    _check(paths, out, model, texts)
    if not 0 <= seed < 2**32:
        raise InputError(f"--seed must be between 0 and {2**32 - 1}, not {seed}")
    runs, steps = _stability(stability, curve, report)
    if group_by is not None and not runs:
        raise InputError("--group-by keeps rows together in resamples, but there are none; add --stability 20")
    fit: dict[str, Any] = {
        "n_components": _components(components),
        "contrast": contrast,
        "whiten": not no_whiten,
        "starts": starts,
        "rows": _rows(rows),
        "tol": tol,
        "max_iter": max_iter,
        "random_state": seed,
        "device": device,
    }
    with collected_warnings() as warned, progress_bar(shown=not quiet) as progress, on_cluster(dask):
        table = _read(paths, out, drop_missing, dask is not None, **wishes)
        cluster = _cluster(table, group_by)
        progress("finding components", 0, 1)
        ica = _fitted(table, fit)
        stable = _measured(table, ica, fit, runs, steps, cluster, progress) if runs else None
        settings = _settings(fit) | {"stability": runs, "curve": curve, "group-by": group_by, "command": _command()}
        result = _result(table, ica, stable, settings)
        given.write_outputs(_rendered(result, texts), texts)
        _save(ica, table, model, out, id, progress)
    for text in warned:
        if text not in result.advice:
            say(f"note: {text}")
    if not quiet:
        show_resolution(result, stderr=str(json) == "-")


def _refuse_options_of_a_fit(ctx: typer.Context, model: Path) -> None:
    """An option that --apply would ignore is a misunderstanding, better told than kept silent about."""
    for name in ctx.params:
        if name not in APPLYING and given.was_given(ctx, name):
            option = "--" + name.replace("_", "-")
            raise InputError(f"{option} has no meaning with --apply: nothing is fitted, {model} decides")


def _check(paths: list[str], out: Path | None, model: Path | None, texts: dict[str, Path | None]) -> None:
    given.check_outputs(texts | {"model": model}, paths, tables={"out": out})
    if model is not None and model.suffix != ".safetensors":
        raise InputError(f"--model {model} must end in .safetensors")


def _components(text: str | None) -> int | float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (number == int(number) >= 1 if number >= 1 and number < float("inf") else 0 < number < 1):
        raise InputError(f"--components takes a number such as 64, or a share of the variance such as 0.95, not {text}")
    return int(number) if number >= 1 else number


def _rows(text: str) -> int | str:
    if text in ("all", "auto"):
        return text
    if not text.isdecimal() or int(text) < 2:
        raise InputError(f"--rows takes all, auto or a number of at least 2, not {text}")
    return int(text)


def _stability(runs: int | None, curve: str | None, report: Path | None) -> tuple[int, list[int]]:
    """How many resamples to refit on, and for which numbers of components besides."""
    if runs is not None and runs != 0 and runs < 2:
        raise InputError(f"--stability takes a number of resamples of at least 2, or 0 for none, not {runs}")
    try:
        steps = [int(part) for part in curve.split(",")] if curve else []
    except ValueError:
        steps = [0]
    if any(step < 1 for step in steps):
        raise InputError(f"--curve takes numbers of components such as 8,16,32, not {curve}")
    if steps and runs == 0:
        raise InputError("--curve needs resamples to refit on, but --stability is 0")
    wanted = report is not None or bool(steps)
    return (STABILITY if wanted else 0) if runs is None else runs, steps


def _read(paths: list[str], out: Path | None, drop_missing: bool, lazily: bool, **wishes: str | None) -> Table:
    """The table, with values that are finite, or with values that workers read: then the fit finds what is not."""
    from congruence.tables import check_table_path, finite_table

    table = given.read_as_one(paths, lazily, **wishes)
    if out is not None:
        check_table_path(out, table)
    if lazily:
        return table
    table = finite_table(table, drop_missing=drop_missing)
    if table.n < 2:
        raise InputError(f"{paths[0]} has 1 row, but components need at least 2")
    return table


def _refuse_with_dask(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value:
            raise InputError(f"--{name} cannot be used with --dask; leave out one of them")


def _cluster(table: Table, column: str | None) -> Any:
    """The column whose rows stay together; ids, which need not be unique here, do not matter."""
    from dataclasses import replace

    from congruence.tables import join_tables

    return None if column is None else join_tables([replace(table, ids=None)], cluster=column).cluster


def _fitted(table: Table, fit: dict[str, Any]) -> ICA:
    import numpy as np

    from congruence.ica.estimator import ICA

    ica = ICA(**fit).fit(table.values)
    if table.features is not None:
        ica.feature_names_in_ = np.array(table.features, dtype=object)
    return ica


def _measured(
    table: Table, ica: ICA, fit: dict[str, Any], runs: int, curve: list[int], cluster: Any, progress: Any
) -> Any:
    """How well the components come back on rows drawn anew; the starts of the fit itself tell of other starts."""
    from congruence.ica.stability import component_stability

    options = {name: value for name, value in fit.items() if name not in ("starts", "random_state")}
    drawn = {"restarts": 0, "bootstrap": runs, "cluster": cluster, "curve": curve, "seed": fit["random_state"]}
    return component_stability(table.values, **options, **drawn, found=ica.found_, progress=progress)


def _settings(fit: dict[str, Any]) -> dict[str, Any]:
    names = {"n_components": "components", "max_iter": "max-iter", "random_state": "seed"}
    return {names.get(name, name): value for name, value in fit.items()}


def _command() -> str:
    return shlex.join(["congruence", *sys.argv[1:]])


def _result(table: Table, ica: ICA, stability: Any, settings: dict[str, Any]) -> Resolution:
    from congruence.ica.resolution import resolution_of

    return resolution_of(table, ica.found_, stability=stability, settings=settings)


def _rendered(result: Resolution, outputs: dict[str, Path | None]) -> dict[str, str]:
    from congruence.report import render_resolution, rows_to_csv

    render_as: dict[str, Any] = {
        "report": render_resolution,
        "json": lambda r: r.to_json(),
        "csv": lambda r: rows_to_csv(r.table()),
    }
    return {name: render_as[name](result) for name, path in outputs.items() if path is not None}


def _save(ica: ICA, table: Table, model: Path | None, out: Path | None, id: str | None, progress: Any) -> None:
    from congruence.arrays import is_dask
    from congruence.cli.apply_components import write_computed, write_mapped
    from congruence.tables import Stream, slices

    if model is not None:
        ica.save(model)
    if out is not None and is_dask(table.values):
        write_computed(table, ica, out, id=id, progress=progress)
    elif out is not None:
        write_mapped(Stream(table.n, slices(table)), ica, out, id=id, progress=progress)
