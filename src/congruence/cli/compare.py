"""`congruence compare`: did retraining only rotate my embeddings?"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from congruence.align._limits import parse_limits
from congruence.align._options import CompareOptions, check_groups
from congruence.cli import _command as cli
from congruence.cli._gates import FailAbove, FailOn, check_statuses, exit_by_gates, record_gates, status_gates
from congruence.cli.cluster import on_cluster
from congruence.errors import InputError
from congruence.maps._names import GROUPS
from congruence.options import OUTPUT, option

Files = Annotated[
    list[str],
    cli.argument(
        "Two or more embedding files (.npy .parquet .csv .jsonl .safetensors .pt .h5ad ...); a folder of parts is "
        "one run, - is standard input.",
        metavar="FILE",
    ),
]


@dataclass(frozen=True)
class CompareOutputs(cli.Outputs):
    """Outputs of `compare`."""

    latex: Path | None = option(None, "Write the table as LaTeX.", panel=OUTPUT)
    rows_out: Path | None = option(None, "Write the rows, by decreasing disagreement, as a table.", panel=OUTPUT)


@cli.command
def compare(
    files: Files,
    options: CompareOptions,
    outputs: CompareOutputs,
    series: Annotated[
        bool,
        cli.flag(
            "--series",
            help="Checkpoints of one training, each onto the next and the last; the step is in the file name.",
            panel="Method",
        ),
    ] = False,
    dask: cli.Dask = None,
    fail_on: FailOn = None,
    fail_above: FailAbove = None,
) -> None:
    """Did retraining only rotate my embeddings, or did they really change?

    Fits maps of growing freedom from each run onto the later ones and reports
    the remaining error on held-out rows, relative to that of unrelated runs,
    with an interval and R². Examples:

        congruence compare run_a.npy run_b.npy --report report.html

        congruence compare runs/*.parquet --id cell_id --features 'emb_*'

        congruence compare old.npy new.npy --fail-above similarity=0.3
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
    statuses, limits = check_statuses(fail_on), parse_limits(fail_above or [], groups, options.nulls)
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


def _check_rows_out(path: Path, groups: list[str]) -> None:
    """Refuse, before any work, a table that could not be written."""
    if path.suffix == ".npy":
        raise InputError(f"--rows-out needs a format with column names, such as .parquet or .csv; got {path}")
    if not set(groups) & set(GROUPS):
        raise InputError(f"--rows-out ranks rows by {', '.join(GROUPS)}; add one of these to --groups")
