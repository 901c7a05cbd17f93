"""Autoencoders of images: the plain one, and one whose codes are small and not negative."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from congruence.errors import InputError
from congruence.experiments.data.images import check_seed
from congruence.experiments.models.nets import in_full, make_nets
from congruence.rows.devices import GENERATORS

UNDECAYED = ("bias", "codebook")  # the last part of the names of parameters without weight decay


class AutoEncoder(nn.Module):  # type: ignore[misc]
    """An autoencoder of images: an encoder, a decoder, and the binary cross-entropy of every pixel.

    The loss is the mean over images and pixels of -x log y - (1 - x) log(1 - y), y = sigmoid(logits), and nothing else:
    what shapes the codes is weight decay, which belongs to the training.

    Parameters
    ----------
    latents : int
        How many numbers a code has. Published: twice the number of factors.
    net : {"published", "small"}
        The nets of Hsu et al. for images of 64 x 64 (7.7 million weights), or small ones for a CPU (0.4 million; a step
        with 128 images of 64 x 64 takes about 0.15 s of one thread).
    shape : (channels, height, width)
        Of an image.
    seed : int
        Of the first weights.

    References
    ----------
    Hsu et al. 2023 (nets and loss).
    """

    name = "ae"
    out_per_latent = 1  # numbers that the encoder gives for each latent
    in_per_latent = 1  # numbers that the decoder takes for each latent
    discrete = False  # whether codes take few values

    def __init__(
        self, latents: int = 12, *, net: str = "published", shape: Sequence[int] = (3, 64, 64), seed: int = 0
    ) -> None:
        super().__init__()
        if latents < 1:
            raise InputError(f"latents must be at least 1, not {latents}")
        if latents % 1:
            raise InputError(f"latents must be a whole number, not {latents}")
        check_seed(seed)
        self.latents, self.net, self.shape, self.seed = int(latents), net, tuple(int(s) for s in shape), int(seed)
        with GENERATORS, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            self.encoder, self.decoder = make_nets(
                net, self.shape, self.latents * self.out_per_latent, self.latents * self.in_per_latent
            )

    def loss(self, images: Any) -> dict[str, Any]:
        """What is minimised, "loss", and its parts; images (n, *shape) are uint8, or floats from 0 to 1."""
        x = self.pixels(images)
        parts = reconstruction(self.decoder(self.encoder(x)), x)
        return {"loss": parts["bce"], **parts}

    def encode(self, images: Any) -> Any:
        """The codes of images (n, *shape), shape (n, latents)."""
        return self.encoder(self.pixels(images))

    def decode(self, codes: Any) -> Any:
        """The images that codes stand for, from 0 to 1, shape (n, *shape)."""
        return in_full(self.decoder(codes)).sigmoid()

    def evaluated(self, images: Any) -> Any:
        """The numbers that metrics are about, shape (n, latents): codes, or indices where a code is a vector."""
        return self.encode(images)

    def pixels(self, images: Any) -> Any:
        """Images as floats from 0 to 1; uint8 is divided by 255."""
        x = torch.as_tensor(images)
        if tuple(x.shape[1:]) != self.shape:
            raise InputError(f"images must have shape (n, {', '.join(map(str, self.shape))}), not {tuple(x.shape)}")
        kind = self.encoder.head.weight.dtype
        if x.dtype == torch.uint8:
            return x.to(kind) / 255
        if not x.is_floating_point():
            raise InputError(f"images must be uint8, or floats from 0 to 1, not {x.dtype}")
        return x.to(kind)

    def config(self) -> dict[str, Any]:
        """All from which `build_model` makes a model of the same kind, as plain numbers, words and lists."""
        return {
            "model": self.name, "latents": self.latents, "net": self.net, "shape": list(self.shape), "seed": self.seed,
        }  # fmt: skip

    def decayed_parameters(self) -> list[Any]:
        """Parameters with weight decay: all but biases and codebooks; scales of instance norm are among them."""
        return [weight for name, weight in self.named_parameters() if _last(name) not in UNDECAYED]

    def undecayed_parameters(self) -> list[Any]:
        """Parameters without weight decay: biases and codebooks."""
        return [weight for name, weight in self.named_parameters() if _last(name) in UNDECAYED]


class BioAE(AutoEncoder):
    """An autoencoder whose codes are pushed to be not negative and small, after what is known of neurons.

    loss = BCE + nonnegativity * mean max(-z, 0) + activity * mean z^2, means over images and latents. The third
    constraint, small weights, is weight decay (published: 1e-4).

    Parameters
    ----------
    nonnegativity, activity : float
        Weights of the two penalties. Published: 1; and 0.01, or 0.1 on Isaac3D.

    References
    ----------
    Whittington et al. 2023; weights of Hsu et al. 2023.
    """

    name = "bioae"

    def __init__(
        self, latents: int = 12, *, nonnegativity: float = 1.0, activity: float = 0.01, **options: Any
    ) -> None:
        super().__init__(latents, **options)
        self.nonnegativity = check_weight(nonnegativity, "nonnegativity")
        self.activity = check_weight(activity, "activity")

    def loss(self, images: Any) -> dict[str, Any]:
        """The loss, and its parts "bce", "nonnegativity" and "activity" without their weights."""
        x = self.pixels(images)
        codes = self.encoder(x)
        parts = reconstruction(self.decoder(codes), x)
        negative, active = nn.functional.relu(-codes).mean(), codes.square().mean()
        loss = parts["bce"] + self.nonnegativity * negative + self.activity * active
        return {"loss": loss, **parts, "nonnegativity": negative, "activity": active}

    def config(self) -> dict[str, Any]:
        """All from which `build_model` makes a model of the same kind."""
        return super().config() | {"nonnegativity": self.nonnegativity, "activity": self.activity}


def reconstruction(logits: Any, x: Any) -> dict[str, Any]:
    """How far logits are from images x: "bce" is to be minimised; "mse" and "psnr" are for the log.

    All are means over pixels and images. The peak signal-to-noise ratio is -10 log10(mse) of each image, in decibels
    and at most 120, and then the mean.
    """
    logits = in_full(logits)
    bce = nn.functional.binary_cross_entropy_with_logits(logits, x)
    each = (logits.detach().sigmoid() - x).square().mean(dim=(1, 2, 3))
    return {"bce": bce, "mse": each.mean(), "psnr": -10 * torch.log10(each.clamp_min(1e-12)).mean()}


def check_weight(value: float, name: str) -> float:
    """A weight of a penalty as a float, or an error that names it."""
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} must be a finite number, 0 or above, not {value}")
    return float(value)


def _last(name: str) -> str:
    return name.rpartition(".")[2]
