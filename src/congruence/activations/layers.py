"""The layers of a torch module by their dotted names, and what comes out of each."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from congruence.arrays import listing
from congruence.errors import CongruenceError, InputError


@dataclass(frozen=True)
class Layer:
    """A module inside a model."""

    name: str  # dotted, as in `encoder.layers.3`
    kind: str  # the name of its class
    parameters: int
    shape: tuple[int, ...] | None  # of its output for the rows that were tried; None if there is no one tensor


def find_layers(model: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the modules of dotted names; a name that is not there is refused with those that are near."""
    there = dict(model.named_modules())
    there.pop("", None)
    if not names:
        raise InputError(f"no layer was named; the model has {listing(list(there), 10)}")
    doubled = [name for place, name in enumerate(names) if name in names[:place]]
    if doubled:
        raise InputError(f"the layer {doubled[0]!r} was named twice")
    for name in names:
        if name not in there:
            raise InputError(f"the model has no layer {name!r}{_hint(name, list(there))}")
    return {name: there[name] for name in names}


def list_layers(model: Any, batch: Any = None) -> list[Layer]:
    """List all layers in the order of the model.

    Parameters
    ----------
    model : torch.nn.Module
    batch : tensor or mapping of tensors, optional
        A few rows of input. Where they are given the model runs once, and layers have the shape of what came out.
    """
    shapes: dict[str, tuple[int, ...] | None] = {} if batch is None else _shapes(model, batch)
    return [
        Layer(name, type(module).__name__, sum(p.numel() for p in module.parameters()), shapes.get(name))
        for name, module in model.named_modules()
        if name
    ]


def run_model(model: Any, batch: Any, where: str) -> None:
    """Run a model on prepared rows, a mapping by keyword; what it raises becomes one sentence."""
    try:
        model(**batch) if isinstance(batch, Mapping) else model(batch)
    except CongruenceError:
        raise
    except Exception as error:
        raise InputError(f"the model fails on {where}: {type(error).__name__}: {error}") from error


def output_tensor(output: Any) -> Any:
    """Return the tensor that a layer gave, the first of a tuple or of a mapping; None if there is none."""
    import torch

    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, Mapping):
        output = tuple(output.values())
    first = output[0] if isinstance(output, tuple | list) and output else None
    return first if isinstance(first, torch.Tensor) else None


def _shapes(model: Any, batch: Any) -> dict[str, tuple[int, ...] | None]:
    import torch

    shapes: dict[str, tuple[int, ...] | None] = {}

    def keep(name: str, module: Any, args: Any, output: Any) -> None:
        tensor = output_tensor(output)
        shapes[name] = None if tensor is None else tuple(tensor.shape)

    handles = [module.register_forward_hook(partial(keep, name)) for name, module in model.named_modules() if name]
    try:
        with torch.inference_mode():
            run_model(model, batch, "the rows that were tried")
    finally:
        for handle in handles:
            handle.remove()
    return shapes


def _hint(name: str, there: Sequence[str]) -> str:
    """The nearest names, also by their last parts: the beginning of a name is what one forgets."""
    near = difflib.get_close_matches(name, there, n=5)
    tail = name.rpartition(".")[2]
    near += [other for other in there if other.endswith(f".{tail}") and other not in near]
    if near:
        return f"; near are {listing(near, 5)}"
    return f"; it has {listing(there, 10)}" if there else ", nor any other"
