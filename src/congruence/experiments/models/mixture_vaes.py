"""Variational autoencoders whose prior is a Gaussian mixture that is given; all others with a mixture build on them.

They take rows of numbers, or images as rows, through dense nets. The decoder is a chain of linear layers with ReLU or
LeakyReLU, so that it is piecewise affine, as the theory of `congruence.mixture` asks for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from congruence.arrays import Float
from congruence.errors import InputError
from congruence.experiments.models.dense_nets import dense
from congruence.experiments.models.mixture_priors import given_mixture
from congruence.rows.devices import GENERATORS

LIKELIHOODS = ("gaussian", "bernoulli")
NARROWEST = 1e-6  # standard deviation of a code


class MixtureVAE(nn.Module):  # type: ignore[misc]
    """A VAE whose prior is a Gaussian mixture that is given; without one it is the standard Gaussian, J = 1.

    loss = -ELBO / D, where D is how many numbers a row has, and, for a draw z of q(z | x) = N(mean, sigma^2),
    ELBO = log p(x | z) - sum_c g_c KL(q(z | x) || N(m_c, S_c)) - sum_c g_c log(g_c / w_c), g_c = p(c | z).
    The three terms are "log_likelihood", "kl_latents" and "kl_states", in nats and means over rows. With J = 1 this is
    the usual VAE. While training (`train()`) z is a draw, else (`eval()`) the mean. `encode` gives the mean.

    Parameters
    ----------
    prior : mapping or object, optional
        `weights` (J,), `means` (J, m) and `covariances` (J, m, m), of any kind of covariance.
    hidden : sequence of int
        Widths of the encoder's layers; the decoder has them in the order back.
    activation : {"relu", "leaky_relu"}
        The second has a slope of 0.2.
    likelihood : {"gaussian", "bernoulli"}, optional
        N(f(z), noise^2 I), or numbers from 0 to 1 with logits f(z). For images the second, unless given.
    noise : float
        Standard deviation of the Gaussian likelihood; it is not learned.
    shape : (p,) or (channels, height, width)
        Of a row, or of an image.

    References
    ----------
    Kingma and Welling 2014; Jiang et al. 2017 (the bound with components).
    """

    name = "mixvae"
    discrete = False

    def __init__(
        self,
        latents: int = 2,
        *,
        prior: Any = None,
        hidden: Sequence[int] = (50, 50),
        activation: str = "relu",
        likelihood: str | None = None,
        noise: float = 0.1,
        shape: Sequence[int] = (2,),
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.latents, self.hidden = (
            check_count(latents, "latents"),
            tuple(check_count(width, "hidden") for width in hidden),
        )
        self.activation, self.shape, self.seed = activation, tuple(int(s) for s in shape), int(seed)
        if not self.hidden or len(self.shape) not in (1, 3) or min(self.shape) < 1:
            raise InputError(f"shape must be (p,) or (channels, height, width), not {self.shape}, and hidden not empty")
        self.likelihood = likelihood or LIKELIHOODS[len(self.shape) == 3]
        if self.likelihood not in LIKELIHOODS:
            raise InputError(f"likelihood must be one of {', '.join(LIKELIHOODS)}, not {likelihood!r}")
        if not (math.isfinite(noise) and noise > 0):
            raise InputError(f"noise must be a finite number above 0, not {noise}")
        self.noise, self.width = float(noise), math.prod(self.shape)
        self.prior = self._make_prior(prior)
        with GENERATORS, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            self.encoder, self.decoder = self._make_nets()

    def loss(self, inputs: Any) -> dict[str, Any]:
        """The loss; "elbo" in nats and its terms; and "mse", the squared error of a number."""
        with in_float32(self):
            x = self.numbers(inputs)
            mean, sigma = self.posterior(x)
            z = mean + sigma * torch.randn_like(mean) if self.training else mean
            return self._bound(x, z, *self.divergences(mean, sigma, z))

    def encode(self, inputs: Any) -> Any:
        """The means of the codes of inputs (n, *shape), shape (n, latents)."""
        return self.posterior(self.numbers(inputs))[0]

    def decode(self, codes: Any) -> Any:
        """The rows or images that codes stand for, shape (n, *shape): the mean of p(x | z)."""
        out = self.decoder(codes)
        return (out.sigmoid() if self.likelihood == "bernoulli" else out).unflatten(1, self.shape)

    def posterior(self, x: Any) -> tuple[Any, Any]:
        """Mean and standard deviation of the code of every row, both (n, latents); x is float (n, D)."""
        mean, rest = self.encoder(x).chunk(2, dim=1)
        return mean, deviations(rest)

    def divergences(self, mean: Any, sigma: Any, z: Any) -> tuple[Any, Any]:
        """Of each row the divergence of its code from the components, and of its states from the weights, (n,) each."""
        return mixture_divergences(self.prior, mean, sigma, z)

    def responsibilities(self, codes: Any) -> Any:
        """The probability of each component given codes, (n, latents) -> (n, J)."""
        return self.prior.log_joint(codes).softmax(1)

    def log_likelihood(self, out: Any, x: Any) -> Any:
        """Log p(x | z) in nats, (n,), where the decoder gave `out`; both (n, D)."""
        if self.likelihood == "bernoulli":
            return -nn.functional.binary_cross_entropy_with_logits(out, x, reduction="none").sum(1)
        constant = self.width * (math.log(self.noise) + math.log(2 * math.pi) / 2)
        return -(x - out).square().sum(1) / (2 * self.noise**2) - constant

    def numbers(self, inputs: Any) -> Any:
        """Inputs (n, *shape) as float32 rows (n, D); uint8 is divided by 255."""
        x = torch.as_tensor(inputs)
        if tuple(x.shape[1:]) != self.shape:
            raise InputError(f"inputs must have shape (n, {', '.join(map(str, self.shape))}), not {tuple(x.shape)}")
        kind = next(self.parameters()).dtype
        return (x.to(kind) / 255 if x.dtype == torch.uint8 else x.to(kind)).flatten(1)

    def mixture_prior(self) -> tuple[Float, Float, Float]:
        """The prior as numpy arrays: weights (J,), means (J, m) and covariances (J, m, m)."""
        weights, means, covariances = self.prior.arrays()
        return weights, means, covariances

    def state_shares(self, codes: Any) -> list[Any]:
        """The probabilities of states, one (n, J) for each hidden variable of the prior; here there is one."""
        return [self.responsibilities(codes)]

    def config(self) -> dict[str, Any]:
        """All from which `build_model` makes a model of the same kind, as plain numbers, words and lists."""
        return self._shared_config() | {"prior": self._given}

    def decayed_parameters(self) -> list[Any]:
        """Parameters with weight decay: the weights of layers."""
        return [weight for name, weight in self.named_parameters() if _is_layer(name)]

    def undecayed_parameters(self) -> list[Any]:
        """Parameters without weight decay: biases, and what is learned of the prior."""
        return [weight for name, weight in self.named_parameters() if not _is_layer(name)]

    def _shared_config(self) -> dict[str, Any]:
        words = {name: getattr(self, name) for name in ("latents", "activation", "likelihood", "noise", "seed")}
        return {"model": self.name, **words, "hidden": list(self.hidden), "shape": list(self.shape)}

    def _make_prior(self, prior: Any) -> Any:
        made = given_mixture(prior, self.latents)
        parts = zip(("weights", "means", "covariances"), made.arrays(), strict=True)
        self._given = None if prior is None else {name: part.tolist() for name, part in parts}
        return made

    def _make_nets(self) -> tuple[Any, Any]:
        encoder = dense((self.width, *self.hidden, 2 * self.latents), self.activation)
        return encoder, dense((self.latents, *reversed(self.hidden), self.width), self.activation)

    def _bound(self, x: Any, z: Any, kl_latents: Any, kl_states: Any) -> dict[str, Any]:
        """The loss and its parts; divergences are (n,)."""
        out = self.decoder(z)
        fit = self.log_likelihood(out, x)
        elbo = (fit - kl_latents - kl_states).mean()
        shown = out.detach().sigmoid() if self.likelihood == "bernoulli" else out.detach()
        parts = {"log_likelihood": fit.mean(), "kl_latents": kl_latents.mean(), "kl_states": kl_states.mean()}
        return {"loss": -elbo / self.width, "elbo": elbo, **parts, "mse": (shown - x).square().mean()}


def mixture_divergences(prior: Any, mean: Any, sigma: Any, z: Any) -> tuple[Any, Any]:
    """sum_c g_c KL(N(mean, sigma^2) || component c), and sum_c g_c log(g_c / w_c), g_c = p(c | z); (n,) each."""
    log_shares = prior.log_joint(z).log_softmax(1)  # (n, J)
    shares = log_shares.exp()
    return (shares * prior.kl(mean, sigma)).sum(1), (shares * (log_shares - prior.log_weights())).sum(1)


def deviations(rest: Any) -> Any:
    """What the encoder gives as standard deviations: softplus, and a little more, so that none is 0."""
    return nn.functional.softplus(rest) + NARROWEST


def _is_layer(name: str) -> bool:
    return not name.startswith("prior") and not name.endswith("bias")


def check_count(value: int, name: str) -> int:
    """A whole number of at least 1, or an error that names it."""
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
    return int(value)


def in_float32(model: Any) -> Any:
    """No bfloat16 inside: dense nets are small, and codes are compared with components to all their digits."""
    return torch.autocast(next(model.parameters()).device.type, enabled=False)
