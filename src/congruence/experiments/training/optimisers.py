"""Which weights are decayed and clipped, and the optimiser that moves them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from congruence.errors import InputError
from congruence.experiments.training.settings import Training


def parameter_groups(model: Any) -> tuple[list[Any], list[Any]]:
    """The weights that are decayed, and those that are not.

    A model says so by `decayed_parameters()` and `undecayed_parameters()`; one without these decays all its weights.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not hasattr(model, "decayed_parameters"):
        return weights, []
    decayed = [weight for weight in model.decayed_parameters() if weight.requires_grad]
    rest = [weight for weight in model.undecayed_parameters() if weight.requires_grad]
    named = [id(weight) for weight in (*decayed, *rest)]
    if sorted(named) != sorted(id(weight) for weight in weights):
        raise InputError(
            f"decayed_parameters and undecayed_parameters must share the {len(weights)} weights of the model between "
            f"them, but give {len(decayed)} and {len(rest)}"
        )
    return decayed, rest


def make_optimiser(model: Any, how: Training, *, on_device: bool = False, compiled: bool = False) -> Any:
    """Adam, AdamW or SGD with momentum over the groups of `parameter_groups`; only the first has the weight decay.

    Without weight decay AdamW is Adam. With `on_device` the learning rate and the counts of steps are tensors of the
    GPU, so that a step can be recorded in a CUDA graph. With `compiled` it is one that `compiled_move` makes fast.
    """
    import torch

    decayed, rest = parameter_groups(model)
    groups = [{"params": decayed, "weight_decay": how.weight_decay}]
    if rest:
        groups.append({"params": rest, "weight_decay": 0.0})
    device = next(iter((*decayed, *rest))).device
    rate: Any = torch.tensor(how.learning_rate, device=device) if on_device else how.learning_rate
    if how.optimiser == "sgd":
        # Only fused it takes a rate of the GPU as it is; otherwise the step waits for that, which no graph can record.
        return torch.optim.SGD(groups, lr=rate, momentum=0.9, fused=True if on_device and not compiled else None)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[how.optimiser]
    fast = {"foreach" if compiled else "fused": True, "capturable": on_device} if device.type == "cuda" else {}
    return kind(groups, lr=rate, **fast)


def move(optimiser: Any, clipped: Sequence[Any], limit: float | None) -> None:
    """Clip the elements of some gradients and make the optimiser's step."""
    clip_elements(clipped, limit)
    optimiser.step()


def compiled_move(optimiser: Any, clipped: Sequence[Any], limit: float | None) -> Callable[[], None]:
    """Compile what `move` does. The optimiser must have made a step before, since its averages are made in that.

    For the published autoencoder on an H200 that is 0.1 ms a step faster than clipping and torch's fused AdamW.
    """
    import torch

    step = inspect.unwrap(type(optimiser).step)  # without its hooks for profilers, which cannot be compiled

    def both() -> None:
        clip_elements(clipped, limit)
        with torch.no_grad():
            step(optimiser)

    return cast("Callable[[], None]", torch.compile(both))


def set_rate(optimiser: Any, rate: float) -> None:
    """Give all groups a learning rate; one that lives on a GPU is changed in its place."""
    for group in optimiser.param_groups:
        if hasattr(group["lr"], "fill_"):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def clip_elements(weights: Sequence[Any], limit: float | None) -> None:
    """Cut every element of the gradients of these weights to [-limit, limit]."""
    import torch

    if limit is not None:
        torch.nn.utils.clip_grad_value_(weights, limit)
