"""Figures of results: each function takes what a `congruence.document.Figure` holds and returns a `Drawing`.

`congruence.document.Figure("ladder", (pair,))` is drawn by `ladder(pair)`; the stub lists all names.
"""

from __future__ import annotations

from typing import Any

from congruence._lazy import attach
from congruence.document import Document, Drawn, Figure
from congruence.errors import InputError

__getattr__, __dir__, __all__ = attach(__name__, __file__)


def drawing(figure: Figure) -> Any:
    """Return the `Drawing` that a figure of a document stands for."""
    return __getattr__(figure.painter)(*figure.data, **figure.options)


def plot_main(document: Document, ax: Any = None) -> Any:
    """Draw the main figure of a document on matplotlib axes and return these."""
    if document.main_figure is None:
        if any(isinstance(block, Drawn) for block in document.blocks()):
            raise InputError("the figures of this result exist as SVG only: see its report, or the .svg files it wrote")
        raise InputError("this result has no figure to plot")
    return drawing(document.main_figure).plot(ax)
