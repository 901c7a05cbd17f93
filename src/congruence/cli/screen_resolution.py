"""What `congruence resolve` shows on the screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from congruence.ica.resolution import Resolution

SHOWN = 12  # components; the report, the csv and the JSON have all
MEANINGS = {
    "error °": "error: by how many degrees the number of rows leaves an axis uncertain",
    "starts": "starts: agreement of random starts, 1 is the same axis",
    "stable": "stable: agreement with refits on resampled rows, lower end of its 90 % interval",
}


def show_resolution(result: Resolution, *, stderr: bool = False) -> None:
    """Print the verdict, how the components were found, and a short table of them."""
    console = Console(stderr=stderr, highlight=False)
    console.print(f"[bold]{escape(result.verdict)}[/bold]", soft_wrap=True)
    console.print(escape(_basis(result)), soft_wrap=True)
    if result.k:
        console.print(_table(result))
    for note in result.advice:
        console.print(f"note: {escape(note.replace('max_iter', '--max-iter'))}", soft_wrap=True)


def _basis(result: Resolution) -> str:
    """The rows, the directions, and how the solver came to rest."""
    found = result.components.unmixing
    rows = f"{result.n} rows" if found.n == result.n else f"{found.n} of {result.n} rows decided the rotation"
    kept = "" if result.k == result.rank else f", {result.k} kept"
    width = f"{result.rank} of {result.d} directions vary{kept}"
    if result.settings.get("whiten") is False:
        width = f"{result.d} columns, not whitened{kept}"
    passes = "pass" if found.iterations == 1 else "passes"
    rest = "converged" if found.converged else "not converged"
    return f"{rows}; {width}; {rest} after {found.iterations} {passes}"


def _table(result: Resolution) -> Table:
    rows = result.table()[:SHOWN]
    few = f"first {len(rows)} of {result.k} components" if len(rows) < result.k else "components"
    title = f"{result.name}, {few}"
    columns = ["", "negentropy", "kurtosis", "skewness", "error °"]
    columns += ["starts"] * (rows[0]["agreement"] is not None)
    columns += ["stable"] * ("low" in rows[0]) + ["comes back"]
    words = "; ".join(MEANINGS[heading] for heading in columns if heading in MEANINGS)
    table = Table(
        title=escape(title), caption=words, caption_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True
    )
    for heading in columns:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in rows:
        numbers = [f"{row['negentropy']:.2g}", *(f"{row[name]:.2f}" for name in ("kurtosis", "skewness"))]
        agree = [_share(row[name]) for name in ("agreement", "low") if row.get(name) is not None]
        sure = "yes" if row["identified"] and row.get("stable", True) else "no"
        table.add_row(row["component"], *numbers, _degrees(row["sampling_error"]), *agree, sure)
    return table


def _degrees(radians: float) -> str:
    return f"{math.degrees(radians):.1f}" if radians < math.pi / 2 else "> 90"


def _share(value: Any) -> str:
    return f"{value:.3f}"
