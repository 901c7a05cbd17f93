"""A small masked autoencoder: it sees some patches of a picture and must give back all of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.errors import MissingDependencyError
from congruence.rows.devices import one_thread

Draw = Callable[
    [int, np.random.Generator], tuple[Float, Float]
]  # n -> pictures (n, patches, pixels), shown (n, patches)
STEP = 0.05  # of the code, when it is measured how fast the decoder moves


@dataclass(frozen=True, eq=False)
class MaskedAutoencoder:
    """A trained encoder and decoder; arrays in, float64 arrays out."""

    encoder: Any
    decoder: Any
    device: str

    def encode(self, pictures: Float, shown: Float) -> Float:
        """The codes of pictures (n, patches, pixels) of which the patches `shown` (n, patches) are seen."""
        return self._through(self.encoder, seen(pictures, shown))

    def decode(self, codes: Float) -> Float:
        """The pictures that codes stand for, shape (n, patches * pixels)."""
        return self._through(self.decoder, codes)

    def stretch(self, codes: Float) -> Float:
        """How much the decoder stretches or shrinks lengths near each code, max(s, 1 / s) over singular values, (n,).

        1 is an isometry. The largest over rows is a lower estimate of the decoder's local bi-Lipschitz constant.
        """
        import torch

        with one_thread():
            jacobian = torch.func.vmap(torch.func.jacrev(self.decoder))(self._tensor(codes))  # (n, out, latent)
        singular = np.linalg.svd(jacobian.detach().cpu().numpy().astype(np.float64), compute_uv=False)
        stretched: Float = np.maximum(singular.max(1), 1 / singular.min(1))
        return stretched

    def _through(self, half: Any, rows: Float) -> Float:
        import torch

        with torch.no_grad(), one_thread():
            found: Float = half(self._tensor(rows)).cpu().numpy().astype(np.float64)
        return found

    def _tensor(self, rows: Float) -> Any:
        import torch

        return torch.from_numpy(rows.astype(np.float32)).to(self.device)


def seen(pictures: Float, shown: Float) -> Float:
    """What the encoder sees: the pictures with masked patches set to 0, and which patches are masked."""
    return np.concatenate([(pictures * shown[..., None]).reshape(len(pictures), -1), shown], axis=1)


def train_masked_autoencoder(
    draw: Draw,
    *,
    latent: int,
    hidden: int = 128,
    steps: int = 3000,
    batch: int = 256,
    learning_rate: float = 1e-2,
    isometry: float = 0.1,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[int, float], None] | None = None,
) -> MaskedAutoencoder:
    """Train on pictures drawn anew at every step, so that the seed decides the first weights and all data.

    The loss is the squared error over all patches, seen or not, plus `isometry` times a penalty that keeps the decoder
    near an isometry, (|J v|^2 - 1)^2 for random unit v (after Gropp, Atzmon and Lipman 2020): Theorem 1 of Nelson et
    al. promises a code up to a rigid motion only where the decoder is nearly one.

    Parameters
    ----------
    draw : callable
        draw(n, rng) gives pictures (n, patches, pixels) and which patches are shown (n, patches).
    latent, hidden : int
        Width of the code, and of the hidden layers (two in the encoder, one in the decoder).
    progress : callable, optional
        Called as progress(step, loss) now and then.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("training needs torch: pip install 'congruence[torch]'") from error

    rng = np.random.default_rng(seed)
    pictures, shown = draw(2, rng)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder, decoder = _halves(seen(pictures, shown).shape[1], hidden, latent, pictures[0].size)
    encoder, decoder = encoder.to(device), decoder.to(device)
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=learning_rate, fused=True)
    with one_thread():
        _descend(encoder, decoder, optimiser, draw, rng, steps, batch, isometry, progress)
    return MaskedAutoencoder(encoder, decoder, device)


def _descend(
    encoder: Any,
    decoder: Any,
    optimiser: Any,
    draw: Draw,
    rng: np.random.Generator,
    steps: int,
    batch: int,
    isometry: float,
    progress: Callable[[int, float], None] | None,
) -> None:
    import torch

    latent, device = encoder[-1].out_features, encoder[-1].weight.device
    learning_rate = optimiser.param_groups[0]["lr"]
    for step in range(steps):
        pictures, shown = draw(batch, rng)
        ways = rng.normal(size=(batch, latent))
        ways *= STEP / np.linalg.norm(ways, axis=1, keepdims=True)
        rows = [seen(pictures, shown), pictures.reshape(batch, -1), ways]
        inputs, targets, ways = (torch.from_numpy(a.astype(np.float32)).to(device) for a in rows)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate * _pace(step / steps)
        codes = encoder(inputs)
        out, ahead, behind = decoder(torch.cat([codes, codes + ways, codes - ways])).chunk(3)
        speed = ((ahead - behind) / (2 * STEP)).square().sum(1)
        loss = (out - targets).square().sum(1).mean() + isometry * (speed - 1).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if progress is not None and (step + 1) % 50 == 0:
            progress(step + 1, float(loss.detach()))


def _pace(share: float) -> float:
    """The share of the learning rate after a share of the steps: up over the first tenth, then down along a cosine."""
    return share / 0.1 if share < 0.1 else 0.5 + 0.5 * math.cos(math.pi * (share - 0.1) / 0.9)


def _halves(width: int, hidden: int, latent: int, out: int) -> tuple[Any, Any]:
    from torch.nn import Linear, Sequential, SiLU

    encoder = Sequential(Linear(width, hidden), SiLU(), Linear(hidden, hidden), SiLU(), Linear(hidden, latent))
    return encoder, Sequential(Linear(latent, hidden), SiLU(), Linear(hidden, out))
