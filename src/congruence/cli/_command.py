"""Shared parts of all commands: flags made from option classes, outputs, messages, progress and interruption.

A command is a function whose parameters may be dataclasses of options; `command` gives it one flag for each field.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import inspect
import os
import shlex
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, Protocol, TypeVar, Union, get_args, get_origin

import typer

from congruence.errors import CongruenceWarning, InputError, Terminated, printable, printable_lines
from congruence.options import OUTPUT, option, reading
from congruence.progress import Progress, show_progress

if TYPE_CHECKING:
    from congruence.document import Table
    from congruence.result import Result

R = TypeVar("R", bound="Result")
SUFFIXES = {"report": (".html", ".htm"), "json": (".json",), "csv": (".csv",), "markdown": (".md",), "latex": (".tex",)}
RENDERED = tuple(SUFFIXES)
SUFFIXES["junit"] = (".xml",)
_locks = contextlib.ExitStack()  # of the outputs of the command that runs


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Where a result is written; "-" is standard output."""

    report: Path | None = option(None, "Write an HTML page.", panel=OUTPUT)
    json: Path | None = option(None, "Write the result as JSON; - for stdout.", panel=OUTPUT)
    csv: Path | None = option(None, "Write the main table as CSV; - for stdout.", panel=OUTPUT)
    markdown: Path | None = option(None, "Write the document as Markdown; - for stdout.", panel=OUTPUT)
    quiet: bool = option(False, "Print no table and no progress.", panel=OUTPUT, flag="--quiet/-q")

    def files(self) -> dict[str, Path]:
        """The requested renderings of the result, by the name of their flag."""
        named = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: path for name, path in named.items() if isinstance(path, Path) and name in RENDERED}


def argument(help: str, *, metavar: str | None = None) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def flag(*names: str, help: str, panel: str, metavar: str | None = None) -> Any:
    """A flag that is no option of the verb."""
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel)


class _Quiet(Protocol):
    """Options of a command that can suppress its output."""

    @property
    def quiet(self) -> bool: ...


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn parameters that are dataclasses of options into flags; exit with the code of a signal."""
    hints = typing.get_type_hints(function, include_extras=True)
    expanded: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        annotation = hints[parameter.name]
        if dataclasses.is_dataclass(annotation):
            expanded[parameter.name] = typing.cast(type, annotation)
            types_of = typing.get_type_hints(annotation)
            parameters += [_flag(f, types_of[f.name]) for f in _shell_fields(annotation)]
        else:
            parameters.append(parameter.replace(annotation=annotation))

    @functools.wraps(function)
    def run(**given: Any) -> Any:
        for name, options in expanded.items():
            fields = {f.name: given.pop(f.name) for f in _shell_fields(options)}
            given[name] = _build_options(options, fields)
        try:
            with _locks:
                return function(**given)
        except (KeyboardInterrupt, Terminated) as interruption:
            say("interrupted; no file was left half-written")
            raise typer.Exit(getattr(interruption, "code", 130)) from None

    order = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]
    run.__signature__ = inspect.Signature(order)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in order}
    return run


def _shell_fields(options: Any) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(options) if f.metadata.get("in_shell", True)]


def _flag(field: dataclasses.Field[Any], annotation: Any) -> inspect.Parameter:
    """One flag: its type and default are those of the field, lists are separated by commas."""
    kind, default = _shell_type(annotation), field.default
    if isinstance(default, tuple):
        default = ",".join(map(str, default)) or None
    about = field.metadata
    flag = about["flag"] or "--" + field.name.replace("_", "-")
    both = kind == Optional[bool] or (kind is bool and field.default)
    names = [f"{flag}/--no-{flag.removeprefix('--')}"] if both else flag.split("/")
    shown: bool | str = default is not None and default is not False and default != ""
    if isinstance(field.default, tuple) and field.default:
        shown = ", ".join(map(str, field.default))  # can be wrapped
    declared = typer.Option(
        *names, help=about["help"], rich_help_panel=about["panel"], metavar=about["metavar"], show_default=shown
    )
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(field.name, keyword, default=default, annotation=Annotated[kind, declared])


def _shell_type(annotation: Any) -> Any:
    """The type of the flag: lists, and values of any other type, are read as text."""
    options = [a for a in get_args(annotation) if a is not type(None)]
    union = get_origin(annotation) in (Union, types.UnionType)
    plain = [a for a in (options if union else [annotation]) if a in (bool, int, float, Path)]
    kind = plain[0] if plain else str
    optional = annotation is Any or (union and type(None) in get_args(annotation)) or kind is str
    return Optional[kind] if optional else kind


def _build_options(options: Any, fields: Mapping[str, Any]) -> Any:
    """Build the options object; text for a field that holds several values is split at commas."""
    hints = typing.get_type_hints(options)
    values = {}
    for field in _shell_fields(options):
        value = fields[field.name]
        if isinstance(field.default, tuple) and isinstance(value, str):
            value = "all" if value == "all" else tuple(listed(value))
        elif isinstance(field.default, tuple) and value is None:
            value = ()
        elif value is not None and _is_list(hints[field.name]) and isinstance(value, str):
            value = value if str in get_args(hints[field.name]) else tuple(listed(value))
        values[field.name] = value
    return options(**values)


def _is_list(annotation: Any) -> bool:
    return any(get_origin(a) is Sequence for a in (annotation, *get_args(annotation)))


def listed(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def say(text: str, *, err: bool = True) -> None:
    """Print lines on stderr or stdout, with control characters in names escaped."""
    typer.echo(printable_lines(text), err=err)


@contextlib.contextmanager
def working(outputs: _Quiet) -> Iterator[Progress]:
    """Yield progress(what, done, total), drawn on a terminal; print warnings of this package at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CongruenceWarning)
        with show_progress(outputs.quiet) as progress:
            yield progress
    _WARNED[:] = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, CongruenceWarning))


_WARNED: list[str] = []  # by the last `working` block, until `deliver` prints those that are not notes of the result


def say_warnings(known: Sequence[str] = ()) -> None:
    """Print the warnings of the last `working` block, except those among the notes of a result."""
    for text in _WARNED:
        if text not in map(printable, known):
            say(f"note: {text}")


def deliver(result: R, outputs: Outputs) -> R:
    """Write the requested outputs, then show the result on the terminal."""
    from congruence.files import write_text

    result = result.with_command(shlex.join(["congruence", *sys.argv[1:]]))
    say_warnings(result.notes)
    texts = {}
    with show_progress(outputs.quiet) as progress:
        for done, name in enumerate(outputs.files()):
            progress(f"rendering {name}", done, len(outputs.files()))
            texts[name] = _rendered(result, name)
    to_stdout = [name for name, path in outputs.files().items() if str(path) == "-"]
    for name, path in outputs.files().items():
        if name in to_stdout:
            typer.echo(texts[name], nl=False)
        else:
            write_text(path, texts[name])
    if not outputs.quiet:
        show(result, stderr=bool(to_stdout))
    return result


def _rendered(result: Any, output: str) -> str:
    """The text of one output: "report" is the HTML page, others are what ``to_<output>`` returns."""
    from congruence.report.html import render_html

    text: str = render_html(result.document()) if output == "report" else getattr(result, f"to_{output}")()
    return text


def show(result: Result, *, stderr: bool = False) -> None:
    """Print a result on the terminal."""
    from rich.console import Console

    from congruence.report import terminal

    terminal.show(result.document(), Console(stderr=stderr, highlight=False))


def show_table(table: Table) -> None:
    """Print a table on the terminal."""
    from rich.console import Console

    from congruence.report import terminal

    terminal.show_table(table, Console(highlight=False))


def check_outputs(
    outputs: Outputs, inputs: Iterable[str | Path], tables: Mapping[str, Path | None] | None = None
) -> None:
    """Refuse, before any work, outputs that cannot be written or would overwrite an input or each other.

    Until the command ends they are locked: a second command that writes one of them is refused. `tables` are outputs
    that are embedding tables or models, by the name of their flag.
    """
    from congruence.files import check_writable, real_path
    from congruence.guards import suffix_of
    from congruence.tables.formats import BY_SUFFIX

    files = outputs.files()
    stdout = [name for name, path in files.items() if str(path) == "-"]
    if len(stdout) > 1:
        raise InputError(f"only one output can be written to stdout, not --{' and --'.join(stdout)}")
    given = [Path(path) for path in inputs]
    taken = {real_path(path): f"the input {path}" for path in _with_contents(given)}
    stores = [path for path in given if suffix_of(path) in BY_SUFFIX and os.path.isdir(path)]
    for name, path in {**files, **{k: p for k, p in (tables or {}).items() if p is not None}}.items():
        if str(path) == "-":
            if name in ("report", "junit") or name not in SUFFIXES:
                raise InputError(f"--{name} takes a file name; only --json, --csv and --markdown can be stdout")
            continue
        if name in SUFFIXES and path.suffix.lower() not in SUFFIXES[name]:
            raise InputError(f"--{name} {path} must end in {' or '.join(SUFFIXES[name])}")
        if name in SUFFIXES or path.suffix == ".safetensors":
            check_writable(path)
        else:
            from congruence.tables import check_table_path

            check_table_path(path)
        if real_path(path) in taken:
            raise InputError(f"--{name} {path} would overwrite {taken[real_path(path)]}")
        if inside := [store for store in stores if real_path(path).is_relative_to(real_path(store))]:
            raise InputError(f"--{name} {path} would be a part of the input {inside[0]}")
        taken[real_path(path)] = f"--{name}"
        lock_outputs(path)


def lock_outputs(*paths: Path | None) -> None:
    """Lock outputs until the command ends; refuse one that another command is writing."""
    from congruence.files import alone

    for path in paths:
        if path is not None:
            _locks.enter_context(alone(path))


def _with_contents(inputs: Iterable[Path]) -> Iterator[Path]:
    """Every input, the files of a run folder, and those of a pattern or a folder of parts."""
    from congruence.experiments.runs import FILES
    from congruence.tables.parts import part_files

    for path in inputs:
        yield path
        folder = os.path.isdir(path)
        yield from (path / name for name in FILES if folder)
        with contextlib.suppress(InputError):  # a folder of something else
            yield from map(Path, part_files(path) if folder or glob.has_magic(str(path)) else ())


Dask = Annotated[
    Optional[str],
    flag(
        help="Read and sum the rows on the workers of this dask scheduler, or on 'local' ones.",
        panel="Method",
        metavar="ADDRESS",
    ),
]


def read_lazily(runs: Mapping[str, Any], options: Any) -> tuple[list[Any], Any]:
    """Tables of dask arrays, read by workers, and the options without those used for reading."""
    from congruence.tables.inputs import read_runs

    read = reading(options)
    tables = read_runs(list(runs.values()), list(runs), read, lazily=True)
    return tables, dataclasses.replace(options, **dict.fromkeys(read))
