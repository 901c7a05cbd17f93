"""Read modules with their own `forward` as chains of layers and residual sums, x -> skip(x) + branch(x).

Such a sum is injective if the branch has a smaller Lipschitz constant than the least stretch of the skip connection
(Behrmann et al. 2019 for the identity): equal outputs of x and y imply stretch |x - y| <= constant |x - y|.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.decoder.certificates import LINEAR, kind_of, layer_matrix, layers_of, negative_slopes
from congruence.decoder.prepared_decoder import import_torch
from congruence.errors import InputError
from congruence.mixture.relu_layers import LayerVerdict

LINEAR_LAYERS = (*LINEAR, "Scaling")
_SLOPE_ONE = ("ReLU", "LeakyReLU", "PReLU", "ReLU6", "Hardtanh", "Hardsigmoid")  # largest slope at most 1, or a leak
_CHECKED = 32  # random rows on which a chain is compared with its module
_Parts = list[tuple[str, Any]]


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
        with torch.no_grad():
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
                return [*first, (label, _scaling(float(factor)))]
        return None

    nodes = list(graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    return chain(nodes[-1].args[0]) if len(inputs) == 1 and isinstance(nodes[-1].args[0], torch.fx.Node) else None


def _scaling(factor: float) -> Any:
    """Multiplication by a number, as a layer."""
    torch = import_torch()

    class Scaling(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return factor * x

    return Scaling()


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
            largest *= 1.0 if matrix is None else _norm(matrix)
            largest *= max(1.0, *(abs(slope) for slope in negative_slopes(part)), 1.0)
            least, matrix = 0.0, None
        else:
            return 0.0, math.inf
        with torch.no_grad():
            x = part(x)
    if matrix is not None:
        values = np.linalg.svd(matrix, compute_uv=False)
        least *= float(values[-1]) if matrix.shape[1] >= matrix.shape[0] else 0.0
        largest *= _norm(matrix)
    return least, largest


def _norm(matrix: Float) -> float:
    return float(np.linalg.norm(matrix, 2))
