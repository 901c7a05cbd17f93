"""The report: one self-contained HTML file that a colleague can read without knowing this package."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING

from congruence import files
from congruence.report import figures, words
from congruence.report.svg import PALETTE

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison, Pair

SHOWN_PAIRS = 12  # with figures, about 60 kB each
TABLE_PAIRS = 500
LIMIT = 1_900_000  # bytes


@dataclass(frozen=True)
class _Section:
    """One pair as the page shows it."""

    number: int
    pair: Pair
    figures: dict[str, str]
    facts: list[tuple[str, str, str]]  # what, its value, what it means


def write_report(comparison: Comparison, path: str | Path) -> None:
    """Write the report of a comparison to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render(comparison))


def render(comparison: Comparison) -> str:
    """Return the report of a comparison as one HTML page that needs no other file, below 2 MB.

    With more than `SHOWN_PAIRS` pairs, only those with the largest held-out error have figures, and the page
    says so.
    """
    chosen = _worst(comparison.pairs, SHOWN_PAIRS)
    sections = [_section(number, pair) for number, pair in enumerate(chosen, start=1)]
    heat = figures.heat_map(comparison) if _has_heat_map(comparison) else ""
    rows = TABLE_PAIRS
    page = _page(comparison, sections, heat, rows)
    while len(page.encode()) > LIMIT and (sections or rows > 1):
        sections, rows = sections[: len(sections) // 2], max(rows // 2, 1)
        page = _page(comparison, sections, heat, rows)
    return page


def _worst(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """Take all pairs if they are few, else those that the best rotation and scale leaves furthest apart."""
    if len(pairs) <= count:
        return list(pairs)

    def left(pair: Pair) -> float:
        near = pair.groups.get("similarity") or next(iter(pair.groups.values()), None)
        return near.held_out.mean if near is not None and near.held_out.mean == near.held_out.mean else -1.0

    return sorted(pairs, key=left, reverse=True)[:count]


def _has_heat_map(comparison: Comparison) -> bool:
    return len(comparison.runs) > 2 and any("similarity" in pair.groups for pair in comparison.pairs)


def _section(number: int, pair: Pair) -> _Section:
    drawn = {
        "ladder": figures.ladder(pair),
        "histogram": figures.error_histogram(pair),
        "planes": figures.planes(pair),
    }
    return _Section(number, pair, drawn, _facts(pair))


def _facts(pair: Pair) -> list[tuple[str, str, str]]:
    exact = "exact" if pair.diameter_exact else "estimated from below by search"
    facts = [
        ("paired rows", str(pair.n), "rows that both runs have"),
        (
            "diameter",
            words.number(pair.diameter, 4),
            f"largest distance between two rows of the target; {exact}",
        ),
        (
            "MCC, strong",
            words.number(pair.mcc.strong),
            "correlation of dimensions matched one to one; 1 is best",
        ),
        (
            "MCC, weak",
            words.number(pair.mcc.weak),
            "the same after the best linear map (CCA), held out; 1 is best",
        ),
        (
            "CKA",
            words.number(pair.cka),
            "agreement of the similarity structure (linear, unbiased); 1 is best",
        ),
        ("neighbour overlap", words.percent(pair.neighbour_overlap), "nearest neighbours that stay the same"),
    ]
    if "ica" in pair.groups:
        meaning = "how much of what a similarity gains over a permutation, unsupervised ICA gains too"
        facts.append(("ICA efficiency, held out", words.percent(pair.held_out_efficiency), meaning))
        facts.append(("ICA efficiency, in sample", words.percent(pair.efficiency), "the same, in sample"))
    if pair.components is not None:
        held, null = pair.components.held_out.mean, pair.components.null
        value = f"{words.percent(held)} (null {words.percent(null)})"
        facts.append(("ICA components, held out", value, "matched components, over their own diameter"))
    return facts


def _page(comparison: Comparison, sections: list[_Section], heat: str, rows: int) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"percent": words.percent, "setting": words.setting, "prose": words.prose}
    template = resources.files("congruence.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    statuses = Counter(pair.verdict.status for pair in comparison.pairs)
    groups = words.ordered({name for pair in comparison.pairs for name in pair.groups})
    return environment.from_string(template).render(
        comparison=comparison,
        status=words.worst(statuses),
        statuses=[(status, statuses[status]) for status in words.STATUSES if statuses[status]],
        marks=words.STATUSES,
        ranks=list(words.STATUSES),
        sentences=re.split(r"(?<=[.!?])\s+(?=[A-Z0-9])", comparison.verdict.strip()),
        groups=groups,
        meanings=words.GROUPS,
        rows=comparison.pairs[:rows],
        sections=sections,
        numbers={(section.pair.source, section.pair.target): section.number for section in sections},
        heat=heat,
        heat_runs=min(len(comparison.runs), figures.HEAT_RUNS),
        palette=PALETTE,
        versions=_versions(),
        undefined=words.UNDEFINED,
    )


def _versions() -> list[tuple[str, str]]:
    from congruence import __version__

    found: list[tuple[str, str]] = [("python", platform.python_version()), ("congruence", __version__)]
    for name in ("numpy", "scipy", "scikit-learn"):
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, "not installed"))
    return found
