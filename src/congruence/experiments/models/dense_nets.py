"""Dense nets: chains of linear layers with ReLU or LeakyReLU, and ladders in which codes enter at several depths."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from congruence.errors import InputError
from congruence.experiments.models.nets import LEAK

ACTIVATIONS = ("relu", "leaky_relu")
SHARE = 0.1  # with which a rung is added to what comes from the rungs above


def dense(widths: Sequence[int], activation: str, *, open_end: bool = True) -> Any:
    """A `Sequential` of linear layers with an activation between; without `open_end` the last has one, too.

    A piecewise affine map with ReLU ("relu") or LeakyReLU of slope 0.2 ("leaky_relu").
    """
    if activation not in ACTIVATIONS:
        raise InputError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}")
    layers: list[Any] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU() if activation == "relu" else nn.LeakyReLU(LEAK)]
    return nn.Sequential(*(layers[:-1] if open_end else layers))


class LadderEncoder(nn.Module):  # type: ignore[misc]
    """Facet j is read off after j + 1 layers: the first facets are those of low level, the last of high level."""

    def __init__(self, inputs: int, hidden: Sequence[int], outs: Sequence[int], activation: str) -> None:
        super().__init__()
        widths = pairwise((inputs, *hidden))
        self.backbone = nn.ModuleList(dense(pair, activation, open_end=False) for pair in widths)
        self.heads = nn.ModuleList(nn.Linear(width, out) for width, out in zip(hidden, outs, strict=True))

    def forward(self, x: Any) -> list[Any]:
        """Rows (n, inputs) to what each head gives."""
        found = []
        for layer, head in zip(self.backbone, self.heads, strict=True):
            x = layer(x)
            found.append(head(x))
        return found


class LadderDecoder(nn.Module):  # type: ignore[misc]
    """The last facet enters first; each one before it is added, through a layer of its own, one layer later.

    h = a(W_J z_J); then for j = J - 1, ..., 1: h = a(V_j h) + 0.1 fade_j a(W_j z_j); at last V_0 a(V h). It is
    piecewise affine, as `activation` is. `fades` (J,) are 1 but while facets are faded in.
    """

    def __init__(self, latents: Sequence[int], hidden: Sequence[int], out: int, activation: str) -> None:
        super().__init__()
        self.latents = list(latents)
        pairs = zip(latents, hidden, strict=True)
        self.rungs = nn.ModuleList(dense(pair, activation, open_end=False) for pair in pairs)
        self.backbone = nn.ModuleList(dense(pair[::-1], activation, open_end=False) for pair in pairwise(hidden))
        self.last = dense((hidden[0], hidden[0], out), activation)
        self.register_buffer("fades", torch.ones(len(self.latents)))

    def forward(self, z: Any) -> Any:
        """Codes (n, sum of latents) to what rows are made of, (n, out)."""
        *codes, top = z.split(self.latents, 1)
        h = self.rungs[-1](top)
        for j in reversed(range(len(codes))):
            h = self.backbone[j](h) + SHARE * self.fades[j] * self.rungs[j](codes[j])
        return self.last(h)

    def as_chain(self) -> Any:
        """The same map as a `Sequential` of linear layers and activations, in which codes wait until they are needed.

        A code z passes an activation a of slope s as a(z) and a(-z), since a(z) - a(-z) = (1 + s) z. What asks for a
        chain of layers (certificates, linear pieces, injectivity) can so be asked of a ladder.
        """
        kind = self.last[1]
        both = 1 + getattr(kind, "negative_slope", 0.0)
        layers: list[Any] = []
        above, codes = None, torch.eye(sum(self.latents))  # the layer before, and all codes, as maps of what is at hand
        for j in reversed(range(len(self.latents))):
            start = sum(self.latents[:j])
            own, waiting = codes[start : start + self.latents[j]], codes[:start]
            linear = [] if above is None else [_after(self.backbone[j][0], above)]
            linear.append(_after(self.rungs[j][0], own))
            weights, biases = (torch.cat(part) for part in zip(*linear, strict=True))
            biases = torch.cat([biases, torch.zeros(2 * start)])
            layers += [_layer(torch.cat([weights, waiting, -waiting]), biases), copy.deepcopy(kind)]

            *blocks, plus, minus = torch.eye(len(biases)).split([len(one) for one, _ in linear] + [start, start])
            above = blocks[0] if above is None else blocks[0] + SHARE * self.fades[j].cpu() * blocks[1]
            codes = (plus - minus) / both
        return nn.Sequential(*layers, _layer(*_after(self.last[0], above)), *copy.deepcopy(self.last).cpu()[1:])


def _after(layer: Any, before: Any) -> tuple[Any, Any]:
    """Weight and bias of a linear layer after a matrix."""
    return layer.weight.detach().cpu() @ before, layer.bias.detach().cpu()


def _layer(weight: Any, bias: Any) -> Any:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer
