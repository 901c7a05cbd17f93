"""The images or rows that a model is trained on, checked, described for the config, and converted for the model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.errors import InputError
from congruence.experiments.training._checkpoints import fingerprint
from congruence.tables import as_table, is_table
from congruence.tables.columns import PREFIX

CHECKED = 10_000  # images or rows checked at a time
CONVERTERS = ("pixels", "numbers")  # methods of models that take images as bytes


def describe_data(data: Any) -> tuple[Any, dict[str, Any], dict[str, Array], Array | None]:
    """The images or rows as a tensor, their description for a config, the factors as columns, and ids."""
    ids = getattr(data, "ids", None)
    if hasattr(data, "factor_names"):
        inputs = _check_inputs(data.rows if hasattr(data, "rows") else data.images)
        about = {"factors": list(data.factor_names), "kinds": list(data.kinds), "note": data.note}
        name, columns = data.name, data.columns
    elif is_table(data):
        table = as_table(data)
        inputs, name, ids = _check_inputs(to_numpy(table.values)), table.name, table.ids
        columns = {name.removeprefix(PREFIX): column for name, column in table.metadata.items()}
        about = {"factors": list(columns)}
    else:
        alone = data[0] if isinstance(data, Sequence) and len(data) == 1 else data
        if not hasattr(alone, "shape") or len(alone.shape) not in (2, 4):
            raise InputError(
                "data must be FactorImages, FactorRows, images of shape (n, channels, height, width) or rows (n, p), "
                f"or a table; got a {type(data).__name__}"
            )
        inputs, about, columns, ids = _check_inputs(alone), {}, {}, None
        name = "rows" if are_rows(inputs) else "images"
    return inputs, {"name": name, "n": len(inputs), **about, "checksum": fingerprint([inputs])[0]}, columns, ids


def _check_inputs(inputs: Any) -> Any:
    """The images or rows as a tensor; invalid ones are refused before a folder is made for them."""
    import torch

    name = "rows" if are_rows(inputs) else "images"
    if not len(inputs):
        raise InputError(f"data must have at least one of its {name}; got none")
    if isinstance(inputs, np.ndarray) and min(inputs.strides) < 0:  # torch does not support negative strides
        inputs = inputs.copy()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # it is only read
            x = torch.as_tensor(inputs)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be numbers: {error}") from error
    if x.is_complex() or (name == "images" and not x.is_floating_point() and x.dtype != torch.uint8):
        wanted = "uint8, or floats in [0, 1]" if name == "images" else "real numbers"
        raise InputError(f"{name} must be {wanted}; got {str(x.dtype).removeprefix('torch.')}")
    for part in x.split(CHECKED) if x.is_floating_point() else ():
        if not torch.isfinite(part).all():
            raise InputError(f"{name} must be finite; some values are NaN or infinite")
        low, high = float(part.min()), float(part.max())
        if name == "images" and (low < 0 or high > 1):
            raise InputError(f"float images must lie in [0, 1]; got [{low:g}, {high:g}]; rescale them, or give uint8")
    return x


def are_rows(inputs: Any) -> bool:
    """Whether inputs are rows of numbers, not images."""
    return len(inputs.shape) == 2


def as_floats(model: Any, inputs: Any) -> Any:
    """Inputs as the model takes them, see `Trainable`."""
    import torch

    weights = model.parameters() if isinstance(model, torch.nn.Module) else ()
    own = next((weight.dtype for weight in weights if weight.is_floating_point()), torch.float32)
    if inputs.dtype == torch.uint8 and not are_rows(inputs) and not any(hasattr(model, name) for name in CONVERTERS):
        return inputs.to(own) / 255
    return inputs.to(own) if inputs.is_floating_point() else inputs


def auxiliary_factor(model: Any, data: Any) -> list[Any]:
    """The factor that a model observes in addition to each row, if it does, as int64 (n,)."""
    wanted = getattr(model, "auxiliary", None)
    if wanted is None:
        return []
    names = list(getattr(data, "factor_names", ()))
    if wanted not in names:
        listed = ", ".join(names) or "it has none"
        raise InputError(f"auxiliary must be a factor of the data ({listed}); got {wanted!r}")
    if data.sizes[names.index(wanted)] is None:
        raise InputError(f"auxiliary must have levels; {wanted} is continuous")
    return [np.ascontiguousarray(data.columns[wanted], dtype=np.int64)]
