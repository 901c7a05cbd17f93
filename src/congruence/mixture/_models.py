"""`MixtureModel`: the prior, decoder and codes of one trained model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from congruence.errors import InputError
from congruence.mixture.priors import GaussianMixture, as_mixture, is_array_mapping

_MOST_COMPONENTS = 1000  # of a prior whose arrays are built


@dataclass(frozen=True, eq=False)
class MixtureModel:
    """The parts of one trained model.

    Parameters
    ----------
    prior : as in `examine_mixture`
    decoder : as in `examine_mixture`
    codes : array, frame, table or path, (rows, m), optional
        Latents of the data. Rows of several models are paired by row id if they have ids, otherwise by position.
    data : as in `examine_mixture`
    codes_are : {"means", "draws"}, optional
        Posterior means, as encoders of VAEs return, or draws from the posteriors (or the latents themselves).
    draws : array (n, m), optional
        Draws from the posteriors of an encoder, which P1 is tested on in place of codes that are means. Posteriors of
        an encoder are approximate, so these draws can support P1 but not refute it.
    noise : float or "unknown"
        Standard deviation of the Gaussian noise on the outputs.
    kind : str
        The kind of model ("vade"), for tables.
    logits : bool
        Whether the outputs are logits of pixels, whose noise is not additive.
    active_latents : float, optional
        Number of latents that carry information about the data, if it was logged.
    notes : tuple of str
        Limits of the results of this model.
    """

    prior: Any
    decoder: Any = None
    codes: Any = None
    data: Any = None
    codes_are: str | None = None
    draws: Any = None
    noise: float | str = 0.0
    kind: str = ""
    logits: bool = False
    active_latents: float | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def from_model(cls, model: Any, codes: Any = None, **more: Any) -> MixtureModel:
        """Create from a trained model with `mixture_prior()`; keywords set or replace the other fields."""
        if not hasattr(model, "mixture_prior"):
            raise InputError(f"model must have a method mixture_prior(); {type(model).__name__} has none")
        decoder: Any = getattr(model, "decoder", None)
        logits = getattr(model, "likelihood", "") == "bernoulli"
        parts = cls(
            prior=model,
            decoder=decoder.as_chain() if hasattr(decoder, "as_chain") else decoder,
            codes=codes,
            codes_are="means",
            noise="unknown" if logits else float(getattr(model, "noise", 0.0)),
            kind=str(getattr(model, "name", "")),
            logits=logits,
        )
        return replace(parts, **more)

    @property
    def components(self) -> int:
        """The number of components of the prior, computed without the arrays of a product of facets."""
        if hasattr(self.prior, "facet_priors"):
            return math.prod(len(weights) for weights, _, _ in self.prior.facet_priors())
        if hasattr(self.prior, "mixture_prior"):
            return len(self.prior.mixture_prior()[0])
        return as_mixture(self.prior).components

    def mixture(self) -> GaussianMixture | None:
        """The prior; None if it has more than 1000 components."""
        return as_mixture(self.prior) if self.components <= _MOST_COMPONENTS else None


def as_models(
    prior: Any, decoder: Any = None, codes: Any = None, data: Any = None, noise: float | str | None = None
) -> dict[str, MixtureModel]:
    """Return one prior with its parts, or a mapping of name to model, as models by name."""
    parts = {"decoder": decoder, "codes": codes, "data": data, "noise": noise}
    parts = {name: value for name, value in parts.items() if value is not None}

    def as_model(one: Any) -> MixtureModel:
        if isinstance(one, MixtureModel):
            return one
        return MixtureModel.from_model(one) if hasattr(one, "mixture_prior") else MixtureModel(one)

    if isinstance(prior, Mapping) and not is_array_mapping(prior):
        if parts:
            raise InputError(f"with a mapping of models, {', '.join(parts)} must be set in the MixtureModel of each")
        if not prior:
            raise InputError("prior must hold at least one model; got an empty mapping")
        return {str(name): as_model(one) for name, one in prior.items()}
    return {str(getattr(codes, "name", None) or "model"): replace(as_model(prior), **parts)}
