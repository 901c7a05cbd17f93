"""Split a decoder into blocks of one linear map and one activation, and test each block for injectivity."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.decoder.certificates import kind_of, latent_shape_of, layer_matrix, layers_of, negative_slopes
from congruence.decoder.prepared_decoder import import_torch
from congruence.errors import InputError
from congruence.formatting import percent
from congruence.mixture._residual import LINEAR_LAYERS, ResidualSum, expand
from congruence.mixture.conditions import HierarchyCondition, make_condition
from congruence.mixture.relu_layers import LayerVerdict, linear_injective, relu_injective
from congruence.result import Status

_LEAKY = ("LeakyReLU", "PReLU")
_PIECEWISE = ("ReLU", *_LEAKY, "ReLU6", "Hardtanh", "Hardsigmoid", "MaxPool1d", "MaxPool2d", "MaxPool3d")
_BIJECTIONS = ("Sigmoid", "Tanh", "Softplus", "ELU")  # smooth, elementwise and one to one
_SMOOTH = (*_BIJECTIONS, "SELU", "GELU", "SiLU", "Mish", "Softmax", "LogSoftmax", "LayerNorm", "InstanceNorm")
_POINTS, _STEP, _BENT = 200, 1e-4, 1e-6  # points, step size, and curvature relative to the slope that counts as none


@dataclass(frozen=True, eq=False)
class LinearBlock:
    """A linear map x -> x @ matrix + shift and the activation after it."""

    name: str
    matrix: Float | None  # (inputs, outputs); None if it is too large
    shift: Float | None
    activation: str  # "ReLU", "LeakyReLU", "" for none, or another
    slope: float  # of the negative side; nan for others
    residual: LayerVerdict | None = None  # of a residual sum, which has no matrix

    def judge(self, seed: int) -> LayerVerdict:
        """Test whether the block is injective on all of its inputs."""
        if self.residual is not None:
            return self.residual
        if self.matrix is None or self.shift is None:
            return LayerVerdict("unknown", "its matrix is too large")
        if self.activation == "ReLU" or (self.activation in _LEAKY and self.slope == 0):
            return relu_injective(self.matrix.T, self.shift, seed=seed)
        if self.activation == "" or (self.activation in _LEAKY and self.slope > 0):
            return linear_injective(self.matrix.T)
        return LayerVerdict("unknown", f"{self.activation} is not supported")


@dataclass(frozen=True, eq=False)
class PiecewiseDecoder:
    """A decoder as a function of arrays, its blocks, and the finding on F1."""

    module: Any  # a copy in float64, on the CPU, in evaluation mode, without a final bijection
    latents: int
    outputs: int
    blocks: tuple[LinearBlock, ...] | None  # None if a layer is not known
    f1: HierarchyCondition

    def __call__(self, z: Float) -> Float:
        """Decode rows of latents, (n, m) -> (n, outputs)."""
        torch = import_torch()
        with torch.no_grad():
            return to_numpy(self.module(torch.as_tensor(np.asarray(z, float))).flatten(1))

    def jacobian(self, z: Float) -> Float:
        """The Jacobian at one latent, (m,) -> (outputs, m)."""
        torch = import_torch()
        point = torch.as_tensor(np.asarray(z, float))
        return to_numpy(torch.func.jacfwd(lambda x: self.module(x[None]).flatten())(point))


def read_decoder(decoder: Any, latents: int, *, seed: int = 0) -> PiecewiseDecoder:
    """Read a torch module layer by layer, and test F1, whether it is piecewise affine.

    A final sigmoid, tanh, softplus or ELU is a known bijection of the observations. Inverting it does not change what
    the data determine, so the conditions are about the decoder before it.
    """
    torch = import_torch()
    if not isinstance(decoder, torch.nn.Module):
        raise InputError(f"decoder must be a torch module; got {type(decoder).__name__}")
    try:
        module = copy.deepcopy(decoder).double().cpu().eval()
    except RuntimeError as error:  # old weight norm keeps weights that are no leaves
        raise InputError(f"the decoder cannot be copied: {error}") from error
    parts = [(name, part) for name, part in layers_of(module) if not kind_of(part).startswith("Dropout")]
    kinds = [kind_of(part) for _, part in parts]
    head = kinds[-1] if parts and kinds[-1] in _BIJECTIONS else ""
    if head:
        parts, kinds = parts[:-1], kinds[:-1]
        module = torch.nn.Sequential(*(part for _, part in parts))
    try:
        with torch.no_grad():
            outputs = int(module(torch.zeros(2, latents, dtype=torch.float64)).flatten(1).shape[1])
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"the decoder does not accept the {latents} latents of the prior: {error}") from error
    parts = expand(parts, latents)
    layers = [one for name, part in parts for one in (part.layers if isinstance(part, ResidualSum) else [(name, part)])]
    kinds = ["ResidualSum" if isinstance(part, ResidualSum) else kind_of(part) for _, part in layers]
    known = all(kind in (*LINEAR_LAYERS, *_PIECEWISE) for kind in kinds)
    smooth = [name for (name, _), kind in zip(layers, kinds, strict=True) if kind in _SMOOTH]
    if smooth:
        f1 = make_condition("F1", "fails", f"The layer {smooth[0]} is not piecewise affine.", exact=True)
    elif known:
        activations = ", ".join(sorted({*kinds} & {*_PIECEWISE})) or "no activation"
        evidence = f"All {len(layers)} layers are piecewise affine and continuous ({activations})."
        if head:
            evidence += f" The final {head} is a known bijection of the observations and is inverted first."
        f1 = make_condition("F1", "holds", evidence, exact=True)
    else:
        f1 = _test_f1(module, latents, seed)
    return PiecewiseDecoder(module, latents, outputs, _blocks(parts, latents) if known else None, f1)


def _test_f1(module: Any, latents: int, seed: int) -> HierarchyCondition:
    """Test F1 for a module of unknown layers: whether it is affine near random latents."""
    torch = import_torch()
    rng = np.random.default_rng(seed)
    z, step = rng.normal(size=(_POINTS, latents)), _STEP * rng.normal(size=(_POINTS, latents))
    with torch.no_grad():
        low, here, high = (to_numpy(module(torch.as_tensor(x)).flatten(1)) for x in (z - step, z, z + step))
    bend = np.linalg.norm(high + low - 2 * here, axis=1)
    slope = np.linalg.norm(high - low, axis=1) + np.finfo(float).eps * (1 + np.linalg.norm(here, axis=1)) / _BENT
    straight = float((bend <= _BENT * slope).mean())
    evidence = (
        f"The layers are of unknown kinds; the decoder is affine near {percent(straight)} of {_POINTS} random latents."
    )
    # Few random points are near a kink, while a smooth function is affine near almost none.
    status: Status = "holds" if straight > 0.9 else "fails" if straight < 0.1 else "unknown"
    return make_condition("F1", status, evidence)


def _blocks(parts: list[tuple[str, Any]], latents: int) -> tuple[LinearBlock, ...]:
    """Join linear layers up to the next activation."""
    torch = import_torch()
    x = torch.zeros(1, *latent_shape_of(latents, parts), dtype=torch.float64)
    blocks: list[LinearBlock] = []
    names: list[str] = []
    matrix: Float | None = np.eye(latents)
    shift: Float | None = np.zeros(latents)
    for name, part in parts:
        if isinstance(part, ResidualSum):
            if names:
                blocks.append(LinearBlock(" + ".join(names), matrix, shift, "", 1.0))
            verdict = part.judge(tuple(x.shape[1:]))
            blocks.append(LinearBlock(name, None, None, "residual sum", math.nan, verdict))
            with torch.no_grad():
                x = part(x)
            width = math.prod(x.shape[1:])
            names, matrix, shift = [], np.eye(width), np.zeros(width)
            continue
        kind = kind_of(part)
        names.append(name)
        if kind in LINEAR_LAYERS:
            try:
                one, off = layer_matrix(name, part, tuple(x.shape[1:]))
                matrix, shift = (None, None) if matrix is None or shift is None else (matrix @ one, shift @ one + off)
            except InputError:  # too large
                matrix = shift = None
        with torch.no_grad():
            x = part(x)
        if kind not in LINEAR_LAYERS:
            blocks.append(LinearBlock(" + ".join(names), matrix, shift, kind, min(negative_slopes(part) or [math.nan])))
            width = math.prod(x.shape[1:])
            names, matrix, shift = [], np.eye(width), np.zeros(width)
    if names:
        blocks.append(LinearBlock(" + ".join(names), matrix, shift, "", 1.0))
    return tuple(blocks)
