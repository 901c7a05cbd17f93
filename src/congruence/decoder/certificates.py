"""Certified bi-Lipschitz constants, which hold everywhere and not only at sampled points.

A stack of isometries and leaky rectifiers is certified by its leak alone, a chain of layers by the singular values of
each, and a small piecewise linear network by all of its linear pieces (`congruence.decoder.regions`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.checks import check_integer, check_number
from congruence.decoder.prepared_decoder import import_torch
from congruence.errors import InputError
from congruence.formatting import count
from congruence.result import Record

_LARGEST_LAYER = 2**24  # entries of the matrix of one layer
# Maps of the form A x + b in evaluation mode; their matrix is computed by applying them to the axes.
LINEAR: tuple[str, ...] = ("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d")
LINEAR += ("ConvTranspose3d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "AvgPool1d", "AvgPool2d", "Upsample")
LINEAR += ("PixelShuffle", "Flatten", "Unflatten", "Identity", "ZeroPad2d")
# Activations whose slope approaches 0.
_FLAT = ("ReLU", "ReLU6", "Sigmoid", "Tanh", "Softplus", "ELU", "SELU", "GELU", "SiLU", "Hardtanh", "Softmax")


@dataclass(frozen=True)
class LayerStretch(Record):
    """The factors by which one layer multiplies lengths: at least `low`, at most `high`."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class StretchCertificate(Record):
    """A bi-Lipschitz constant and how it was proved.

    Rounding is that of float64 singular values; it is not bounded by interval arithmetic.
    """

    low: float  # smallest factor by which a length is multiplied
    high: float  # largest factor
    dimension: int | None  # latents
    how: str
    layers: tuple[LayerStretch, ...] = field(default=(), repr=False)
    injective: bool = True  # whether `low` also holds between points far apart; False: inside each linear piece only
    certified: bool = True

    NAMES = ("low", "high", "dimension", "how", "layers", "injective", "certified", "constant", "scale_free")

    @property
    def constant(self) -> float:
        """Lambda = max(high, 1 / low), at least 1; infinite where a direction is lost."""
        return max(self.high, 1 / self.low if self.low > 0 else math.inf, 1.0)

    @property
    def scale_free(self) -> float:
        """The constant after the best rescaling of all latents by one factor."""
        return math.sqrt(self.high / self.low) if self.low > 0 else math.inf

    def __str__(self) -> str:
        lines = [f"Lambda <= {self.constant:.6g}, certified by {self.how}"]
        lines += [f"  {layer.name}: stretches by {layer.low:.6g} to {layer.high:.6g}" for layer in self.layers]
        if not self.injective:
            lines.append("  the lower bound holds inside each linear piece; two pieces may still fold onto each other")
        return "\n".join(lines)


def leaky_bound(leak: float, activations: int, dimension: int | None = None) -> StretchCertificate:
    """Certify a stack of isometric layers (orthonormal columns) with K leaky rectifiers between them: leak^-K.

    `leak`, above 0, is the slope on the negative side. K is 2 for the 3 layers of the paper's decoder, which counts
    layers (Nelson et al. 2026, appendix A.7.1). `dimension` is the number of latents, for `theorem1`.
    """
    check_number("leak", leak, 0, open_low=True)
    check_integer("activations", activations, 0)
    low, high = min(leak, 1.0) ** activations, max(leak, 1.0) ** activations
    how = f"isometric layers and {activations} rectifiers of leak {leak:g}"
    return StretchCertificate(low, high, dimension, how)


def certify_layers(
    decoder: Any, latent_shape: tuple[int, ...] | int | None = None, *, largest: int = _LARGEST_LAYER
) -> StretchCertificate:
    """Certify a chain of layers by the product of their smallest and largest stretch.

    The stretch of a linear layer (or a convolution, for its input size here) is its exact least and largest singular
    value, that of a leaky rectifier its slopes. The result holds everywhere, between near and distant points, and is
    loose: the worst directions of two layers need not coincide.

    The decoder is a `Sequential` (of Sequentials) in evaluation mode. Layers whose slope approaches 0 (ReLU, tanh),
    linear layers that lose a direction, and unknown layers raise an error. `latent_shape` is that of one row of
    latents; by default the width of the first linear layer. `largest` is the most entries of the matrix of a layer.
    """
    torch = import_torch()
    parts = list(layers_of(decoder))
    shape = latent_shape_of(latent_shape, parts)
    low, high, layers = 1.0, 1.0, []
    x = torch.zeros(1, *shape, dtype=torch.float64)
    for (name, part), slopes in zip(parts, [_slopes(*part) for part in parts], strict=True):  # refused before any work
        if slopes is None:
            slopes, x = _singular_range(name, part, tuple(x.shape[1:]), largest), _in_double(part, x)
        one = LayerStretch(name, *slopes)
        low, high = low * one.low, high * one.high
        if (one.low, one.high) != (1.0, 1.0):
            layers.append(one)
    how = f"the product of the singular values of {count(len(parts), 'layer')}"
    return StretchCertificate(low, high, math.prod(shape), how, tuple(layers))


def layers_of(module: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The layers of a nested `Sequential`, each with its name in it.

    A module with its own `forward`, or with hooks, may do more than its layers and is yielded as a whole.
    """
    torch = import_torch()
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"decoder must be a torch module; got {type(module).__name__}")
    plain = isinstance(module, torch.nn.Sequential) and type(module).forward is torch.nn.Sequential.forward
    if not plain or _is_hooked(module):
        yield f"{prefix or 'decoder'} ({kind_of(module)})", module
        return
    for name, part in module.named_children():
        yield from layers_of(part, f"{prefix}.{name}" if prefix else name)


def latent_shape_of(shape: tuple[int, ...] | int | None, parts: list[tuple[str, Any]]) -> tuple[int, ...]:
    """Return the shape of one row of latents: `shape`, or by default the input of the first linear layer."""
    if shape is not None:
        return (shape,) if isinstance(shape, int) else tuple(shape)
    for _, part in parts:
        if hasattr(part, "in_features"):
            return (int(part.in_features),)
        if kind_of(part).startswith("Conv"):
            break
    raise InputError("latent_shape must be set if the decoder does not start with a linear layer")


def kind_of(part: Any) -> str:
    """The class name of a layer, without the prefix that torch adds for parametrizations (orthogonal weights).

    Layers with hooks, and classes outside torch that share a name with a torch layer, get another name.
    """
    name = type(part).__name__.removeprefix("Parametrized")
    if _is_hooked(part):
        return f"{name} with hooks"
    foreign = not type(part).__module__.startswith("torch.") and hasattr(import_torch().nn, name)
    return f"{type(part).__module__}.{name}" if foreign else name


def _is_hooked(part: Any) -> bool:
    """Whether hooks other than those of torch (such as weight norm) may change the input or output of a layer."""
    hooks = (*part._forward_hooks.values(), *part._forward_pre_hooks.values())
    return any(not type(hook).__module__.startswith("torch.") for hook in hooks)


def _slopes(name: str, part: Any) -> tuple[float, float] | None:
    """The least and the largest slope of an activation; None for a layer that is linear."""
    kind = kind_of(part)
    if kind in LINEAR:
        if part.training and kind.startswith("BatchNorm"):
            raise InputError(
                f"{name} is in training mode, so the output for a row depends on the others; call decoder.eval() first"
            )
        return None
    if kind.startswith("Dropout"):
        if part.training and part.p > 0:
            raise InputError(f"{name} is in training mode and random; call decoder.eval() first")
        return 1.0, 1.0
    slopes = negative_slopes(part)
    if slopes and min(slopes) > 0:
        return min(1.0, *slopes), max(1.0, *slopes)
    if slopes or kind in _FLAT:
        raise InputError(f"{name} has no lower bound, since its slope approaches 0; nothing can be certified")
    raise InputError(f"{name} must be a layer whose stretch is known: {', '.join(LINEAR)}, LeakyReLU, PReLU")


def negative_slopes(part: Any) -> list[float]:
    """The slopes of a ReLU, LeakyReLU or PReLU on the negative side; none for other layers."""
    kind = kind_of(part)
    if kind == "PReLU":
        return [float(slope) for slope in to_numpy(part.weight).ravel()]
    return [float(getattr(part, "negative_slope", 0.0))] if kind in ("ReLU", "LeakyReLU") else []


def _singular_range(name: str, part: Any, shape: tuple[int, ...], largest: int) -> tuple[float, float]:
    """The least and the largest singular value of a linear layer for inputs of this shape."""
    matrix = layer_matrix(name, part, shape, largest)[0]
    values = np.linalg.svd(matrix, compute_uv=False)
    inputs, outputs = matrix.shape
    if outputs < inputs or values[-1] <= max(matrix.shape) * np.finfo(float).eps * values[0]:
        lost = f"it has {outputs} outputs for {inputs} inputs" if outputs < inputs else "its matrix loses a direction"
        raise InputError(f"{name} has no lower bound, since {lost}; nothing can be certified layer by layer")
    return float(values[-1]), float(values[0])


def layer_matrix(name: str, part: Any, shape: tuple[int, ...], largest: int = _LARGEST_LAYER) -> tuple[Float, Float]:
    """The matrix (inputs, outputs) and the shift (outputs,) of a linear layer, computed by applying it to the axes."""
    torch = import_torch()
    inputs = math.prod(shape)
    try:
        zero = _in_double(part, torch.zeros(1, *shape, dtype=torch.float64)).reshape(1, -1)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{name} does not accept inputs of shape {shape}: {error}") from error
    if inputs * zero.shape[1] > largest:
        raise InputError(f"{name} is too large for its exact singular values ({inputs} x {zero.shape[1]})")
    axes = torch.eye(inputs, dtype=torch.float64).reshape(inputs, *shape)
    return to_numpy(_in_double(part, axes).reshape(inputs, -1) - zero), to_numpy(zero[0])


def _in_double(part: Any, x: Any) -> Any:
    """Apply a layer with its weights in float64 on the CPU."""
    torch = import_torch()
    tensors = {
        name: t.detach().cpu().double() if t.is_floating_point() else t.detach().cpu()
        for name, t in (*part.named_parameters(), *part.named_buffers())
    }
    with torch.no_grad():
        return torch.func.functional_call(part, tensors, (x,))
