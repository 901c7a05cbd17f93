"""The program `congruence`: all commands, and one exit code per outcome.

Exit codes: 0 done, 1 a limit given with --fail-above was exceeded, 2 the input or the call is wrong (one
sentence says why), 3 a defect of ours, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
from typing import Annotated, Any

import typer

from congruence import __version__
from congruence.cli import translate
from congruence.cli._streams import lasting_streams
from congruence.cli.compare import compare
from congruence.cli.decoder import decoder
from congruence.cli.deconfound import deconfound
from congruence.cli.evaluate import evaluate
from congruence.cli.extract import extract
from congruence.cli.layers import layers
from congruence.cli.mechanism import mechanism
from congruence.cli.mixture import mixture
from congruence.cli.resolve import resolve
from congruence.errors import CongruenceError
from congruence.experiments.commands import data
from congruence.experiments.commands.demo import demo
from congruence.experiments.commands.reproduce import reproduce
from congruence.experiments.commands.train import train

app = typer.Typer(
    no_args_is_help=True,
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


def build() -> Any:
    """The command line as a click group, in which every command has ``--version``: that of the program."""
    group: Any = typer.main.get_command(app)
    version = copy.copy(next(option for option in group.params if "--version" in option.opts))
    version.expose_value = False

    def add(command: Any) -> None:
        for one in getattr(command, "commands", {}).values():
            one.params.append(version)
            add(one)

    add(group)
    return group


def main() -> None:
    """Run the command line; errors become one sentence and an exit code, never a traceback."""
    try:
        with lasting_streams():
            build()(prog_name="congruence")
    except CongruenceError as error:
        _stop(str(error), 2)
    except MemoryError:
        _stop("not enough memory for this input; use fewer rows or runs at a time", 2)
    except KeyboardInterrupt:  # outside a command
        sys.exit(130)
    except Exception as error:
        if os.environ.get("CONGRUENCE_DEBUG"):
            raise
        where = "set CONGRUENCE_DEBUG=1 to see where, and please report it"
        _stop(f"this is a defect of ours ({type(error).__name__}: {error}); {where}", 3)


def _stop(sentence: str, code: int) -> None:
    with contextlib.suppress(OSError):  # standard error is closed
        typer.echo(f"congruence: {sentence}", err=True)
    sys.exit(code)
