"""Can new vectors replace old ones? `translate` fits a map between two embedding models and tests it."""

from __future__ import annotations

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
