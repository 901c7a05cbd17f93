"""`congruence reproduce`: reproduce a result of the papers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from congruence.cli import _command as cli
from congruence.errors import InputError
from congruence.experiments.recipes._options import ReproduceOptions
from congruence.options import OUTPUT, option


@dataclass(frozen=True)
class ReproduceOutputs(cli.Outputs):
    """Outputs of `reproduce`."""

    out: Path | None = option(
        None, "Folder for the result; reproduced/NAME-SCALE-seedN unless given.", panel=OUTPUT, metavar="FOLDER"
    )

    def files(self) -> dict[str, Path]:
        """All but the folder."""
        return {name: path for name, path in super().files().items() if name != "out"}


@cli.command
def reproduce(
    name: Annotated[str, typer.Argument(help="The recipe, or 'list' to see all.", show_default=False)],
    options: ReproduceOptions,
    outputs: ReproduceOutputs,
) -> None:
    """Can I reproduce the papers' results myself?

    Runs the recipe of a table, a figure or an example, and writes
    result.json, table.md, the figures and report.html: the claims of the
    paper, whether they hold here, and on what numbers. A finished result is
    not computed again; an interrupted run is resumed. Examples:

        congruence reproduce list

        congruence reproduce statistical-versus-structural --scale smoke --out stable
    """
    from congruence.experiments.recipes import find_recipe
    from congruence.experiments.recipes import reproduce as run_recipe

    if name == "list":
        _list()
        return
    find_recipe(name)
    if str(outputs.out) == "-":
        raise InputError("--out takes a folder; a result of several files cannot go to stdout")
    cli.check_outputs(outputs, ())
    with cli.working(outputs) as progress:
        announce = None if outputs.quiet else cli.say
        result = run_recipe(name, outputs.out, options=options, progress=progress, announce=announce)
    cli.deliver(result, outputs)
    if not outputs.quiet and result.folder is not None:
        if result.reused:
            cli.say("nothing was computed: the folder holds this result already (--force computes it again)")
        cli.say(f"report: {result.folder / 'report.html'}")


def _list() -> None:
    from congruence.experiments.recipes import RECIPES, SCALES

    for recipe in RECIPES:
        typer.echo(f"{recipe.name}\n    {recipe.sentence}\n    reproduces: {recipe.source}")
    typer.echo("\nscales: " + "; ".join(f"{scale} ({meaning})" for scale, meaning in SCALES.items()))
