"""`congruence deconfound`: does it generalise to batches it has never seen?"""

from __future__ import annotations

import hashlib
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from congruence.cli import options as given
from congruence.cli.screen import collected_warnings, interruptible, progress_bar, say
from congruence.cli.screen_deconfounding import show_outcome
from congruence.cli.screened_table import Screened, read_screened
from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.batches.outcome import Outcome

CONDITIONS = "base,whitened,ica,rotated"


@interruptible
def deconfound(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE",
            help="Embeddings with metadata (.parquet .csv .h5ad .arrow .npz .zarr); several are read as one table.",
            show_default=False,
        ),
    ],
    batch: Annotated[
        str, typer.Option(help="Column with the batch (plate).", rich_help_panel=given.DATA, show_default=False)
    ],
    control: Annotated[
        Optional[str],
        typer.Option(
            metavar="COLUMN=VALUE",
            help="What controls are known by, e.g. perturbation=DMSO.",
            rich_help_panel=given.DATA,
        ),
    ] = None,
    by: Annotated[
        Optional[str],
        typer.Option(
            help="Column with what was done (gene, compound); each of its values is told from controls. "
            "Without it, all that is no control is one.",
            rich_help_panel=given.DATA,
        ),
    ] = None,
    positive: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="VALUE",
            help="Only this value of --by (may be repeated); without --control, all other rows are controls.",
            rich_help_panel=given.DATA,
        ),
    ] = None,
    guide: Annotated[
        Optional[str],
        typer.Option(help="Column with guides: experiments judged by themselves.", rich_help_panel=given.DATA),
    ] = None,
    groups: Annotated[
        Optional[str],
        typer.Option(
            help="Column never split: sites that hold several batches, or compounds, held out besides batches.",
            rich_help_panel=given.DATA,
        ),
    ] = None,
    aggregate: Annotated[
        Optional[str],
        typer.Option(
            metavar="COLUMN",
            help="Rows are patches of images with this id: one is fitted on, scores are averaged.",
            rich_help_panel=given.DATA,
        ),
    ] = None,
    id: given.RowId = None,
    features: given.Features = None,
    metadata: given.Metadata = None,
    key: Annotated[
        Optional[str],
        typer.Option("--key", "--obsm", help="Which array of a file, e.g. an obsm key.", rich_help_panel=given.DATA),
    ] = None,
    drop_missing: Annotated[
        bool,
        typer.Option(
            "--drop-missing", help="Leave out rows with missing labels or values.", rich_help_panel=given.DATA
        ),
    ] = False,
    conditions: Annotated[
        str,
        typer.Option(
            help="Of base, whitened, ica, rotated, standardised, tvn and harmony.", rich_help_panel=given.METHOD
        ),
    ] = CONDITIONS,
    components: Annotated[
        str,
        typer.Option(
            metavar="N|SHARE|auto|all",
            help="Directions kept by whitening; auto is one for 20 rows.",
            rich_help_panel=given.METHOD,
        ),
    ] = "auto",
    protocol: Annotated[
        str,
        typer.Option(
            help="folds (batches held out in turn) or batch (one model per batch, judged on all others).",
            rich_help_panel=given.METHOD,
        ),
    ] = "folds",
    folds: Annotated[int, typer.Option(help="Parts of the batches held out.", rich_help_panel=given.METHOD)] = 5,
    rounds: Annotated[int, typer.Option(help="Rounds of boosting.", rich_help_panel=given.METHOD)] = 100,
    fit_on_all: Annotated[
        bool,
        typer.Option(
            "--fit-on-all",
            help="Fit whitening and ICA on all rows, held out or not (the paper).",
            rich_help_panel=given.METHOD,
        ),
    ] = False,
    both: Annotated[
        bool,
        typer.Option("--both", help="Fit without held-out batches and on all rows.", rich_help_panel=given.METHOD),
    ] = False,
    concentration: Annotated[
        str,
        typer.Option(help="Top % of features set against the rest, or none.", rich_help_panel=given.METHOD),
    ] = "10,25,50",
    reading: Annotated[
        str,
        typer.Option(help="Of concentration: difference or ratio (top / rest - 1).", rich_help_panel=given.METHOD),
    ] = "difference",
    jobs: Annotated[int, typer.Option(help="Fits at a time.", rich_help_panel=given.METHOD)] = 1,
    parts: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FOLDER", help="Keep what is computed, so that a stopped run goes on.", rich_help_panel=given.METHOD
        ),
    ] = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    embedding: Annotated[
        Optional[str],
        typer.Option(
            metavar="CONDITION",
            help="What --out and --write-back write, fitted on all rows; ica unless given.",
            rich_help_panel=given.OUTPUT,
        ),
    ] = None,
    out: Annotated[
        Optional[Path], typer.Option(help="Write the embedding as a table.", rich_help_panel=given.OUTPUT)
    ] = None,
    write_back: Annotated[
        bool,
        typer.Option(
            "--write-back", help="Put the embedding into obsm of the .h5ad file itself.", rich_help_panel=given.OUTPUT
        ),
    ] = False,
    report: given.Report = None,
    json: given.Json = None,
    csv: Annotated[Optional[Path], typer.Option(help="Write the scores as csv.", rich_help_panel=given.OUTPUT)] = None,
    quiet: given.Quiet = False,
) -> None:
    """Does it help on batches I have never seen? Whitening, ICA and others, judged on batches held out.

    Tells each perturbation from controls by LightGBM, trained on some batches
    and judged by AUROC on others, before and after the embedding was whitened,
    rotated to independent components or corrected. Examples:

        congruence deconfound embeddings.parquet --control gene=none --batch plate --by gene --report report.html

        congruence deconfound adata.h5ad --obsm X_openphenom --control is_control=True --batch plate --write-back

        congruence deconfound wells.csv --control is_control=1 --batch plate --by compound --conditions ica,tvn --jobs 4
    """
    from congruence.batches import deconfound as judged
    from congruence.tables import expanded

    paths = expanded(files)
    texts = {"report": report, "json": json, "csv": csv}
    given.check_outputs(texts, paths, tables={"out": out})
    wanted = [name.strip() for name in conditions.split(",") if name.strip()]
    chosen = _chosen(embedding, out, write_back, paths)
    shares = _shares(concentration)
    _check_reading(reading)
    if both and fit_on_all:
        raise InputError("--both already fits on all rows besides; leave out --fit-on-all")
    wishes = {"id": id, "features": features, "metadata": metadata, "key": key}
    labels: dict[str, Any] = {
        "control": control,
        "batch": batch,
        "by": by,
        "guide": guide,
        "groups": groups,
        "aggregate": aggregate,
    }
    with collected_warnings() as warned, progress_bar(shown=not quiet) as progress:
        rows = read_screened(paths, **labels, positive=positive or [], drop_missing=drop_missing, wishes=wishes)
        values = _values(rows)
        options: dict[str, Any] = {
            "targets": positive or None,
            "conditions": wanted,
            "components": _components(components),
            "strict": "both" if both else not fit_on_all,
            "protocol": protocol,
            "folds": folds,
            "rounds": rounds,
            "concentration": shares,
            "seed": seed,
        }
        result = judged(
            values,
            rows.perturbation,
            rows.batch,
            control=rows.control,
            guides=rows.guides,
            groups=rows.groups,
            images=rows.images,
            name=rows.table.name,
            jobs=jobs,
            device=device,
            progress=progress,
            parts=None if parts is None else _keeper(parts, values, rows, options),
            **options,
        )
        if chosen is not None:
            progress(f"writing {chosen}", 0, 1)
            _write_embedding(rows, values, chosen, options, device, out, Path(paths[0]) if write_back else None, id)
    settings = {**result.settings, "reading": reading, "command": shlex.join(["congruence", *sys.argv[1:]])}
    result = replace(result, notes=(*rows.notes, *result.notes), settings=settings)
    for text in warned:
        say(f"note: {text}")
    _write(result, texts)
    if not quiet:
        show_outcome(result, stderr=str(json) == "-")


def _chosen(embedding: str | None, out: Path | None, write_back: bool, paths: list[str]) -> str | None:
    """The condition whose embedding is to be written."""
    from congruence.batches.conditions import check_conditions
    from congruence.tables.write_obsm import check_obsm_path

    if out is None and not write_back:
        if embedding is not None:
            raise InputError("--embedding says what --out or --write-back write, but neither is given")
        return None
    if write_back:
        if len(paths) > 1:
            raise InputError(f"--write-back takes one .h5ad file, but there are {len(paths)}; use --out")
        check_obsm_path(paths[0])
    return check_conditions(embedding or "ica")[-1]


def _components(text: str) -> int | float | str | None:
    if text in ("auto", "all"):
        return "auto" if text == "auto" else None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (number == int(number) >= 1 if 1 <= number < float("inf") else 0 < number < 1):
        raise InputError(f"--components takes a number such as 64, a share such as 0.95, auto or all, not {text}")
    return int(number) if number >= 1 else number


def _shares(text: str) -> list[float]:
    if text.strip() == "none":
        return []
    try:
        shares = [float(part) / 100 for part in text.split(",")]
    except ValueError:
        shares = [0.0]
    if any(not 0 < share < 1 for share in shares):
        raise InputError(f"--concentration takes percentages such as 10,25,50, or none, not {text}")
    return shares


def _check_reading(reading: str) -> None:
    from congruence.batches.sparsity import READINGS

    if reading not in READINGS:
        raise InputError(f"--reading takes {' or '.join(READINGS)}, not {reading}")


def _values(rows: Screened) -> Any:
    from congruence.arrays import to_numpy

    values = to_numpy(rows.table.values)
    return values if rows.kept is None else values[rows.kept]


def _keeper(folder: Path, values: Any, rows: Screened, options: dict[str, Any]) -> Any:
    """Where finished parts lie; other rows, labels or settings make them void."""
    import numpy as np

    from congruence.reproduce.parts import Parts

    if folder.exists() and not folder.is_dir():
        raise InputError(f"--parts {folder} must be a folder, but is a file")
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes())
    for labels in (rows.perturbation, rows.batch, rows.guides, rows.groups, rows.images):
        digest.update(b"-" if labels is None else "\0".join(map(str, labels)).encode())
    return Parts(folder, {**options, "control": rows.control, "rows": digest.hexdigest()})


def _write_embedding(
    rows: Screened,
    values: Any,
    condition: str,
    options: dict[str, Any],
    device: str,
    out: Path | None,
    back: Path | None,
    id: str | None,
) -> None:
    import numpy as np

    from congruence.batches.suite import embedding_of
    from congruence.tables import write_table
    from congruence.tables.write_obsm import write_obsm

    labels: dict[str, Any] = {"control": rows.control, "images": rows.images}
    fit = {"components": options["components"], "seed": options["seed"], "device": device}
    z = embedding_of(values, rows.perturbation, rows.batch, condition=condition, **labels, **fit)
    if out is not None:
        kept = slice(None) if rows.kept is None else rows.kept
        names = rows.table.features if condition == "base" else tuple(f"{condition}{i}" for i in range(z.shape[1]))
        beside = {name: column[kept] for name, column in rows.table.metadata.items()}
        ids = None if rows.table.ids is None else rows.table.ids[kept]
        write_table(replace(rows.table, values=z, ids=ids, metadata=beside, features=names), out, **_called(id, out))
    if back is not None:
        if rows.kept is not None:  # rows that were left out have no embedding
            whole = np.full((rows.rows, z.shape[1]), np.nan, z.dtype)
            whole[rows.kept] = z
            z = whole
        write_obsm(back, f"X_{condition}", z)


def _called(id: str | None, out: Path) -> dict[str, str]:
    from congruence.tables.write import COLUMNAR

    return {"id": id} if id is not None and out.name.endswith(tuple(COLUMNAR)) else {}


def _write(result: Outcome, outputs: dict[str, Path | None]) -> None:
    from congruence.report import render_deconfounding, rows_to_csv

    render_as: dict[str, Any] = {
        "report": render_deconfounding,
        "json": lambda r: r.to_json(),
        "csv": lambda r: rows_to_csv(r.table()),
    }
    given.write_outputs({name: render_as[name](result) for name, path in outputs.items() if path is not None}, outputs)
