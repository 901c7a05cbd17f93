"""What does a mixture prior identify? Gaussian mixtures, their affine distance, assumptions and hidden states.

Names are loaded when first used: torch and scipy are imported only where they are needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "GaussianMixture": "congruence.mixture.gmm",
    "affine_distance": "congruence.mixture.affine",
    "affine_distances": "congruence.mixture.affine",
    "l2_distance": "congruence.mixture.distance",
}

__all__ = [
    "GaussianMixture",
    "affine_distance",
    "affine_distances",
    "l2_distance",
]

if TYPE_CHECKING:
    from congruence.mixture.affine import affine_distance, affine_distances
    from congruence.mixture.distance import l2_distance
    from congruence.mixture.gmm import GaussianMixture


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.mixture' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
