"""What layers of a model give for a batch of rows, caught by forward hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from congruence.activations.layers import find_layers, output_tensor, run_model
from congruence.activations.pooling import Pooled, Pooling, pool
from congruence.arrays import Array
from congruence.errors import CongruenceError, InputError
from congruence.tables.access import first_sentence

PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, eq=False)
class Activations:
    """The pooled outputs of one layer for a batch."""

    values: Array  # (m, d)
    rows: Array | None = None  # (m,), the row of the batch; None if there is one row for each
    positions: Array | None = None  # (m,)
    given: int = 0  # rows that the layer gave, where every position became one


def activations(
    model: Any,
    batch: Any,
    layers: Sequence[str],
    pooling: Pooling | None = None,
    *,
    start: int = 0,
    device: str = "cpu",
    precision: str = "float32",
) -> dict[str, Activations]:
    """Run a model on a batch and return what its layers gave, pooled, as float32 (float64 stays) on the CPU.

    Parameters
    ----------
    model : torch.nn.Module
        On `device`, and in the mode (training or not) in which it is to run.
    batch : array, tensor or mapping of these
        A mapping is given by keyword, and its ``attention_mask`` tells padding from tokens.
    layers : sequence of str
        Dotted names; all are caught in one pass.
    pooling : Pooling, optional
    start : int
        The number of the first row, from which the drawing of random patches starts.
    precision : {"float32", "bfloat16", "float16"}
        float32 leaves the model as it is, the others run it under autocast.
    """
    import torch

    prepared = for_model(model, batch, device)
    mask = prepared.get("attention_mask") if isinstance(prepared, Mapping) else None
    where = f"the batch that starts at row {start}"
    with torch.inference_mode(), autocast(device, precision), caught(model, layers, pooling, mask, start) as found:
        run_model(model, prepared, where)
    missing = [name for name in layers if name not in found]
    if missing:
        raise InputError(f"the layer {missing[0]!r} gave nothing: the model does not run it for these inputs")
    return {name: _on_cpu(found[name]) for name in layers}


@contextlib.contextmanager
def caught(
    model: Any, layers: Sequence[str], pooling: Pooling | None, mask: Any, start: int
) -> Iterator[dict[str, Pooled]]:
    """Yield a dictionary into which layers put what they give while the block runs; it is pooled at once."""
    found: dict[str, Pooled] = {}

    def keep(name: str, module: Any, args: Any, output: Any) -> None:
        tensor = output_tensor(output)
        if tensor is None or tensor.ndim == 0:
            raise InputError(f"the layer {name!r} gives a {type(output).__name__}, and no tensor with rows")
        if tensor.is_complex():
            raise InputError(f"the layer {name!r} gives complex numbers, which no table holds; name another one")
        if name in found:
            raise InputError(f"the layer {name!r} runs more than once for a batch; name one that runs once")
        found[name] = pool(tensor, pooling or Pooling(), mask, start)

    handles = [module.register_forward_hook(partial(keep, name)) for name, module in find_layers(model, layers).items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def prepare_rows(prepare: Callable[[Any], Any] | None, rows: Any) -> Any:
    """Make of rows as they are read what the model takes; what a function of the user's raises becomes one sentence."""
    if prepare is None:
        return rows
    try:
        return prepare(rows)
    except CongruenceError:
        raise
    except Exception as error:
        raise InputError(f"the function that prepares rows fails: {type(error).__name__}: {error}") from error


def for_model(model: Any, batch: Any, device: str) -> Any:
    """Return arrays and tensors of a batch as tensors of a device, floats in the precision of the model's weights."""
    import torch

    if isinstance(batch, Mapping):
        return {name: for_model(model, value, device) for name, value in batch.items()}
    try:
        tensor = torch.as_tensor(batch)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"a batch must be an array, a tensor or a mapping of these, and not hold a {type(batch).__name__} "
            f"({first_sentence(error)})"
        ) from error
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), tensor.dtype)
    return tensor.to(device, own if tensor.is_floating_point() else None)


def autocast(device: str, precision: str) -> Any:
    """Return the context in which a model runs in a precision."""
    import torch

    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.partition(":")[0], dtype=getattr(torch, precision))


def _on_cpu(pooled: Pooled) -> Activations:
    import torch

    wide = torch.float64 if pooled.values.dtype == torch.float64 else torch.float32
    values = pooled.values.to("cpu", wide).numpy()
    if pooled.rows is None:
        return Activations(values)
    return Activations(values, pooled.rows.cpu().numpy(), pooled.positions.cpu().numpy(), pooled.given)
