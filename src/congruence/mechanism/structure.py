"""What the structure of a decoder proves: outputs that a latent cannot reach at any point.

Zero weights do not depend on the latents. In a chain of linear layers and functions of single numbers, an output that
is connected to a latent by no path of weights other than zero does not depend on it anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.decoder.certificates import is_hooked
from congruence.decoder.probed import import_torch

# Functions of single numbers; they hand on what their input depends on.
ELEMENTWISE: tuple[str, ...] = ("ReLU", "LeakyReLU", "PReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Softplus")
ELEMENTWISE += (
    "Tanh",
    "Sigmoid",
    "Hardtanh",
    "Hardsigmoid",
    "Hardswish",
    "Softsign",
    "LogSigmoid",
    "Identity",
    "Dropout",
    "Flatten",
)


def reachable(decoder: Any) -> Array | None:
    """Which outputs each latent could reach, (m, d) bool; None where the decoder is not a chain that can be read."""
    torch = import_torch()
    if not isinstance(decoder, torch.nn.Module):
        return None
    layers = _layers(decoder)
    if layers is None or not any(isinstance(layer, torch.nn.Linear) for layer in layers):
        return None
    reach: Array | None = None
    for layer in layers:
        if isinstance(layer, torch.nn.Linear):
            weights = to_numpy(layer.weight) != 0
            reach = weights if reach is None else (weights.astype(np.float32) @ reach.astype(np.float32)) > 0
    return reach


def _layers(module: Any) -> list[Any] | None:
    """The layers of nested sequences in their order; None where something else is among them."""
    torch = import_torch()
    if is_hooked(module):
        return None
    if type(module) is torch.nn.Sequential:
        parts = [_layers(part) for part in module]
        return None if any(part is None for part in parts) else [layer for part in parts for layer in part or []]
    if type(module) is torch.nn.Linear or (type(module).__name__ in ELEMENTWISE and _is_torchs(module)):
        return [module]
    return None


def _is_torchs(module: Any) -> bool:
    return type(module).__module__.startswith("torch.nn.")
