"""Reproduce the papers' results: one recipe for each table, figure or example.

`recipe.py` lists the recipes, `_reproduce.py` runs one in a folder, `result.py` and `_document.py` describe the result,
and `_files.py` writes it. Each recipe is a package: `run.py` computes, `claims.py` judges, `figures.py` draws.
"""

from __future__ import annotations

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
