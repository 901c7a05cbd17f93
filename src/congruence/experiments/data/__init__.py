"""Data sets: images and rows with known factors, generated or read from your files; handwritten digits."""

from __future__ import annotations

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
