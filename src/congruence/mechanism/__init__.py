"""Do the factors act on separate parts of the world? Criteria, discovery and losses of mechanistic independence.

Names are loaded when first used: torch is imported only where a decoder is looked at.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "LatentDomain": "congruence.mechanism.domains",
    "action_graph": "congruence.mechanism.graphs",
    "check": "congruence.mechanism.checking",
    "component_gap": "congruence.mechanism.graphs",
    "compositional_contrast": "congruence.mechanism.losses",
    "cross_hessian_penalty": "congruence.mechanism.losses",
    "decoder_jacobian": "congruence.mechanism.losses",
    "discover": "congruence.mechanism.discovery",
    "disentangled": "congruence.mechanism.decomposable",
    "examine": "congruence.mechanism.examination",
    "finest_additive": "congruence.mechanism.additive_parts",
    "finest_disjoint": "congruence.mechanism.disjoint_parts",
    "ima_contrast": "congruence.mechanism.losses",
    "interaction_asymmetry": "congruence.mechanism.losses",
    "jacobian_l1": "congruence.mechanism.losses",
    "jacobians": "congruence.mechanism.derivatives",
    "overlap_generator": "congruence.mechanism.overlap",
    "portray": "congruence.mechanism.portrait",
    "second_derivatives": "congruence.mechanism.derivatives",
}

__all__ = [
    "LatentDomain",
    "action_graph",
    "check",
    "component_gap",
    "compositional_contrast",
    "cross_hessian_penalty",
    "decoder_jacobian",
    "discover",
    "disentangled",
    "examine",
    "finest_additive",
    "finest_disjoint",
    "ima_contrast",
    "interaction_asymmetry",
    "jacobian_l1",
    "jacobians",
    "overlap_generator",
    "portray",
    "second_derivatives",
]

if TYPE_CHECKING:
    from congruence.mechanism.additive_parts import finest_additive
    from congruence.mechanism.checking import check
    from congruence.mechanism.decomposable import disentangled
    from congruence.mechanism.derivatives import jacobians, second_derivatives
    from congruence.mechanism.discovery import discover
    from congruence.mechanism.disjoint_parts import finest_disjoint
    from congruence.mechanism.domains import LatentDomain
    from congruence.mechanism.examination import examine
    from congruence.mechanism.graphs import action_graph, component_gap
    from congruence.mechanism.losses import (
        compositional_contrast,
        cross_hessian_penalty,
        decoder_jacobian,
        ima_contrast,
        interaction_asymmetry,
        jacobian_l1,
    )
    from congruence.mechanism.overlap import overlap_generator
    from congruence.mechanism.portrait import portray


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.mechanism' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
