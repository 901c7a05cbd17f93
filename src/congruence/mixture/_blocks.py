"""Split a decoder into blocks of one linear map and one activation, and test each block for injectivity.

Modules with their own `forward` are read as chains of layers and residual sums, x -> skip(x) + branch(x). Such a sum is
injective if the branch has a smaller Lipschitz constant than the least stretch of the skip connection (Behrmann et al.
2019 for the identity): equal outputs of x and y imply stretch |x - y| <= constant |x - y|.
"""

from __future__ import annotations

import copy
import math
import operator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.decoder.certificates import LINEAR, kind_of, latent_shape_of, layer_matrix, layers_of, negative_slopes
from congruence.decoder.prepared_decoder import import_torch
from congruence.errors import InputError, one_sentence
from congruence.formatting import percent
from congruence.mixture.conditions import HierarchyCondition, make_condition
from congruence.mixture.relu_layers import LayerVerdict, linear_injective, relu_injective
from congruence.result import Status

LINEAR_LAYERS = (*LINEAR, "Scaling")
_SLOPE_ONE = ("ReLU", "LeakyReLU", "PReLU", "ReLU6", "Hardtanh", "Hardsigmoid")  # largest slope at most 1, or a leak
_CHECKED = 32  # random rows on which a chain is compared with its module
_Parts = list[tuple[str, Any]]
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
        with torch.no_grad(), one_sentence("the decoder fails"):
            return to_numpy(self.module(torch.as_tensor(np.asarray(z, float))).flatten(1))

    def jacobian(self, z: Float) -> Float:
        """The Jacobian at one latent, (m,) -> (outputs, m)."""
        torch = import_torch()
        point = torch.as_tensor(np.asarray(z, float))
        with one_sentence("the decoder fails when it is differentiated"):
            return to_numpy(torch.func.jacfwd(lambda x: self.module(x[None]).flatten())(point))


def read_decoder(decoder: Any, latents: int, *, seed: int = 0) -> PiecewiseDecoder:
    """Read a torch module layer by layer, and test F1, whether it is piecewise affine.

    A final sigmoid, tanh, softplus or ELU is a known bijection of the observations. Inverting it does not change what
    the data determine, so the conditions are about the decoder before it.
    """
    torch = import_torch()
    if not isinstance(decoder, torch.nn.Module):
        raise InputError(f"decoder must be a torch module; got {type(decoder).__name__}")
    with one_sentence("the decoder cannot be copied", str):  # old weight norm keeps weights that are no leaves
        module = copy.deepcopy(decoder).double().cpu().eval()
    parts = [(name, part) for name, part in layers_of(module) if not kind_of(part).startswith("Dropout")]
    kinds = [kind_of(part) for _, part in parts]
    head = kinds[-1] if parts and kinds[-1] in _BIJECTIONS else ""
    if head:
        parts, kinds = parts[:-1], kinds[:-1]
        module = torch.nn.Sequential(*(part for _, part in parts))
    with torch.no_grad(), one_sentence(f"the decoder does not accept the {latents} latents of the prior", str):
        outputs = int(module(torch.zeros(2, latents, dtype=torch.float64)).flatten(1).shape[1])
    bad = next((name for name, weights in module.named_parameters() if not torch.isfinite(weights).all()), None)
    if bad is not None:
        raise InputError(f"the weights of the decoder must be finite; got NaN or infinity in {bad}")
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
    with torch.no_grad(), one_sentence("the decoder fails"):
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
    for name, part in (*parts, ("", None)):
        residual = isinstance(part, ResidualSum)
        if names and (part is None or residual):  # linear layers without an activation
            blocks.append(LinearBlock(" + ".join(names), matrix, shift, "", 1.0))
        if part is None:
            break
        kind = "residual sum" if residual else kind_of(part)
        if residual:
            verdict = part.judge(tuple(x.shape[1:]))
            blocks.append(LinearBlock(name, None, None, kind, math.nan, verdict))
        else:
            names.append(name)
        if kind in LINEAR_LAYERS:
            try:
                one, off = layer_matrix(name, part, tuple(x.shape[1:]))
                matrix, shift = (None, None) if matrix is None or shift is None else (matrix @ one, shift @ one + off)
            except InputError:  # too large
                matrix = shift = None
        elif not residual:
            slope = min(negative_slopes(part) or [math.nan])
            blocks.append(LinearBlock(" + ".join(names), matrix, shift, kind, slope))
        with torch.no_grad():
            x = part(x)
        if kind not in LINEAR_LAYERS:
            width = math.prod(x.shape[1:])
            names, matrix, shift = [], np.eye(width), np.zeros(width)
    return tuple(blocks)


@dataclass(frozen=True, eq=False)
class ResidualSum:
    """x -> skip(x) + branch(x), each a chain of layers; an empty chain is the identity."""

    skip: _Parts
    branch: _Parts

    def __call__(self, x: Any) -> Any:
        return _apply(self.skip, x) + _apply(self.branch, x)

    @property
    def layers(self) -> _Parts:
        """The layers of both chains."""
        return [*self.skip, *self.branch]

    def judge(self, shape: tuple[int, ...]) -> LayerVerdict:
        """Test whether the sum is injective for inputs of this shape."""
        torch = import_torch()
        with torch.no_grad():
            sizes = {
                _apply(chain, torch.zeros(1, *shape, dtype=torch.float64)).shape for chain in (self.skip, self.branch)
            }
        if len(sizes) > 1:
            return LayerVerdict("unknown", "a sum of outputs of different shapes")
        bounds = []
        for one, other in ((self.skip, self.branch), (self.branch, self.skip)):
            if all(kind_of(part) in LINEAR_LAYERS for _, part in one):
                least, largest = _stretch(one, shape)[0], _stretch(other, shape)[1]
                if largest < least:
                    how = f"its branch has a Lipschitz constant of at most {largest:.3g}, below the least stretch "
                    return LayerVerdict("holds", f"{how}{least:.3g} of its skip connection")
                bounds.append(f"{largest:.3g} is not below {least:.3g}")
        return LayerVerdict("unknown", f"a residual sum whose Lipschitz constant of {bounds[0]}" if bounds else "a sum")


def expand(parts: _Parts, latents: int) -> _Parts:
    """Replace modules with their own `forward` by the chains they compute, where these can be read.

    The chains are used only if they give the outputs of the modules: operations in place, for example, are not seen.
    """
    torch = import_torch()
    x = torch.as_tensor(np.random.default_rng(0).normal(size=(_CHECKED, latents)))
    expanded: _Parts = []
    for name, part in parts:
        chain = _read(name, part)
        with torch.no_grad(), one_sentence("the decoder fails"):
            y = part(x.clone())
            if chain is None or not torch.allclose(_apply(chain, x.clone()), y, rtol=1e-9, atol=1e-12):
                chain = [(name, part)]
        expanded += chain
        x = y
    return expanded


def _read(name: str, part: Any) -> _Parts | None:
    """The chain of a module whose `forward` consists of layers, rectifiers, products with numbers and sums."""
    torch = import_torch()
    if type(part).__module__.startswith("torch.nn") or any("with hooks" in kind_of(one) for one in part.modules()):
        return None
    try:
        graph = torch.fx.symbolic_trace(part).graph
    except Exception:  # whatever a forward that depends on its input raises
        return None
    modules = dict(part.named_modules())

    class Scaling(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, x: Any) -> Any:
            return self.factor * x

    @cache
    def chain(node: Any) -> _Parts | None:
        """The layers from the input to a node, each named by its place in the graph."""
        if node.op == "placeholder":
            return []
        inputs = [one for one in node.args if isinstance(one, torch.fx.Node)]
        before = [chain(one) for one in inputs]
        if not before or node.kwargs.get("alpha", 1) != 1 or any(one is None for one in before):
            return None
        first: _Parts = before[0] or []
        label = f"{name}.{node.target if node.op == 'call_module' else node.name}"
        if node.op == "call_module" and len(node.args) == 1:
            layers = layers_of(modules[node.target])
            return [*first, *((label, one) for _, one in layers if not kind_of(one).startswith("Dropout"))]
        if node.target in (operator.add, operator.iadd, torch.add, "add") and len(before) == 2 == len(node.args):
            second: _Parts = before[1] or []
            same = 0
            while same < min(len(first), len(second)) and first[same][1] is second[same][1]:
                same += 1
            return [*first[:same], (label, ResidualSum(first[same:], second[same:]))]
        if node.target in (torch.relu, torch.nn.functional.relu, "relu") and len(node.args) == 1:
            return [*first, (label, torch.nn.ReLU())]
        if node.target in (operator.mul, torch.mul, "mul") and len(before) == 1:
            factor = next(one for one in node.args if one is not inputs[0])
            if isinstance(factor, int | float):
                return [*first, (label, Scaling(float(factor)))]
        return None

    nodes = list(graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    return chain(nodes[-1].args[0]) if len(inputs) == 1 and isinstance(nodes[-1].args[0], torch.fx.Node) else None


def _apply(parts: _Parts, x: Any) -> Any:
    for _, part in parts:
        x = part(x)
    return x


def _stretch(parts: _Parts, shape: tuple[int, ...]) -> tuple[float, float]:
    """The least stretch of a chain of linear layers (0 with others), and the largest of any chain; inf if unknown."""
    torch = import_torch()
    x = torch.zeros(1, *shape, dtype=torch.float64)
    least, largest = 1.0, 1.0
    matrix: Float | None = None
    for name, part in parts:
        kind = kind_of(part)
        if kind in LINEAR_LAYERS:
            try:
                one = layer_matrix(name, part, tuple(x.shape[1:]))[0]
            except InputError:  # too large
                return 0.0, math.inf
            matrix = one if matrix is None else matrix @ one
        elif kind in _SLOPE_ONE:
            largest *= 1.0 if matrix is None else float(np.linalg.norm(matrix, 2))
            largest *= max([1.0, *map(abs, negative_slopes(part))])
            least, matrix = 0.0, None
        else:
            return 0.0, math.inf
        with torch.no_grad():
            x = part(x)
    if matrix is not None:
        values = np.linalg.svd(matrix, compute_uv=False)
        least *= float(values[-1]) if matrix.shape[1] >= matrix.shape[0] else 0.0
        largest *= float(values[0])
    return least, largest
