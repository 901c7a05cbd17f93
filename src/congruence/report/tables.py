"""A comparison as a table: tidy CSV for the next program, LaTeX for the paper."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from congruence.report.words import ordered, percent

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


def to_csv(comparison: Comparison) -> str:
    """Write one row per pair and group, floats in full precision, undefined numbers empty.

    Errors are shares of the target's diameter; `held_out`, `low`, `high` and `null` are held out, `mean`,
    `rms`, `q95` and `sup` in sample.
    """
    return rows_to_csv(comparison.rows())


def rows_to_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write rows with the same keys as CSV, floats in full precision, undefined numbers empty."""
    out = io.StringIO()
    rows = list(rows)
    if rows:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(rows[0])
        writer.writerows([_exact(value) for value in row.values()] for row in rows)
    return out.getvalue()


def _exact(value: Any) -> str:
    if isinstance(value, str):
        return value
    plain = value.item() if hasattr(value, "item") else value  # numpy scalars print their type
    return "" if plain is None or plain != plain else repr(plain)


def to_latex(comparison: Comparison) -> str:
    r"""Write a booktabs table of held-out errors, one line per pair, with the null in parentheses.

    It needs ``\usepackage{booktabs}`` and nothing else.
    """
    groups = ordered({name for pair in comparison.pairs for name in pair.groups})
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
