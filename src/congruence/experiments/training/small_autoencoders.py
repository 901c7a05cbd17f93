"""Small dense autoencoders of rows, plain, regularised or masked, trained with `optimise`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import check_choice, require
from congruence.experiments.training.loop import optimise
from congruence.experiments.training.settings import Training
from congruence.rows.devices import one_thread, training_device

KINDS = ("none", "weight decay", "spectral norm", "residual", "isometry penalty")
BLOCKS = 2  # of the residual decoder
STEP = 0.05  # of the code, in the finite difference that measures the decoder's speed
Draw = Callable[[int, np.random.Generator], tuple[Float, Float]]  # n -> images (n, patches, pixels), shown (n, patches)


def train_autoencoder(
    x: Array,
    *,
    latent: int = 8,
    hidden: int = 128,
    epochs: int = 100,
    batch: int = 128,
    learning_rate: float = 2e-3,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> tuple[Array, float]:
    """Train an autoencoder with one hidden layer on the rows of x, shape (n, p), and return its codes.

    The seed sets the initial weights and the order of the rows; nothing else differs between runs. `progress` is
    called as progress(epoch, loss) after each epoch.

    Returns
    -------
    codes : (n, latent) float32
        The representation of every row.
    loss : float
        The final mean squared reconstruction error over all rows.
    """
    torch = require("torch", "training", "torch")
    from torch.nn import LeakyReLU, Linear, Sequential

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = Sequential(Linear(x.shape[1], hidden), LeakyReLU(0.2), Linear(hidden, latent))
        decoder = Sequential(Linear(latent, hidden), LeakyReLU(0.2), Linear(hidden, x.shape[1]))
        generator = torch.Generator()
        generator.set_state(torch.get_rng_state())
    per_epoch = math.ceil(len(x) / batch)

    class Shuffled(Training):
        """A training whose row orders continue the generator of the initial weights."""

        def row_order(self, n: int, epoch: int) -> Array:
            return np.asarray(torch.randperm(n, generator=generator).numpy())

    how = Shuffled(epochs=epochs, batch=batch, learning_rate=learning_rate, check_every=per_epoch, seed=seed)

    def report(step: int, steps: int, loss: float) -> None:
        if progress is not None and step % per_epoch == 0:
            progress(step // per_epoch, loss)

    def loss(rows: Any) -> Any:
        return torch.nn.functional.mse_loss(decoder(encoder(rows)), rows)

    optimise(_with_loss(encoder, decoder, loss), [x], how, device="cpu", progress=report)
    with torch.no_grad():
        data = torch.from_numpy(x)
        codes = encoder(data)
        final = float(torch.nn.functional.mse_loss(decoder(codes), data))
    return codes.numpy(), final


def _with_loss(encoder: Any, decoder: Any, loss: Callable[..., Any]) -> Any:
    """A module with an encoder, a decoder and a loss, for `optimise`."""
    import torch

    class Autoencoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = encoder, decoder

        def loss(self, *batch: Any) -> Any:
            return loss(*batch)

    return Autoencoder()


@dataclass(frozen=True, eq=False)
class SmallAutoencoder:
    """A trained encoder and decoder; arrays in, arrays of `dtype` out."""

    encoder: Any
    decoder: Any
    device: str
    dtype: Any = field(default=np.float32)

    def encode(self, x: Array) -> Array:
        """The codes of rows x, (n, p) -> (n, latent)."""
        return self._apply(self.encoder, x)

    def decode(self, codes: Array) -> Array:
        """The reconstructions of codes, (n, latent) -> (n, p)."""
        return self._apply(self.decoder, codes)

    def singular_values(self, codes: Array) -> Float:
        """The singular values of the decoder's Jacobian at each code, in descending order, (n, latent)."""
        import torch

        with one_thread():
            jacobian = torch.func.vmap(torch.func.jacrev(self.decoder))(self._tensor(codes))  # (n, p, latent)
            return np.asarray(torch.linalg.svdvals(jacobian.detach().double()).cpu().numpy())

    def stretch(self, codes: Array) -> Float:
        """max(s, 1 / s) over the singular values s of the decoder's Jacobian at each code, (n,).

        1 is an isometry. The maximum over rows is a lower bound of the decoder's local bi-Lipschitz constant.
        """
        singular = self.singular_values(codes)
        return np.asarray(np.maximum(singular.max(1), 1 / singular.min(1)))

    def _apply(self, half: Any, rows: Array) -> Array:
        import torch

        with one_thread(), torch.no_grad():
            return np.asarray(half(self._tensor(rows)).cpu().numpy(), dtype=self.dtype)

    def _tensor(self, rows: Array) -> Any:
        import torch

        return torch.from_numpy(np.asarray(rows, dtype=np.float32)).to(self.device)


def train_regularised(
    x: Array,
    kind: str,
    *,
    latent: int = 6,
    hidden: int = 64,
    epochs: int = 100,
    batch: int = 300,
    learning_rate: float = 1e-2,
    strength: float = 0.1,
    seed: int = 0,
    device: str = "cpu",
) -> SmallAutoencoder:
    """Train an autoencoder on rows x (n, p) with one regulariser of `KINDS`.

    Appendix A.4 of Nelson et al. lists regularisers in wide use that push the singular values of a decoder's Jacobian
    towards each other; here each is applied to the same autoencoder, with AdamW and a cosine schedule: "none"; "weight
    decay" of `strength`; "spectral norm" (each layer of the decoder divided by its largest singular value, Miyato et
    al. 2018); "residual" (blocks x + a f(x) with a starting at 0, ReZero, Bachlechner et al. 2020); or "isometry
    penalty" (`strength` times (|J v|^2 - 1)^2 for random unit v, after Gropp, Atzmon and Lipman 2020).
    """
    torch = require("torch", "training", "torch")
    check_choice("kind", kind, KINDS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder, decoder = _regularised_nets(kind, x.shape[1], hidden, latent)
    penalty = strength if kind == "isometry penalty" else 0.0
    decay = strength if kind == "weight decay" else 0.0
    how = Training(
        epochs=epochs, batch=batch, learning_rate=learning_rate, cosine=True, optimiser="adamw", clip=1.0, seed=seed,
        weight_decay=decay,
    )  # fmt: skip

    def loss(rows: Any) -> Any:
        codes = encoder(rows)
        out = decoder(codes)
        error = (out - rows).square().sum(1).mean()
        if not penalty:
            return error
        directions = torch.nn.functional.normalize(torch.randn_like(codes), dim=1)
        probe = torch.zeros_like(out, requires_grad=True)
        (back,) = torch.autograd.grad(out, codes, probe, create_graph=True)  # J^T probe, which is linear in probe
        (moved,) = torch.autograd.grad(back, probe, directions, create_graph=True)  # J v, exactly
        return error + penalty * (moved.square().sum(1) - 1).square().mean()

    model = _with_loss(encoder, decoder, loss)
    with one_thread():
        optimise(model, [np.asarray(x, dtype=np.float32)], how, device=device)
    model.eval()
    return SmallAutoencoder(encoder, decoder, training_device(device))


def _regularised_nets(kind: str, width: int, hidden: int, latent: int) -> tuple[Any, Any]:
    import torch
    from torch.nn import Linear, Sequential, SiLU
    from torch.nn.utils.parametrizations import spectral_norm

    class Block(torch.nn.Module):  # type: ignore[misc]
        """x + a f(x), where a starts at 0."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = Sequential(Linear(width, hidden), SiLU(), Linear(hidden, width))
            self.share = torch.nn.Parameter(torch.zeros(()))

        def forward(self, x: Any) -> Any:
            return x + self.share * self.inner(x)

    encoder = Sequential(Linear(width, hidden), SiLU(), Linear(hidden, hidden), SiLU(), Linear(hidden, latent))
    if kind == "residual":
        return encoder, Sequential(Linear(latent, width), *(Block() for _ in range(BLOCKS)))
    layers = [Linear(latent, hidden), Linear(hidden, hidden), Linear(hidden, width)]
    if kind == "spectral norm":
        layers = [spectral_norm(layer) for layer in layers]
    return encoder, Sequential(layers[0], SiLU(), layers[1], SiLU(), layers[2])


def mask_images(images: Float, shown: Float) -> Float:
    """The input of the encoder: images (n, patches, pixels) with masked patches set to 0, and the mask."""
    return np.concatenate([(images * shown[..., None]).reshape(len(images), -1), shown], axis=1)


class _LinearWarmup(Training):
    """A learning rate that grows from 0 over the first tenth of the steps, then falls to 0 along a cosine."""

    fused = True

    def pace(self, step: int, total: int) -> float:
        share = step / total
        return share / 0.1 if share < 0.1 else 0.5 + 0.5 * math.cos(math.pi * (share - 0.1) / 0.9)


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
) -> SmallAutoencoder:
    """Train an autoencoder to reconstruct all patches of images from some of them, with new images at every step.

    draw(n, rng) returns images (n, patches, pixels) and a mask of visible patches (n, patches). The encoder has two
    hidden layers, the decoder one. The loss is the squared error over all patches plus `isometry` times (|J v|^2 - 1)^2
    for random unit v (after Gropp, Atzmon and Lipman 2020), which keeps the decoder close to an isometry: Theorem 1 of
    Nelson et al. promises a code up to a rigid motion only for a decoder that is nearly one. The autoencoder encodes
    what `mask_images` returns, to float64.
    """
    torch = require("torch", "training", "torch")
    from torch.nn import Linear, Sequential, SiLU

    rng = np.random.default_rng(seed)
    images, shown = draw(2, rng)
    width, out = mask_images(images, shown).shape[1], images[0].size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = Sequential(Linear(width, hidden), SiLU(), Linear(hidden, hidden), SiLU(), Linear(hidden, latent))
        decoder = Sequential(Linear(latent, hidden), SiLU(), Linear(hidden, out))

    def draw_batch(step: int) -> list[Array]:
        images, shown = draw(batch, rng)
        directions = rng.normal(size=(batch, latent))
        directions *= STEP / np.linalg.norm(directions, axis=1, keepdims=True)
        parts = (mask_images(images, shown), images.reshape(batch, -1), directions)
        return [part.astype(np.float32) for part in parts]

    def loss(inputs: Any, targets: Any, directions: Any) -> Any:
        codes = encoder(inputs)
        out, ahead, behind = decoder(torch.cat([codes, codes + directions, codes - directions])).chunk(3)
        speed = ((ahead - behind) / (2 * STEP)).square().sum(1)
        return (out - targets).square().sum(1).mean() + isometry * (speed - 1).square().mean()

    how = _LinearWarmup(steps=steps, batch=batch, learning_rate=learning_rate, check_every=50, seed=seed)
    with one_thread():
        optimise(_with_loss(encoder, decoder, loss), draw_batch, how, device=device)
    return SmallAutoencoder(encoder, decoder, training_device(device), np.float64)
