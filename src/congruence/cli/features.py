"""`congruence features`: do the features of dictionaries come back?"""

from __future__ import annotations

from typing import Annotated

from congruence.cli import _command as cli
from congruence.cli._gates import FailOn, check_statuses, exit_by_gates, record_gates, status_gates
from congruence.features._options import FeatureOptions


@cli.command
def features(
    dictionaries: Annotated[
        list[str],
        cli.argument(
            "Two or more dictionaries: safetensors, npy, npz, pt, a SAELens or sparsify folder, or a saved ICA.",
            metavar="A B [C ...]",
        ),
    ],
    options: FeatureOptions,
    outputs: cli.Outputs,
    fail_on: FailOn = None,
) -> None:
    """Do the features of two dictionaries (SAE, transcoder, ICA) come back?

    Matches features one to one by their cosine, and counts how many come back
    and how many would by chance.

    For example:

        congruence features sae0.safetensors sae1.safetensors --key W_dec

        congruence features sae0/ sae1/ --activations tokens.csv --text context

        congruence features a.safetensors b.safetensors --activations a.csv,b.csv
    """
    from congruence.features._match import match_features

    statuses = check_statuses(fail_on)
    cli.check_outputs(outputs, [*dictionaries, *options.activations])
    with cli.working(outputs) as progress:
        result = match_features(*dictionaries, options=options, progress=progress)
    gates = status_gates(result, statuses)
    cli.deliver(record_gates(result, gates), outputs)
    exit_by_gates(gates)
