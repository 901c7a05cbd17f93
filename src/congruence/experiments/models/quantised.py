"""Autoencoders of images whose codes take few values: VQ-VAE and QLAE."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from congruence.errors import InputError
from congruence.experiments.models.autoencoders import AutoEncoder, check_weight, reconstruction


class Quantised(AutoEncoder):
    """What both have in common: loss = BCE + quantisation * |sg(c) - q|^2 + commitment * |c - sg(q)|^2.

    c is what the encoder gives, q the nearest of the codebook, sg stops the gradient, and squares are means over
    images and numbers. The decoder sees q, and its gradient goes on to c as if c were q.
    """

    discrete = True

    def __init__(self, latents: int, *, values: int, quantisation: float, commitment: float, **options: Any) -> None:
        super().__init__(latents, **options)
        if values < 2:
            raise InputError(f"values must be at least 2, not {values}")
        if values % 1:
            raise InputError(f"values must be a whole number, not {values}")
        self.values = int(values)
        self.quantisation = check_weight(quantisation, "quantisation")
        self.commitment = check_weight(commitment, "commitment")

    def loss(self, images: Any) -> dict[str, Any]:
        """The loss, and its parts "bce", "quantisation" and "commitment" without their weights."""
        x = self.pixels(images)
        continuous = self.encoder(x)
        quantised = self._chosen(self._nearest(continuous))
        parts = reconstruction(self.decoder(straight_through(continuous, quantised)), x)
        quantisation = (continuous.detach() - quantised).square().mean()
        commitment = (continuous - quantised.detach()).square().mean()
        loss = parts["bce"] + self.quantisation * quantisation + self.commitment * commitment
        return {"loss": loss, **parts, "quantisation": quantisation, "commitment": commitment}

    def encode(self, images: Any) -> Any:
        """The values of the codebook that images (n, *shape) are given, shape (n, latents * numbers of a value)."""
        return self.values_of(self.indices(images))

    def indices(self, images: Any) -> Any:
        """Which values of the codebook images are given, from 0, int64 (n, latents)."""
        return self._nearest(self.encoder(self.pixels(images)))

    def values_of(self, indices: Any) -> Any:
        """The codes that indices (n, latents) stand for, as `decode` takes them."""
        raise NotImplementedError

    def config(self) -> dict[str, Any]:
        """All from which `build_model` makes a model of the same kind."""
        own = {"values": self.values, "quantisation": self.quantisation, "commitment": self.commitment}
        return super().config() | own

    def _nearest(self, continuous: Any) -> Any:
        raise NotImplementedError

    def _chosen(self, indices: Any) -> Any:
        """As `values_of`, with a gradient for the codebook that is a sum of products: the same in every run."""
        raise NotImplementedError


class VQVAE(Quantised):
    """A VQ-VAE: each latent is one of 512 vectors of 64 numbers; all latents share them.

    The encoder gives 64 numbers for each latent, and the decoder takes as many. Codes are (n, latents * 64); metrics
    are about `indices`, (n, latents).

    Parameters
    ----------
    values : int
        How many vectors there are. Their first numbers are uniform within sqrt(3 / 64).
    quantisation, commitment : float
        Weights of the two losses of the codebook.

    References
    ----------
    van den Oord et al. 2017; weights of Hsu et al. 2023, who train it without weight decay and with 0.01.
    """

    name = "vqvae"
    width = out_per_latent = in_per_latent = 64

    def __init__(
        self,
        latents: int = 12,
        *,
        values: int = 512,
        quantisation: float = 1.0,
        commitment: float = 0.25,
        **options: Any,
    ) -> None:
        super().__init__(latents, values=values, quantisation=quantisation, commitment=commitment, **options)
        limit = math.sqrt(3 / self.width)
        drawn = np.random.default_rng(self.seed).uniform(-limit, limit, (self.values, self.width))
        self.codebook = torch.nn.Parameter(torch.from_numpy(drawn.astype(np.float32)))

    def evaluated(self, images: Any) -> Any:
        """The numbers that metrics are about: the indices, (n, latents)."""
        return self.indices(images)

    def values_of(self, indices: Any) -> Any:
        """The vectors of indices (n, latents), one after the other, shape (n, latents * 64)."""
        return self.codebook[indices].flatten(1)

    def _nearest(self, continuous: Any) -> Any:
        return nearest_vectors(continuous.unflatten(1, (self.latents, self.width)), self.codebook)

    def _chosen(self, indices: Any) -> Any:
        with torch.autocast(indices.device.type, enabled=False):
            return (one_hot(indices, self.values).to(self.codebook.dtype) @ self.codebook).flatten(1)


class QLAE(Quantised):
    """A quantised-latent autoencoder: each latent is one of 10 numbers of its own, which are learned.

    Together with strong weight decay it is meant to make each latent mean one thing.

    Parameters
    ----------
    values : int
        How many numbers a latent may be. First they are evenly spaced from -0.5 to 0.5.
    quantisation, commitment : float
        Weights of the two losses of the codebook.

    References
    ----------
    Hsu et al. 2023, who train it with weight decay 0.1 (0.001 on MPI3D).
    """

    name = "qlae"

    def __init__(
        self,
        latents: int = 12,
        *,
        values: int = 10,
        quantisation: float = 0.01,
        commitment: float = 0.01,
        **options: Any,
    ) -> None:
        super().__init__(latents, values=values, quantisation=quantisation, commitment=commitment, **options)
        numbers = torch.linspace(-0.5, 0.5, self.values)
        self.codebook = torch.nn.Parameter(numbers.repeat(self.latents, 1))  # (latents, values)

    def values_of(self, indices: Any) -> Any:
        """The numbers of indices (n, latents), shape (n, latents)."""
        return self.codebook[torch.arange(self.latents, device=indices.device), indices]

    def _nearest(self, continuous: Any) -> Any:
        return nearest_numbers(continuous, self.codebook)

    def _chosen(self, indices: Any) -> Any:
        return (one_hot(indices, self.values).to(self.codebook.dtype) * self.codebook).sum(2)


def nearest_vectors(x: Any, codebook: Any) -> Any:
    """The row of a codebook (values, width) nearest to each vector x (..., width); the first, if several are."""
    with torch.autocast(x.device.type, enabled=False):
        x, codebook = x.detach(), codebook.detach()
        # |x - e|^2 without |x|^2, which is the same for all e
        return (codebook.square().sum(1) - 2 * (x @ codebook.T)).argmin(-1)


def nearest_numbers(x: Any, codebook: Any) -> Any:
    """The entry of its row of a codebook (latents, values) nearest to each x (n, latents); the first of several."""
    return (x.detach()[..., None] - codebook.detach()).abs().argmin(-1)


def straight_through(continuous: Any, quantised: Any) -> Any:
    """The quantised codes, with the gradient passed on to the continuous ones unchanged."""
    return continuous + (quantised - continuous).detach()


def one_hot(indices: Any, values: int) -> Any:
    """1 where an index is, else 0, as float32 (..., values)."""
    return (indices[..., None] == torch.arange(values, device=indices.device)).float()
