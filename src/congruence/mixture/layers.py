"""Split a decoder into blocks of one linear map and one activation, and test each block for injectivity."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.decoder.certificates import LINEAR, kind_of, latent_shape_of, layer_matrix, layers_of
from congruence.decoder.probed import import_torch
from congruence.errors import InputError
from congruence.formatting import percent
from congruence.mixture.conditions import FAILS, HOLDS, UNKNOWN, Condition, judged
from congruence.mixture.rectifiers import LayerVerdict, leaky_injective, relu_injective

LEAKY = ("LeakyReLU", "PReLU")
PIECEWISE = ("ReLU", *LEAKY, "ReLU6", "Hardtanh", "Hardsigmoid", "MaxPool1d", "MaxPool2d", "MaxPool3d")
BIJECTIONS = ("Sigmoid", "Tanh", "Softplus", "ELU")  # smooth, of each number alone, and one to one
SMOOTH = (*BIJECTIONS, "SELU", "GELU", "SiLU", "Mish", "Softmax", "LogSoftmax", "LayerNorm", "InstanceNorm")
TRIED, STEP, BENT = 200, 1e-4, 1e-6  # points, step size, and curvature relative to the slope that counts as none


@dataclass(frozen=True, eq=False)
class Block:
    """A linear map x -> x @ matrix + shift and the activation after it."""

    name: str
    matrix: Float | None  # (inputs, outputs); None where it is too large to be written down
    shift: Float | None
    activation: str  # "ReLU", "LeakyReLU", "" for none, or another
    slope: float  # of the negative side; nan for others


@dataclass(frozen=True, eq=False)
class Reading:
    """A decoder as blocks, and the finding on F1."""

    module: Any  # a copy in float64, on the CPU, in evaluation mode, without its head
    latents: int
    outputs: int
    blocks: tuple[Block, ...] | None  # None where some layer is not known
    head: str  # the last activation, where it is a known bijection and was removed, or ""
    f1: Condition

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


def read_decoder(decoder: Any, latents: int, *, seed: int = 0) -> Reading:
    """Read a torch module layer by layer, and test F1: is it piecewise affine?

    A final sigmoid, tanh, softplus or ELU is a known bijection of the observations. Inverting it does not change what
    the data determine, so the conditions are about the decoder before it.
    """
    torch = import_torch()
    if not isinstance(decoder, torch.nn.Module):
        raise InputError(f"decoder must be a torch module made of layers, not {type(decoder).__name__}")
    try:
        module = copy.deepcopy(decoder).double().cpu().eval()
    except RuntimeError as error:  # old weight norm keeps weights that are no leaves
        raise InputError(f"the decoder cannot be copied: {error}") from error
    parts = [(name, part) for name, part in layers_of(module) if not kind_of(part).startswith("Dropout")]
    head = kind_of(parts[-1][1]) if parts and kind_of(parts[-1][1]) in BIJECTIONS else ""
    if head:
        parts = parts[:-1]
        module = torch.nn.Sequential(*(part for _, part in parts))
    outputs = _tried(module, latents)
    known = [part for _, part in parts if kind_of(part) in (*LINEAR, *PIECEWISE)]
    f1 = _by_layers(parts, head) or _by_trying(module, latents, seed)
    blocks = _blocks(parts, latents) if len(known) == len(parts) else None
    return Reading(module, latents, outputs, blocks, head, f1)


def _tried(module: Any, latents: int) -> int:
    torch = import_torch()
    try:
        with torch.no_grad():
            return int(module(torch.zeros(2, latents, dtype=torch.float64)).flatten(1).shape[1])
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"the decoder does not take the {latents} latents of the prior: {error}") from error


def _by_layers(parts: list[tuple[str, Any]], head: str) -> Condition | None:
    """F1 where all layers are known, or one of them is smooth."""
    smooth = [name for name, part in parts if kind_of(part) in SMOOTH]
    if smooth:
        return judged("F1", FAILS, f"The layer {smooth[0]} is not piecewise affine.", exact=True)
    if any(kind_of(part) not in (*LINEAR, *PIECEWISE) for _, part in parts):
        return None
    kinds = sorted({kind_of(part) for _, part in parts if kind_of(part) in PIECEWISE}) or ["no activation"]
    said = f"All {len(parts)} layers are piecewise affine and continuous ({', '.join(kinds)})."
    if head:
        said += f" The final {head} is a known bijection of the observations and is undone first."
    return judged("F1", HOLDS, said, exact=True)


def _by_trying(module: Any, latents: int, seed: int) -> Condition:
    """F1 of a module whose layers are not known: is it affine near random latents?"""
    torch = import_torch()
    rng = np.random.default_rng(seed)
    z, step = rng.normal(size=(TRIED, latents)), STEP * rng.normal(size=(TRIED, latents))
    with torch.no_grad():
        low, here, high = (to_numpy(module(torch.as_tensor(x)).flatten(1)) for x in (z - step, z, z + step))
    bend = np.linalg.norm(high + low - 2 * here, axis=1)
    slope = np.linalg.norm(high - low, axis=1) + np.finfo(float).eps * (1 + np.linalg.norm(here, axis=1)) / BENT
    straight = float((bend <= BENT * slope).mean())
    said = f"The layers are of unknown kinds; the decoder is affine near {percent(straight)} of {TRIED} random latents."
    # A kink is near few points by chance, while a smooth function is affine near almost none.
    status = HOLDS if straight > 0.9 else FAILS if straight < 0.1 else UNKNOWN
    return judged("F1", status, said)


def _blocks(parts: list[tuple[str, Any]], latents: int) -> tuple[Block, ...] | None:
    """Join linear layers up to the next activation."""
    shape: tuple[int, ...] = latent_shape_of(latents, parts)
    torch = import_torch()
    x = torch.zeros(1, *shape, dtype=torch.float64)
    blocks: list[Block] = []
    names: list[str] = []
    matrix: Float | None = np.eye(latents)
    shift: Float | None = np.zeros(latents)
    for name, part in parts:
        kind = kind_of(part)
        if kind in LINEAR:
            names.append(name)
            try:
                one, off = layer_matrix(name, part, tuple(x.shape[1:]))
                matrix, shift = (None, None) if matrix is None or shift is None else (matrix @ one, shift @ one + off)
            except InputError:  # too large
                matrix = shift = None
            with torch.no_grad():
                x = part(x)
            continue
        blocks.append(Block(" + ".join([*names, name]), matrix, shift, kind, _slope(part)))
        with torch.no_grad():
            x = part(x)
        width = math.prod(x.shape[1:])
        names, matrix, shift = [], np.eye(width), np.zeros(width)
    if names:
        blocks.append(Block(" + ".join(names), matrix, shift, "", 1.0))
    return tuple(blocks)


def _slope(part: Any) -> float:
    kind = kind_of(part)
    if kind == "ReLU":
        return 0.0
    if kind == "LeakyReLU":
        return float(part.negative_slope)
    if kind == "PReLU":
        return float(part.weight.detach().min())
    return math.nan


def judge_block(block: Block, *, seed: int = 0) -> LayerVerdict:
    """Whether one block is injective on all of its inputs."""
    if block.matrix is None or block.shift is None:
        return LayerVerdict(UNKNOWN, "its matrix is too large")
    weight = block.matrix.T
    if block.activation == "ReLU" or (block.activation in LEAKY and block.slope == 0):
        return relu_injective(weight, block.shift, seed=seed)
    if block.activation == "" or (block.activation in LEAKY and block.slope > 0):
        return leaky_injective(weight, 1.0)
    return LayerVerdict(UNKNOWN, f"{block.activation} is not supported")
