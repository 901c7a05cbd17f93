"""The command line: it parses, calls and prints; the work is done elsewhere.

Exit codes: 0 done, 1 a limit given with --fail-above was exceeded, 2 the input or the call is wrong (one
sentence says why), 3 a defect of ours, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from congruence import __version__
from congruence.cli import data, translate
from congruence.cli.compare import compare
from congruence.cli.decoder import decoder
from congruence.cli.deconfound import deconfound
from congruence.cli.demo import demo
from congruence.cli.evaluate import evaluate
from congruence.cli.extract import extract
from congruence.cli.layers import layers
from congruence.cli.mechanism import mechanism
from congruence.cli.mixture import mixture
from congruence.cli.reproduce import reproduce
from congruence.cli.resolve import resolve
from congruence.cli.train import train
from congruence.errors import CongruenceError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Is a learned representation identifiable? Did retraining only rotate it, or did it really change?",
)
app.command()(compare)
app.command()(resolve)
app.add_typer(translate.app, name="translate")
app.command()(evaluate)
app.command()(train)
app.command()(extract)
app.command()(layers)
app.command()(decoder)
app.command()(mechanism)
app.command()(mixture)
app.add_typer(data.app, name="data")
app.command()(deconfound)
app.command()(reproduce)
app.command()(demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"congruence {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line and turn our own errors into one sentence and exit code 2."""
    try:
        app()
    except CongruenceError as error:
        typer.echo(f"congruence: {error}", err=True)
        sys.exit(2)
    except MemoryError:
        typer.echo("congruence: not enough memory for this input; use fewer rows or runs at a time", err=True)
        sys.exit(2)
    except KeyboardInterrupt:  # before a command could begin
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if os.environ.get("CONGRUENCE_DEBUG"):
            raise
        where = "set CONGRUENCE_DEBUG=1 to see where, and please report it"
        typer.echo(f"congruence: this is a defect of ours ({type(error).__name__}: {error}); {where}", err=True)
        sys.exit(3)
