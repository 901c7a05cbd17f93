"""`congruence compare`: did retraining only rotate my embeddings?"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from congruence.cli import options as given
from congruence.cli.cluster import on_cluster
from congruence.cli.screen import collected_warnings, interruptible, progress_bar, say, show_comparison
from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison


@interruptible
def compare(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Two or more embedding files (.npy .npz .csv .parquet .arrow .feather .h5ad .zarr .safetensors .pt).",
            show_default=False,
        ),
    ],
    id: given.Id = None,
    features: given.Features = None,
    metadata: given.Metadata = None,
    key: given.Key = None,
    group_by: given.GroupBy = None,
    drop_missing: given.DropMissing = False,
    groups: Annotated[
        str, typer.Option(help="Maps to fit, separated by commas.", rich_help_panel=given.METHOD)
    ] = "identity,permutation,rigid,similarity,linear,ica",
    directions: Annotated[
        str, typer.Option(help="'forward' (earlier file onto later) or 'both'.", rich_help_panel=given.METHOD)
    ] = "forward",
    normalize: given.Normalize = None,
    series: Annotated[
        bool,
        typer.Option(
            "--series",
            help="Checkpoints of one training, each onto the next and the last; the step is in the file name.",
            rich_help_panel=given.METHOD,
        ),
    ] = False,
    folds: given.Folds = 5,
    nulls: given.Nulls = 20,
    bootstrap: given.Bootstrap = 200,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    dask: Annotated[
        Optional[str],
        typer.Option(
            metavar="ADDRESS",
            help="Let workers of this dask scheduler (or local ones) read the files and sum their rows.",
            rich_help_panel=given.METHOD,
        ),
    ] = None,
    similarities: Annotated[
        Optional[str],
        typer.Option(
            help="Further measures, separated by commas (cka,svcca,rsa,procrustes,...), or 'all'.",
            rich_help_panel=given.METHOD,
        ),
    ] = None,
    fail_above: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="GROUP=SHARE",
            help="Exit with 1 if a pair's held-out error exceeds this share of the diameter; may be repeated.",
            rich_help_panel=given.OUTPUT,
        ),
    ] = None,
    report: given.Report = None,
    json: given.Json = None,
    csv: Annotated[Optional[Path], typer.Option(help="Write the table as csv.", rich_help_panel=given.OUTPUT)] = None,
    latex: Annotated[
        Optional[Path], typer.Option(help="Write the table as LaTeX.", rich_help_panel=given.OUTPUT)
    ] = None,
    consensus: Annotated[
        bool,
        typer.Option("--consensus", help="Also find what all runs have in common.", rich_help_panel=given.METHOD),
    ] = False,
    rows_out: Annotated[
        Optional[Path],
        typer.Option(help="Write which rows moved most, as a table.", rich_help_panel=given.OUTPUT),
    ] = None,
    quiet: given.Quiet = False,
) -> None:
    """Did retraining only rotate my embeddings, or did they really change?

    Fits maps of growing freedom from each run onto the later ones and reports
    the error that is left, as a share of the target's diameter: on held-out
    rows, with an interval, beside what unrelated runs would give. Examples:

        congruence compare run_a.npy run_b.npy --report report.html

        congruence compare runs/*.parquet --id cell_id --features 'emb_*'

        congruence compare old.npy new.npy --fail-above similarity=0.02
    """
    from congruence.align.compare import compare as compare_runs
    from congruence.tables import expanded, unique_names, write_table

    paths = expanded(files)  # patterns that the shell left alone (quoted, or on Windows)
    if len(paths) < 2:
        raise InputError(f"comparing takes at least 2 runs, but only {paths[0]} was given")
    steps = _steps(paths) if series else None
    if steps is not None:
        paths = sorted(paths, key=steps.__getitem__)
    chosen = _listed(groups)
    limits = _limits(fail_above or [], chosen)
    texts = {"report": report, "json": json, "csv": csv, "latex": latex}
    given.check_outputs(texts, paths, tables={"rows-out": rows_out})
    if rows_out is not None:
        _check_rows_out(rows_out, chosen)
    wishes = {"id": id, "features": features, "metadata": metadata, "key": key}
    with collected_warnings() as warned, progress_bar(shown=not quiet) as progress, on_cluster(dask):
        tables = given.read_tables(paths, unique_names(paths), dask is not None, **wishes)
        result = compare_runs(
            tables,
            groups=chosen,
            directions=directions,
            normalize=normalize,
            cluster=group_by,
            folds=folds,
            nulls=nulls,
            bootstrap=bootstrap,
            seed=seed,
            device=device,
            drop_missing=drop_missing,
            similarities=_listed(similarities or ""),
            consensus=consensus,
            steps=None if steps is None else sorted(steps.values()),
            progress=progress,
        )
    for text in warned:
        if text not in result.advice:
            say(f"note: {text}")
    rendered = _rendered(result, texts)
    if rows_out is not None:
        write_table(result.moved().to_table(), rows_out)
    given.write_outputs(rendered, texts)
    if not quiet:
        show_comparison(result, stderr=str(json) == "-")
    if _exceeded(result, limits):
        raise typer.Exit(1)


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _steps(paths: list[str]) -> dict[str, float]:
    """The training step of each checkpoint: the last number in the name of its file."""
    steps: dict[str, float] = {}
    for path in paths:
        numbers = re.findall(r"\d+", Path(path).name.partition(".")[0]) or re.findall(r"\d+", Path(path).parent.name)
        if not numbers:
            raise InputError(f"--series takes the step from the file name, but {path} has no number in it")
        if float(numbers[-1]) in steps.values():
            raise InputError(f"--series takes the step from the file name, but {numbers[-1]} is there twice")
        steps[path] = float(numbers[-1])
    return steps


def _limits(given: list[str], groups: list[str]) -> dict[str, float]:
    limits: dict[str, float] = {}
    for text in given:
        group, _, value = text.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if not limit >= 0:
            raise InputError(f"--fail-above takes GROUP=SHARE such as similarity=0.02, not {text!r}")
        if group not in groups:
            raise InputError(f"--fail-above names {group!r}, which is not among the groups {','.join(groups)}")
        if group in limits:
            raise InputError(f"--fail-above names {group!r} twice")
        limits[group] = limit
    return limits


def _check_rows_out(path: Path, groups: list[str]) -> None:
    """Refuse, before any work, what could not be written in the end."""
    from congruence.maps.groups import GROUPS

    if path.suffix == ".npy":
        raise InputError(f"--rows-out {path} would lose the names of its columns; use .parquet or .csv")
    if not set(groups) & set(GROUPS):
        raise InputError(f"--rows-out ranks rows by {', '.join(GROUPS)}; add one of these to --groups")


def _rendered(result: Comparison, outputs: dict[str, Path | None]) -> dict[str, str]:
    from congruence.report import render, to_csv, to_latex

    render_as = {"report": render, "json": lambda r: r.to_json(), "csv": to_csv, "latex": to_latex}
    return {name: render_as[name](result) for name, path in outputs.items() if path is not None}


def _exceeded(result: Comparison, limits: dict[str, float]) -> bool:
    """Say which pairs exceed a limit; an undefined error exceeds every limit."""
    found = False
    for pair in result.pairs:
        for group, limit in limits.items():
            error = pair.groups[group].held_out.mean
            if not error <= limit:
                say(f"{pair.source} -> {pair.target}: held-out {group} error {error:.4f} is above {limit:g}")
                found = True
    return found
