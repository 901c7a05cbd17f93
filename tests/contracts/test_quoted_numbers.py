"""Numbers that README and the documentation quote are those of the committed results and benchmarks.

A comment before a table or paragraph names where its numbers come from:

    <!-- numbers: model-pairs-paper -->                                     a folder of docs/results
    <!-- numbers: ica_lens.csv -->                                          a file of benchmarks/results
    <!-- numbers: translate_maps.csv (mean recall_10 by method pair) -->    also the means of a column by others
    <!-- numbers: screens.csv, given 0.97 -->                               besides these numbers, which are settings
    <!-- given: limits of the verdict -->                                   nothing that was measured

Every decimal and every percentage there is a number of these sources, rounded as it is printed. On the pages in `PAGES`
every table with such numbers has a comment; on those in `GUIDES` every paragraph and list has one, too.
"""

import csv
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from congruence.experiments.recipes._book import _measured
from congruence.experiments.recipes._files import read_if_there

ROOT = Path(__file__).parents[2]
DOCS, BENCHMARKS = ROOT / "docs", ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", DOCS / "results" / "learned.md"]
PAGES += [DOCS / f"{name}.md" for name in ("trust", "disentanglement")]
PAGES += [DOCS / f"{name}.md" for name in ("deconfounding-reproduced", "mixture-experiments", "model-pairs")]
PAGES += [DOCS / f"{name}.md" for name in ("mnist-bilipschitz", "statistical-versus-structural")]
GUIDES = [
    "before-you-re-embed",
    "check",
    "cluster",
    "compare",
    "data",
    "decoder",
    "deconfound",
    "discovery",
    "evaluate",
    "extract",
    "features",
    "ica",
    "ica-lens",
    "layers",
    "mechanism",
    "mixture",
    "nearness",
    "resolve",
    "similarities",
    "tables",
    "train",
    "translate",
]
GUIDES = [DOCS / f"{name}.md" for name in GUIDES]
PAGES += GUIDES
LEARNED = (DOCS / "results" / "learned.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"\[([\w-]+): ([^\]]+)\]\(([\w-]+)/report\.html\)", LEARNED)
MARKED = re.compile(r"<!-- numbers: ([^>]+) -->\n+(.+?)(?=\n\s*\n|\Z)", re.DOTALL)
GIVEN = re.compile(r", given ([\d. ]+)$")
SOURCE = re.compile(r"([\w-]+(?:\.csv)?)(?: \(mean (\w+) by ([\w ]+)\))?(?:, |$)")
DECIMAL = r"[−+-]?\d*\.\d+"
SHARE = r"[−+-]?\d+(?:\.\d+)?"
PERCENT = re.compile(rf"(?<![\w.])({SHARE})(?: to ({SHARE}))? %(?: \(({SHARE}) to ({SHARE})\))?")
BLOCKS = [
    (page.name, sources, block)
    for page in sorted({*DOCS.glob("*.md"), *PAGES})
    for sources, block in MARKED.findall(page.read_text(encoding="utf-8"))
]


def without_code(text):
    text = re.sub(r"<!-- table: .*?<!-- end of table -->|```.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def as_number(text):
    return float(text.replace("−", "-"))


def quoted_numbers(block):
    """Each quoted number as printed, and whether it is a percentage."""
    text = without_code(block)
    shares = [share for found in PERCENT.findall(text) for share in found if share]
    yield from ((share, True) for share in shares)
    rest = PERCENT.sub("", text)
    yield from ((one, False) for one in re.findall(rf"(?<![\w.])(?:{DECIMAL})(?![\w.])", rest))


def column_means(rows):
    """The mean of each column of a table that has numbers only."""
    for column in zip(*rows, strict=True):
        values = [cell["value"] if isinstance(cell, dict) else cell for cell in column]
        if all(isinstance(value, int | float) for value in values):
            yield float(np.mean(values))


def known_numbers(sources):
    """All numbers of the sources; of folders also percentages as shares, and the means of columns."""
    found = []
    for name, column, by in SOURCE.findall(sources):
        if not name.endswith(".csv"):
            text = (DOCS / "results" / name / "table.md").read_text(encoding="utf-8")
            numbers = re.findall(r"[−-]?\d+(?:\.\d+)?(?:e[−-]?\d+)?", text)
            found += [as_number(one) for one in numbers]
            found += [as_number(one) / 100 for one in re.findall(rf"({SHARE})(?= ?%| to {SHARE} %)", text)]
            tables = read_if_there(DOCS / "results" / name / "result.json")["numbers"]["tables"]
            found += [mean for table in tables for mean in column_means(table["rows"])]
            continue
        with (BENCHMARKS / name).open(encoding="utf-8") as handle:
            lines = (line for line in handle if not line.startswith("#"))
            rows = list(csv.DictReader(lines, restval=""))
        found += [float(cell) for row in rows for cell in row.values() if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", cell)]
        groups = defaultdict(list)
        for row in rows if column else ():
            groups[tuple(re.sub(r"[\d, ]+(from \d)?$", "", row[one]) or row[one] for one in by.split())].append(
                float(row[column] or "nan")
            )
        found += [float(np.mean(values)) for values in groups.values()]
    return np.array(found)


def is_known(printed, percentage, known):
    digits = len(printed.partition(".")[2])
    value, half = as_number(printed), 0.5000001 * 10.0**-digits
    known = (100 if percentage else 1) * (known if printed[0] in "−-+" else np.abs(known))  # "lower by 0.1" has no sign
    return bool((np.abs(known - value) <= half).any())


@pytest.mark.parametrize(("folder", "name", "link"), QUOTED)
def test_what_we_learned_quotes_the_finding_next_to_it(folder, name, link):
    findings = read_if_there(DOCS / "results" / folder / "result.json")["findings"]
    shown = _measured(next(one for one in findings if one["name"] == name))
    paragraph = next(one for one in LEARNED.split("\n\n") if f"[{folder}: {name}]" in one)
    assert link == folder
    assert shown in " ".join(paragraph.split())


@pytest.mark.parametrize(("page", "sources", "block"), BLOCKS, ids=[f"{page}-{sources}" for page, sources, _ in BLOCKS])
def test_marked_numbers_are_those_of_their_sources(page, sources, block):
    given = GIVEN.search(sources)
    settings = given[1].split() if given else []
    known, quoted = known_numbers(GIVEN.sub("", sources)), list(quoted_numbers(block))
    unknown = [printed for printed, percentage in quoted if not is_known(printed, percentage, known)]
    assert [printed for printed in unknown if printed not in settings] == []
    assert set(settings) <= {printed for printed, _ in quoted}
    assert quoted


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_of_numbers_says_where_they_come_from(page):
    text = without_code(page.read_text(encoding="utf-8"))
    tables = re.findall(r"(<!-- (?:numbers|given): [^\n]* -->\n)?((?:^\|.*\n?)+)", text, re.MULTILINE)
    assert [table.split("\n")[0] for mark, table in tables if not mark and any(quoted_numbers(table))] == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_every_paragraph_with_numbers_says_where_they_come_from(page):
    parts = re.split(r"\n\s*\n", without_code(page.read_text(encoding="utf-8")))
    marks = ["", *parts]  # the comment is the first line of a paragraph, or the part before a list
    unmarked = [
        part
        for before, part in zip(marks, parts, strict=False)
        if not part.startswith("<!--") and not re.fullmatch("<!-- .* -->", before) and any(quoted_numbers(part))
    ]
    assert unmarked == []


def test_a_number_that_is_in_no_source_is_noticed():
    known = np.array([0.4567, 12.0])
    assert list(quoted_numbers("46 % (45 to 47), 3 to 12.5 %, −0.46 and `0.9`")) == [
        ("46", True), ("45", True), ("47", True), ("3", True), ("12.5", True), ("−0.46", False),
    ]  # fmt: skip
    assert is_known("46", True, known)
    assert is_known("0.457", False, known)
    assert not is_known("0.456", False, known)
    assert not is_known("45", True, known)
    assert len(BLOCKS) > 25
    assert len(QUOTED) > 15
