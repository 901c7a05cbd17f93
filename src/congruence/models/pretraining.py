"""Before a mixture is learned: a plain autoencoder, and a mixture fitted to its codes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from congruence.arrays import to_numpy
from congruence.errors import InputError
from congruence.models.loop import optimise
from congruence.models.reconstruction import evaluated_rows, through
from congruence.models.settings import Training

MOST_ROWS = 20_000  # that a mixture is fitted to
STARTS = 5  # of scikit-learn's mixture, of which the best is taken
NARROW = 0.1  # of the spread of codes, where their own standard deviation starts


def pretrain(
    model: Any,
    data: Sequence[Any],
    how: Training,
    steps: int,
    *,
    device: str,
    stop: Callable[[], bool] | None = None,
) -> None:
    """Train encoder and decoder of a model as a plain autoencoder, with the optimiser and the batches of `how`."""
    if steps:
        plain = replace(how, epochs=None, steps=steps, log_every=None, patience=None)
        optimise(_Plain(model), data, plain, device=device, stop=stop)


def start_mixtures(model: Any, data: Sequence[Any], *, seed: int, device: str) -> None:
    """Fit a mixture with diagonal covariances to codes of the data, and let the prior and the codes start from it."""
    model.to(device).eval()
    rows = evaluated_rows(len(data[0]), MOST_ROWS)
    codes = to_numpy(through(model.encode, data[0][rows], device)).astype(np.float64)
    for where, prior in model.learned_mixtures():
        prior.start_at(*_fitted(codes[:, where], len(prior.logits), seed))
    model.narrow(NARROW * np.maximum(codes.std(0), np.finfo(np.float32).eps))


class _Plain(nn.Module):  # type: ignore[misc]
    """A model as an autoencoder: codes are means, and the loss is what is left of the likelihood."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def loss(self, inputs: Any) -> Any:
        x = self.model.numbers(inputs)
        out = self.model.decoder(self.model.posterior(x)[0])
        return -self.model.log_likelihood(out, x).mean() / self.model.width

    def decayed_parameters(self) -> list[Any]:
        return list(self.model.decayed_parameters())

    def undecayed_parameters(self) -> list[Any]:
        return list(self.model.undecayed_parameters())


def _fitted(codes: Any, components: int, seed: int) -> tuple[Any, Any, Any]:
    """Weights (J,), means (J, m) and variances (J, m) of scikit-learn's mixture."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    if len(codes) < components:
        raise InputError(f"a mixture of {components} clusters needs as many rows, but there are {len(codes)}")
    scale = np.maximum(codes.std(0), np.finfo(np.float32).eps)  # so that its floor of variances means the same anywhere
    mixture = GaussianMixture(components, covariance_type="diag", n_init=STARTS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is only where the training starts
        mixture.fit(codes / scale)
    return mixture.weights_, mixture.means_ * scale, mixture.covariances_ * scale**2
