"""MFCVAE: several facets, each with its own latents and mixture; ladders, in which codes enter at several depths."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from congruence.arrays import Float
from congruence.checks import check_integer, check_number
from congruence.errors import InputError
from congruence.experiments.models._nets import LEAK
from congruence.experiments.models.mixture_priors import LearnedMixture, SoftplusMixture, product
from congruence.experiments.models.mixture_vaes import (
    VaDE,
    as_sigma,
    dense,
    mixture_divergences,
    sampled_divergences,
)

SHARE = 0.1  # weight of a rung when it is added to the rungs above
TORCH_LEAK = 0.01  # the slope of LeakyReLU in torch, and in the program of the authors of MFCVAE


class MFCVAE(VaDE):
    """A multi-facet clustering VAE: the prior is a product of mixtures, one for each facet of the code.

    The loss is that of a VaDE with the divergences of all facets summed. With `ladder` (as published) the first facet
    branches off early in the encoder and enters late in the decoder, so it represents low-level features.

    Parameters
    ----------
    latents : int
        Of all facets together; they are divided evenly.
    facets : int
        Number of facets.
    clusters : int
        Components of the mixture of each facet.
    hidden : sequence of int
        With `ladder` one width for each facet.
    ladder : bool
        Whether facets are at different depths; otherwise encoder and decoder are those of a VaDE.
    fade : int
        Steps over which each facet but the last is faded in, one after the other from the last to the first: its rung
        of the decoder and its divergences are multiplied by a weight that grows to 1. With 0 all are active at once.
    hold : int
        Steps before each facet is faded in (published for MNIST: 201 epochs each); with 0 one follows the other.
    start_variance : float, optional
        Initial variance of every component (published for MNIST: 0.01), of codes that are not standardised; all have
        the same initial weight. By default variances and weights are those of the fitted mixture. With it the rest is
        as published, too: while training, the bound is that of the mixture as a density, at the sampled code; the
        encoder gives the log of its variance; variances of components are a softplus; and LeakyReLU has slope 0.01.
    pretraining : int
        As of VaDE. Published: none; but then a facet that enters the decoder late takes long to become informative.
    **options
        As of `MixtureVAE`, without `prior`.

    References
    ----------
    Falck, Zhang, Willetts, Nicholson, Yau and Holmes 2021; Zhao, Song and Ermon 2017 (the ladder); Li et al. 2020
    (fading in).
    """

    name = "mfcvae"
    options = (*VaDE.options, "facets", "ladder", "fade", "hold", "start_variance")

    def __init__(
        self,
        latents: int = 10,
        *,
        facets: int = 2,
        clusters: int = 25,
        hidden: Sequence[int] = (500, 2000),
        ladder: bool = True,
        fade: int = 0,
        hold: int = 0,
        start_variance: float | None = None,
        pretraining: int = 2000,
        **options: Any,
    ) -> None:
        self.facets = check_integer("facets", facets, 1, check_integer("latents", latents))
        if ladder and len(hidden) != facets:
            raise InputError(f"hidden must have one width for each of the {facets} facets; got {list(hidden)}")
        if fade and not ladder:
            raise InputError(f"fade must be 0 without ladder; got {fade}")
        if hold and not fade:
            raise InputError(f"hold must be 0 without fade; got {hold}")
        self.ladder, self.fade, self.hold = bool(ladder), check_integer("fade", fade, 0), check_integer("hold", hold, 0)
        if start_variance is not None:
            self.start_variance = check_number("start_variance", start_variance, 0, open_low=True)
        self.shares = [latents // facets + (j < latents % facets) for j in range(facets)]
        super().__init__(latents, clusters=clusters, hidden=hidden, pretraining=pretraining, **options)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self._set_fades()

    def posterior(self, x: Any) -> tuple[Any, Any]:
        """Mean and standard deviation of the posterior of every row, both (n, latents), by facet."""
        outs = self.encoder(x) if self.ladder else [self.encoder(x)]
        mean, rest = (torch.cat(part, 1) for part in zip(*(out.chunk(2, dim=1) for out in outs), strict=True))
        return mean, as_sigma(rest) if self.start_variance is None else (rest / 2).exp()

    def divergences(self, mean: Any, sigma: Any, z: Any) -> tuple[Any, Any]:
        """The sums over facets, (n,) each, weighted while facets are faded in."""
        sampled = self.training and self.start_variance is not None
        measure = sampled_divergences if sampled else mixture_divergences
        fades = self.decoder.fades if self.ladder else torch.ones(self.facets, device=self.steps.device)
        found = [
            (fade * one, fade * other)
            for fade, (where, prior) in zip(fades, self.learned_mixtures(), strict=True)
            for one, other in [measure(prior, mean[:, where], sigma[:, where], z[:, where])]
        ]
        return sum(one for one, _ in found), sum(other for _, other in found)

    def state_shares(self, codes: Any) -> list[Any]:
        """The probabilities of the states of each facet, (n, clusters) each."""
        return [prior.log_joint(codes[:, where]).softmax(1) for where, prior in self.learned_mixtures()]

    def responsibilities(self, codes: Any) -> Any:
        """The probability of each component of `mixture_prior`, (n, clusters ** facets)."""
        first, *others = self.state_shares(codes)
        for other in others:
            first = (first[:, :, None] * other[:, None]).flatten(1)
        return first

    def mixture_prior(self) -> tuple[Float, Float, Float]:
        """The product of all facets as numpy arrays, with clusters ** facets components, at most 10,000."""
        return product(self.facet_priors())

    def facet_priors(self) -> list[tuple[Float, Float, Float]]:
        """Weights, means and covariances of each facet."""
        return [prior.arrays() for _, prior in self.learned_mixtures()]

    def learned_mixtures(self) -> list[tuple[slice, LearnedMixture]]:
        """Each mixture of the prior and its latents."""
        ends = [sum(self.shares[: j + 1]) for j in range(self.facets)]
        return [(slice(end - m, end), prior) for end, m, prior in zip(ends, self.shares, self.prior, strict=True)]

    def ends(self) -> list[tuple[slice, Any, Any]]:
        """For each facet (of a ladder) its latents, the layer that outputs them and the layer that takes them."""
        if not self.ladder:
            return super().ends()
        facets = zip(self.learned_mixtures(), self.encoder.heads, self.decoder.rungs, strict=True)
        return [(where, head, rung[0]) for (where, _), head, rung in facets]

    def after_step(self) -> None:
        """Count a step of the optimiser and update the weights of facets that are faded in."""
        if self.fade:
            self.steps += 1
            self._set_fades()

    def _set_fades(self) -> None:
        """The last facet has weight 1; that of the one before it grows over `fade` steps after `hold`, and so on."""
        if self.fade:
            waits = torch.arange(self.facets - 1, -1, -1, device=self.steps.device)
            starts = waits * self.hold if self.hold else (waits - 1) * self.fade
            grown = ((self.steps - starts) / self.fade).clamp(0, 1)
            self.decoder.fades.copy_(torch.where(waits == 0, torch.ones_like(grown), grown))

    def _make_prior(self, prior: Any) -> Any:
        kind = LearnedMixture if self.start_variance is None else SoftplusMixture
        return nn.ModuleList(kind(self.clusters, m) for m in self.shares)

    def _make_nets(self) -> tuple[Any, Any]:
        make = partial(dense, activation=self.activation, slope=LEAK if self.start_variance is None else TORCH_LEAK)
        if not self.ladder:
            hidden = (self.width, *self.hidden, 2 * self.latents)
            return make(hidden), make((self.latents, *reversed(self.hidden), self.width))
        encoder = LadderEncoder(self.width, self.hidden, [2 * m for m in self.shares], make)
        return encoder, LadderDecoder(self.shares, self.hidden, self.width, make)


class LadderEncoder(nn.Module):  # type: ignore[misc]
    """An encoder that outputs facet j after j + 1 layers: the first facets are low-level, the last high-level."""

    def __init__(self, inputs: int, hidden: Sequence[int], outs: Sequence[int], make: Callable[..., Any]) -> None:
        super().__init__()
        widths = pairwise((inputs, *hidden))
        self.backbone = nn.ModuleList(make(pair, open_end=False) for pair in widths)
        self.heads = nn.ModuleList(nn.Linear(width, out) for width, out in zip(hidden, outs, strict=True))

    def forward(self, x: Any) -> list[Any]:
        """Map rows (n, inputs) to the output of each head."""
        found = []
        for layer, head in zip(self.backbone, self.heads, strict=True):
            x = layer(x)
            found.append(head(x))
        return found


class LadderDecoder(nn.Module):  # type: ignore[misc]
    """A decoder in which the last facet enters first and each one before it, through its own layer, one layer later.

    h = a(W_J z_J); then for j = J - 1, ..., 1: h = a(V_j h) + 0.1 fade_j a(W_j z_j); finally V_0 a(V h). It
    is piecewise affine. `fades` (J,) are 1 except while facets are faded in.
    """

    def __init__(self, latents: Sequence[int], hidden: Sequence[int], out: int, make: Callable[..., Any]) -> None:
        super().__init__()
        self.latents = list(latents)
        pairs = zip(latents, hidden, strict=True)
        self.rungs = nn.ModuleList(make(pair, open_end=False) for pair in pairs)
        self.backbone = nn.ModuleList(make(pair[::-1], open_end=False) for pair in pairwise(hidden))
        self.last = make((hidden[0], hidden[0], out))
        self.register_buffer("fades", torch.ones(len(self.latents)))

    def forward(self, z: Any) -> Any:
        """Map codes (n, sum of latents) to (n, out)."""
        *codes, top = z.split(self.latents, 1)
        h = self.rungs[-1](top)
        for j in reversed(range(len(codes))):
            h = self.backbone[j](h) + SHARE * self.fades[j] * self.rungs[j](codes[j])
        return self.last(h)

    def as_chain(self) -> Any:
        """The same map as a `Sequential` of linear layers and activations, which carries codes along until they enter.

        A code z passes an activation a of slope s as a(z) and a(-z), since a(z) - a(-z) = (1 + s) z. So methods for
        chains of layers (certificates, linear pieces, injectivity) apply to ladders.
        """
        kind = self.last[1]
        both = 1 + getattr(kind, "negative_slope", 0.0)
        layers: list[Any] = []
        above, codes = (None, torch.eye(sum(self.latents)))  # as linear maps of the activations
        for j in reversed(range(len(self.latents))):
            start = sum(self.latents[:j])
            own, later = codes[start : start + self.latents[j]], codes[:start]
            linear = [] if above is None else [_compose(self.backbone[j][0], above)]
            linear.append(_compose(self.rungs[j][0], own))
            weights, biases = (torch.cat(part) for part in zip(*linear, strict=True))
            biases = torch.cat([biases, torch.zeros(2 * start)])
            layers += [_layer(torch.cat([weights, later, -later]), biases), copy.deepcopy(kind)]

            *blocks, plus, minus = torch.eye(len(biases)).split([len(one) for one, _ in linear] + [start, start])
            above = blocks[0] if above is None else blocks[0] + SHARE * self.fades[j].cpu() * blocks[1]
            codes = (plus - minus) / both
        return nn.Sequential(*layers, _layer(*_compose(self.last[0], above)), *copy.deepcopy(self.last).cpu()[1:])


def _compose(layer: Any, before: Any) -> tuple[Any, Any]:
    """Weight and bias of a linear layer applied after a matrix."""
    return layer.weight.detach().cpu() @ before, layer.bias.detach().cpu()


def _layer(weight: Any, bias: Any) -> Any:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer
