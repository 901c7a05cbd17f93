"""A comparison as a LaTeX table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from congruence.errors import printable
from congruence.formatting import fixed, percent
from congruence.maps._names import ordered_groups

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison
    from congruence.maps.nearness import Nearness

CAPTION = (
    "Held-out error (mean over rows the map was not fitted on) after the best map of each group, in per cent of "
    "chance: the error of the same score for randomly re-paired rows. In parentheses the held-out $R^2$."
)
ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",  # after a line break, [ and * would be read as its arguments
    "*": "{*}",
    "−": "$-$",
    "∞": r"$\infty$",
} | {character: "\\" + character for character in "&%$#_{}"}


def to_latex(comparison: Comparison) -> str:
    r"""Write a booktabs table of held-out errors, one line per pair, relative to chance and with R² in parentheses.

    It needs ``\usepackage{booktabs}`` and nothing else.
    """
    groups = ordered_groups({name for pair in comparison.pairs for name in pair.groups})

    def cell(near: Nearness | None) -> str:
        if near is None:
            return ""
        return f"{_share(near.of_chance.mean)} ({_text(fixed(near.r2.mean, 3)).replace('–', '--')})"

    rows = [["pair", *map(_text, groups)]]
    for pair in comparison.pairs:
        name = rf"{_text(pair.source)} $\to$ {_text(pair.target)}"
        rows.append([name, *(cell(pair.groups.get(group)) for group in groups)])
    head, *lines = [f"    {' & '.join(row)} \\\\" for row in rows]
    table = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{CAPTION}}}",
        rf"  \begin{{tabular}}{{l{'r' * len(groups)}}}",
        r"    \toprule",
        head,
        r"    \midrule",
        *lines,
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(table) + "\n"


def _share(value: float) -> str:
    text = percent(value, unit="")
    return f"${text}$" if text.startswith("<") else _text(text).replace("–", "--")


def _text(text: str) -> str:
    return "".join(ESCAPES.get(character, character) for character in printable(" ".join(text.split())))
