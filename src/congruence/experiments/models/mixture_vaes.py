"""Variational autoencoders whose prior is a Gaussian mixture: given (MixtureVAE), learned (VaDE), observed (IVAE).

They take rows of numbers, or images as rows, through dense nets. The decoder is a chain of linear layers with ReLU or
LeakyReLU, so it is piecewise affine, as the theory of `congruence.mixture` requires.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from congruence.arrays import Float
from congruence.checks import check_choice, check_integer, check_number
from congruence.errors import InputError
from congruence.experiments.models._nets import LEAK
from congruence.experiments.models.mixture_priors import LOG_2PI, PARTS, LearnedMixture, given_mixture
from congruence.experiments.models.quantised import one_hot
from congruence.experiments.training.settings import Training
from congruence.rows.devices import GENERATORS

ACTIVATIONS, LIKELIHOODS = ("relu", "leaky_relu"), ("gaussian", "bernoulli")
SMALLEST_SIGMA = 1e-6  # standard deviation of a code


def dense(widths: Sequence[int], activation: str, *, open_end: bool = True, slope: float = LEAK) -> Any:
    """A `Sequential` of linear layers with an activation between them, and after the last unless `open_end`.

    A piecewise affine map with ReLU ("relu") or LeakyReLU of a slope ("leaky_relu").
    """
    check_choice("activation", activation, ACTIVATIONS)
    layers: list[Any] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU() if activation == "relu" else nn.LeakyReLU(slope)]
    return nn.Sequential(*(layers[:-1] if open_end else layers))


class MixtureVAE(nn.Module):  # type: ignore[misc]
    """A VAE whose prior is a given Gaussian mixture; by default the standard Gaussian, J = 1.

    loss = -ELBO / D, where D is the number of values of a row, and, for a sample z of q(z | x) = N(mean, sigma^2),
    ELBO = log p(x | z) - sum_c g_c KL(q(z | x) || N(m_c, S_c)) - sum_c g_c log(g_c / w_c), g_c = p(c | z).
    The three terms are "log_likelihood", "kl_latents" and "kl_states", in nats and means over rows. With J = 1 this is
    the usual VAE. In training mode z is a sample, in evaluation mode the mean. `encode` returns the mean.

    Parameters
    ----------
    latents : int
        m, the dimensions of a code.
    prior : mapping or object, optional
        `weights` (J,), `means` (J, m) and `covariances` (J, m, m).
    hidden : sequence of int
        Widths of the layers of the encoder; the decoder has them in reverse order.
    activation : {"relu", "leaky_relu"}
        The second has a slope of 0.2.
    likelihood : {"gaussian", "bernoulli"}, optional
        N(f(z), noise^2 I), or values in [0, 1] with logits f(z). By default the second for images, else the first.
    noise : float
        Standard deviation of the Gaussian likelihood; it is not learned.
    shape : (p,) or (channels, height, width)
        Of a row, or of an image.
    seed : int
        Of the initial weights.

    References
    ----------
    Kingma and Welling 2014; Jiang et al. 2017 (the bound with components).
    """

    name = "mixvae"
    options: tuple[str, ...] = ("prior_config",)  # attributes in the config beyond those that all these models share
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
        self.latents = check_integer("latents", latents)
        self.hidden = tuple(check_integer("hidden", width) for width in hidden)
        self.activation, self.shape, self.seed = activation, tuple(int(s) for s in shape), int(seed)
        if not self.hidden:
            raise InputError("hidden must have at least one width; got none")
        if len(self.shape) not in (1, 3) or min(self.shape) < 1:
            raise InputError(f"shape must be (p,) or (channels, height, width); got {self.shape}")
        self.likelihood = check_choice("likelihood", likelihood or LIKELIHOODS[len(self.shape) == 3], LIKELIHOODS)
        self.noise, self.width = check_number("noise", noise, 0, open_low=True), math.prod(self.shape)
        self.prior = self._make_prior(prior)
        with GENERATORS, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            self.encoder, self.decoder = self._make_nets()

    def loss(self, inputs: Any) -> dict[str, Any]:
        """The loss; "elbo" in nats and its terms; and "mse", the mean squared error of a value."""
        with _without_autocast(self):
            x = self.numbers(inputs)
            mean, sigma = self.posterior(x)
            z = mean + sigma * torch.randn_like(mean) if self.training else mean
            return self._bound(x, z, *self.divergences(mean, sigma, z))

    def encode(self, inputs: Any) -> Any:
        """The posterior means of inputs (n, *shape), shape (n, latents)."""
        return self.posterior(self.numbers(inputs))[0]

    def decode(self, codes: Any) -> Any:
        """The mean of p(x | z) for codes z, shape (n, *shape)."""
        out = self.decoder(codes)
        return (out.sigmoid() if self.likelihood == "bernoulli" else out).unflatten(1, self.shape)

    def posterior(self, x: Any) -> tuple[Any, Any]:
        """Mean and standard deviation of the posterior of every row, both (n, latents); x is float (n, D)."""
        mean, rest = self.encoder(x).chunk(2, dim=1)
        return mean, as_sigma(rest)

    def divergences(self, mean: Any, sigma: Any, z: Any) -> tuple[Any, Any]:
        """The divergence of each code from the components, and of its states from the weights, (n,) each."""
        return mixture_divergences(self.prior, mean, sigma, z)

    def responsibilities(self, codes: Any) -> Any:
        """The probability of each component given codes, (n, latents) -> (n, J)."""
        return self.prior.log_joint(codes).softmax(1)

    def state_shares(self, codes: Any) -> list[Any]:
        """The probabilities of states, one (n, J) for each mixture of the prior; here there is one."""
        return [self.responsibilities(codes)]

    def log_likelihood(self, out: Any, x: Any) -> Any:
        """Log p(x | z) in nats, (n,), for outputs of the decoder; both (n, D)."""
        if self.likelihood == "bernoulli":
            return -nn.functional.binary_cross_entropy_with_logits(out, x, reduction="none").sum(1)
        constant = self.width * (math.log(self.noise) + math.log(2 * math.pi) / 2)
        return -(x - out).square().sum(1) / (2 * self.noise**2) - constant

    def numbers(self, inputs: Any) -> Any:
        """Inputs (n, *shape) as float32 rows (n, D); uint8 is divided by 255."""
        x = torch.as_tensor(inputs)
        if tuple(x.shape[1:]) != self.shape:
            raise InputError(f"inputs must have shape (n, {', '.join(map(str, self.shape))}); got {tuple(x.shape)}")
        dtype = next(self.parameters()).dtype
        return (x.to(dtype) / 255 if x.dtype == torch.uint8 else x.to(dtype)).flatten(1)

    def mixture_prior(self) -> tuple[Float, Float, Float]:
        """The prior as numpy arrays: weights (J,), means (J, m) and covariances (J, m, m)."""
        weights, means, covariances = self.prior.arrays()
        return weights, means, covariances

    def config(self) -> dict[str, Any]:
        """The config from which `build_model` makes a model of the same kind: numbers, strings and lists."""
        names = ("latents", "activation", "likelihood", "noise", "seed", *self.options)
        words = {name.removesuffix("_config"): getattr(self, name) for name in names}
        return {"model": self.name, **words, "hidden": list(self.hidden), "shape": list(self.shape)}

    def decayed_parameters(self) -> list[Any]:
        """Parameters with weight decay: the weights of layers."""
        return [weight for name, weight in self.named_parameters() if _is_layer(name)]

    def undecayed_parameters(self) -> list[Any]:
        """Parameters without weight decay: biases, and the parameters of the prior."""
        return [weight for name, weight in self.named_parameters() if not _is_layer(name)]

    def _make_prior(self, prior: Any) -> Any:
        with torch.device("cpu"):  # it is read below, also where the weights have no values yet
            made = given_mixture(prior, self.latents)
        parts = zip(PARTS, made.arrays(), strict=True)
        self.prior_config = None if prior is None else {name: part.tolist() for name, part in parts}
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


class VaDE(MixtureVAE):
    """Variational deep embedding: a VAE whose prior is a learned Gaussian mixture with diagonal covariances.

    The loss is that of `MixtureVAE`. Before training, encoder and decoder are pretrained as a plain autoencoder, and
    scikit-learn fits the mixture to its codes. Codes are standardised first, without a change of their reconstructions,
    and start with a standard deviation of 0.1 (both are ours).

    Parameters
    ----------
    latents : int
        Dimensions of a code.
    clusters : int
        J, the number of components of the prior.
    pretraining : int
        Steps as a plain autoencoder. With 0 the mixture is fitted to the codes of the initial weights.
    **options
        As of `MixtureVAE`, without `prior`.

    References
    ----------
    Jiang, Zheng, Tan, Tang and Zhou 2017.
    """

    name = "vade"
    options: tuple[str, ...] = ("clusters", "pretraining")
    start_variance: float | None = None  # of all components; None for those of the fitted mixture

    def __init__(self, latents: int = 2, *, clusters: int = 3, pretraining: int = 2000, **options: Any) -> None:
        if "prior" in options:
            raise InputError("the prior of a VaDE is learned; clusters is the number of its components")
        self.clusters = check_integer("clusters", clusters)
        self.pretraining = check_integer("pretraining", pretraining, 0)
        super().__init__(latents, **options)

    def prepare(self, data: Sequence[Any], how: Training, *, device: str, stop: Callable[[], bool] | None) -> None:
        """Pretrain as an autoencoder and fit the mixture to the codes; `train` calls it before the first step."""
        from congruence.experiments.training.pretraining import pretrain, start_mixtures

        pretrain(self, data, how, self.pretraining, device=device, stop=stop)
        start_mixtures(self, data, seed=how.seed, device=device)

    def learned_mixtures(self) -> list[tuple[slice, LearnedMixture]]:
        """Each mixture of the prior and its latents."""
        return [(slice(0, self.latents), self.prior)]

    def ends(self) -> list[tuple[slice, Any, Any]]:
        """Some latents, the layer that outputs them and the layer that takes them."""
        return [(slice(0, self.latents), self.encoder[-1], self.decoder[0])]

    def _make_prior(self, prior: Any) -> Any:
        return LearnedMixture(self.clusters, self.latents)


class IVAE(MixtureVAE):
    """An identifiable VAE: an auxiliary variable u with few values is observed, and each value has its own Gaussian.

    ELBO = log p(x | z) - KL(q(z | x, u) || N(m_u, S_u)), a bound on log p(x | u), with diagonal S_u that are learned.
    The encoder takes x and u. Where u is not given (`encode(inputs)` alone), it is the value with the highest bound.

    Parameters
    ----------
    latents : int
        Dimensions of a code.
    classes : int
        Number of values of u, counted from 0.
    auxiliary : str
        The factor of the data that is u.
    **options
        As of `MixtureVAE`, without `prior`.

    References
    ----------
    Khemakhem, Kingma, Monti and Hyvärinen 2020.
    """

    name = "ivae"
    options = ("classes", "auxiliary")

    def __init__(self, latents: int = 2, *, classes: int = 3, auxiliary: str = "arm", **options: Any) -> None:
        if "prior" in options:
            raise InputError("the prior of an iVAE is learned; classes is the number of its components")
        self.classes, self.auxiliary = check_integer("classes", classes), str(auxiliary)
        super().__init__(latents, **options)

    def loss(self, inputs: Any, levels: Any = None) -> dict[str, Any]:
        """The loss and its parts, given the value of u of each row, int64 (n,); "kl_states" is 0, as u is known."""
        with _without_autocast(self):
            x = self.numbers(inputs)
            u = self._likeliest(x) if levels is None else self._check_levels(levels)
            mean, sigma = self.posterior(x, u)
            z = mean + sigma * torch.randn_like(mean) if self.training else mean
            kl = self.prior.kl(mean, sigma).gather(1, u[:, None])[:, 0]
            return self._bound(x, z, kl, torch.zeros_like(kl))

    def encode(self, inputs: Any, levels: Any = None) -> Any:
        """The posterior means, (n, latents), given the values of u, or with the likeliest ones."""
        return self.posterior(self.numbers(inputs), None if levels is None else self._check_levels(levels))[0]

    def posterior(self, x: Any, levels: Any = None) -> tuple[Any, Any]:
        """Mean and standard deviation of the posterior of every row, both (n, latents)."""
        levels = self._likeliest(x) if levels is None else levels
        return super().posterior(torch.cat([x, one_hot(levels, self.classes).to(x.dtype)], 1))

    def prepare(self, data: Sequence[Any], how: Training, *, device: str, stop: Callable[[], bool] | None) -> None:
        """Set the weights of the prior to the frequencies of u; `train` calls it before the first step."""
        counts = torch.bincount(self._check_levels(data[1]).cpu(), minlength=self.classes)
        if len(counts) > self.classes:
            raise InputError(f"the auxiliary variable must be below classes={self.classes}; got {len(counts) - 1}")
        with torch.no_grad():
            self.prior.logits.copy_(counts.clamp_min(1).double().log())

    def _likeliest(self, x: Any) -> Any:
        """The value of u with the highest bound at the mean, (n,)."""
        bounds = []
        for level in range(self.classes):
            u = torch.full((len(x),), level, dtype=torch.int64, device=x.device)
            mean, sigma = self.posterior(x, u)
            fit = self.log_likelihood(self.decoder(mean), x) - self.prior.kl(mean, sigma)[:, level]
            bounds.append(fit + self.prior.log_weights()[level])
        return torch.stack(bounds, 1).argmax(1)

    def _check_levels(self, levels: Any) -> Any:
        u = torch.as_tensor(levels)
        if u.is_floating_point() or u.ndim != 1:
            raise InputError(f"the auxiliary variable must be integers of shape (n,); got {u.dtype} {tuple(u.shape)}")
        return u.long()

    def _make_prior(self, prior: Any) -> Any:
        made = LearnedMixture(self.classes, self.latents)
        made.logits.requires_grad_(False)  # set by `prepare`
        return made

    def _make_nets(self) -> tuple[Any, Any]:
        encoder = dense((self.width + self.classes, *self.hidden, 2 * self.latents), self.activation)
        return encoder, super()._make_nets()[1]


def mixture_divergences(prior: Any, mean: Any, sigma: Any, z: Any) -> tuple[Any, Any]:
    """sum_c g_c KL(N(mean, sigma^2) || component c), and sum_c g_c log(g_c / w_c), g_c = p(c | z); (n,) each."""
    log_shares = prior.log_joint(z).log_softmax(1)  # (n, J)
    shares = log_shares.exp()
    return (shares * prior.kl(mean, sigma)).sum(1), (shares * (log_shares - prior.log_weights())).sum(1)


def sampled_divergences(prior: Any, mean: Any, sigma: Any, z: Any) -> tuple[Any, Any]:
    """Log q(z | x) - sum_c g_c log p(z | c), and sum_c g_c log(g_c / w_c), at draws z of q; (n,) each.

    Their sum is log q(z | x) - log p(z). So the bound is that with the mixture as a density, which is above the one of
    `mixture_divergences`, in which states are independent of z given x; but it needs a draw.
    """
    joint = prior.log_joint(z)
    log_shares = joint.log_softmax(1)
    shares = log_shares.exp()
    code = -(((z - mean) / sigma).square() / 2 + sigma.log() + LOG_2PI / 2).sum(1)
    states = (shares * (log_shares - prior.log_weights())).sum(1)
    return code - joint.logsumexp(1) - states, states


def as_sigma(rest: Any) -> Any:
    """Standard deviations from the output of the encoder: softplus plus a small constant."""
    return nn.functional.softplus(rest) + SMALLEST_SIGMA


def _is_layer(name: str) -> bool:
    return not name.startswith("prior") and not name.endswith("bias")


def _without_autocast(model: Any) -> Any:
    """Keep float32: dense nets are small, and distances to components need all digits."""
    return torch.autocast(next(model.parameters()).device.type, enabled=False)
