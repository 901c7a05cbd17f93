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
    "build_model": "congruence.models.catalogue",
    "published_settings": "congruence.models.catalogue",
    "published_weight_decay": "congruence.models.catalogue",
}

__all__ = [
    "QLAE",
    "TCVAE",
    "VAE",
    "VQVAE",
    "AutoEncoder",
    "BioAE",
    "build_model",
    "published_settings",
    "published_weight_decay",
]

if TYPE_CHECKING:
    from congruence.models.autoencoders import AutoEncoder, BioAE
    from congruence.models.catalogue import build_model, published_settings, published_weight_decay
    from congruence.models.quantised import QLAE, VQVAE
    from congruence.models.vaes import TCVAE, VAE


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from congruence.models.train import load_torch

        load_torch()  # where it is missing, this says how to get it
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
