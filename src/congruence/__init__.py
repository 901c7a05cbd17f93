"""congruence: is a learned representation identifiable?

Two figures are congruent when a rigid motion carries one onto the other. `compare` asks that of embeddings: did
retraining only rotate them, or did they change, and by how much? Each question has one verb, and each verb returns a
`Result` with a status, a verdict, findings, a table, a figure and a page.

Names are loaded when first used, so that ``import congruence`` stays light.
"""

from congruence._lazy import attach

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = attach(__name__, __file__)
