"""Singular values of the maps from layers to the penultimate one (appendix A.3.4 of Nelson et al.).

The Jacobian is that of the penultimate representation of one token or patch by the same token in a layer, with all
others in that layer fixed. One backward pass for each dimension of the penultimate layer gives a row of the Jacobians
of all layers at once. In a convolutional net all channels and pixels of a layer vary, and the pooled representation is
differentiated.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.activations.layers import find_layers, hooks, output_tensor
from congruence.arrays import Array, Float

LOST = 1e-5  # of the largest singular value: smaller ones are rounding
STEP = 1e-4  # of central differences in float64


@dataclass(frozen=True, eq=False)
class JacobianSpectra:
    """Singular values of a map at some points."""

    values: Float  # (points, values), from the largest down
    directions: int  # input dimensions of the map; those without a value are lost

    def summary(self) -> dict[str, float]:
        """Medians over points of the largest, the median and the smallest value that is not lost, and of their ratios.

        `constant` is max(largest, 1 / least), the bi-Lipschitz constant at a point, and `condition` their ratio, both
        without the `lost` directions. A map that loses directions has no bi-Lipschitz constant.
        """
        largest = self.values[:, :1]
        alive = self.values > LOST * largest
        least = np.where(alive, self.values, np.inf).min(1)
        return {
            "largest": float(np.median(largest)),
            "median": float(np.median(np.median(self.values, axis=1))),
            "least": float(np.median(least)),
            "constant": float(np.median(np.maximum(largest[:, 0], 1 / least))),
            "condition": float(np.median(largest[:, 0] / least)),
            "directions": float(self.directions),
            "lost": float(np.median(self.directions - alive.sum(1))),
        }


def layer_spectra(model: Any, rows: Array, *, seed: int = 0) -> list[JacobianSpectra]:
    """Singular values of the maps from each layer but the last to the penultimate one, at each of a few rows."""
    import torch

    device = next(model.parameters()).device
    *names, last = model.layers
    batch = {name: value.to(device) for name, value in model.inputs(rows).items()}
    with torch.enable_grad(), model.whole(), _collect(model.net, model.layers) as outputs:
        model.net(**batch)
        own, at = torch.arange(len(rows), device=device), _positions(outputs[last], model, seed)
        target = outputs[last][own, at] if at is not None else outputs[last].flatten(1)  # (n, d)
        layers = [outputs[name] for name in names]
        rows_of: list[list[Any]] = [[] for _ in layers]
        for j in range(target.shape[1]):
            gradients = torch.autograd.grad(target[:, j].sum(), layers, retain_graph=True)
            for gathered, gradient in zip(rows_of, gradients, strict=True):
                gathered.append(gradient.flatten(1) if at is None else gradient[own, at])
    return [_singular(torch.stack(gathered, 1)) for gathered in rows_of]


def decoder_spectra(model: Any, rows: Array, *, seed: int = 0) -> JacobianSpectra:
    """Singular values of the map from the code of one patch in a masked autoencoder to the image, others fixed.

    This is the decoder whose constant Theorem 1 needs. Central differences in float64, since an image has many more
    dimensions than a code.
    """
    import torch

    device = next(model.parameters()).device
    batch = {name: value.to(device) for name, value in model.inputs(rows).items()}
    with torch.no_grad(), model.whole(), _collect(model.net, model.layers[-1:]) as outputs:
        model.net(**batch)
        tokens = outputs[model.layers[-1]].detach().double()  # (n, patches + 1, d)
        own, at = torch.arange(len(rows), device=device), _positions(tokens, model, seed)
        decoder = copy.deepcopy(model.net.decoder).double()
        columns = []
        for j in range(tokens.shape[2]):
            move = torch.zeros_like(tokens)
            move[own, at, j] = STEP
            ahead, behind = (model.paint(tokens + sign * move, decoder) for sign in (1, -1))
            columns.append((ahead - behind).flatten(1) / (2 * STEP))
    return _singular(torch.stack(columns, 2))


def _positions(output: Any, model: Any, seed: int) -> Any:
    """A random position in each row, among those that representations are taken from; None for feature maps."""
    import torch

    if output.ndim != 3:
        return None
    drawn = np.random.default_rng(seed).integers(model.skip, output.shape[1], size=len(output))
    return torch.as_tensor(drawn, device=output.device)


@contextlib.contextmanager
def _collect(net: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a dictionary that collects the output tensors of layers, in the graph, while the block runs."""
    import torch

    outputs: dict[str, Any] = {}

    def keep(name: str, output: Any) -> None:
        tensor = output_tensor(output)
        outputs[name] = tensor.requires_grad_() if torch.is_grad_enabled() and not tensor.requires_grad else tensor

    with hooks(find_layers(net, names), keep):
        yield outputs


def _singular(jacobians: Any) -> JacobianSpectra:
    """Singular values of Jacobians (n, out, in)."""
    import torch

    wide = jacobians.double()
    square = wide @ wide.mT if wide.shape[1] <= wide.shape[2] else wide.mT @ wide
    values = torch.linalg.eigvalsh(square).flip(-1).clamp(min=0).sqrt()
    return JacobianSpectra(np.asarray(values.detach().cpu().numpy()), wide.shape[2])
