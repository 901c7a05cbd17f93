"""`congruence compare`: did retraining only rotate my embeddings?"""

from __future__ import annotations

import glob
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from congruence.cli.screen import interruptible, progress_bar, say, show_comparison
from congruence.errors import CongruenceWarning, InputError

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison

DATA, METHOD, OUTPUT = "Which rows and columns", "How to compare", "What to write"


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
    id: Annotated[
        Optional[str], typer.Option(help="Column with row ids; rows are paired by it.", rich_help_panel=DATA)
    ] = None,
    features: Annotated[
        Optional[str], typer.Option(help="Columns with the embedding, e.g. 'emb_*'.", rich_help_panel=DATA)
    ] = None,
    metadata: Annotated[
        Optional[str], typer.Option(help="Columns to set aside, e.g. 'plate,well'.", rich_help_panel=DATA)
    ] = None,
    key: Annotated[
        Optional[str],
        typer.Option(help="Which array of a file with several, e.g. an obsm key.", rich_help_panel=DATA),
    ] = None,
    group_by: Annotated[
        Optional[str],
        typer.Option(help="Column whose rows stay together (plate, patient, document).", rich_help_panel=DATA),
    ] = None,
    drop_missing: Annotated[
        bool,
        typer.Option("--drop-missing", help="Leave out rows with NaN or infinity.", rich_help_panel=DATA),
    ] = False,
    groups: Annotated[
        str, typer.Option(help="Maps to fit, separated by commas.", rich_help_panel=METHOD)
    ] = "identity,permutation,rigid,similarity,linear,ica",
    directions: Annotated[
        str, typer.Option(help="'forward' (earlier file onto later) or 'both'.", rich_help_panel=METHOD)
    ] = "forward",
    normalize: Annotated[
        Optional[str],
        typer.Option(help="'cosine' puts rows on the unit sphere first.", rich_help_panel=METHOD),
    ] = None,
    folds: Annotated[int, typer.Option(help="Parts held out in turn.", rich_help_panel=METHOD)] = 5,
    nulls: Annotated[int, typer.Option(help="Re-pairings that make the null.", rich_help_panel=METHOD)] = 20,
    bootstrap: Annotated[int, typer.Option(help="Draws that make the interval.", rich_help_panel=METHOD)] = 200,
    seed: Annotated[int, typer.Option(help="Same seed, same result.", rich_help_panel=METHOD)] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.", rich_help_panel=METHOD)] = "auto",
    fail_above: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="GROUP=SHARE",
            help="Exit with 1 if a pair's held-out error exceeds this share of the diameter; may be repeated.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    report: Annotated[
        Optional[Path], typer.Option(help="Write a page a colleague can read (HTML).", rich_help_panel=OUTPUT)
    ] = None,
    json: Annotated[
        Optional[Path], typer.Option(help="Write the result as JSON; - for stdout.", rich_help_panel=OUTPUT)
    ] = None,
    csv: Annotated[Optional[Path], typer.Option(help="Write the table as csv.", rich_help_panel=OUTPUT)] = None,
    latex: Annotated[Optional[Path], typer.Option(help="Write the table as LaTeX.", rich_help_panel=OUTPUT)] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no table and no progress.", rich_help_panel=OUTPUT)
    ] = False,
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
    from congruence.tables import read_table, unique_names

    paths = _expanded(files)
    chosen = [name.strip() for name in groups.split(",") if name.strip()]
    limits = _limits(fail_above or [], chosen)
    outputs = {"report": report, "json": json, "csv": csv, "latex": latex}
    _check_outputs(outputs, paths)
    with warnings.catch_warnings(record=True) as caught, progress_bar(shown=not quiet) as progress:
        warnings.simplefilter("always", CongruenceWarning)
        tables = [
            read_table(path, id=id, features=features, metadata=metadata, key=key, name=name)
            for path, name in zip(paths, unique_names(paths), strict=True)
        ]
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
            progress=progress,
        )
    for text in {str(w.message): None for w in caught}:
        if text not in result.advice:
            say(f"note: {text}")
    _write(result, outputs)
    if not quiet:
        show_comparison(result, stderr=str(json) == "-")
    if _exceeded(result, limits):
        raise typer.Exit(1)


def _expanded(files: list[str]) -> list[str]:
    """Patterns that the shell left alone (quoted, or on Windows) are expanded here."""
    paths: list[str] = []
    for name in files:
        found = sorted(glob.glob(name)) if any(c in name for c in "*?[") and not Path(name).exists() else [name]
        if not found:
            raise InputError(f"no file matches {name}")
        paths += found
    return paths


def _limits(given: list[str], groups: list[str]) -> dict[str, float]:
    limits = {}
    for text in given:
        group, _, value = text.partition("=")
        try:
            limits[group] = float(value)
        except ValueError:
            raise InputError(f"--fail-above takes GROUP=SHARE such as similarity=0.02, not {text!r}") from None
        if group not in groups:
            raise InputError(f"--fail-above names {group!r}, which is not among the groups {','.join(groups)}")
    return limits


def _check_outputs(outputs: dict[str, Path | None], inputs: list[str]) -> None:
    """Refuse, before any work, outputs that cannot be written or would overwrite an input or each other."""
    from congruence.files import check_writable

    taken = {Path(path).resolve(): f"the input {path}" for path in inputs}
    for name, path in outputs.items():
        if path is None or str(path) == "-":
            continue
        check_writable(path)
        if path.resolve() in taken:
            raise InputError(f"--{name} {path} would overwrite {taken[path.resolve()]}")
        taken[path.resolve()] = f"--{name}"


def _write(result: Comparison, outputs: dict[str, Path | None]) -> None:
    from congruence.files import write_text
    from congruence.report import render, to_csv, to_latex

    render_as = {"report": render, "json": lambda r: r.to_json(), "csv": to_csv, "latex": to_latex}
    texts = {name: render_as[name](result) for name, path in outputs.items() if path is not None}
    for name, text in texts.items():
        if str(outputs[name]) == "-":
            typer.echo(text, nl=False)
        else:
            write_text(outputs[name], text)  # type: ignore[arg-type]


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
