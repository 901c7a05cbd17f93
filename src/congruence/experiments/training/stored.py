"""Models back from their run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from congruence.errors import InputError
from congruence.experiments.runs import Run, open_run
from congruence.rows.devices import load_torch, training_device


def load_model(run: Run | str | Path, *, device: str = "cpu") -> Any:
    """The trained model of a run folder, ready to encode and decode; where it was trained does not matter.

    Parameters
    ----------
    run : Run or path
        A finished training by `train` or `congruence train`.
    device : {"cpu", "auto", "cuda", "cuda:1", ...}
        Where the model is put; "auto" takes a GPU where torch sees one.
    """
    load_torch()
    from congruence.experiments.models.catalogue import build_model

    found = run if isinstance(run, Run) else open_run(run)
    config = found.config.get("model")
    if not isinstance(config, dict):
        raise InputError(f"the config of {found.folder} names no model, so that there is none to load")
    model = build_model(config)
    put_weights(model, found)
    return model.to(training_device(device)).eval()


def put_weights(model: Any, run: Run) -> None:
    """Give a model the weights of a run."""
    import torch

    weights = {name: torch.from_numpy(array) for name, array in run.weights().items()}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"the weights of {run.folder} are of another model: {reason}") from error
