"""Models of images and rows: autoencoders, VAEs with Gaussian or mixture priors, quantised models.

Names are loaded when first used, so that torch is imported only where a model is built.
"""

from __future__ import annotations

from functools import partial

from congruence._lazy import attach
from congruence.checks import require

__getattr__, __dir__, __all__ = attach(__name__, __file__, partial(require, "torch", "training", "torch"))
