"""Did retraining only rotate my embeddings? `compare` answers, `layer_map` by layer; `Aligner` undoes the rotation.

Names are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "LayerMap": "congruence.align.layer_nearness",
    "layer_map": "congruence.align.layers",
}

__all__ = ["LayerMap", "layer_map"]

if TYPE_CHECKING:
    from congruence.align.layer_nearness import LayerMap
    from congruence.align.layers import layer_map


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.align' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
