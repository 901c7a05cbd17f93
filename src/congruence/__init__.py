"""congruence: is a learned representation identifiable?

Two figures are congruent when a rigid motion carries one onto the other. `compare` asks that of embeddings: did
retraining only rotate them, or did they really change, and by how much?

Names are loaded when first used, so that ``import congruence`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Aligner": "congruence.align.aligner",
    "Comparison": "congruence.align.comparison",
    "Map": "congruence.maps.groups",
    "Table": "congruence.tables",
    "compare": "congruence.align.compare",
    "diameter": "congruence.maps.diameter",
    "fit_map": "congruence.maps.groups",
    "load_map": "congruence.maps.groups",
    "read_table": "congruence.tables",
    "write_report": "congruence.report",
    "write_table": "congruence.tables",
}

__all__ = [
    "Aligner",
    "Comparison",
    "Map",
    "Table",
    "__version__",
    "compare",
    "diameter",
    "fit_map",
    "load_map",
    "read_table",
    "write_report",
    "write_table",
]

if TYPE_CHECKING:
    from congruence.align.aligner import Aligner
    from congruence.align.compare import compare
    from congruence.align.comparison import Comparison
    from congruence.maps.diameter import diameter
    from congruence.maps.groups import Map, fit_map, load_map
    from congruence.report import write_report
    from congruence.tables import Table, read_table, write_table


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
