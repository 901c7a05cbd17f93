"""What does a mixture prior identify? Gaussian mixtures, their affine distance, assumptions and hidden states.

Names are loaded when first used: torch and scipy are imported only where they are needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "GaussianMixture": "congruence.mixture.gmm",
}

__all__ = [
    "GaussianMixture",
]

if TYPE_CHECKING:
    from congruence.mixture.gmm import GaussianMixture


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.mixture' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
