"""How much the map from a layer to the penultimate one stretches and shrinks (appendix A.3.4 of Nelson et al.).

What a token or a patch has in a layer is moved, everything else in that layer is held, and it is seen how its
penultimate representation moves: a Jacobian of the width of the penultimate layer by that of the layer. One backward
pass for each number of the penultimate layer gives a row of the Jacobians of all layers at once. Of a convolutional net
all channels and pixels of a layer are moved, and the pooled representation is looked at.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from congruence.activations.layers import find_layers, output_tensor
from congruence.arrays import Array, Float

LOST = 1e-5  # of the largest singular value: less is rounding
STEP = 1e-4  # by which a token is moved in float64, where no gradient is taken


@dataclass(frozen=True, eq=False)
class Spectra:
    """Singular values of a map at some points."""

    values: Float  # (points, values), from the largest down
    directions: int  # that the map starts with; those beyond the values are lost

    def summary(self) -> dict[str, float]:
        """Medians over points: of the largest, the median and the least value that is not lost, and what follows.

        `constant` is max(largest, 1 / least), the bi-Lipschitz constant at a point, and `condition` their ratio, both
        on what the map keeps. `lost` directions are those that it forgets: where there are some, it has no constant.
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


def layer_spectra(model: Any, rows: Array, *, seed: int = 0) -> list[Spectra]:
    """Singular values of the maps from each layer but the last to the penultimate one.

    Parameters
    ----------
    model : Configured
        In evaluation mode.
    rows : (n, ...)
        Few rows: a Jacobian is taken at each.
    """
    import torch

    device = next(model.parameters()).device
    *names, last = model.layers
    batch = {name: value.to(device) for name, value in model.inputs(rows).items()}
    with torch.enable_grad(), model.whole(), _kept(model.net, model.layers) as found:
        model.net(**batch)
        own, at = torch.arange(len(rows), device=device), _positions(found[last], model, seed)
        outputs = found[last][own, at] if at is not None else found[last].flatten(1)  # (n, d)
        layers = [found[name] for name in names]
        rows_of: list[list[Any]] = [[] for _ in layers]
        for j in range(outputs.shape[1]):
            gradients = torch.autograd.grad(outputs[:, j].sum(), layers, retain_graph=True)
            for gathered, gradient in zip(rows_of, gradients, strict=True):
                moved = gradient.flatten(1) if at is None else gradient[own, at]
                gathered.append(moved)
    return [_singular(torch.stack(gathered, 1)) for gathered in rows_of]


def decoder_spectra(model: Any, rows: Array, *, seed: int = 0) -> Spectra:
    """Singular values of the map from what the encoder of a masked autoencoder gives for one patch to the picture.

    The other patches are held. This is the decoder whose constant Theorem 1 asks for. Central differences in float64,
    since a picture has many more numbers than a patch.
    """
    import torch

    device = next(model.parameters()).device
    batch = {name: value.to(device) for name, value in model.inputs(rows).items()}
    with torch.no_grad(), model.whole(), _kept(model.net, model.layers[-1:]) as found:
        model.net(**batch)
        tokens = found[model.layers[-1]].detach().double()  # (n, patches + 1, d)
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
    """A position of each row, drawn among those that representations are taken of; None where there are pixels."""
    import torch

    if output.ndim != 3:
        return None
    drawn = np.random.default_rng(seed).integers(model.skip, output.shape[1], size=len(output))
    return torch.as_tensor(drawn, device=output.device)


@contextlib.contextmanager
def _kept(net: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a dictionary into which layers put the tensors they give, in the graph, while the block runs."""
    import torch

    found: dict[str, Any] = {}

    def keep(name: str, module: Any, args: Any, output: Any) -> None:
        tensor = output_tensor(output)
        found[name] = tensor.requires_grad_() if torch.is_grad_enabled() and not tensor.requires_grad else tensor

    handles = [module.register_forward_hook(partial(keep, name)) for name, module in find_layers(net, names).items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _singular(jacobians: Any) -> Spectra:
    """Singular values of Jacobians (n, out, in)."""
    import torch

    wide = jacobians.double()
    square = wide @ wide.mT if wide.shape[1] <= wide.shape[2] else wide.mT @ wide
    values = torch.linalg.eigvalsh(square).flip(-1).clamp(min=0).sqrt()
    return Spectra(np.asarray(values.detach().cpu().numpy()), wide.shape[2])
