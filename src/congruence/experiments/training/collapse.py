"""Posterior collapse: latents that tell nothing about the data, and components that tell no rows apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.experiments.models.reconstruction import through

LEAST_SHARE = 0.01  # of the variance of a latent that comes from the data, for it to be active
LEAST_STATES = 1.5  # that components tell apart, for them not to have collapsed


@dataclass(frozen=True, eq=False)
class Collapse:
    """What is left of latents and components when a model of mixtures was trained.

    `shares` (m,) is, for each latent, var(mean) / (var(mean) + mean of sigma^2) over rows, from 0 to 1: how much of it
    comes from the data and not from noise. A latent below 0.01 is collapsed; for a standard Gaussian prior this is the
    rule of Burda et al. (2016) for active units, and it does not depend on the scale of a learned prior.
    `told_apart` has, for each mixture of the prior, exp of the mutual information between rows and components, from 1
    (components are the same, or one has it all) to their number (each row is of one, and all are as likely).
    """

    shares: Float  # (m,)
    told_apart: tuple[float, ...]
    components: tuple[int, ...]  # of each mixture

    @property
    def collapsed(self) -> tuple[int, ...]:
        """The latents that tell nothing, from 0."""
        return tuple(int(k) for k in np.flatnonzero(self.shares < LEAST_SHARE))

    @property
    def merged(self) -> tuple[int, ...]:
        """The mixtures of several components that tell fewer than 1.5 states apart, from 0."""
        pairs = zip(self.told_apart, self.components, strict=True)
        return tuple(j for j, (told, count) in enumerate(pairs) if count > 1 and told < LEAST_STATES)

    @property
    def sentence(self) -> str:
        """What has collapsed, in words; empty where nothing has."""
        found = []
        if self.collapsed:
            which = ", ".join(map(str, self.collapsed))
            found.append(f"{len(self.collapsed)} of {len(self.shares)} latents tell nothing about the data ({which})")
        for j in self.merged:
            which = f" of facet {j}" if len(self.components) > 1 else ""
            found.append(f"the {self.components[j]} components{which} tell {self.told_apart[j]:.2f} states apart")
        return f"posterior collapse: {'; '.join(found)}" if found else ""

    def numbers(self) -> dict[str, float]:
        """What goes into the log: how many latents are active, and the states that each mixture tells apart."""
        several = len(self.told_apart) > 1
        told = {f"states_{j}" if several else "states": value for j, value in enumerate(self.told_apart)}
        return {"active_latents": float(len(self.shares) - len(self.collapsed)), **told}


def posterior_collapse(model: Any, inputs: Any, *beside: Any) -> Collapse:
    """See which latents and components of a model of mixtures are alive on some rows.

    Parameters
    ----------
    model : MixtureVAE, VaDE, MFCVAE or IVAE
    inputs, *beside : arrays with as many rows
        What `encode` takes: rows or images and, for an iVAE, the auxiliary variable.
    """
    device = next(model.parameters()).device
    moments = through(lambda x, *more: _moments(model, x, *more), inputs, device, *beside)  # (n, 2, m)
    mean, sigma = (to_numpy(moments[:, i]).astype(np.float64) for i in (0, 1))
    spread, noise = mean.var(0), np.square(sigma).mean(0)
    codes = moments[:, 0].to(device)
    shares = [to_numpy(one.detach()).astype(np.float64) for one in model.state_shares(codes)]
    told = tuple(math.exp(_information(one)) for one in shares)
    return Collapse(spread / (spread + noise), told, tuple(one.shape[1] for one in shares))


def _moments(model: Any, inputs: Any, *beside: Sequence[Any]) -> Any:
    import torch

    return torch.stack(model.posterior(model.numbers(inputs), *beside), 1)


def _information(shares: Float) -> float:
    """The mutual information of rows and states in nats, from the probabilities of states (n, J)."""
    tiny = np.finfo(float).tiny
    whole = shares.mean(0)
    entropy = -(whole * np.log(whole + tiny)).sum()
    within = -(shares * np.log(shares + tiny)).sum(1).mean()
    return max(0.0, float(entropy - within))
