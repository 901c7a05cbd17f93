"""Inline SVG that follows the page: colours are CSS variables, text is text, bytes are reproducible."""

from __future__ import annotations

import hashlib
import html
import io
import json
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.errors import InputError

# Each colour in the light and in the dark scheme. Hues are near Okabe and Ito's, with enough contrast for
# text on either page; no two marks in a figure differ by colour alone.
PALETTE = {
    "page": ("#fbfbf9", "#14171c"),
    "card": ("#ffffff", "#1b1f26"),
    "ink": ("#1c2027", "#e8eaed"),
    "muted": ("#585f6b", "#a5adba"),
    "line": ("#d8dbe0", "#363d48"),
    "grid": ("#e4e6ea", "#2c323b"),
    "c-heldout": ("#0a62ab", "#6cb8f5"),
    "c-null": ("#b8430f", "#f6965f"),
    "c-linear": ("#0b7556", "#4fcba3"),
    "c-source": ("#93388f", "#dc96d8"),
    "c-heat": ("#e8940a", "#a4570a"),
    "c-ica": ("#8a6a00", "#e0c050"),
}
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"  # of a standalone file
_SENTINELS = {name: f"#fe01{number:02x}" for number, name in enumerate(PALETTE, start=16)}
INK, MUTED, GRID = _SENTINELS["ink"], _SENTINELS["muted"], _SENTINELS["grid"]
LINE, HEAT, SOURCE = _SENTINELS["line"], _SENTINELS["c-heat"], _SENTINELS["c-source"]
HELD_OUT, NULL = _SENTINELS["c-heldout"], _SENTINELS["c-null"]
LINEAR, ICA = _SENTINELS["c-linear"], _SENTINELS["c-ica"]

STYLE = {
    "svg.fonttype": "none",
    "path.simplify": False,
    "font.size": 13.0,
    "axes.titlesize": 13.0,
    "axes.titleweight": "bold",
    "axes.titlepad": 7.0,
    "axes.labelsize": 12.0,
    "xtick.labelsize": 12.0,
    "ytick.labelsize": 12.0,
    "legend.fontsize": 12.0,
    "legend.frameon": False,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.4,
    "legend.borderpad": 0.0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 1.0,
}

REACH = 9.0  # CSS pixels around a point within which the pointer finds it
ABOVE: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.02), "borderaxespad": 0}  # a legend over its axes

_CLUTTER = (
    r"<metadata>.*?</metadata>",
    r"<!--.*?-->",
    r"<style.*?</style>",
    r" font-family: [^;\"]*;",  # text is set in the page's font
    r' transform="rotate\(-0 [^"]*"',
    r'<path d="[^"]*" style="fill: none"/>',
    r"<defs>\s*</defs>",
)


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn: as an inline SVG element, or on matplotlib axes.

    Parameters
    ----------
    paint : callable
        Draws on matplotlib axes (or, if `panels`, on a `matplotlib.figure.Figure`) with the colours of this module.
    size : (width, height)
        In CSS pixels, at which text has the sizes of `STYLE`.
    label : str
        Text for screen readers, different from those of other figures of the page.
    key : str, default the label
        Ids in the SVG start with a digest of it, so that figures can share a page.
    panels : bool, default False
        Whether the figure has several panels, so that it cannot be drawn on axes of the caller.
    """

    paint: Callable[[Any], None]
    size: tuple[float, float]
    label: str
    key: str = ""
    panels: bool = False

    def svg(self, hover: bool = False) -> str:
        """Return the figure as an inline SVG element, with `hover` with the texts of its points for a page."""
        from matplotlib import style
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        digest = hashlib.sha256((self.key or self.label).encode()).hexdigest()[:8]
        out = io.StringIO()
        with style.context(["default", STYLE | {"svg.hashsalt": digest}]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # measured with our font, shown with the reader's
            layout = ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.09)
            figure = Figure(figsize=(self.size[0] / 72, self.size[1] / 72), layout=layout)
            self.paint(figure if self.panels else figure.subplots())
            figure.savefig(out, format="svg", metadata={"Date": None})
        return _inline(out.getvalue(), f"f{digest}", self.label, _hover_attribute(figure) if hover else "")

    def plot(self, ax: Any = None) -> Any:
        """Draw on the axes given, or on new ones, in the light colours; return the axes."""
        from matplotlib import pyplot, style

        with style.context(STYLE | {"figure.facecolor": PALETTE["page"][0], "savefig.facecolor": PALETTE["page"][0]}):
            if ax is None:
                figure = pyplot.figure(figsize=(self.size[0] / 72, self.size[1] / 72), layout="constrained")
                self.paint(figure if self.panels else figure.add_subplot())
                for axes in figure.axes:
                    _recolour(axes)
                for legend in figure.legends:
                    _recolour(legend)
                return figure.axes[0]
            if not (hasattr(ax, "plot") and hasattr(ax, "figure")):
                raise InputError(f"ax must be one set of matplotlib axes, not {type(ax).__name__}")
            if self.panels:
                raise InputError("this figure has several panels: call plot() without ax")
            self.paint(ax)
            _recolour(ax)
        return ax


@dataclass(frozen=True)
class Inline:
    """A small mark in a cell of a table, written as an SVG element without matplotlib."""

    text: str

    def svg(self, hover: bool = False) -> str:
        """Return the SVG element."""
        return self.text


def add_hover(axes: Any, points: Any, texts: Sequence[str], *, cells: bool = False) -> None:
    """Give points (m, 2) of the axes a text that an HTML page shows at the pointer; `cells` are squares of side 1."""
    axes.hover = [*getattr(axes, "hover", ()), (np.asarray(points, dtype=float).reshape(-1, 2), texts, cells)]


def _hover_attribute(figure: Any) -> str:
    """The texts of all points and, by reach, the places of the points in the SVG; empty without any."""
    numbers: dict[str, int] = {}
    marks: list[tuple[float, float, list[tuple[float, float, int]]]] = []
    scale, height = 72 / figure.dpi, 72 * figure.get_figheight()
    for axes in figure.axes:
        for points, texts, cells in getattr(axes, "hover", ()):
            at = axes.transData.transform(points)
            reach = scale * abs(axes.transData.transform((0.5, 0.5)) - axes.transData.transform((0, 0)))
            wide, high = reach.round(1).tolist() if cells else (REACH, REACH)
            places = [
                (round(scale * x, 1), round(height - scale * y, 1), numbers.setdefault(text, len(numbers)))
                for (x, y), text in zip(at, texts, strict=True)
                if axes.bbox.padded(1).contains(x, y)
            ]
            marks.append((wide, high, places))
    if not numbers:
        return ""
    data = json.dumps({"texts": list(numbers), "marks": marks}, ensure_ascii=False, separators=(",", ":"))
    return " data-hover='" + html.escape(data, quote=False).replace("'", "&#39;") + "'"


def _recolour(artist: Any) -> None:
    """Replace the placeholder colours of all artists by the light colours."""
    from matplotlib.colors import to_hex

    light = {sentinel: PALETTE[name][0] for name, sentinel in _SENTINELS.items()}
    for one in artist.findobj():
        for what in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
            get, put = getattr(one, f"get_{what}", None), getattr(one, f"set_{what}", None)
            if get is None or put is None:
                continue
            colour = get()
            single = colour[0] if getattr(colour, "ndim", 1) == 2 and len(colour) else colour
            try:
                replacement = light.get(to_hex(single))
            except (TypeError, ValueError):
                continue
            if replacement is not None:
                put(replacement)


def standalone(svg: str) -> str:
    """Return an SVG element as the text of a file, with the colours of either scheme and a page behind it."""
    light, dark = ("".join(f"--{name}: {pair[i]}; " for name, pair in PALETTE.items()) for i in (0, 1))
    style = (
        f"svg {{ {light}background: var(--page); font-family: {FONTS}; }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {dark}}} }}"
    )
    opening = svg.index(">") + 1
    return f"{svg[:opening]}<style>{style}</style>{svg[opening:]}\n"


def _inline(svg: str, prefix: str, label: str, hover: str) -> str:
    """Remove metadata and comments, make ids unique and colours CSS variables; text is unchanged."""
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box is not None
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body, written = _stash_words(body)
    for pattern in _CLUTTER:
        body = re.sub(pattern, "", body, flags=re.DOTALL)
    body = re.sub(r"-?\d+\.\d\d+", lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), body)
    body = re.sub(r"\s*\n\s*", "\n", body.replace("xlink:href", "href"))
    body = _hoist_styles(_renumber_ids(body, prefix))
    for name, sentinel in _SENTINELS.items():
        body = body.replace(sentinel, f"var(--{name}, {PALETTE[name][0]})")
    body = re.sub(r"\0(\d+)\0", lambda m: written[int(m[1])], body)
    width = float(box[1])  # below the size at which it was drawn a figure may shrink a little, text included
    style = f"max-width: {width:.0f}px; min-width: {0.85 * width:.0f}px; stroke-linejoin: round"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {box[1]} {box[2]}" role="img"'
        f' aria-label="{html.escape(label)}" style="{style}"{hover}>'
    ) + body.strip()


def _stash_words(body: str) -> tuple[str, list[str]]:
    """Replace all text by numbers, so that edits of tags cannot change the name of a run."""
    written: list[str] = []

    def stash(match: re.Match[str]) -> str:
        written.append(match[2])
        return f"{match[1]}\0{len(written) - 1}\0"

    return re.sub(r"(<text [^>]*>)([^<]*)", stash, body), written


def _renumber_ids(body: str, prefix: str) -> str:
    """Remove unused ids; replace the others by short names that start with the prefix."""
    used = dict.fromkeys(re.findall(r'(?:href="|url\()#([^")]+)', body))
    names = {old: f"{prefix}-{number}" for number, old in enumerate(used)}
    body = re.sub(r' id="([^"]*)"', lambda m: f' id="{names[m[1]]}"' if m[1] in names else "", body)
    return re.sub(r'(href="|url\()#([^")]+)', lambda m: f"{m[1]}#{names[m[2]]}", body)


def _hoist_styles(body: str) -> str:
    """Write the style that all points of a scatter share once, on their group."""

    def hoist(match: re.Match[str]) -> str:
        styles = set(re.findall(r'style="([^"]*)"', match[2]))
        if len(styles) != 1:
            return match[0]
        plain = re.sub(r' style="[^"]*"', "", match[2])
        return f'<g{match[1]} style="{styles.pop()}">{plain}'

    return re.sub(r"<g((?: clip-path=\"[^\"]*\")?)>((?:\s*<use [^>]*/>)+)", hoist, body)
