"""Groups of maps, the best map of each, and its error."""

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
