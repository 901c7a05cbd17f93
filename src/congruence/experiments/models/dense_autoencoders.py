"""Small dense autoencoders of rows: the simplest models whose representation can be asked about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from congruence.arrays import Array
from congruence.errors import MissingDependencyError


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
    """Train a one-hidden-layer autoencoder on the rows of x, shape (n, p), and return its codes.

    The seed decides the initial weights and the order of the rows, and nothing else differs between runs.
    `progress` is called as progress(epoch, loss) after each epoch.

    Returns
    -------
    codes : (n, latent) float32
        The representation of every row.
    loss : float
        The final mean squared reconstruction error over all rows.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("training needs torch: pip install 'congruence[torch]'") from error

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder, decoder = _halves(x.shape[1], hidden, latent)
        optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=learning_rate)
        data = torch.from_numpy(x)
        for epoch in range(epochs):
            for rows in torch.randperm(len(data)).split(batch):
                optimiser.zero_grad()
                loss = torch.nn.functional.mse_loss(decoder(encoder(data[rows])), data[rows])
                loss.backward()
                optimiser.step()
            if progress is not None:
                progress(epoch + 1, float(loss.detach()))
    with torch.no_grad():
        codes = encoder(data)
        final = float(torch.nn.functional.mse_loss(decoder(codes), data))
    return codes.numpy(), final


def _halves(width: int, hidden: int, latent: int) -> tuple[Any, Any]:
    from torch.nn import LeakyReLU, Linear, Sequential

    encoder = Sequential(Linear(width, hidden), LeakyReLU(0.2), Linear(hidden, latent))
    decoder = Sequential(Linear(latent, hidden), LeakyReLU(0.2), Linear(hidden, width))
    return encoder, decoder
