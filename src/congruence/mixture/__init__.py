"""What does a mixture prior identify? `examine_mixture` answers for one prior and decoder, or for several runs."""

from __future__ import annotations

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
