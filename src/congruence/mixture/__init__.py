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
    "assumptions": "congruence.mixture.hierarchy",
    "canonical_axes": "congruence.mixture.canonical",
    "decoder_conditions": "congruence.mixture.injectivity",
    "l2_distance": "congruence.mixture.distance",
    "recover_hidden_states": "congruence.mixture.hidden_states",
    "relu_injective": "congruence.mixture.rectifiers",
}

__all__ = [
    "GaussianMixture",
    "affine_distance",
    "affine_distances",
    "assumptions",
    "canonical_axes",
    "decoder_conditions",
    "l2_distance",
    "recover_hidden_states",
    "relu_injective",
]

if TYPE_CHECKING:
    from congruence.mixture.affine import affine_distance, affine_distances
    from congruence.mixture.canonical import canonical_axes
    from congruence.mixture.distance import l2_distance
    from congruence.mixture.gmm import GaussianMixture
    from congruence.mixture.hidden_states import recover_hidden_states
    from congruence.mixture.hierarchy import assumptions
    from congruence.mixture.injectivity import decoder_conditions
    from congruence.mixture.rectifiers import relu_injective


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.mixture' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
