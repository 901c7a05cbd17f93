"""Reproduce the papers' results: one recipe for each table, figure or example.

`recipe.py` lists the recipes, `_reproduce.py` runs one in a folder, `result.py` and `_document.py` describe the result,
and `_files.py` writes it. A recipe is a module or, if it is long, a package: `run.py` computes, `claims.py` judges and
`figures.py`, if there is one, draws.
"""

from __future__ import annotations

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
