"""What does a layer of my model give? `extract` returns the outputs of torch and transformers models as tables."""

from __future__ import annotations

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
