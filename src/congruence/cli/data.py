"""`congruence data`: images and rows with known factors; what there is, what it looks like, and a file of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from congruence.cli import options as given
from congruence.cli.screen import interruptible, say
from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.data.image_set import ImageSet
    from congruence.data.images import FactorImages
    from congruence.data.rows import FactorRows

app = typer.Typer(
    no_args_is_help=True,
    help="Images and rows with known factors: drawn here without a download, or read from the files you have.",
)
Name = Annotated[str, typer.Argument(help="The data set; 'congruence data list' shows all.", show_default=False)]
Continuous = Annotated[
    bool,
    typer.Option("--continuous", help="Of rooms and sprites: values between the levels.", rich_help_panel=given.METHOD),
]


@app.command("list")
@interruptible
def show_all() -> None:
    """Which data sets are there, what are their factors, and which files were found?

    rooms, sprites and all rows are drawn here. The others are looked for in the folder
    that CONGRUENCE_DATA names, then in your cache folder; nothing is
    downloaded. Example:

        congruence data list
    """
    from congruence.data.registry import IMAGE_SETS
    from congruence.data.row_sets import ROW_SETS

    for one in IMAGE_SETS.values():
        factors = ", ".join(f"{name} {size}" for name, size in zip(one.grid.names, one.grid.sizes, strict=True))
        shape = " x ".join(map(str, one.shape))
        typer.echo(f"{one.name}: {one.sentence}\n    {one.count:,} images of {shape}; {factors}\n    {_where(one)}")
    for rows in ROW_SETS.values():
        drawn = rows.make(1, rows.clusters, 0)
        sizes = zip(drawn.factor_names, drawn.sizes, strict=True)
        factors = ", ".join(f"{name} {size or ''}".rstrip() for name, size in sizes)
        typer.echo(f"{rows.name}: {rows.sentence}\n    rows of {rows.observed} numbers; {factors}\n    no download")


@app.command()
@interruptible
def show(
    name: Name,
    out: Annotated[
        Optional[Path],
        typer.Option(
            help="The picture (.png .svg .pdf); NAME.png unless given.",
            rich_help_panel=given.OUTPUT,
            show_default=False,
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=50, help="Rows of random images.", rich_help_panel=given.METHOD)] = 1,
    columns: Annotated[
        int, typer.Option(min=1, max=50, help="The most images in a row.", rich_help_panel=given.METHOD)
    ] = 10,
    continuous: Continuous = False,
    seed: given.Seed = 0,
) -> None:
    """What does the data look like, and what does each factor do?

    Draws a sheet: random images, then one row per factor in which it alone
    changes. Examples:

        congruence data show rooms

        congruence data show sprites --continuous --rows 3 --out sprites.svg
    """
    from congruence.data.registry import find_image_set
    from congruence.data.variations import vary_factors
    from congruence.report.figures.image_sheet import check_sheet_path, write_sheet

    chosen = find_image_set(name)
    path = Path(f"{name}.png") if out is None else out
    check_sheet_path(path)
    shown = vary_factors(name, columns=columns, rows=rows, seed=seed, continuous=continuous)
    write_sheet(shown, path, title=f"{name}: {chosen.note}")
    say(f"sheet: {path}")


@app.command()
@interruptible
def make(
    name: Name,
    out: Annotated[
        Path,
        typer.Option(help="Data and factors in one file (.npz).", rich_help_panel=given.OUTPUT, show_default=False),
    ],
    factors: Annotated[
        Optional[Path],
        typer.Option(
            help="The factors as a table too (.csv .parquet ...).", rich_help_panel=given.OUTPUT, show_default=False
        ),
    ] = None,
    n: Annotated[
        Optional[int],
        typer.Option("--n", help="How many, drawn at random; all unless given.", rich_help_panel=given.METHOD),
    ] = None,
    continuous: Continuous = False,
    seed: given.Seed = 0,
    device: given.Device = "auto",
) -> None:
    """Write images or rows with their factors to a file, for other programs.

    The .npz file holds images (n, channels, height, width) from 0 to 255, or
    rows (n, p), factors (n, k), factor_names and kinds. The table of factors is what
    'congruence evaluate' takes beside your codes. Example:

        congruence data make rooms --n 10000 --out rooms.npz --factors rooms.csv
    """
    from congruence.data.registry import load_data
    from congruence.tables import Table, check_table_path, write_table

    if out.suffix != ".npz":
        raise InputError(f"--out {out}: data is written as .npz")
    check_table_path(out)
    if factors is not None:
        check_table_path(factors)
        if factors.resolve() == out.resolve():
            raise InputError(f"--factors {factors} would overwrite --out")
    data = load_data(name, n, seed=seed, continuous=continuous, device=device)
    _write_data(data, out)
    say(f"{len(data):,} {'images' if hasattr(data, 'images') else 'rows'}: {out}")
    if factors is not None:
        write_table(Table(data.factors, "factors", features=data.factor_names), factors)
        kinds = ",".join(f"{factor}={kind}" for factor, kind in zip(data.factor_names, data.kinds, strict=True))
        say(f"factors: {factors}; congruence evaluate codes.npy {factors} --kinds {kinds}")


def _where(one: ImageSet) -> str:
    """Whether a data set is there, in one line."""
    if one.find is None:
        return "drawn here, no download"
    try:
        return f"found: {one.find()[0]}"
    except InputError as error:
        return f"not found: {str(error).partition(' was not found: ')[2]}"


def _write_data(data: FactorImages | FactorRows, path: Path) -> None:
    import numpy as np

    from congruence.arrays import to_numpy
    from congruence.files import replacing

    with replacing(path) as temporary, temporary.open("wb") as handle:
        inputs: dict[str, Any] = {"images": to_numpy(data.images)} if hasattr(data, "images") else {"rows": data.rows}
        np.savez_compressed(
            handle,
            **inputs,
            factors=data.factors,
            factor_names=np.array(data.factor_names),
            kinds=np.array(data.kinds),
            note=np.array(data.note),
        )
