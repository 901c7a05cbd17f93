"""Models whose representations can be asked about.

Names are loaded when first used: torch is imported only where a model is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "IVAE": "congruence.models.auxiliary_vaes",
    "MFCVAE": "congruence.models.faceted_vaes",
    "MixtureVAE": "congruence.models.mixture_vaes",
    "QLAE": "congruence.models.quantised",
    "TCVAE": "congruence.models.vaes",
    "VAE": "congruence.models.vaes",
    "VQVAE": "congruence.models.quantised",
    "AutoEncoder": "congruence.models.autoencoders",
    "BioAE": "congruence.models.autoencoders",
    "Training": "congruence.models.settings",
    "VaDE": "congruence.models.vade",
    "build_model": "congruence.models.catalogue",
    "load_model": "congruence.models.stored",
    "mixture_settings": "congruence.models.catalogue",
    "posterior_collapse": "congruence.models.collapse",
    "published_settings": "congruence.models.catalogue",
    "published_weight_decay": "congruence.models.catalogue",
    "train": "congruence.models.training",
}

__all__ = [
    "IVAE",
    "MFCVAE",
    "QLAE",
    "TCVAE",
    "VAE",
    "VQVAE",
    "AutoEncoder",
    "BioAE",
    "MixtureVAE",
    "Training",
    "VaDE",
    "build_model",
    "load_model",
    "mixture_settings",
    "posterior_collapse",
    "published_settings",
    "published_weight_decay",
    "train",
]

if TYPE_CHECKING:
    from congruence.models.autoencoders import AutoEncoder, BioAE
    from congruence.models.auxiliary_vaes import IVAE
    from congruence.models.catalogue import build_model, mixture_settings, published_settings, published_weight_decay
    from congruence.models.collapse import posterior_collapse
    from congruence.models.faceted_vaes import MFCVAE
    from congruence.models.mixture_vaes import MixtureVAE
    from congruence.models.quantised import QLAE, VQVAE
    from congruence.models.settings import Training
    from congruence.models.stored import load_model
    from congruence.models.training import train
    from congruence.models.vade import VaDE
    from congruence.models.vaes import TCVAE, VAE


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from congruence.models.devices import load_torch

        load_torch()  # where it is missing, this says how to get it
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
