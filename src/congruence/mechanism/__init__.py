"""Do the factors act on separate parts of the world? Criteria, discovery and losses of mechanistic independence.

Names are loaded when first used: torch is imported only where a decoder is looked at.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "compositional_contrast": "congruence.mechanism.losses",
    "cross_hessian_penalty": "congruence.mechanism.losses",
    "decoder_jacobian": "congruence.mechanism.losses",
    "ima_contrast": "congruence.mechanism.losses",
    "interaction_asymmetry": "congruence.mechanism.losses",
    "jacobian_l1": "congruence.mechanism.losses",
    "jacobians": "congruence.mechanism.derivatives",
    "overlap_generator": "congruence.mechanism.overlap",
    "second_derivatives": "congruence.mechanism.derivatives",
}

__all__ = [
    "compositional_contrast",
    "cross_hessian_penalty",
    "decoder_jacobian",
    "ima_contrast",
    "interaction_asymmetry",
    "jacobian_l1",
    "jacobians",
    "overlap_generator",
    "second_derivatives",
]

if TYPE_CHECKING:
    from congruence.mechanism.derivatives import jacobians, second_derivatives
    from congruence.mechanism.losses import (
        compositional_contrast,
        cross_hessian_penalty,
        decoder_jacobian,
        ima_contrast,
        interaction_asymmetry,
        jacobian_l1,
    )
    from congruence.mechanism.overlap import overlap_generator


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.mechanism' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
