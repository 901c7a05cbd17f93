"""iVAE: a VAE that is told the state of every row, for comparison with priors that must find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from congruence.errors import InputError
from congruence.experiments.models.dense_nets import dense
from congruence.experiments.models.mixture_priors import LearnedMixture
from congruence.experiments.models.mixture_vaes import MixtureVAE, check_count, in_float32
from congruence.experiments.models.quantised import one_hot
from congruence.experiments.training.settings import Training


class IVAE(MixtureVAE):
    """An identifiable VAE: an auxiliary variable u with few values is observed, and each value has its own Gaussian.

    ELBO = log p(x | z) - KL(q(z | x, u) || N(m_u, S_u)), a bound on log p(x | u), with diagonal S_u that are learned.
    The encoder is given u beside x. Where u is not known (`encode(inputs)` alone), it is the value under which the
    bound is highest.

    Parameters
    ----------
    classes : int
        How many values u has, from 0.
    auxiliary : str
        The factor of the data that is u; `train` passes it on.

    References
    ----------
    Khemakhem, Kingma, Monti and Hyvärinen 2020.
    """

    name = "ivae"

    def __init__(self, latents: int = 2, *, classes: int = 3, auxiliary: str = "arm", **options: Any) -> None:
        if "prior" in options:
            raise InputError("the prior of an iVAE is learned; classes is the number of its components")
        self.classes, self.auxiliary = check_count(classes, "classes"), str(auxiliary)
        super().__init__(latents, **options)

    def loss(self, inputs: Any, levels: Any = None) -> dict[str, Any]:
        """The loss and its parts, given the value of u of each row, int64 (n,); "kl_states" is 0, as u is known."""
        with in_float32(self):
            x = self.numbers(inputs)
            u = self._likeliest(x) if levels is None else self._checked(levels)
            mean, sigma = self.posterior(x, u)
            z = mean + sigma * torch.randn_like(mean) if self.training else mean
            kl = self.prior.kl(mean, sigma).gather(1, u[:, None])[:, 0]
            return self._bound(x, z, kl, torch.zeros_like(kl))

    def encode(self, inputs: Any, levels: Any = None) -> Any:
        """The means of the codes, (n, latents), given the values of u, or with those that fit best."""
        x = self.numbers(inputs)
        return self.posterior(x, self._likeliest(x) if levels is None else self._checked(levels))[0]

    def posterior(self, x: Any, levels: Any = None) -> tuple[Any, Any]:
        """Mean and standard deviation of the code of every row, both (n, latents)."""
        levels = self._likeliest(x) if levels is None else levels
        told = one_hot(levels, self.classes).to(x.dtype)
        return super().posterior(torch.cat([x, told], 1))

    def prepare(self, data: Sequence[Any], how: Training, *, device: str, stop: Callable[[], bool] | None) -> None:
        """Take over how often each value of u comes; `train` calls it before the first step."""
        counts = torch.bincount(self._checked(data[1]).cpu(), minlength=self.classes)
        if len(counts) > self.classes:
            raise InputError(
                f"the auxiliary variable has values up to {len(counts) - 1}, but classes is {self.classes}"
            )
        with torch.no_grad():
            self.prior.logits.copy_(counts.clamp_min(1).double().log())

    def config(self) -> dict[str, Any]:
        """All from which `build_model` makes a model of the same kind."""
        return self._shared_config() | {"classes": self.classes, "auxiliary": self.auxiliary}

    def _likeliest(self, x: Any) -> Any:
        """The value of u under which the bound at the mean is highest, (n,)."""
        bounds = []
        for level in range(self.classes):
            u = torch.full((len(x),), level, dtype=torch.int64, device=x.device)
            mean, sigma = self.posterior(x, u)
            fit = self.log_likelihood(self.decoder(mean), x) - self.prior.kl(mean, sigma)[:, level]
            bounds.append(fit + self.prior.log_weights()[level])
        return torch.stack(bounds, 1).argmax(1)

    def _checked(self, levels: Any) -> Any:
        u = torch.as_tensor(levels)
        if u.is_floating_point() or u.ndim != 1:
            raise InputError(f"the auxiliary variable must be whole numbers (n,), not {u.dtype} {tuple(u.shape)}")
        return u.long()

    def _make_prior(self, prior: Any) -> Any:
        made = LearnedMixture(self.classes, self.latents)
        made.logits.requires_grad_(False)  # how often each value comes is counted
        return made

    def _make_nets(self) -> tuple[Any, Any]:
        encoder = dense((self.width + self.classes, *self.hidden, 2 * self.latents), self.activation)
        return encoder, super()._make_nets()[1]
