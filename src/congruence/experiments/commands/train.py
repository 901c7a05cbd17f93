"""`congruence train`: models of images and rows, by name or of your own, several seeds at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from congruence.cli import _command as cli
from congruence.cli.cluster import on_cluster
from congruence.errors import Terminated
from congruence.experiments.training._options import TrainOptions
from congruence.options import DATA, OUTPUT, option

if TYPE_CHECKING:
    from congruence.document import Table
    from congruence.experiments.runs import Run

MODELS = "ae, vae, tcvae, bioae, vqvae or qlae; with a mixture prior vade, mfcvae, mixvae or ivae; or file.py:Class"
DATASETS = (
    "Images: rooms or sprites (generated), or shapes3d, mpi3d, falcor3d, isaac3d, dsprites, mnist (your files). Rows: "
    "pinwheel or pinwheel:5, random-relu, moons, circles. Or a path: a folder of images, a file of data make, an "
    "array, a table (.parquet .csv .h5ad ...)."
)


@dataclass(frozen=True)
class TrainOutputs:
    """Outputs of `train`."""

    out: Path = option(Path("runs"), "Folder for the run folders, MODEL-SEED each.", panel=OUTPUT)
    quiet: bool = option(False, "Print no table and no progress.", panel=OUTPUT, flag="--quiet/-q")


@cli.command
def train(
    model: Annotated[str, typer.Argument(help=f"{MODELS}.", show_default=False)],
    options: TrainOptions,
    outputs: TrainOutputs,
    data: Annotated[str, typer.Option(help=DATASETS, rich_help_panel=DATA)] = "rooms",
    dask: Annotated[
        str | None,
        cli.flag(
            "--dask",
            help="Train on the workers of this dask scheduler, or on 'local' ones.",
            panel="Method",
            metavar="ADDRESS",
        ),
    ] = None,
) -> None:
    """Train a model on images or rows.

    Each seed leaves a run folder with weights, log, and the codes of up to
    10,000 images or rows with their factors, which `congruence evaluate` takes.
    The same command resumes an interrupted training; a finished one is not
    repeated, but continued if --steps is larger. file.py:Class is a torch
    module with the methods loss, encode and decode; its code is run. Examples:

        congruence train ae --data rooms --weight-decay 0.1 --seeds 0,1,2

        congruence train vae --data sprites --n 20000 --steps 2000 --jobs 2

        congruence train vade --data pinwheel --clusters 3 --seeds 0-4

        congruence train mymodel.py:MyModel --data rows.parquet --steps 1000
    """
    from congruence.experiments.training import train as train_seeds
    from congruence.experiments.training._train import check_workers

    check_workers(options, dask is not None)
    try:
        with cli.working(outputs) as progress, on_cluster(dask) as client:
            runs = train_seeds(model, data, outputs.out, options=options, progress=progress, client=client)
    except (KeyboardInterrupt, Terminated) as interruption:
        cli.say(f"interrupted; finished steps are kept in {outputs.out}, and the same command resumes")
        raise typer.Exit(getattr(interruption, "code", 130)) from None
    cli.say_warnings()
    if not outputs.quiet:
        cli.show_table(_table(runs))


def _table(runs: Sequence[Run]) -> Table:
    from congruence.document import Cell, Column, Table

    rows = []
    for run in runs:
        lines = run.metrics()
        last: dict[str, Any] = next((line for line in reversed(lines) if line.get("seconds") is not None), {})
        end: dict[str, Any] = next((line for line in reversed(lines) if "ended" in line), {})
        ended = str(end.get("ended", ""))
        loss, psnr = end.get("loss"), last.get("psnr")
        cells = [Cell(f"{loss:.5f}", loss) if loss is not None else None]
        cells += [Cell(f"{psnr:.2f}", psnr) if psnr is not None else None]
        rows.append(
            (str(run.folder), {"steps": "done"}.get(ended, ended), end.get("step"), *cells, _time(last.get("seconds")))
        )
    columns = [Column("run", "name"), Column("ended", "text"), *map(Column, ("steps", "loss", "PSNR", "time"))]
    return Table("Trainings", columns, rows)


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
