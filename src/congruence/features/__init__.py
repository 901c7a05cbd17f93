"""Do the features of two dictionaries (SAE, transcoder, ICA) come back? `match_features` matches and tests them."""

from __future__ import annotations

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
