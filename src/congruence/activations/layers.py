"""Layers of a torch module by their dotted names, and their outputs for a batch, collected by forward hooks."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from congruence.activations.pooling import Pooled, Pooling, pool
from congruence.arrays import listing
from congruence.checks import check_choice
from congruence.errors import InputError, one_sentence
from congruence.guards import first_sentence

PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Layer:
    """A module inside a model."""

    name: str  # dotted, as in `encoder.layers.3`
    kind: str  # the name of its class
    parameters: int
    shape: tuple[int, ...] | None  # of its output for the first rows; None if it is not one tensor


def find_layers(model: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the modules with these dotted names; the error for an unknown name suggests similar ones."""
    modules = dict(model.named_modules())
    modules.pop("", None)
    if not names:
        raise InputError(f"layers must name at least one layer; the model has {listing(list(modules), 10)}")
    repeated = [name for place, name in enumerate(names) if name in names[:place]]
    if repeated:
        raise InputError(f"the layer {repeated[0]!r} is named twice")
    for name in names:
        if name not in modules:
            tail = f".{name.rpartition('.')[2]}"
            near = difflib.get_close_matches(name, modules, n=5)
            near += [other for other in modules if other.endswith(tail) and other not in near]
            known = f"it has {listing(list(modules), 10)}" if modules else "it has no layers"
            hint = f"similar names are {listing(near, 5)}" if near else known
            raise InputError(f"the model has no layer {name!r}; {hint}")
    return {name: modules[name] for name in names}


def list_layers(model: Any, batch: Any = None) -> list[Layer]:
    """List all layers of a torch module in its order.

    With a batch, a tensor or mapping of tensors with a few rows of input, the model runs once, and each layer has the
    shape of its output.
    """
    shapes: dict[str, tuple[int, ...] | None] = {}

    def keep(name: str, output: Any) -> None:
        tensor = output_tensor(output)
        shapes[name] = None if tensor is None else tuple(tensor.shape)

    if batch is not None:
        import torch

        with torch.inference_mode(), hooks({name: part for name, part in model.named_modules() if name}, keep):
            run_model(model, batch, "the first rows")
    return [
        Layer(name, type(module).__name__, sum(p.numel() for p in module.parameters()), shapes.get(name))
        for name, module in model.named_modules()
        if name
    ]


def run_model(model: Any, batch: Any, where: str) -> None:
    """Run a model on prepared rows (a mapping by keyword); any exception becomes an `InputError`."""
    with one_sentence(f"the model fails on {where}"):
        model(**batch) if isinstance(batch, Mapping) else model(batch)


def output_tensor(output: Any) -> Any:
    """Return the tensor in the output of a layer, the first of a tuple or mapping; None if there is none."""
    import torch

    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, Mapping):
        output = tuple(output.values())
    first = output[0] if isinstance(output, tuple | list) and output else None
    return first if isinstance(first, torch.Tensor) else None


@contextlib.contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Put a model in evaluation mode inside the block; restore the mode of every module afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextlib.contextmanager
def hooks(modules: Mapping[str, Any], keep: Callable[[str, Any], None]) -> Iterator[None]:
    """Call keep(name, output) whenever one of the modules runs inside the block."""
    handles = [
        module.register_forward_hook(lambda _module, _args, output, name=name: keep(name, output))
        for name, module in modules.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def activations(
    model: Any,
    batch: Any,
    layers: Sequence[str],
    pooling: Pooling | None = None,
    *,
    start: int = 0,
    device: str = "cpu",
    precision: str = "float32",
) -> dict[str, Pooled]:
    """Run a model on a batch and return the pooled outputs of its layers, as float32 (or float64) on the CPU.

    The model is on `device`, in the mode (training or evaluation) in which it is to run; one forward pass collects all
    layers, given by their dotted names. A batch that is a mapping is passed by keyword; its ``attention_mask`` marks
    padding. By default every position is a row. `start` is the row number of the first row, which seeds the choice of
    random patches. Precisions other than float32 run the model under autocast.
    """
    import torch

    prepared = for_model(model, batch, device)
    mask = prepared.get("attention_mask") if isinstance(prepared, Mapping) else None
    outputs: dict[str, Pooled] = {}

    def keep(name: str, output: Any) -> None:
        tensor = output_tensor(output)
        if tensor is None or tensor.ndim == 0:
            raise InputError(f"the layer {name!r} returns a {type(output).__name__}, not a tensor with rows")
        if tensor.is_complex():
            raise InputError(f"the layer {name!r} returns complex numbers, which tables cannot hold; name another one")
        if name in outputs:
            raise InputError(f"the layer {name!r} runs more than once for a batch; name one that runs once")
        outputs[name] = pool(tensor, pooling or Pooling(), mask, start)

    with torch.inference_mode(), autocast(device, precision), hooks(find_layers(model, layers), keep):
        run_model(model, prepared, f"the batch that starts at row {start}")
    missing = [name for name in layers if name not in outputs]
    if missing:
        raise InputError(f"the layer {missing[0]!r} returned nothing: the model does not run it for these inputs")
    for name, one in outputs.items():
        wide = torch.float64 if one.values.dtype == torch.float64 else torch.float32
        values = one.values.to("cpu", wide).numpy()
        rows, positions = (None if some is None else some.cpu().numpy() for some in (one.rows, one.positions))
        outputs[name] = Pooled(values, rows, positions, one.inputs)
    return {name: outputs[name] for name in layers}


def prepare_rows(prepare: Callable[[Any], Any] | None, rows: Any) -> Any:
    """Apply the function that prepares rows for the model; any exception becomes an `InputError`."""
    if prepare is None:
        return rows
    with one_sentence("the function that prepares rows fails"):
        return prepare(rows)


def for_model(model: Any, batch: Any, device: str) -> Any:
    """Move a batch to the device as tensors, floats in the precision of the model's weights."""
    import torch

    if isinstance(batch, Mapping):
        return {name: for_model(model, value, device) for name, value in batch.items()}
    try:
        tensor = torch.as_tensor(batch)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"a batch must be an array, a tensor or a mapping of these; got a {type(batch).__name__} "
            f"({first_sentence(error)})"
        ) from error
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), tensor.dtype)
    return tensor.to(device, own if tensor.is_floating_point() else None)


def autocast(device: str, precision: str) -> Any:
    """Return the context in which a model runs in this precision."""
    import torch

    check_choice("precision", precision, PRECISIONS)
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.partition(":")[0], dtype=getattr(torch, precision))
