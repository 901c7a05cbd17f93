"""Variational autoencoders of images: the beta-VAE and the beta-TCVAE."""

from __future__ import annotations

import math
from typing import Any

import torch

from congruence.errors import InputError
from congruence.experiments.models.autoencoders import AutoEncoder, check_weight, reconstruction


class VAE(AutoEncoder):
    """A beta-VAE: codes are Gaussian, and held near the standard Gaussian.

    loss = BCE + (L / D) * beta * mean_k KL_k, where L is the number of latents and D that of pixels times channels,
    KL_k = (mean_k^2 + sigma_k^2 - 1) / 2 - log sigma_k: the usual bound, summed over pixels and latents, divided by D.
    sigma = softplus of what the encoder gives. While training (`train()`) the decoder sees a draw from the
    Gaussian, else (`eval()`) its mean. `encode` gives the mean.

    Parameters
    ----------
    beta : float
        Weight of the divergence. Published: 3 on Shapes3D, 0.1 on MPI3D, 10 on Falcor3D, 0.3 on Isaac3D.

    References
    ----------
    Higgins et al. 2017; Kingma and Welling 2014; scaling and weights of Hsu et al. 2023.
    """

    name = "vae"
    out_per_latent = 2

    def __init__(self, latents: int = 12, *, beta: float = 3.0, **options: Any) -> None:
        super().__init__(latents, **options)
        self.beta = check_weight(beta, "beta")

    def loss(self, images: Any) -> dict[str, Any]:
        """The loss, and its parts "bce" and "kl", the mean over latents."""
        x = self.pixels(images)
        mean, sigma = self.posterior(x)
        parts = reconstruction(self.decoder(self._draw(mean, sigma) if self.training else mean), x)
        kl = kl_to_standard(mean, sigma).mean()
        return {"loss": parts["bce"] + (self.latents / math.prod(self.shape)) * self.beta * kl, **parts, "kl": kl}

    def encode(self, images: Any) -> Any:
        """The means of the codes of images (n, *shape), shape (n, latents)."""
        return self.posterior(self.pixels(images))[0]

    def posterior(self, x: Any) -> tuple[Any, Any]:
        """Mean and standard deviation of the code of every image, both (n, latents); x is float."""
        mean, rest = self.encoder(x).chunk(2, dim=1)
        return mean, torch.nn.functional.softplus(rest)

    def config(self) -> dict[str, Any]:
        """All from which `build_model` makes a model of the same kind."""
        return super().config() | {"beta": self.beta}

    @staticmethod
    def _draw(mean: Any, sigma: Any) -> Any:
        return mean + sigma * torch.randn_like(mean)


class TCVAE(VAE):
    """A beta-TCVAE: of the divergence to the standard Gaussian, the part that is total correlation weighs more.

    loss = BCE + (MI + tc * TC + KL) / D, where, for a draw z of each image,
    MI = log q(z | x) - log q(z), TC = log q(z) - sum_k log q(z_k), KL = sum_k log q(z_k) - log p(z),
    and log q is estimated within the batch by minibatch-weighted sampling; see `divergence_parts`.

    Parameters
    ----------
    tc : float
        Weight of the total correlation. Published: 3 on Shapes3D, 0.3 on MPI3D, 3 on Falcor3D, 1 on Isaac3D.
    dataset_size : int
        How many images there are to train on. It shifts the three parts, and the loss, by constants: gradients, and so
        the trained model, do not depend on it.

    References
    ----------
    Chen et al. 2018; scaling and weights of Hsu et al. 2023.
    """

    name = "tcvae"

    def __init__(self, latents: int = 12, *, dataset_size: int, tc: float = 3.0, **options: Any) -> None:
        if "beta" in options:
            raise InputError("a TCVAE has no beta; tc is the weight of its total correlation")
        super().__init__(latents, **options)
        if dataset_size < 1:
            raise InputError(f"dataset_size must be at least 1, not {dataset_size}")
        self.tc, self.dataset_size = check_weight(tc, "tc"), int(dataset_size)

    def loss(self, images: Any) -> dict[str, Any]:
        """The loss, and its parts "bce", "mutual_information", "total_correlation" and "dimension_kl"."""
        x = self.pixels(images)
        mean, sigma = self.posterior(x)
        sample = self._draw(mean, sigma)
        parts = reconstruction(self.decoder(sample if self.training else mean), x)
        mi, tc, kl = (part.mean() for part in divergence_parts(sample, mean, sigma, self.dataset_size))
        loss = parts["bce"] + (mi + self.tc * tc + kl) / math.prod(self.shape)
        return {"loss": loss, **parts, "mutual_information": mi, "total_correlation": tc, "dimension_kl": kl}

    def config(self) -> dict[str, Any]:
        """All from which `build_model` makes a model of the same kind."""
        return AutoEncoder.config(self) | {"tc": self.tc, "dataset_size": self.dataset_size}


def kl_to_standard(mean: Any, sigma: Any) -> Any:
    """KL(N(mean, sigma^2) || N(0, 1)) of every latent, in nats, the shape of mean."""
    return (mean.square() + sigma.square() - 1) / 2 - sigma.log()


def divergence_parts(sample: Any, mean: Any, sigma: Any, dataset_size: int) -> tuple[Any, Any, Any]:
    """Mutual information, total correlation and dimension-wise divergence of each row, (n,) each; all are (n, latents).

    log q(z) = log sum_j prod_k N(z_k; mean_jk, sigma_jk) - log(n * dataset_size), over the rows j of the batch, and in
    the same way log q(z_k) for each latent (Chen et al. 2018, equation 10).
    """
    pairs = log_normal(sample[:, None], mean, sigma)  # (n, n, latents)
    shrink = math.log(len(mean) * dataset_size)
    joint = torch.logsumexp(pairs.sum(2), 1) - shrink
    apart = (torch.logsumexp(pairs, 1) - shrink).sum(1)
    conditional = log_normal(sample, mean, sigma).sum(1)
    prior = log_normal(sample, torch.zeros_like(mean), torch.ones_like(sigma)).sum(1)
    return conditional - joint, joint - apart, apart - prior


def log_normal(z: Any, mean: Any, sigma: Any) -> Any:
    """The log of the density of N(mean, sigma^2) at z, for every entry."""
    return -((z - mean) / sigma).square() / 2 - sigma.log() - math.log(2 * math.pi) / 2
