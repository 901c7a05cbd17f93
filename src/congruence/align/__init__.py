"""Did retraining only rotate my embeddings? `compare` and `compare_layers` measure it; `Aligner` undoes it."""

from __future__ import annotations

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
