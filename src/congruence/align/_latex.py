"""A comparison as a LaTeX table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from congruence.formatting import percent
from congruence.maps._names import ordered_groups

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison, Pair

CAPTION = (
    "Held-out error (mean over rows the map was not fitted on) left after the best map of each group, "
    "in per cent of the diameter of the target. In parentheses the null: the same score after the pairing "
    "of rows was destroyed."
)
_LATEX = {
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
    r"""Write a booktabs table of held-out errors, one line per pair, with the null in parentheses.

    It needs ``\usepackage{booktabs}`` and nothing else.
    """
    groups = ordered_groups({name for pair in comparison.pairs for name in pair.groups})
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{CAPTION}}}",
        rf"  \begin{{tabular}}{{l{'r' * len(groups)}}}",
        r"    \toprule",
        "    " + " & ".join(["pair", *(_escaped(name) for name in groups)]) + r" \\",
        r"    \midrule",
        *("    " + " & ".join(_cells(pair, groups)) + r" \\" for pair in comparison.pairs),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _cells(pair: Pair, groups: list[str]) -> list[str]:
    cells = [rf"{_escaped(pair.source)} $\to$ {_escaped(pair.target)}"]
    for name in groups:
        near = pair.groups.get(name)
        cells.append("" if near is None else f"{_value(near.held_out.mean)} ({_value(near.null)})")
    return cells


def _value(share: float) -> str:
    text = percent(share, unit="")
    return f"${text}$" if text.startswith("<") else _escaped(text).replace("–", "--")


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
