"""Do the factors act on separate parts of the world? Criteria, discovery and losses of mechanistic independence.

Names are loaded when first used: torch is imported only where a decoder is looked at.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "check": "congruence.mechanism.checking",
    "jacobians": "congruence.mechanism.derivatives",
    "second_derivatives": "congruence.mechanism.derivatives",
}

__all__ = ["check", "jacobians", "second_derivatives"]

if TYPE_CHECKING:
    from congruence.mechanism.checking import check
    from congruence.mechanism.derivatives import jacobians, second_derivatives


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'congruence.mechanism' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
