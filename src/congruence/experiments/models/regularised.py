"""Small autoencoders whose decoder is kept near an isometry in one of several ways, or in none.

Appendix A.4 of Nelson et al. names regularisers in wide use that push the singular values of a decoder's Jacobian
towards each other. Here each is put on the same autoencoder, for `optimise` to train.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.experiments.training.loop import optimise
from congruence.experiments.training.settings import Training
from congruence.rows.devices import load_torch, one_thread, training_device

KINDS = ("none", "weight decay", "spectral norm", "residual", "isometry penalty")
BLOCKS = 2  # of the residual decoder


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
) -> RegularisedAutoencoder:
    """Train an autoencoder on rows x (n, p) with one regulariser of `KINDS`.

    Parameters
    ----------
    kind : str
        "none"; "weight decay" (AdamW); "spectral norm" (each layer of the decoder divided by its largest singular
        value, Miyato et al. 2018); "residual" (blocks x + a f(x) with a from 0, ReZero, Bachlechner et al. 2020); or
        "isometry penalty" ((|J v|^2 - 1)^2 for random unit v, after Gropp, Atzmon and Lipman 2020).
    strength : float
        Of weight decay, or of the penalty; the others have none.
    """
    torch = load_torch()
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder, decoder = _halves(kind, x.shape[1], hidden, latent)
    model = _module(encoder, decoder, strength if kind == "isometry penalty" else 0.0)
    decay = strength if kind == "weight decay" else 0.0
    how = Training(
        epochs=epochs, batch=batch, learning_rate=learning_rate, cosine=True, optimiser="adamw", clip=1.0, seed=seed,
        weight_decay=decay,
    )  # fmt: skip
    with one_thread():
        optimise(model, [np.asarray(x, dtype=np.float32)], how, device=device)
    return RegularisedAutoencoder(model, training_device(device))


class RegularisedAutoencoder:
    """A trained autoencoder; arrays in, arrays out."""

    def __init__(self, model: Any, device: str) -> None:
        self.model, self.device = model.eval(), device

    def encode(self, x: Array) -> Array:
        """The codes of rows x, (n, p) -> (n, latent)."""
        return self._through(self.model.encoder, x)

    def decode(self, codes: Array) -> Array:
        """What codes stand for, (n, latent) -> (n, p)."""
        return self._through(self.model.decoder, codes)

    def singular_values(self, codes: Array) -> Float:
        """The singular values of the decoder's Jacobian at each code, the largest first, (n, latent)."""
        import torch

        with one_thread():
            jacobian = torch.func.vmap(torch.func.jacrev(self.model.decoder))(self._tensor(codes))  # (n, p, latent)
            return np.asarray(torch.linalg.svdvals(jacobian.detach().double()).cpu().numpy())

    def _through(self, half: Any, rows: Array) -> Array:
        import torch

        with one_thread(), torch.no_grad():
            return np.asarray(half(self._tensor(rows)).cpu().numpy())

    def _tensor(self, rows: Array) -> Any:
        import torch

        return torch.from_numpy(np.asarray(rows, dtype=np.float32)).to(self.device)


def _module(encoder: Any, decoder: Any, penalty: float) -> Any:
    import torch

    class Autoencoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = encoder, decoder

        def loss(self, x: Any) -> Any:
            codes = self.encoder(x)
            out = self.decoder(codes)
            error = (out - x).square().sum(1).mean()
            if not penalty:
                return error
            ways = torch.nn.functional.normalize(torch.randn_like(codes), dim=1)
            probe = torch.zeros_like(out, requires_grad=True)
            (back,) = torch.autograd.grad(out, codes, probe, create_graph=True)  # J^T probe, which is linear in probe
            (moved,) = torch.autograd.grad(back, probe, ways, create_graph=True)  # J v, exactly
            return error + penalty * (moved.square().sum(1) - 1).square().mean()

    return Autoencoder()


def _halves(kind: str, width: int, hidden: int, latent: int) -> tuple[Any, Any]:
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
