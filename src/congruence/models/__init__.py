"""Models whose representations can be asked about.

Names are loaded when first used: torch is imported only where a model is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "QLAE": "congruence.models.quantised",
    "TCVAE": "congruence.models.vaes",
    "VAE": "congruence.models.vaes",
    "VQVAE": "congruence.models.quantised",
    "AutoEncoder": "congruence.models.autoencoders",
    "BioAE": "congruence.models.autoencoders",
    "Training": "congruence.models.settings",
    "build_model": "congruence.models.catalogue",
    "load_model": "congruence.models.stored",
    "published_settings": "congruence.models.catalogue",
    "published_weight_decay": "congruence.models.catalogue",
    "train": "congruence.models.training",
}

__all__ = [
    "QLAE",
    "TCVAE",
    "VAE",
    "VQVAE",
    "AutoEncoder",
    "BioAE",
    "Training",
    "build_model",
    "load_model",
    "published_settings",
    "published_weight_decay",
    "train",
]

if TYPE_CHECKING:
    from congruence.models.autoencoders import AutoEncoder, BioAE
    from congruence.models.catalogue import build_model, published_settings, published_weight_decay
    from congruence.models.quantised import QLAE, VQVAE
    from congruence.models.settings import Training
    from congruence.models.stored import load_model
    from congruence.models.training import train
    from congruence.models.vaes import TCVAE, VAE


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from congruence.models.devices import load_torch

        load_torch()  # where it is missing, this says how to get it
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
