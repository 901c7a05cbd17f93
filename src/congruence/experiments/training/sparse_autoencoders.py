"""Sparse autoencoders with a TopK activation or an L1 penalty, trained with `optimise`."""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.checks import check_choice, require
from congruence.experiments.training.loop import optimise
from congruence.experiments.training.settings import Training

KINDS = ("topk", "l1")


def train_sparse_autoencoder(
    x: Array,
    width: int,
    kind: str,
    *,
    active: int,
    penalty: float = 0.1,
    steps: int = 3000,
    batch: int = 512,
    learning_rate: float = 5e-3,
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, Array]:
    """Train a sparse autoencoder of `width` features on rows x (n, d), and return its weights.

    Codes are act((x - b_dec) W_enc + b_enc), rows are reconstructed as codes W_dec + b_dec, and features (rows of
    W_dec) have length 1. "topk" keeps the `active` largest codes of a row; "l1" adds the mean sum of codes times
    `penalty` to the squared error. The seed sets the initial weights and the order of rows; nothing else differs
    between runs.

    Returns
    -------
    dict
        W_dec (width, d), W_enc (d, width), b_enc (width,), b_dec (d,), and the unexplained share of the variance.
    """
    check_choice("kind", kind, KINDS)
    require("torch", "training", "torch")
    import torch
    from torch.nn import Parameter
    from torch.nn.functional import normalize, relu

    rows = torch.from_numpy(np.ascontiguousarray(x, np.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first = normalize(torch.randn(width, x.shape[1]), dim=1)

    class SparseAutoencoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.decoder, self.encoder = Parameter(first.clone()), Parameter(first.T.clone())
            self.bias, self.offset = Parameter(torch.zeros(width)), Parameter(rows.mean(0))

        def encode(self, batch: Any) -> Any:
            codes = (batch - self.offset) @ self.encoder + self.bias
            if kind == "l1":
                return relu(codes)
            top, at = codes.topk(min(active, width), dim=1)
            return torch.zeros_like(codes).scatter(1, at, relu(top))

        def decode(self, codes: Any) -> Any:
            return codes @ normalize(self.decoder, dim=1) + self.offset

        def loss(self, batch: Any) -> Any:
            codes = self.encode(batch)
            error = ((self.decode(codes) - batch) ** 2).sum(1).mean()
            return error + penalty * codes.sum(1).mean() if kind == "l1" else error

    model = SparseAutoencoder()
    how = Training(
        steps=steps, batch=batch, learning_rate=learning_rate, cosine=True, check_every=max(1, steps // 10), seed=seed
    )
    optimise(model, [rows], how, device=device)
    model = model.cpu()
    with torch.no_grad():
        left = ((model.decode(model.encode(rows)) - rows) ** 2).sum() / ((rows - rows.mean(0)) ** 2).sum()
        return {
            "W_dec": normalize(model.decoder, dim=1).numpy(),
            "W_enc": model.encoder.detach().numpy().copy(),
            "b_enc": model.bias.detach().numpy().copy(),
            "b_dec": model.offset.detach().numpy().copy(),
            "unexplained": np.asarray(float(left)),
        }
