"""Figures of results: each function takes the data of a `congruence.document.Figure` and returns a `Drawing`.

`congruence.document.Figure("ladder", (pair,))` is drawn by `ladder(pair)`; the stub lists all names.
"""

from __future__ import annotations

from typing import Any

from congruence._lazy import attach
from congruence.document import Document, Drawn, Figure
from congruence.errors import InputError

__getattr__, __dir__, __all__ = attach(__name__, __file__)


def drawing(figure: Figure) -> Any:
    """Return the `Drawing` of a figure of a document."""
    return __getattr__(figure.painter)(*figure.data, **figure.options)


def plot_main(document: Document, ax: Any = None) -> Any:
    """Draw the main figure of a document on matplotlib axes and return these."""
    if document.main_figure is not None:
        return drawing(document.main_figure).plot(ax)
    drawn = [block for block in document.blocks() if isinstance(block, Drawn)]
    main = next((block.drawing for block in drawn if block.brief and block.drawing is not None), None)
    if main is not None:
        return main.plot(ax)
    if drawn:
        raise InputError("this result was read from files and its figures are SVG files; compute it again to plot them")
    raise InputError("this result has no figure to plot")
