"""Activations: `extract` returns the outputs of layers of torch and transformers models as tables."""

from __future__ import annotations

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
