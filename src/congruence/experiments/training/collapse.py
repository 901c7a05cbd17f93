"""Posterior collapse: latents that do not depend on the data, and components that do not separate rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.experiments.models.reconstructions import apply_in_batches

LEAST_SHARE = 0.01  # share of the variance of an active latent that depends on the data
LEAST_STATES = 1.5  # effective number of states of components that have not collapsed


@dataclass(frozen=True, eq=False)
class Collapse:
    """Active latents and components of a trained model with a mixture prior.

    `shares` (m,) is, for each latent, var(mean) / (var(mean) + mean of sigma^2) over rows, from 0 to 1: the share of
    its variance that depends on the data. A latent below 0.01 is collapsed; for a standard Gaussian prior this is the
    rule of Burda et al. (2016) for active units, and it does not depend on the scale of a learned prior.
    `effective_states` has, for each mixture of the prior, exp of the mutual information of rows and components: from 1
    (components are equal, or one has all rows) to their number (each row has one component with certainty, and all are
    equally likely).
    """

    shares: Float  # (m,)
    effective_states: tuple[float, ...]
    components: tuple[int, ...]  # of each mixture

    @property
    def collapsed(self) -> tuple[int, ...]:
        """The collapsed latents, counted from 0."""
        return tuple(int(k) for k in np.flatnonzero(self.shares < LEAST_SHARE))

    @property
    def merged(self) -> tuple[int, ...]:
        """The mixtures of several components with fewer than 1.5 effective states, counted from 0."""
        pairs = zip(self.effective_states, self.components, strict=True)
        return tuple(j for j, (states, count) in enumerate(pairs) if count > 1 and states < LEAST_STATES)

    @property
    def sentence(self) -> str:
        """The collapsed latents and components in words; empty if there are none."""
        findings = []
        if self.collapsed:
            which = ", ".join(map(str, self.collapsed))
            findings.append(f"{len(self.collapsed)} of {len(self.shares)} latents do not depend on the data ({which})")
        for j in self.merged:
            which = f" of facet {j}" if len(self.components) > 1 else ""
            states = f"{self.effective_states[j]:.2f} effective states"
            findings.append(f"the {self.components[j]} components{which} have {states}")
        return f"posterior collapse: {'; '.join(findings)}" if findings else ""

    def numbers(self) -> dict[str, float]:
        """The numbers for the log: active latents, and the effective states of each mixture."""
        several = len(self.effective_states) > 1
        states = {f"states_{j}" if several else "states": value for j, value in enumerate(self.effective_states)}
        return {"active_latents": float(len(self.shares) - len(self.collapsed)), **states}


def posterior_collapse(model: Any, inputs: Any, *others: Any) -> Collapse:
    """Measure which latents and components of a model with a mixture prior are active on some rows.

    Parameters
    ----------
    model : MixtureVAE, VaDE, MFCVAE or IVAE
    inputs : array
        Rows or images.
    *others : arrays with as many rows
        Further arguments of `encode`: for an iVAE, the auxiliary variable.
    """
    codes, deviations = posterior_moments(model, inputs, *others)
    mean, sigma = (to_numpy(part).astype(np.float64) for part in (codes, deviations))
    spread, noise = mean.var(0), np.square(sigma).mean(0)
    shares = [
        to_numpy(one.detach()).astype(np.float64)
        for one in model.state_shares(codes.to(next(model.parameters()).device))
    ]
    states = tuple(math.exp(_information(one)) for one in shares)
    return Collapse(spread / (spread + noise), states, tuple(one.shape[1] for one in shares))


def posterior_moments(model: Any, inputs: Any, *others: Any) -> Any:
    """Means and standard deviations of the posteriors of rows, as tensors (n, m) each; arguments as above."""
    import torch

    def posterior(x: Any, *more: Any) -> Any:
        return torch.stack(model.posterior(model.numbers(x), *more), 1)  # (n, 2, m)

    return apply_in_batches(posterior, inputs, next(model.parameters()).device, *others).unbind(1)


def _information(shares: Float) -> float:
    """The mutual information of rows and states in nats, from the probabilities of states (n, J)."""
    tiny = np.finfo(float).tiny
    whole = shares.mean(0)
    entropy = -(whole * np.log(whole + tiny)).sum()
    within = -(shares * np.log(shares + tiny)).sum(1).mean()
    return max(0.0, float(entropy - within))
