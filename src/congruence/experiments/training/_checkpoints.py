"""Checkpoints: the whole state of a training, as named arrays and a JSON text in one safetensors file."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence._saved import read_tensors, write_tensors
from congruence.arrays import Array, to_numpy
from congruence.errors import InputError
from congruence.experiments.runs import CHECKPOINT, Run
from congruence.guards import is_file

SAMPLED = 10_000  # rows in a checksum
COUNTS = ("step", "loss", "ended", "line", "line_seconds", "seconds")  # of a training, besides its sums
ENDINGS = ("", "steps", "diverged")
AVERAGES = ("exp_avg", "exp_avg_sq")  # of Adam, for each weight
MODEL, OPTIMISER, RANDOM, RANDOM_GPU = "model.", "optimiser.", "random.cpu", "random.gpu"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a training: arrays (weights, averages, generators), counts, and the settings it belongs to."""

    arrays: Mapping[str, Array]
    counts: Mapping[str, Any]
    about: Mapping[str, Any]


def fingerprint(data: Sequence[Any]) -> list[list[Any]]:
    """The shape and a checksum of each tensor, so that a checkpoint is not resumed with other data.

    The checksum is of at most `SAMPLED` rows, evenly spaced.
    """
    every = [-(-len(tensor) // SAMPLED) for tensor in data]  # a step of 1 up to SAMPLED rows
    arrays = [np.ascontiguousarray(to_numpy(tensor[::step])) for tensor, step in zip(data, every, strict=True)]
    return [
        [list(tensor.shape), str(array.dtype), zlib.crc32(array.data)]
        for tensor, array in zip(data, arrays, strict=True)
    ]


def capture(model: Any, optimiser: Any, counts: Mapping[str, Any], about: Mapping[str, Any]) -> Checkpoint:
    """Copy the state of a training."""
    import torch

    arrays = {MODEL + name: value for name, value in model.state_dict().items()}
    for i, state in optimiser.state_dict()["state"].items():
        arrays |= {f"{OPTIMISER}{i}.{name}": torch.as_tensor(v) for name, v in state.items() if v is not None}
    arrays[RANDOM] = torch.get_rng_state()
    device = next(model.parameters()).device
    if device.type == "cuda":
        arrays[RANDOM_GPU] = torch.cuda.get_rng_state(device)
    return Checkpoint({name: np.array(to_numpy(value)) for name, value in arrays.items()}, counts, about)


def restore(checkpoint: Checkpoint, model: Any, optimiser: Any) -> None:
    """Set a model, its optimiser and torch's generators to the state of a checkpoint."""
    import torch

    tensors = {name: torch.from_numpy(array.copy()) for name, array in checkpoint.arrays.items()}
    weights = {name.removeprefix(MODEL): value for name, value in tensors.items() if name.startswith(MODEL)}
    load_weights(model, weights, "the checkpoint does not")
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith(OPTIMISER):
            number, _, key = name.removeprefix(OPTIMISER).partition(".")
            state.setdefault(int(number), {})[key] = value
    _check_averages(state, [weight for group in optimiser.param_groups for weight in group["params"]])
    optimiser.load_state_dict(optimiser.state_dict() | {"state": state})
    for weight, averages in optimiser.state.items():  # fused steps on a GPU need the strides of the weights
        for name, value in averages.items():
            if torch.is_tensor(value) and value.shape == weight.shape and value.stride() != weight.stride():
                averages[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)
    torch.set_rng_state(tensors[RANDOM])
    device = next(model.parameters()).device
    if device.type == "cuda" and RANDOM_GPU in tensors:
        torch.cuda.set_rng_state(tensors[RANDOM_GPU], device)


def load_weights(model: Any, weights: Mapping[str, Any], subject: str) -> None:
    """Load tensors into a model; `subject` begins the sentence that they do not fit."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{subject} fit the model: {str(error).splitlines()[-1].strip()}") from error


def _check_averages(state: Mapping[int, Mapping[str, Any]], weights: Sequence[Any]) -> None:
    """Refuse a state of Adam that is not that of these weights: it would fail in a later step."""
    for number, found in state.items():
        shapes = dict.fromkeys(AVERAGES, weights[number].shape) | {"step": ()}
        if {name: tuple(value.shape) for name, value in found.items()} != shapes or not found["step"] >= 0:
            raise InputError(f"the checkpoint does not fit the model: the averages of weight {number} are others")


def write_checkpoint(run: Run, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into a run folder, replacing the previous one."""
    header = {"counts": checkpoint.counts, "about": checkpoint.about}  # as JSON, in which floats round-trip exactly
    write_tensors(run.folder / CHECKPOINT, checkpoint.arrays, header)


def _are_counts(counts: Mapping[str, Any]) -> bool:
    """Whether the counts of a checkpoint are those that a training stores."""
    step, line, sums = counts["step"], counts.get("line", 0), counts["sums"]
    real = [counts[name] for name in ("loss", "line_seconds", "seconds") if name in counts] + list(sums.values())
    return (
        {"step", "sums"} <= counts.keys() <= {*COUNTS, "sums"}
        and all(type(one) is int for one in (step, line))
        and 0 <= line <= step < 2**63
        and (not sums or "loss" in sums)
        and all(type(one) in (int, float) and not abs(one) > sys.float_info.max for one in real)  # a loss may be NaN
        and counts.get("ended", "") in ENDINGS
    )


def read_checkpoint(run: Run, about: Mapping[str, Any]) -> Checkpoint | None:
    """Read the checkpoint of a run folder, None if there is none; one of another training is refused."""
    path = run.folder / CHECKPOINT
    if not is_file(path):
        return None
    try:
        arrays, header = read_tensors(path, "a checkpoint")
    except InputError as error:
        raise InputError(f"{error}; remove it to start again") from error
    try:
        counts, stored = dict(header["counts"]), dict(header["about"])
        if RANDOM not in arrays or not _are_counts(counts):
            raise ValueError("the state of the generator is missing, or counts are not numbers")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a checkpoint of congruence; remove it to start again") from error
    expected = json.loads(json.dumps(about))
    different = sorted(name for name in {*stored, *expected} if stored.get(name) != expected.get(name))
    if different:
        raise InputError(f"{path} is of a training with another {different[0]}; remove it to start again")
    return Checkpoint(arrays, counts, stored)
