"""What does the decoder guarantee? How much it stretches, and what follows from that for the representation.

Names are loaded when first used: torch is imported only where a decoder is looked at.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "bilipschitz": "congruence.decoder.stretch",
    "certify_layers": "congruence.decoder.certificates",
    "dynamical_isometry": "congruence.decoder.bounds",
    "examine": "congruence.decoder.examination",
    "leaky_bound": "congruence.decoder.certificates",
    "linear_regions": "congruence.decoder.regions",
    "roeder_map": "congruence.decoder.heads",
    "statistical_from_structural": "congruence.maps.statistical",
    "sufficient_diversity": "congruence.decoder.heads",
    "theorem1": "congruence.decoder.bounds",
    "theorem2": "congruence.ica.bound",
    "theorem3": "congruence.decoder.bounds",
}

__all__ = [
    "bilipschitz",
    "certify_layers",
    "dynamical_isometry",
    "examine",
    "leaky_bound",
    "linear_regions",
    "roeder_map",
    "statistical_from_structural",
    "sufficient_diversity",
    "theorem1",
    "theorem2",
    "theorem3",
]

if TYPE_CHECKING:
    from congruence.decoder.bounds import dynamical_isometry, theorem1, theorem3
    from congruence.decoder.certificates import certify_layers, leaky_bound
    from congruence.decoder.examination import examine
    from congruence.decoder.heads import roeder_map, sufficient_diversity
    from congruence.decoder.regions import linear_regions
    from congruence.decoder.stretch import bilipschitz
    from congruence.ica.bound import theorem2
    from congruence.maps.statistical import statistical_from_structural


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.decoder' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
