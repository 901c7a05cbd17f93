"""`congruence demo`: train three autoencoders that differ only in their seed, and compare them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from congruence.cli import _command as cli


@cli.command
def demo(
    outputs: cli.Outputs,
    out: Annotated[Path, typer.Option(help="Folder for the tables, the result and the report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=2, max=10, help="How many autoencoders to train.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the digits in each training.")] = 100,
) -> None:
    """Train small autoencoders on handwritten digits with different seeds, and ask whether they agree.

    Needs no data and no network: the digits come with scikit-learn. Example:

        congruence demo --out demo
    """
    from congruence.experiments.recipes import demo as run_demo

    cli.check_outputs(outputs, ())
    with cli.working(outputs) as progress:
        result = run_demo(out, seeds=seeds, epochs=epochs, progress=progress)
    cli.deliver(result, outputs)
    if not outputs.quiet:
        cli.say(f"codes of each seed: {out}; open the report {out / 'report.html'} in a browser")
