"""`book`: one page with every definition, theorem, example, table and figure of the papers, and what we get."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from congruence.errors import InputError, printable_lines
from congruence.experiments.recipes._files import RESULT
from congruence.files import write_text
from congruence.formatting import UNDEFINED, number
from congruence.guards import check_folder, read_object, reading

CATALOGUE = Path(__file__).with_name("catalogue.toml")
PAGE = "index.md"
SIGNS = {"holds": "✓ holds", "fails": "✕ fails", "ambiguous": "≈ ambiguous", "unknown": "? unknown"}
HEAD = ("item, and where it is implemented", "the paper", "claim, **ours**", "status, report")
INTRODUCTION = """---
hide: [toc]
---

# The book of results

Every definition, theorem, example, table and figure of the three papers: where it is implemented, what the paper
prints, what we get, and whether it agrees. This page is made by `congruence reproduce book docs/results` from the
result folders alone, and a test compares it with them. Each claim has its source, rule and margin in its report;
`congruence reproduce verify docs/results/NAME` makes claims, tables and figures again from the numbers kept there.

*holds* and *fails*: the whole interval lies inside, or outside, the limits of the rule. *ambiguous*: part of it does.
*unknown*: too few numbers, a premise fails, or it was not run or implemented; then the row says what is missing and
what it would take. *post hoc*: the rule was written or changed after numbers were seen. A dash: nothing to judge. Ours
is the number that the rule is about, with its interval in brackets: of 95 % over seeds, trainings, pairs, plates or
rows, for shares of cases the bounds that those that could not be decided leave. The rule in each report says which.
What we make of it is in [What we learned](learned.md); which claims are judged otherwise than by version 0.1.0, and
why, in [Changed claims](changes.md).
"""


def read_catalogue() -> list[dict[str, Any]]:
    """The papers with their items, in the papers' order."""
    papers: list[dict[str, Any]] = tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))["papers"]
    return papers


def book(folder: str | Path) -> Path:
    """Write the page about all result folders in a folder, and return its path."""
    path = Path(folder) / PAGE
    write_text(path, render_book(Path(folder)))
    return path


def render_book(folder: Path) -> str:
    """The page as Markdown."""
    results = {path.parent.name: _read_result(path) for path in sorted(folder.glob(f"*/{RESULT}"))}
    if not results:
        raise InputError(f"{folder} holds no results: it must have folders with a {RESULT}")
    parts = [INTRODUCTION]
    for paper in read_catalogue():
        rows = [row for item in paper["items"] for row in _rows(item, results, folder)]
        parts += [f"## {paper['name']}", f"*{paper['title']}*", _table(HEAD, rows)]
    about = [one.about for one in results.values()]
    parts += ["## Result folders", _table(("folder", "command", "claims", "verdict"), about)]
    return printable_lines("\n\n".join(part.strip() for part in parts)) + "\n"


class _Result(NamedTuple):
    """What the page says about a result folder."""

    about: tuple[str, ...]  # its row among the folders
    findings: Mapping[str, tuple[str, str]]  # by name, the claim with our number, and its status


def _read_result(path: Path) -> _Result:
    check_folder(path.parent, names=[RESULT])
    content = read_object(path, "a result")
    with reading(path, "a result"):
        name, findings = path.parent.name, content["findings"]
        late = {one["name"] for one in content["numbers"]["claims"] if one["post_hoc"]}
        statuses = [one["status"] for one in findings]
        tally = ", ".join(f"{statuses.count(one)} {one}" for one in SIGNS if one in statuses)
        command = f"`{content['settings'].get('command', '')}`"
        return _Result(
            (f"[{name}]({name}/report.html)", command, tally, f"{content['verdict']}"),
            {one["name"]: _claim(one, name, one["name"] in late) for one in findings},
        )


def _claim(finding: Mapping[str, Any], folder: str, late: bool) -> tuple[str, str]:
    status = f"[{SIGNS[finding['status']]}]({folder}/report.html){', post hoc' if late else ''}<br>{folder}"
    return f"{finding['claim']} **{_measured(finding)}**", status


def _rows(item: Mapping[str, Any], results: Mapping[str, _Result], home: Path) -> Iterator[tuple[str, ...]]:
    code, page = item["code"], item.get("page")
    where = f"`{code}`" if code else "*not implemented*"
    about = f"[{item['about']}](../{page})" if page else item["about"]
    first = (f"**{item['item']}**: {about}<br>{where}", item.get("paper", UNDEFINED))
    rows: list[tuple[str, str]] = []
    for reference in item.get("results", ()):
        folder, _, name = reference.partition(": ")
        if folder not in results or name not in results[folder].findings:
            raise InputError(f"the catalogue names {reference!r}, which is in no result folder of {home}")
        rows.append(results[folder].findings[name])
    if "open" in item:
        rows.append((f"*Missing:* {item['open']}", SIGNS["unknown"]))
    for place, row in enumerate(rows or [(UNDEFINED, UNDEFINED)]):
        yield (*(first if place == 0 else ("", "")), *row)


def _measured(finding: Mapping[str, Any]) -> str:
    if finding["number"] is None:
        return UNDEFINED
    value, interval = number(finding["number"], 3), finding["interval"]
    return value if interval is None else f"{value} ({number(interval[0], 3)} to {number(interval[1], 3)})"


def _table(head: tuple[str, ...], rows: Any) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", r"\|") for cell in line) + " |" for line in lines
    )
