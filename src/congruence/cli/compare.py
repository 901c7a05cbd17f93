"""`congruence compare`: did retraining only rotate my embeddings?"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from congruence.align._options import CompareOptions, check_groups
from congruence.cli import _command as cli
from congruence.cli._gates import FailOn, Gate, check_statuses, exit_by_gates, record_gates, status_gates
from congruence.cli.cluster import on_cluster
from congruence.errors import InputError
from congruence.maps._names import GROUPS
from congruence.options import OUTPUT, option

if TYPE_CHECKING:
    from congruence.align.comparison import Pair

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="Two or more embedding files (.npy .parquet .csv .jsonl .safetensors .pt .h5ad ...); a folder of parts is "
        "one run, - is standard input.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class CompareOutputs(cli.Outputs):
    """Outputs of `compare`."""

    latex: Path | None = option(None, "Write the table as LaTeX.", panel=OUTPUT)
    rows_out: Path | None = option(None, "Write the rows, by decreasing disagreement, as a table.", panel=OUTPUT)

    def files(self) -> dict[str, Path]:
        """All but the table of rows."""
        return {name: path for name, path in super().files().items() if name != "rows_out"}


@cli.command
def compare(
    files: Files,
    options: CompareOptions,
    outputs: CompareOutputs,
    series: Annotated[
        bool,
        typer.Option(
            "--series",
            help="Checkpoints of one training, each onto the next and the last; the step is in the file name.",
            rich_help_panel="Method",
        ),
    ] = False,
    dask: cli.Dask = None,
    fail_on: FailOn = None,
    fail_above: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP=LIMIT",
            help="Exit with 1 if the held-out error of a pair is above this share of chance; may be repeated. "
            "GROUP.unexplained is the share of the variance, GROUP.diameter that of the diameter; GROUP.r2 is a "
            "minimum of R².",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Did retraining only rotate my embeddings, or did they really change?

    Fits maps of growing freedom from each run onto the later ones and reports
    the remaining error on held-out rows, relative to that of unrelated runs,
    with an interval and R². Examples:

        congruence compare run_a.npy run_b.npy --report report.html

        congruence compare runs/*.parquet --id cell_id --features 'emb_*'

        congruence compare old.npy new.npy --fail-on fails,unknown --fail-above similarity=0.3
    """
    from congruence.align._compare import compare as compare_runs
    from congruence.tables import expanded, unique_names

    paths = expanded(files)  # patterns that the shell left alone (quoted, or on Windows)
    if len(paths) < 2:
        raise InputError(f"compare takes at least 2 files; got {paths[0]}")
    if series:
        steps = _steps(paths)
        paths = sorted(paths, key=steps.__getitem__)
        options = replace(options, steps=sorted(steps.values()))
    groups = list(check_groups(options.groups))
    statuses, limits = check_statuses(fail_on), _limits(fail_above or [], groups, options.nulls)
    if any(limit.group == "ica" for limit in limits):
        options = replace(options, groups=groups)
    cli.check_outputs(outputs, paths, {"rows-out": outputs.rows_out})
    if outputs.rows_out is not None:
        _check_rows_out(outputs.rows_out, groups)
    with cli.working(outputs) as progress, on_cluster(dask):
        runs: Any = dict(zip(unique_names(paths), paths, strict=True))
        if dask is not None:
            runs, options = cli.read_lazily(runs, options)
        result = compare_runs(runs, options=options, progress=progress)
    if outputs.rows_out is not None:
        from congruence.tables import write_table

        write_table(result.moved().to_table(), outputs.rows_out)
    gates = [*status_gates(result, statuses), *(limit.gate(pair) for pair in result.pairs for limit in limits)]
    cli.deliver(record_gates(result, gates), outputs)
    exit_by_gates(gates)


def _steps(paths: list[str]) -> dict[str, float]:
    """The training step of each checkpoint: the last number in the name of its file."""
    steps: dict[str, float] = {}
    for path in paths:
        numbers = re.findall(r"\d+", Path(path).name.partition(".")[0]) or re.findall(r"\d+", Path(path).parent.name)
        if not numbers:
            raise InputError(f"--series takes the step from the file name, which must have a number; got {path}")
        if float(numbers[-1]) in steps.values():
            raise InputError(f"--series takes the step from the file name; got step {numbers[-1]} twice")
        steps[path] = float(numbers[-1])
    return steps


QUANTITIES = {  # of --fail-above, and how a message names them
    "": "the held-out error as a share of chance",
    "unexplained": "the unexplained share of the variance",
    "diameter": "the held-out error as a share of the diameter",
    "r2": "held-out R²",
}


@dataclass(frozen=True)
class Limit:
    """A limit given with --fail-above: a minimum for R², of which more is better, and a maximum for all others."""

    group: str
    quantity: str
    value: float

    @property
    def name(self) -> str:
        """The group and the quantity as they are written on the command line."""
        return f"{self.group}.{self.quantity}".rstrip(".")

    def gate(self, pair: Pair) -> Gate:
        """The limit applied to one pair; an undefined number exceeds every limit."""
        of, value = f"{pair.source} -> {pair.target}", self.read(pair.groups[self.group])
        passes, side = (value >= self.value, "below") if self.quantity == "r2" else (value <= self.value, "above")
        is_known = "is undefined" if math.isnan(value) else f"is {value:.4g}, {side} the limit {self.value:g}"
        message = f"{of}: {self.group}: {QUANTITIES[self.quantity]} {is_known}"
        return Gate(self.name, of, self.value, value, not passes, message)

    def read(self, near: Any) -> float:
        """The number of one group of maps that is limited."""
        if self.quantity == "diameter":
            value = near.held_out.mean
        elif self.quantity == "r2":
            value = near.r2.mean
        elif self.quantity == "unexplained":
            value = 1 - near.r2.mean
        else:
            value = near.of_chance.mean
        return float(value)


def _limits(texts: list[str], groups: list[str], nulls: int) -> list[Limit]:
    limits: list[Limit] = []
    for text in texts:
        name, _, number = text.partition("=")
        group, _, quantity = name.partition(".")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if quantity not in QUANTITIES or name.endswith(".") or not math.isfinite(value) or value < 0:
            known = ", ".join(f"similarity.{one}" for one in QUANTITIES if one)
            raise InputError(f"--fail-above takes GROUP=LIMIT such as similarity=0.3, or {known}; got {text!r}")
        if group not in groups:
            raise InputError(f"--fail-above takes one of the groups {','.join(groups)}; got {group!r}")
        if name in [limit.name for limit in limits]:
            raise InputError(f"--fail-above takes each number once; got {name!r} twice")
        if not quantity and nulls == 0:
            raise InputError(f"--fail-above {text} is a share of the null; set --nulls to at least 1")
        limits.append(Limit(group, quantity, value))
    return limits


def _check_rows_out(path: Path, groups: list[str]) -> None:
    """Refuse, before any work, a table that could not be written."""
    if path.suffix == ".npy":
        raise InputError(f"--rows-out needs a format with column names, such as .parquet or .csv; got {path}")
    if not set(groups) & set(GROUPS):
        raise InputError(f"--rows-out ranks rows by {', '.join(GROUPS)}; add one of these to --groups")
