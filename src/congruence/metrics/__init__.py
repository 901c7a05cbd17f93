"""Are the axes the true factors? `evaluate` scores learned codes against known factors; each metric is a function."""

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
