"""`congruence layers`: which layers of two runs correspond?"""

from __future__ import annotations

from typing import Annotated

from congruence.align._options import CompareLayersOptions
from congruence.cli import _command as cli
from congruence.cli._gates import FailOn, check_statuses, exit_by_gates, record_gates, status_gates
from congruence.errors import InputError


@cli.command
def layers(
    runs: Annotated[
        list[str],
        cli.argument(
            "Two patterns in quotes, each for the files of one run's layers; * is the layer. In a pattern with "
            "two stars, the first is the seed.",
            metavar="RUN_A RUN_B",
        ),
    ],
    options: CompareLayersOptions,
    outputs: cli.Outputs,
    fail_on: FailOn = None,
) -> None:
    """Which layer of one run corresponds to which layer of another?

    Compares every pair of layers, as written by 'extract': the held-out error
    after the best rotation and scale, or another measure, and its null.

    For example:

        congruence layers 'run_a.*.parquet' 'run_b.*.parquet' --report layers.html

        congruence layers 'a.*.parquet' 'b.*.parquet' --measure cka --json -

        congruence layers 'a.*.parquet' 'b.*.parquet' --fail-on fails,unknown

        congruence layers 'run_a/seed*/layer*.npy' 'run_b/seed*/layer*.npy'
    """
    from congruence.align._layer_runs import layered_run
    from congruence.align._layers import compare_layers

    if len(runs) != 2:
        raise InputError(
            "layers takes two patterns, in quotes so that the shell does not expand them "
            f"('run_a.*.parquet' 'run_b.*.parquet'); got {len(runs)} names"
        )
    statuses = check_statuses(fail_on)
    cli.check_outputs(outputs, [path for run in runs for path in layered_run(run, run).labelled(run).values()])
    with cli.working(outputs) as progress:
        result = compare_layers(*runs, options=options, progress=progress)
    gates = status_gates(result, statuses)
    cli.deliver(record_gates(result, gates), outputs)
    exit_by_gates(gates)
