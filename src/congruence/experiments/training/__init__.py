"""Train models on images and rows: `train` by name, `train_model` for a model of your own.

Names are loaded when first used, so that torch is imported only where a model is trained.
"""

from __future__ import annotations

from functools import partial

from congruence._lazy import attach
from congruence.checks import require

__getattr__, __dir__, __all__ = attach(__name__, __file__, partial(require, "torch", "training", "torch"))
