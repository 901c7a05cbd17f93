"""Reproduce the papers' results: one recipe for each table, figure or example.

`recipe.py` lists the recipes, `_reproduce.py` runs one in a folder, `parts.py` stores what was already computed,
`result.py` and `_document.py` describe the result, `_files.py` writes it; every other file belongs to a recipe.
"""

from __future__ import annotations

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
