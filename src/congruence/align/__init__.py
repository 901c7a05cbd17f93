"""Did retraining only rotate my embeddings? `compare` answers, `layer_map` by layer; `Aligner` undoes the rotation.

Names are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "LayerMap": "congruence.align.layer_nearness",
    "UnpairedTranslation": "congruence.align.unpaired_translation",
    "layer_map": "congruence.align.layers",
    "translate_unpaired": "congruence.align.unpaired",
}

__all__ = ["LayerMap", "UnpairedTranslation", "layer_map", "translate_unpaired"]

if TYPE_CHECKING:
    from congruence.align.layer_nearness import LayerMap
    from congruence.align.layers import layer_map
    from congruence.align.unpaired import translate_unpaired
    from congruence.align.unpaired_translation import UnpairedTranslation


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.align' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
