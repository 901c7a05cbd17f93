"""Does an embedding generalise to unseen batches? `deconfound` classifies targets on batches held out.

The stub lists the names of this room.
"""

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
