"""What does the decoder guarantee? How much it stretches lengths, and what follows for the representation.

Names are loaded when first used: torch is imported only where a decoder is examined.
"""

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
