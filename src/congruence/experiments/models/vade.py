"""VaDE: a VAE whose prior is a Gaussian mixture that is learned with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from congruence.errors import InputError
from congruence.experiments.models.mixture_priors import LearnedMixture
from congruence.experiments.models.mixture_vaes import MixtureVAE, check_count
from congruence.experiments.training.settings import Training


class VaDE(MixtureVAE):
    """Variational deep embedding: a VAE whose prior is a Gaussian mixture with diagonal covariances that is learned.

    The loss is that of `MixtureVAE`. Before it is minimised, `train` prepares the model: encoder and decoder are
    trained as a plain autoencoder, and scikit-learn fits the mixture to its codes. Codes are brought to mean 0 and
    spread 1 before, without a change of what is decoded, and start with a standard deviation of 0.1 (both are ours).

    Parameters
    ----------
    clusters : int
        J, how many components the prior has.
    pretraining : int
        Steps as a plain autoencoder. With 0 the mixture is fitted to the codes of the first weights.

    References
    ----------
    Jiang, Zheng, Tan, Tang and Zhou 2017.
    """

    name = "vade"

    def __init__(self, latents: int = 2, *, clusters: int = 3, pretraining: int = 2000, **options: Any) -> None:
        if "prior" in options:
            raise InputError("the prior of a VaDE is learned; clusters is the number of its components")
        if pretraining < 0:
            raise InputError(f"pretraining must be at least 0, not {pretraining}")
        self.clusters, self.pretraining = check_count(clusters, "clusters"), int(pretraining)
        super().__init__(latents, **options)

    def prepare(self, data: Sequence[Any], how: Training, *, device: str, stop: Callable[[], bool] | None) -> None:
        """Train as an autoencoder and put the mixture where the codes are; `train` calls it before the first step."""
        from congruence.experiments.training.pretraining import pretrain, start_mixtures

        pretrain(self, data, how, self.pretraining, device=device, stop=stop)
        start_mixtures(self, data, seed=how.seed, device=device)

    def learned_mixtures(self) -> list[tuple[slice, LearnedMixture]]:
        """Which latents each mixture of the prior is of."""
        return [(slice(0, self.latents), self.prior)]

    def ends(self) -> list[tuple[slice, Any, Any]]:
        """Where codes leave the encoder and enter the decoder: some latents, the layer before and the layer after."""
        return [(slice(0, self.latents), self.encoder[-1], self.decoder[0])]

    def config(self) -> dict[str, Any]:
        """All from which `build_model` makes a model of the same kind."""
        return self._shared_config() | {"clusters": self.clusters, "pretraining": self.pretraining}

    def _make_prior(self, prior: Any) -> Any:
        return LearnedMixture(self.clusters, self.latents)
