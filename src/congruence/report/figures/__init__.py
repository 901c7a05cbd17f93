"""Figures of results: each function takes the data of a `congruence.document.Figure` and returns a `Drawing`.

`congruence.document.Figure("ladder", (pair,))` is drawn by the function `ladder` of one of the files of this folder.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from congruence.document import Document, Drawn, Figure
from congruence.errors import InputError

FILES = ("pairs", "heat_maps", "curves", "components", "evaluation", "batches", "features", "decoders", "spaces")


def __getattr__(name: str) -> Any:
    for file in FILES if not name.startswith("_") else ():
        module = import_module(f"{__name__}.{file}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def drawing(figure: Figure) -> Any:
    """Return the `Drawing` of a figure of a document."""
    return __getattr__(figure.painter)(*figure.data, **figure.options)


def plot_main(document: Document, ax: Any = None) -> Any:
    """Draw the main figure of a document on matplotlib axes and return these."""
    if document.main_figure is not None:
        axes = drawing(document.main_figure).plot(ax)
        if document.main_figure.title:
            axes.set_title(document.main_figure.title, parse_math=False)
        return axes
    drawn = [block for block in document.blocks() if isinstance(block, Drawn)]
    main = next((block.drawing for block in drawn if block.brief and block.drawing is not None), None)
    if main is not None:
        return main.plot(ax)
    if drawn:
        raise InputError("this result was read from files and its figures are SVG files; compute it again to plot them")
    raise InputError("this result has no figure to plot")
