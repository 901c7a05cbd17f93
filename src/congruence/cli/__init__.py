"""The command line: one file per command; each parses its arguments, calls a verb and shows the result."""

from __future__ import annotations

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
