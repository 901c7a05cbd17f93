"""Pretraining of models with a learned mixture: a plain autoencoder, and a mixture fitted to its codes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from congruence.arrays import to_numpy
from congruence.errors import InputError
from congruence.experiments.models.reconstructions import apply_in_batches, evaluated_rows
from congruence.experiments.training.loop import optimise
from congruence.experiments.training.settings import Training

MOST_ROWS = 20_000  # for the fit of a mixture
STARTS = 5  # of scikit-learn's mixture, of which the best is used
INITIAL_SIGMA = 0.1  # of a standardised code
FLAT = 1e-3  # of the largest standard deviation of a latent; one that varies less is not scaled up to 1


def pretrain(
    model: Any, data: Sequence[Any], how: Training, steps: int, *, device: str, stop: Callable[[], bool] | None = None
) -> None:
    """Train encoder and decoder of a model as a plain autoencoder, with the optimiser and the batches of `how`."""
    if steps:
        plain = replace(how, epochs=None, steps=steps, log_every=None)
        optimise(_Plain(model), data, plain, device=device, stop=stop)


def start_mixtures(model: Any, data: Sequence[Any], *, seed: int, device: str) -> None:
    """Standardise the codes of the data, fit a mixture with diagonal covariances to them, and start from it.

    The scale of codes is arbitrary, but the steps of an optimiser are not: codes of the initial weights, or of an
    autoencoder with a steep decoder, are so small that a mixture would take thousands of steps to grow. With a
    `start_variance`, as published for MFCVAE, codes are left as they are, only the means are those of the fitted
    mixture, and all components start with the same weight.
    """
    model.to(device).eval()
    rows = evaluated_rows(len(data[0]), MOST_ROWS)
    codes = to_numpy(apply_in_batches(model.encode, data[0][rows], device)).astype(np.float64)
    if model.start_variance is not None:
        for where, prior in model.learned_mixtures():
            weights, means, variances = _fit_mixture(codes[:, where], len(prior.logits), seed)
            prior.start_at(
                np.full_like(weights, 1 / len(weights)), means, np.full_like(variances, model.start_variance)
            )
        return
    mean, spread = codes.mean(0), codes.std(0)
    spread = np.maximum(spread, max(FLAT * spread.max(), np.finfo(np.float32).tiny))
    for where, before, after in model.ends():
        _rescale(before, after, mean[where], spread[where])
    for where, prior in model.learned_mixtures():
        prior.start_at(*_fit_mixture(((codes - mean) / spread)[:, where], len(prior.logits), seed))


class _Plain(nn.Module):  # type: ignore[misc]
    """A model as a plain autoencoder: codes are means, and the loss is the negative log-likelihood."""

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


def _rescale(before: Any, after: Any, mean: Any, spread: Any) -> None:
    """Make (z - mean) / spread the code instead of z, with the same output, and `INITIAL_SIGMA` its standard deviation.

    The first half of the output of the layer `before` are means; softplus of the second are standard deviations.
    """
    half = before.out_features // 2
    shift, scale = (torch.as_tensor(x, dtype=after.weight.dtype, device=after.weight.device) for x in (mean, spread))
    with torch.no_grad():
        after.bias += after.weight @ shift
        after.weight *= scale
        before.bias[:half] = (before.bias[:half] - shift) / scale
        before.weight[:half] /= scale[:, None]
        before.weight[half:] = 0
        before.bias[half:] = math.log(math.expm1(INITIAL_SIGMA))


def _fit_mixture(codes: Any, components: int, seed: int) -> tuple[Any, Any, Any]:
    """Weights (J,), means (J, m) and variances (J, m) of scikit-learn's mixture."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    if len(codes) < components:
        raise InputError(f"a mixture of {components} clusters needs at least as many rows; got {len(codes)}")
    mixture = GaussianMixture(components, covariance_type="diag", n_init=STARTS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is only the start of the training
        mixture.fit(codes)
    return mixture.weights_, mixture.means_, mixture.covariances_
