"""`congruence reproduce`: reproduce a result of the papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from congruence.cli import _command as cli
from congruence.errors import InputError
from congruence.experiments.recipes._options import ReproduceOptions
from congruence.formatting import count
from congruence.options import OUTPUT, option


@dataclass(frozen=True)
class ReproduceOutputs(cli.Outputs):
    """Outputs of `reproduce`."""

    out: Path | None = option(
        None, "Folder for the result; reproduced/NAME-SCALE-seedN unless given.", panel=OUTPUT, metavar="FOLDER"
    )


@cli.command
def reproduce(
    name: Annotated[str, typer.Argument(help="A recipe; or list, verify, judge or book.", show_default=False)],
    options: ReproduceOptions,
    outputs: ReproduceOutputs,
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Result folders, for verify, judge and book.", show_default=False)
    ] = None,
) -> None:
    """Can I reproduce the papers' results myself?

    Runs the recipe of a table, a figure or an example, and writes
    result.json, table.md, the figures and report.html: the claims of the
    paper, whether they hold here, and on what numbers. A finished result is
    not computed again; an interrupted run is resumed. verify makes the
    claims, tables and figures of result folders again from their numbers and
    exits with 1 where anything differs; judge writes them; book writes one
    page about all result folders in a folder. Examples:

        congruence reproduce list

        congruence reproduce statistical-versus-structural --scale smoke

        congruence reproduce verify stable

        congruence reproduce book docs/results
    """
    from congruence.experiments.recipes import find_recipe
    from congruence.experiments.recipes import reproduce as run_recipe

    if name == "list":
        _list()
        return
    if name in FOLDER_VERBS:
        if not folders:
            raise InputError(f"{name} needs at least one folder of results")
        FOLDER_VERBS[name](folders)
        return
    if folders:
        raise InputError(f"a recipe takes no folders; got {folders[0]}; --out is where its result is written")
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


def _verify(folders: Sequence[Path]) -> None:
    from congruence.experiments.recipes import verify

    differences = [difference for folder in folders for difference in verify(folder)]
    for difference in differences:
        cli.say(difference)
    typer.echo(f"{count(len(folders), 'folder')} verified, {count(len(differences), 'difference')}")
    if differences:
        raise typer.Exit(1)


def _judge(folders: Sequence[Path]) -> None:
    from congruence.experiments.recipes import judge

    for folder in folders:
        result = judge(folder)
        cli.say(f"{folder}: {result.status}. {result.verdict}", err=False)


def _book(folders: Sequence[Path]) -> None:
    from congruence.experiments.recipes import book

    for folder in folders:
        cli.say(f"written: {book(folder)}", err=False)


FOLDER_VERBS = {"verify": _verify, "judge": _judge, "book": _book}


def _list() -> None:
    from congruence.experiments.recipes import RECIPES, SCALES

    for recipe in RECIPES:
        typer.echo(f"{recipe.name}\n    {recipe.sentence}\n    reproduces: {recipe.source}")
    typer.echo("\nscales: " + "; ".join(f"{scale} ({meaning})" for scale, meaning in SCALES.items()))
