"""congruence: is a learned representation identifiable?

Two figures are congruent when a rigid motion carries one onto the other. `compare` asks that of embeddings: did
retraining only rotate them, or did they really change, and by how much? `evaluate` asks whether learned codes are
the true factors.

Names are loaded when first used, so that ``import congruence`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Aligner": "congruence.align.aligner",
    "Comparison": "congruence.align.comparison",
    "Evaluation": "congruence.metrics.evaluation",
    "ICA": "congruence.ica.estimator",
    "Map": "congruence.maps.groups",
    "Table": "congruence.tables",
    "Whitener": "congruence.ica.whitener",
    "bilipschitz": "congruence.decoder.stretch",
    "compare": "congruence.align._compare",
    "component_stability": "congruence.ica.stability",
    "consensus": "congruence.align._consensus",
    "diameter": "congruence.maps._diameter",
    "evaluate": "congruence.metrics._evaluate",
    "fit_map": "congruence.maps.groups",
    "infomec": "congruence.metrics._infomec",
    "load_ica": "congruence.ica.estimator",
    "load_map": "congruence.maps.groups",
    "load_translator": "congruence.translation.translator",
    "read_table": "congruence.tables",
    "translate": "congruence.translation._translate",
    "write_table": "congruence.tables",
}

__all__ = [
    "ICA",
    "Aligner",
    "Comparison",
    "Evaluation",
    "Map",
    "Table",
    "Whitener",
    "__version__",
    "bilipschitz",
    "compare",
    "component_stability",
    "consensus",
    "diameter",
    "evaluate",
    "fit_map",
    "infomec",
    "load_ica",
    "load_map",
    "load_translator",
    "read_table",
    "translate",
    "write_table",
]

if TYPE_CHECKING:
    from congruence.align._compare import compare
    from congruence.align._consensus import consensus
    from congruence.align.aligner import Aligner
    from congruence.align.comparison import Comparison
    from congruence.decoder.stretch import bilipschitz
    from congruence.ica.estimator import ICA, load_ica
    from congruence.ica.stability import component_stability
    from congruence.ica.whitener import Whitener
    from congruence.maps._diameter import diameter
    from congruence.maps.groups import Map, fit_map, load_map
    from congruence.metrics._evaluate import evaluate
    from congruence.metrics._infomec import infomec
    from congruence.metrics.evaluation import Evaluation
    from congruence.tables import Table, read_table, write_table
    from congruence.translation._translate import translate
    from congruence.translation.translator import load_translator


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
