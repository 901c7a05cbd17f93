"""Autoencoders of images with quantised codes: VQ-VAE and QLAE."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from congruence.checks import check_integer, check_number
from congruence.experiments.models.autoencoders import AutoEncoder, reconstruction


class Quantised(AutoEncoder):
    """Base of both: loss = BCE + quantisation * |sg(c) - q|^2 + commitment * |c - sg(q)|^2.

    c is the output of the encoder, q the nearest entry of the codebook, sg stops the gradient, and squares are means
    over images and numbers. The decoder takes q; its gradient is passed to c unchanged.
    """

    discrete = True
    options = ("values", "quantisation", "commitment")

    def __init__(self, latents: int, *, values: int, quantisation: float, commitment: float, **options: Any) -> None:
        super().__init__(latents, **options)
        self.values = check_integer("values", values, 2)
        self.quantisation = check_number("quantisation", quantisation, 0)
        self.commitment = check_number("commitment", commitment, 0)

    def loss(self, images: Any) -> dict[str, Any]:
        """The loss, and its unweighted parts "bce", "quantisation" and "commitment"."""
        x = self.pixels(images)
        continuous = self.encoder(x)
        quantised = self._chosen(self._nearest(continuous))
        parts = reconstruction(self.decoder(straight_through(continuous, quantised)), x)
        quantisation = (continuous.detach() - quantised).square().mean()
        commitment = (continuous - quantised.detach()).square().mean()
        loss = parts["bce"] + self.quantisation * quantisation + self.commitment * commitment
        return {"loss": loss, **parts, "quantisation": quantisation, "commitment": commitment}

    def encode(self, images: Any) -> Any:
        """The codebook entries of images (n, *shape), shape (n, latents * width of an entry)."""
        return self.values_of(self.indices(images))

    def indices(self, images: Any) -> Any:
        """The indices of the codebook entries of images, int64 (n, latents)."""
        return self._nearest(self.encoder(self.pixels(images)))

    def values_of(self, indices: Any) -> Any:
        """The codes of indices (n, latents), as `decode` takes them."""
        raise NotImplementedError

    def _nearest(self, continuous: Any) -> Any:
        raise NotImplementedError

    def _chosen(self, indices: Any) -> Any:
        """As `values_of`, but with a deterministic gradient for the codebook: a matrix product, not a scatter."""
        raise NotImplementedError


class VQVAE(Quantised):
    """A VQ-VAE: each latent is one of 512 vectors of 64 numbers, shared by all latents.

    The encoder outputs 64 numbers for each latent, and the decoder takes as many. Codes are (n, latents * 64); metrics
    evaluate `indices`, (n, latents).

    Parameters
    ----------
    latents : int
        Latents of a code.
    values : int
        Number of vectors. They start uniform within sqrt(3 / 64).
    quantisation : float
        Weight of the loss that moves the codebook towards the codes.
    commitment : float
        Weight of the loss that keeps codes close to the codebook.
    **options
        As of `AutoEncoder`.

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
        self.codebook = torch.nn.Parameter(torch.empty(self.values, self.width))
        limit = math.sqrt(3 / self.width)
        drawn = np.random.default_rng(self.seed).uniform(-limit, limit, (self.values, self.width))
        with torch.no_grad():
            self.codebook.copy_(torch.from_numpy(drawn))

    def evaluated(self, images: Any) -> Any:
        """The values that metrics evaluate: the indices, (n, latents)."""
        return self.indices(images)

    def values_of(self, indices: Any) -> Any:
        """The concatenated vectors of indices (n, latents), shape (n, latents * 64)."""
        return self.codebook[indices].flatten(1)

    def _nearest(self, continuous: Any) -> Any:
        return nearest_vectors(continuous.unflatten(1, (self.latents, self.width)), self.codebook)

    def _chosen(self, indices: Any) -> Any:
        with torch.autocast(indices.device.type, enabled=False):
            return (one_hot(indices, self.values).to(self.codebook.dtype) @ self.codebook).flatten(1)


class QLAE(Quantised):
    """A quantised-latent autoencoder: each latent takes one of 10 learned values of its own.

    With strong weight decay it is designed to disentangle.

    Parameters
    ----------
    latents : int
        Dimensions of a code.
    values : int
        Number of values of a latent. They start evenly spaced from -0.5 to 0.5.
    quantisation : float
        Weight of the loss that moves the codebook towards the codes.
    commitment : float
        Weight of the loss that keeps codes close to the codebook.
    **options
        As of `AutoEncoder`.

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
    """The row of a codebook (values, width) nearest to each vector x (..., width); the first in a tie."""
    with torch.autocast(x.device.type, enabled=False):
        x, codebook = x.detach(), codebook.detach()
        # |x - e|^2 without |x|^2, which does not depend on e
        return (codebook.square().sum(1) - 2 * (x @ codebook.T)).argmin(-1)


def nearest_numbers(x: Any, codebook: Any) -> Any:
    """The entry of its row of a codebook (latents, values) nearest to each x (n, latents); the first in a tie."""
    return (x.detach()[..., None] - codebook.detach()).abs().argmin(-1)


def straight_through(continuous: Any, quantised: Any) -> Any:
    """The quantised codes, with the gradient passed on to the continuous ones unchanged."""
    return continuous + (quantised - continuous).detach()


def one_hot(indices: Any, values: int) -> Any:
    """Indices as one-hot vectors, float32 (..., values)."""
    return (indices[..., None] == torch.arange(values, device=indices.device)).float()
