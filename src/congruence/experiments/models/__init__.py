"""Models of images and rows: autoencoders, VAEs with Gaussian or mixture priors, quantised models.

Names are loaded when first used, so that torch is imported only where a model is built.
"""

from __future__ import annotations

from typing import Any

from congruence._lazy import attach
from congruence.checks import require

_load, __dir__, __all__ = attach(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in __all__:
        require("torch", "training", "torch")
    return _load(name)
