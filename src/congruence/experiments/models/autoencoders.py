"""Autoencoders and variational autoencoders of images, with the losses of Hsu et al. (2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from congruence.checks import check_integer, check_number
from congruence.errors import InputError
from congruence.experiments.data.factor_data import LARGEST_SEED
from congruence.experiments.models._nets import as_float32, make_nets
from congruence.rows.devices import GENERATORS

_UNDECAYED = ("bias", "codebook")  # the last part of the names of parameters without weight decay


class AutoEncoder(nn.Module):  # type: ignore[misc]
    """An autoencoder of images with the binary cross-entropy of every pixel as its loss.

    The loss is the mean over images and pixels of -x log y - (1 - x) log(1 - y), y = sigmoid(logits). Weight decay,
    which is an option of the training, is the only regularisation.

    Parameters
    ----------
    latents : int
        Dimensions of a code. Published: twice the number of factors.
    net : {"published", "small"}
        The nets of Hsu et al. for images of 64 x 64 (7.7 million weights), or small ones for a CPU (0.4 million; a step
        with 128 images of 64 x 64 takes about 0.15 s of one thread).
    shape : (channels, height, width)
        Of an image.
    seed : int
        Of the initial weights.

    References
    ----------
    Hsu et al. 2023 (nets and loss).
    """

    name = "ae"
    options: tuple[str, ...] = ()  # keyword arguments of the class beyond those of `AutoEncoder`
    out_per_latent = 1  # numbers that the encoder outputs for each latent
    in_per_latent = 1  # numbers that the decoder takes for each latent
    discrete = False  # whether codes take few values

    def __init__(
        self, latents: int = 12, *, net: str = "published", shape: Sequence[int] = (3, 64, 64), seed: int = 0
    ) -> None:
        super().__init__()
        self.latents, self.seed = check_integer("latents", latents), check_integer("seed", seed, 0, LARGEST_SEED)
        self.net, self.shape = net, tuple(int(s) for s in shape)
        with GENERATORS, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            self.encoder, self.decoder = make_nets(
                net, self.shape, self.latents * self.out_per_latent, self.latents * self.in_per_latent
            )

    def loss(self, images: Any) -> dict[str, Any]:
        """The minimised "loss" and its parts; images (n, *shape) are uint8, or floats in [0, 1]."""
        x = self.pixels(images)
        parts = reconstruction(self.decoder(self.encoder(x)), x)
        return {"loss": parts["bce"], **parts}

    def encode(self, images: Any) -> Any:
        """The codes of images (n, *shape), shape (n, latents)."""
        return self.encoder(self.pixels(images))

    def decode(self, codes: Any) -> Any:
        """The images of codes, in [0, 1], shape (n, *shape)."""
        return as_float32(self.decoder(codes)).sigmoid()

    def evaluated(self, images: Any) -> Any:
        """The values that metrics evaluate, shape (n, latents): codes, or indices where a code is a vector."""
        return self.encode(images)

    def pixels(self, images: Any) -> Any:
        """Images as floats in [0, 1]; uint8 is divided by 255."""
        x = torch.as_tensor(images)
        if tuple(x.shape[1:]) != self.shape:
            raise InputError(f"images must have shape (n, {', '.join(map(str, self.shape))}); got {tuple(x.shape)}")
        dtype = self.encoder.head.weight.dtype
        if x.dtype == torch.uint8:
            return x.to(dtype) / 255
        if not x.is_floating_point():
            raise InputError(f"images must be uint8, or floats in [0, 1]; got {x.dtype}")
        return x.to(dtype)

    def config(self) -> dict[str, Any]:
        """The config from which `build_model` makes a model of the same kind: numbers, strings and lists."""
        shared = {"latents": self.latents, "net": self.net, "shape": list(self.shape), "seed": self.seed}
        return {"model": self.name, **shared, **{name: getattr(self, name) for name in self.options}}

    def decayed_parameters(self) -> list[Any]:
        """Parameters with weight decay: all but biases and codebooks; scales of instance norm are included."""
        return [weight for name, weight in self.named_parameters() if name.rpartition(".")[2] not in _UNDECAYED]

    def undecayed_parameters(self) -> list[Any]:
        """Parameters without weight decay: biases and codebooks."""
        return [weight for name, weight in self.named_parameters() if name.rpartition(".")[2] in _UNDECAYED]


class BioAE(AutoEncoder):
    """An autoencoder with penalties on negative and on large codes, motivated by properties of neurons.

    loss = BCE + nonnegativity * mean max(-z, 0) + activity * mean z^2, means over images and latents. The third
    constraint, small weights, is weight decay (published: 1e-4).

    Parameters
    ----------
    latents : int
        Dimensions of a code.
    nonnegativity : float
        Weight of the penalty on negative codes. Published: 1.
    activity : float
        Weight of the penalty on squared codes. Published: 0.01, or 0.1 on Isaac3D.
    **options
        As of `AutoEncoder`.

    References
    ----------
    Whittington et al. 2023; weights of Hsu et al. 2023.
    """

    name = "bioae"
    options = ("nonnegativity", "activity")

    def __init__(
        self, latents: int = 12, *, nonnegativity: float = 1.0, activity: float = 0.01, **options: Any
    ) -> None:
        super().__init__(latents, **options)
        self.nonnegativity = check_number("nonnegativity", nonnegativity, 0)
        self.activity = check_number("activity", activity, 0)

    def loss(self, images: Any) -> dict[str, Any]:
        """The loss, and its unweighted parts "bce", "nonnegativity" and "activity"."""
        x = self.pixels(images)
        codes = self.encoder(x)
        parts = reconstruction(self.decoder(codes), x)
        negative, active = nn.functional.relu(-codes).mean(), codes.square().mean()
        loss = parts["bce"] + self.nonnegativity * negative + self.activity * active
        return {"loss": loss, **parts, "nonnegativity": negative, "activity": active}


class VAE(AutoEncoder):
    """A beta-VAE: a Gaussian posterior, with a penalty on its divergence from the standard Gaussian.

    loss = BCE + (L / D) * beta * mean_k KL_k, where L is the number of latents and D that of pixels times channels,
    KL_k = (mean_k^2 + sigma_k^2 - 1) / 2 - log sigma_k: the usual bound, summed over pixels and latents, divided by D.
    sigma is the softplus of the second half of the encoder's output. In training mode the decoder takes a sample of
    the posterior, in evaluation mode its mean. `encode` returns the mean.

    Parameters
    ----------
    latents : int
        Dimensions of a code.
    beta : float
        Weight of the divergence. Published: 3 on Shapes3D, 0.1 on MPI3D, 10 on Falcor3D, 0.3 on Isaac3D.
    **options
        As of `AutoEncoder`.

    References
    ----------
    Higgins et al. 2017; Kingma and Welling 2014; scaling and weights of Hsu et al. 2023.
    """

    name = "vae"
    options: tuple[str, ...] = ("beta",)
    out_per_latent = 2

    def __init__(self, latents: int = 12, *, beta: float = 3.0, **options: Any) -> None:
        super().__init__(latents, **options)
        self.beta = check_number("beta", beta, 0)

    def loss(self, images: Any) -> dict[str, Any]:
        """The loss, and its parts "bce" and "kl", the mean over latents."""
        x = self.pixels(images)
        mean, sigma = self.posterior(x)
        parts = reconstruction(self.decoder(_sample(mean, sigma) if self.training else mean), x)
        kl = kl_to_standard(mean, sigma).mean()
        return {"loss": parts["bce"] + (self.latents / math.prod(self.shape)) * self.beta * kl, **parts, "kl": kl}

    def encode(self, images: Any) -> Any:
        """The posterior means of images (n, *shape), shape (n, latents)."""
        return self.posterior(self.pixels(images))[0]

    def posterior(self, x: Any) -> tuple[Any, Any]:
        """Mean and standard deviation of the posterior of every image, both (n, latents); x is float."""
        mean, rest = self.encoder(x).chunk(2, dim=1)
        return mean, torch.nn.functional.softplus(rest)


class TCVAE(VAE):
    """A beta-TCVAE: a VAE with a separate weight for the total correlation, a part of its divergence.

    loss = BCE + (MI + tc * TC + KL) / D, where, for a sample z of each image,
    MI = log q(z | x) - log q(z), TC = log q(z) - sum_k log q(z_k), KL = sum_k log q(z_k) - log p(z),
    and log q is estimated within the batch by minibatch-weighted sampling; see `divergence_parts`.

    Parameters
    ----------
    latents : int
        Dimensions of a code.
    dataset_size : int
        Number of training images. It shifts the three parts, and the loss, by constants; gradients, and so the trained
        model, do not depend on it.
    tc : float
        Weight of the total correlation. Published: 3 on Shapes3D, 0.3 on MPI3D, 3 on Falcor3D, 1 on Isaac3D.
    **options
        As of `AutoEncoder`.

    References
    ----------
    Chen et al. 2018; scaling and weights of Hsu et al. 2023.
    """

    name = "tcvae"
    options = ("tc", "dataset_size")

    def __init__(self, latents: int = 12, *, dataset_size: int, tc: float = 3.0, **options: Any) -> None:
        if "beta" in options:
            raise InputError("a TCVAE has no beta; tc is the weight of its total correlation")
        super().__init__(latents, **options)
        self.tc, self.dataset_size = check_number("tc", tc, 0), check_integer("dataset_size", dataset_size)

    def loss(self, images: Any) -> dict[str, Any]:
        """The loss, and its parts "bce", "mutual_information", "total_correlation" and "dimension_kl"."""
        x = self.pixels(images)
        mean, sigma = self.posterior(x)
        sample = _sample(mean, sigma)
        parts = reconstruction(self.decoder(sample if self.training else mean), x)
        mi, tc, kl = (part.mean() for part in divergence_parts(sample, mean, sigma, self.dataset_size))
        loss = parts["bce"] + (mi + self.tc * tc + kl) / math.prod(self.shape)
        return {"loss": loss, **parts, "mutual_information": mi, "total_correlation": tc, "dimension_kl": kl}


def reconstruction(logits: Any, x: Any) -> dict[str, Any]:
    """Reconstruction errors of images x, as means over pixels and images: "bce", and "mse" and "psnr" for the log.

    The peak signal-to-noise ratio of an image is -10 log10(mse), in decibels and at most 120.
    """
    logits = as_float32(logits)
    bce = nn.functional.binary_cross_entropy_with_logits(logits, x)
    each = (logits.detach().sigmoid() - x).square().mean(dim=(1, 2, 3))
    return {"bce": bce, "mse": each.mean(), "psnr": -10 * torch.log10(each.clamp_min(1e-12)).mean()}


def kl_to_standard(mean: Any, sigma: Any) -> Any:
    """KL(N(mean, sigma^2) || N(0, 1)) of every latent, in nats, the shape of mean."""
    return (mean.square() + sigma.square() - 1) / 2 - sigma.log()


def divergence_parts(sample: Any, mean: Any, sigma: Any, dataset_size: int) -> tuple[Any, Any, Any]:
    """Mutual information, total correlation and dimension-wise divergence of each row, (n,) each; inputs (n, latents).

    log q(z) = log sum_j prod_k N(z_k; mean_jk, sigma_jk) - log(n * dataset_size), over the rows j of the batch, and in
    the same way log q(z_k) for each latent (Chen et al. 2018, equation 10).
    """
    pairs = _log_normal(sample[:, None], mean, sigma)  # (n, n, latents)
    shrink = math.log(len(mean) * dataset_size)
    joint = torch.logsumexp(pairs.sum(2), 1) - shrink
    marginal = (torch.logsumexp(pairs, 1) - shrink).sum(1)
    conditional = _log_normal(sample, mean, sigma).sum(1)
    prior = _log_normal(sample, torch.zeros_like(mean), torch.ones_like(sigma)).sum(1)
    return conditional - joint, joint - marginal, marginal - prior


def _log_normal(z: Any, mean: Any, sigma: Any) -> Any:
    return -((z - mean) / sigma).square() / 2 - sigma.log() - math.log(2 * math.pi) / 2


def _sample(mean: Any, sigma: Any) -> Any:
    return mean + sigma * torch.randn_like(mean)
