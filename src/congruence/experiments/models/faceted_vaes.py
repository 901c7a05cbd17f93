"""MFCVAE: several facets, each with latents and a mixture of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from congruence.arrays import Float
from congruence.errors import InputError
from congruence.experiments.models.dense_nets import LadderDecoder, LadderEncoder
from congruence.experiments.models.mixture_priors import LearnedMixture, product
from congruence.experiments.models.mixture_vaes import deviations, mixture_divergences
from congruence.experiments.models.vade import VaDE


class MFCVAE(VaDE):
    """A multi-facet clustering VAE: the prior is a product of mixtures, one for each facet of the code.

    The loss is that of a VaDE with the divergences of all facets added up. With `ladder` (as published) the first facet
    is read off early in the encoder and enters late in the decoder, so that it tells of low-level features.

    Parameters
    ----------
    latents : int
        Of all facets together; they are shared out evenly.
    facets : int
        How many there are.
    clusters : int
        Components of the mixture of each facet.
    hidden : sequence of int
        With `ladder` one width for each facet.
    ladder : bool
        Whether facets are read at different depths; without it encoder and decoder are those of a VaDE.
    fade : int
        Steps over which each facet but the last is faded in, one after the other from the last to the first: its rung
        of the decoder and its divergences are multiplied by a weight that grows to 1. 0 has all from the start.
    pretraining : int
        As of VaDE. Published: none; but then a facet that enters the decoder late takes long to tell anything.

    References
    ----------
    Falck, Zhang, Willetts, Nicholson, Yau and Holmes 2021; Zhao, Song and Ermon 2017 (the ladder); Li et al. 2020
    (fading in).
    """

    name = "mfcvae"

    def __init__(
        self,
        latents: int = 10,
        *,
        facets: int = 2,
        clusters: int = 25,
        hidden: Sequence[int] = (500, 2000),
        ladder: bool = True,
        fade: int = 0,
        pretraining: int = 2000,
        **options: Any,
    ) -> None:
        if not 1 <= facets <= latents:
            raise InputError(f"facets must be from 1 to the number of latents, {latents}, not {facets}")
        if ladder and len(hidden) != facets:
            raise InputError(f"a ladder of {facets} facets needs as many widths in hidden, not {list(hidden)}")
        if fade < 0 or (fade and not ladder):
            raise InputError(f"fade must be at least 0, and 0 without ladder, not {fade}")
        shares = [latents // facets + (j < latents % facets) for j in range(facets)]
        self.facets, self.ladder, self.fade, self.shares = int(facets), bool(ladder), int(fade), shares
        super().__init__(latents, clusters=clusters, hidden=hidden, pretraining=pretraining, **options)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self._set_fades()

    def posterior(self, x: Any) -> tuple[Any, Any]:
        """Mean and standard deviation of the code of every row, both (n, latents); facets one after the other."""
        if not self.ladder:
            return super().posterior(x)
        pairs = [head.chunk(2, dim=1) for head in self.encoder(x)]
        mean, rest = (torch.cat(part, 1) for part in zip(*pairs, strict=True))
        return mean, deviations(rest)

    def divergences(self, mean: Any, sigma: Any, z: Any) -> tuple[Any, Any]:
        """Those of all facets added up, (n,) each; of facets that are being faded in their share."""
        found = [
            (fade * one, fade * other)
            for fade, (where, prior) in zip(self._fades(), self.learned_mixtures(), strict=True)
            for one, other in [mixture_divergences(prior, mean[:, where], sigma[:, where], z[:, where])]
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
        """The product of all facets as numpy arrays; it has clusters ** facets components, at most 10,000."""
        return product(self.facet_priors())

    def facet_priors(self) -> list[tuple[Float, Float, Float]]:
        """Weights, means and covariances of each facet."""
        return [prior.arrays() for _, prior in self.learned_mixtures()]

    def learned_mixtures(self) -> list[tuple[slice, LearnedMixture]]:
        """Which latents each mixture of the prior is of."""
        ends = [sum(self.shares[: j + 1]) for j in range(self.facets)]
        return [(slice(end - m, end), prior) for end, m, prior in zip(ends, self.shares, self.prior, strict=True)]

    def ends(self) -> list[tuple[slice, Any, Any]]:
        """Where codes leave the encoder and enter the decoder: for each facet, if it has layers of its own."""
        if not self.ladder:
            return super().ends()
        facets = zip(self.learned_mixtures(), self.encoder.heads, self.decoder.rungs, strict=True)
        return [(where, head, rung[0]) for (where, _), head, rung in facets]

    def after_step(self) -> None:
        """Count a step of the optimiser, for facets that are being faded in."""
        if self.fade:
            self.steps += 1
            self._set_fades()

    def config(self) -> dict[str, Any]:
        """All from which `build_model` makes a model of the same kind."""
        own = {name: getattr(self, name) for name in ("facets", "ladder", "fade")}
        return super().config() | own

    def _fades(self) -> Any:
        return self.decoder.fades if self.ladder else torch.ones(self.facets, device=self.steps.device)

    def _set_fades(self) -> None:
        """The last facet is always in; the one before it grows over the first `fade` steps, and so on."""
        if self.fade:
            waits = torch.arange(self.facets - 1, -1, -1, device=self.steps.device)
            self.decoder.fades.copy_((self.steps / self.fade - waits + 1).clamp(0, 1))

    def _make_prior(self, prior: Any) -> Any:
        return torch.nn.ModuleList(LearnedMixture(self.clusters, m) for m in self.shares)

    def _make_nets(self) -> tuple[Any, Any]:
        if not self.ladder:
            return super()._make_nets()
        encoder = LadderEncoder(self.width, self.hidden, [2 * m for m in self.shares], self.activation)
        return encoder, LadderDecoder(self.shares, self.hidden, self.width, self.activation)
