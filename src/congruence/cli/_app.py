"""The program `congruence`: all commands, and one exit code per outcome.

Exit codes: 0 done, 1 a gate given with --fail-on or --fail-above was exceeded, 2 the input or the call is wrong
(one sentence says why), 3 an internal error, 130 interrupted by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import os
import re
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from congruence import __version__
from congruence.cli._streams import lasting_streams
from congruence.errors import CongruenceError, is_failure, printable
from congruence.experiments.processes import exit_on_signals

COMMANDS = {  # the module of each command, with a function of that name or, for a group of commands, `app`
    "compare": "congruence.cli.compare",
    "check": "congruence.cli.check",
    "resolve": "congruence.cli.resolve",
    "translate": "congruence.cli.translate",
    "evaluate": "congruence.cli.evaluate",
    "train": "congruence.experiments.commands.train",
    "extract": "congruence.cli.extract",
    "layers": "congruence.cli.layers",
    "features": "congruence.cli.features",
    "decoder": "congruence.cli.decoder",
    "mechanism": "congruence.cli.mechanism",
    "mixture": "congruence.cli.mixture",
    "data": "congruence.experiments.commands.data",
    "deconfound": "congruence.cli.deconfound",
    "reproduce": "congruence.experiments.commands.reproduce",
    "demo": "congruence.experiments.commands.demo",
}


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"congruence {__version__}")
        raise typer.Exit()


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def build(*names: str) -> Any:
    """The command line as a click group with these commands, or all; each has the flag ``--version``."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Is a learned representation identifiable? Did retraining only rotate it, or did it really change?",
    )
    app.callback()(_options)
    for name in names or COMMANDS:
        module = import_module(COMMANDS[name])
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    group: Any = typer.main.get_command(app)
    version = copy.copy(next(option for option in group.params if "--version" in option.opts))
    version.expose_value = False

    def add_version(command: Any) -> None:
        for one in getattr(command, "commands", {}).values():
            one.params.append(version)
            add_version(one)

    add_version(group)
    return group


def main() -> None:
    """Run the command line; errors become one sentence and an exit code, never a traceback."""
    # If Ctrl-C comes while Python executes a string (it does to make a dataclass), CPython remembers that, and in the
    # end kills itself by the signal, even where the interrupt was handled. Executing another string makes it forget.
    atexit.register(exec, "", {})
    try:
        with exit_on_signals(), lasting_streams():
            # Import only the command that is called; import all for help, completion and misspelt names.
            build(*(name for name in sys.argv[1:2] if name in COMMANDS))(prog_name="congruence")
    except CongruenceError as error:
        _stop(str(error), 2)
    except SystemExit:  # the exit code of a command
        raise
    except MemoryError:
        _stop("not enough memory for this input; use fewer rows or runs at a time", 2)
    except BaseException as error:
        if not is_failure(error) or os.environ.get("CONGRUENCE_DEBUG"):
            raise
        if isinstance(error, OSError) and error.strerror:  # a name too long, a failing disk, a folder that is gone
            _stop(f"{error.filename or 'the current folder or a file'} cannot be used: {error.strerror}", 2)
        if isinstance(error, UnicodeEncodeError) and error.encoding != "utf-8":
            _stop(f"the output cannot be written in {error.encoding}; set PYTHONIOENCODING=utf-8", 2)
        if isinstance(error, ImportError) and re.search(
            "map segment|cannot allocate memory", str(error), re.IGNORECASE
        ):
            _stop("not enough memory to load the libraries; raise the limit of the process (ulimit -v)", 2)
        where = "set CONGRUENCE_DEBUG=1 to see the traceback, and please report it"
        _stop(f"internal error ({type(error).__name__}: {error}); {where}", 3)


def _stop(sentence: str, code: int) -> None:
    with contextlib.suppress(OSError):  # standard error is closed
        typer.echo(f"congruence: {printable(sentence)}", err=True)
    sys.exit(code)
