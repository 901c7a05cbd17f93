"""Undo the rotation of an embedding without labels: whitening, independent components and their stability."""

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
