"""`congruence data`: images and rows with known factors; list them, look at them, write them to a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Optional

import typer

from congruence.cli import _command as cli
from congruence.options import METHOD, OUTPUT, option
from congruence.progress import show_progress

app = typer.Typer(
    no_args_is_help=True,
    help="Images and rows with known factors: generated without a download, or read from your files.",
)
Name = Annotated[str, typer.Argument(help="The data set; 'congruence data list' shows all.", show_default=False)]


@dataclass(frozen=True)
class DataOptions:
    """How data is generated or drawn."""

    continuous: bool = option(False, "rooms and sprites: factors from ranges, not levels.")
    seed: int = option(0, "The same seed gives the same result.")


@app.command("list")
@cli.command
def show_all() -> None:
    """Which data sets are there, what are their factors, and which files were found?

    rooms, sprites and all rows are generated. Files of the others are
    searched for in the folder that CONGRUENCE_DATA names, then in your cache
    folder; nothing is downloaded. Example:

        congruence data list
    """
    from congruence.experiments.data import list_data

    for one in list_data():
        factors = ", ".join(f"{name} {size or ''}".rstrip() for name, size in one.factors.items())
        typer.echo(f"{one.name}: {one.sentence}\n    {one.contents}; {factors}\n    {one.where}")


@app.command()
@cli.command
def show(
    name: Name,
    options: DataOptions,
    rows: Annotated[int, typer.Option(min=1, max=50, help="Rows of random images.", rich_help_panel=METHOD)] = 1,
    columns: Annotated[int, typer.Option(min=1, max=50, help="The most images in a row.", rich_help_panel=METHOD)] = 10,
    out: Annotated[
        Optional[Path], cli.flag("--out", help="The picture (.png .svg .pdf); NAME.png unless given.", panel=OUTPUT)
    ] = None,
) -> None:
    """What does the data look like, and what does each factor do?

    Draws a sheet: random images, then one row per factor in which it alone
    changes. Examples:

        congruence data show rooms

        congruence data show sprites --continuous --rows 3 --out sprites.svg
    """
    from congruence.experiments.data.registry import find_image_set
    from congruence.experiments.data.variations import check_sheet_path, vary_factors, write_sheet

    chosen = find_image_set(name)
    path = Path(f"{name}.png") if out is None else out
    check_sheet_path(path)
    cli.lock_outputs(path)
    shown = vary_factors(name, columns=columns, rows=rows, seed=options.seed, continuous=options.continuous)
    write_sheet(shown, path, title=f"{name}: {chosen.note}")
    cli.say(f"sheet: {path}")


@app.command()
@cli.command
def make(
    name: Name,
    options: DataOptions,
    out: Annotated[Path, cli.flag("--out", help="Data and factors in one file (.npz).", panel=OUTPUT)],
    factors: Annotated[
        Optional[Path], cli.flag("--factors", help="The factors as a table too (.csv .parquet ...).", panel=OUTPUT)
    ] = None,
    n: Annotated[
        Optional[int], cli.flag("--n", help="How many, drawn at random; all by default.", panel=METHOD)
    ] = None,
    device: Annotated[str, cli.flag("--device", help="auto, cpu, cuda or cuda:1.", panel=METHOD)] = "auto",
) -> None:
    """Write images or rows with their factors to a file, for other programs.

    The .npz file holds images (n, channels, height, width) from 0 to 255, or
    rows (n, p), factors (n, k), factor_names and kinds. The table of factors
    is an input of 'congruence evaluate', together with your codes. Example:

        congruence data make rooms --n 10000 --out rooms.npz --factors rooms.csv
    """
    from congruence.experiments.data import check_data_paths, load_data, write_data

    check_data_paths(out, factors)
    cli.lock_outputs(out, factors)
    with show_progress():
        data = load_data(name, n, seed=options.seed, continuous=options.continuous, device=device)
        write_data(data, out, factors)
    cli.say(f"{len(data):,} {'images' if hasattr(data, 'images') else 'rows'}: {out}")
    if factors is not None:
        kinds = ",".join(f"{factor}={kind}" for factor, kind in zip(data.factor_names, data.kinds, strict=True))
        cli.say(f"factors: {factors}; congruence evaluate codes.npy {factors} --kinds {kinds}")
