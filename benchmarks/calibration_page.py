"""Write the tables of docs/trust.md from the rows of results/calibration.csv."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
HEADED = re.compile(r"^## ([^\n]+)\n(?:(?!^## ).)*?<!-- table: (\w+) -->", re.DOTALL | re.MULTILINE)
FALSE = 0.07  # a statement whose rate must not exceed this is a false one


def is_measured(row: Row) -> bool:
    return bool(row["rate"] or row["mean"])


def entry(row: Row | None) -> str:
    """A rate in per cent or a mean, with its interval; bold where its limit is not met."""
    if row is None or not is_measured(row):
        return ""
    low, high = (float(row[end] or "nan") for end in ("low", "high"))
    if row["rate"]:
        text = f"{100 * float(row['rate']):.1f} % ({100 * low:.1f} to {100 * high:.1f})"
    else:
        text = f"{float(row['mean']):.3g}" + ("" if math.isnan(low) else f" ({low:.3g} to {high:.3g})")
        text = text.replace("-", "−")
    return f"**{text}**" if row["met"] == "no" else f"{text} ✓" if row["met"] == "yes" else text


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def where(row: Row) -> str:
    """The cell and its number of rows."""
    return row["cell"] + (f", n = {row['n']}" if row["n"] else "")


def link(heading: str) -> str:
    """A heading as a link to its section."""
    anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
    return f"[{heading}](#{anchor})"


def limit(row: Row) -> str:
    """The limit of a value, in signs that do not break."""
    return row["limit"].replace("<= ", "≤\u00a0").replace(">= ", "≥\u00a0").replace("\u00a0-", "\u00a0−")


def excess(row: Row) -> float:
    """How far a value lies beyond its limit; negative within it."""
    value = float(row["rate"] or row["mean"])
    ends = (part.split() for part in row["limit"].split(" and "))
    return max(value - float(end) if sign == "<=" else float(end) - value for sign, end in ends)


def by_limit(rows: Sequence[Row]) -> list[list[Row]]:
    """The measured rows of each quantity with the same limit."""
    limits: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["limit"] and is_measured(row):
            limits.setdefault((row["section"], row["quantity"], row["limit"]), []).append(row)
    return list(limits.values())


def render_limits(rows: Sequence[Row]) -> str:
    """One line per limit: in how many cells it is met, and the cell farthest from it."""
    lines = []
    for of_limit in by_limit(rows):
        worst = max(of_limit, key=excess)
        met = f"{sum(row['met'] == 'yes' for row in of_limit)} of {len(of_limit)}"
        lines.append([worst["quantity"], limit(worst), met, where(worst), entry(worst)])
    return table(["statement or value", "limit", "met in", "worst case", "its value (95 % interval)"], lines)


def render_cells(rows: Sequence[Row]) -> str:
    """One line per cell, one column per quantity."""
    names = list(dict.fromkeys(row["quantity"] for row in rows))
    cells: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        cells.setdefault((row["cell"], row["n"], row["d"]), {})[row["quantity"]] = row
    lines = [[*cell, *(entry(found.get(name)) for name in names)] for cell, found in cells.items()]
    text = table(["truth", "n", "d", *names], lines)
    return f'<details markdown="1"><summary>All {len(cells)} simulated cases</summary>\n\n{text}\n\n</details>'


def render_section(rows: Sequence[Row]) -> str:
    """The limits of a section, and below them its cells, folded."""
    rows = [row for row in rows if is_measured(row)]
    return f"{render_limits(rows)}\n\n{render_cells(rows)}" if rows else "*Not simulated yet.*"


def render_summary(rows: Sequence[Row], headings: dict[str, str]) -> str:
    """One line per section: how many values are within their limits, and the highest rate of a false statement."""
    lines = []
    for name, heading in headings.items():
        limited = [row for of_limit in by_limit([row for row in rows if row["section"] == name]) for row in of_limit]
        false = [row for row in limited if row["limit"].startswith("<= ") and float(row["limit"][3:]) <= FALSE]
        highest = max(false, key=lambda row: float(row["rate"] or row["mean"]), default=None)
        share = f"{100 * float(highest['rate'] or highest['mean']):.1f} % ({highest['quantity']})" if highest else ""
        met = f"{sum(row['met'] == 'yes' for row in limited)} of {len(limited)}"
        lines.append([link(heading), met, share])
    return table(["simulated", "within their limits", "highest rate of a false statement"], lines)


def render_exceeded(rows: Sequence[Row], headings: dict[str, str]) -> str:
    """One line per value beyond its limit."""
    beyond = [row for row in rows if row["met"] == "no"]
    lines = [[link(headings[row["section"]]), where(row), row["quantity"], limit(row), entry(row)] for row in beyond]
    return table(["section", "truth", "statement or value", "limit", "value (95 % interval)"], lines)


def render_origin(rows: Sequence[Row]) -> str:
    """Versions, machine and numbers of simulations."""
    if not rows:
        return "*Not simulated yet.*"
    counts = [int(row["simulations"]) for row in rows if is_measured(row)]
    origins = dict.fromkeys(f"{row['versions']}; {row['machine']}" for row in rows)
    hours = sum({(row["section"], row["cell"], row["n"]): float(row["cpu_s"] or 0) for row in rows}.values()) / 3600
    size = f"{min(counts)} to {max(counts)} simulations per case (see the csv), {hours:.1f} CPU hours in all."
    return "\n".join([f"{size} Versions and machines:\n", *(f"- {origin}" for origin in origins)])


def render(page: str, rows: Sequence[Row]) -> str:
    """The page with every table between its markers made from the rows of the csv."""
    headings = {name: heading for heading, name in HEADED.findall(page) if name in {row["section"] for row in rows}}
    tables = {
        name: render_section([row for row in rows if row["section"] == name]) for _, name, _ in MARKED.findall(page)
    }
    tables |= {
        "summary": render_summary(rows, headings),
        "exceeded": render_exceeded(rows, headings),
        "origin": render_origin(rows),
    }
    return MARKED.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n\n{found[3]}", page)
