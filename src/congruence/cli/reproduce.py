"""`congruence reproduce`: make a result of the papers again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from congruence.cli import options as given
from congruence.cli.screen import collected_warnings, interruptible, progress_bar, say
from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.reproduce.perform import Performed

HOME = Path("reproduced")  # where results go unless --out says otherwise
MARKS = {True: "✓ holds", False: "✕ fails", None: "? unknown"}


@interruptible
def reproduce(
    name: Annotated[str, typer.Argument(help="The recipe, or 'list' to see all.", show_default=False)],
    scale: Annotated[
        str,
        typer.Option(help="smoke (seconds), small (minutes), paper (a GPU) or full.", rich_help_panel=given.METHOD),
    ] = "small",
    seed: given.Seed = 0,
    device: given.Device = "auto",
    data: Annotated[
        Optional[str],
        typer.Option(
            help="Another data set than that of the scale, where the recipe has several (mnist or digits; rooms, "
            "sprites, shapes3d, mpi3d, falcor3d, isaac3d).",
            rich_help_panel=given.METHOD,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Optional[Path],
        typer.Option(
            help="Folder for the result; reproduced/NAME-SCALE-seedN unless given.",
            rich_help_panel=given.OUTPUT,
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Do it again, from the start.", rich_help_panel=given.OUTPUT)
    ] = False,
    quiet: given.Quiet = False,
) -> None:
    """Can I see the papers' results with my own eyes?

    Runs the recipe of a table, a figure or an example, and writes
    result.json, table.md, the figures and report.html: what the paper claims,
    whether it holds here, and on what numbers. What is finished is not done
    again; what was interrupted goes on where it stopped. Examples:

        congruence reproduce list

        congruence reproduce statistical-versus-structural --scale smoke --out stable
    """
    if name == "list":
        _list()
        return
    from congruence.reproduce.perform import perform
    from congruence.reproduce.recipe import find_recipe

    find_recipe(name)
    folder = HOME / f"{name}-{scale}-seed{seed}" if out is None else out
    if str(folder) == "-":
        raise InputError("--out takes a folder; a result of several files cannot go to stdout")
    with collected_warnings() as warned, progress_bar(shown=not quiet) as progress:
        wishes: dict[str, Any] = {"scale": scale, "seed": seed, "device": device, "data": data, "force": force}
        done = perform(name, folder, **wishes, progress=progress, announce=None if quiet else say)
    for text in warned:
        say(f"note: {text}")
    if not quiet:
        _show(done)


def _list() -> None:
    from congruence.reproduce.recipe import RECIPES, SCALES

    for recipe in RECIPES:
        typer.echo(f"{recipe.name}\n    {recipe.sentence}\n    reproduces: {recipe.source}")
    typer.echo("\nscales: " + "; ".join(f"{scale} ({meaning})" for scale, meaning in SCALES.items()))


def _show(done: Performed) -> None:
    typer.echo(done.result["answer"])
    for claim in done.result["claims"]:
        typer.echo(f"{MARKS[claim['holds']]:10} {claim['statement']}\n           {claim['evidence']}")
    if not done.fresh:
        say("nothing was computed: the folder holds this result already (--force does it again)")
    say(f"report: {done.folder / 'report.html'}")
