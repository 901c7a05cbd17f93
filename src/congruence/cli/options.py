"""Options that mean the same in every command, and the checks they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.tables import Table

OWN_SUFFIXES = {"model": ".safetensors"}  # of outputs that are not called after their option
DATA, METHOD, OUTPUT = "Which rows and columns", "How it is done", "What to write"

Id = Annotated[Optional[str], typer.Option(help="Column with row ids; rows are paired by it.", rich_help_panel=DATA)]
RowId = Annotated[Optional[str], typer.Option(help="Column with row ids.", rich_help_panel=DATA)]  # of one table
Features = Annotated[
    Optional[str], typer.Option(help="Columns with the embedding, e.g. 'emb_*'.", rich_help_panel=DATA)
]
Metadata = Annotated[Optional[str], typer.Option(help="Columns to set aside, e.g. 'plate,well'.", rich_help_panel=DATA)]
Key = Annotated[
    Optional[str], typer.Option(help="Which array of a file with several, e.g. an obsm key.", rich_help_panel=DATA)
]
GroupBy = Annotated[
    Optional[str],
    typer.Option(help="Column whose rows stay together (plate, patient, document).", rich_help_panel=DATA),
]
DropMissing = Annotated[
    bool, typer.Option("--drop-missing", help="Leave out rows with NaN or infinity.", rich_help_panel=DATA)
]
Nulls = Annotated[int, typer.Option(help="Re-pairings that make the null.", rich_help_panel=METHOD)]
Chunk = Annotated[Optional[int], typer.Option(help="Points at a time.", rich_help_panel=METHOD)]
Seed = Annotated[int, typer.Option(help="Same seed, same result.", rich_help_panel=METHOD)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.", rich_help_panel=METHOD)]
Dask = Annotated[
    Optional[str],
    typer.Option(
        metavar="ADDRESS",
        help="Compute on this dask scheduler (tcp://host:8786), or on workers of its own (local).",
        rich_help_panel=METHOD,
    ),
]
Report = Annotated[
    Optional[Path], typer.Option(help="Write a page a colleague can read (HTML).", rich_help_panel=OUTPUT)
]
Json = Annotated[Optional[Path], typer.Option(help="Write the result as JSON; - for stdout.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no table and no progress.", rich_help_panel=OUTPUT)]


def read_tables(
    paths: Sequence[str | Path],
    names: Sequence[str],
    lazily: bool = False,
    /,
    *,
    id: str | None,
    features: str | None,
    metadata: str | None,
    key: str | None,
) -> list[Table]:
    """Read every file with the options that its format can honour; see `congruence.tables.inputs.read_runs`."""
    from congruence.tables.inputs import read_runs

    return read_runs(paths, names, {"id": id, "features": features, "metadata": metadata, "key": key}, lazily=lazily)


def read_as_one(paths: Sequence[str], lazily: bool = False, /, **wishes: str | None) -> Table:
    """Read files as one table; an option that means nothing for them is refused."""
    from congruence.tables.inputs import check_honoured
    from congruence.tables.parts import lazy_parts, part_files, read_parts

    asked = {name: value for name, value in wishes.items() if value is not None}
    check_honoured(paths, [name for name in asked if name != "id"])
    files = [file for path in paths for file in part_files(path)]
    return (lazy_parts if lazily else read_parts)(files, **asked)


def was_given(ctx: typer.Context, name: str) -> bool:
    """Whether a parameter was given on the command line, and not left at its default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_outputs(
    texts: Mapping[str, Path | None], inputs: Iterable[str | Path], *, tables: Mapping[str, Path | None] | None = None
) -> None:
    """Refuse, before any work, outputs that cannot be written or would overwrite an input, a table or each other."""
    from congruence.files import check_writable
    from congruence.tables import SUFFIXES, check_table_path

    taken = {Path(path).resolve(): f"the input {path}" for path in _with_contents(inputs)}
    for name, path in {**texts, **(tables or {})}.items():
        if path is None or (name == "json" and str(path) == "-"):
            continue
        if str(path) == "-":
            raise InputError(f"--{name} cannot be written to stdout; only --json can")
        (check_writable if name in texts else check_table_path)(path)
        if path.resolve() in taken:
            raise InputError(f"--{name} {path} would overwrite {taken[path.resolve()]}")
        own = OWN_SUFFIXES.get(name, f".{name}")
        if name in texts and path.name.endswith(SUFFIXES) and own not in path.suffixes:
            # A forgotten file name makes the next embedding file the output: never write a page over it.
            raise InputError(f"--{name} {path} would be taken for an embedding table; give a name for the {name}")
        taken[path.resolve()] = f"--{name}"


def _with_contents(inputs: Iterable[str | Path]) -> Iterable[Path]:
    """Every input, and of a run folder the files that make it one."""
    from congruence.runs import FILES

    for path in map(Path, inputs):
        yield path
        if path.is_dir():
            yield from (path / name for name in FILES)


def write_outputs(texts: Mapping[str, str], outputs: Mapping[str, Path | None]) -> None:
    """Write every text to its file, or to stdout for "-"."""
    from congruence.files import write_text

    for name, text in texts.items():
        path = outputs[name]
        if str(path) == "-":
            typer.echo(text, nl=False)
        elif path is not None:
            write_text(path, text)
