"""Numbers that README and the documentation quote are those of the committed results and benchmarks.

A comment before a table, paragraph or list names where its numbers come from:

    <!-- numbers: model-pairs-paper -->                                     a folder of docs/results
    <!-- numbers: mixture-pinwheel-small/numbers -->                        everything that its recipe measured
    <!-- numbers: ica_lens.csv -->                                          a file of benchmarks/results
    <!-- numbers: translate_maps.csv (mean recall_10 by method pair) -->    also the means of a column by others
    <!-- numbers: training.csv (ms_per_step times 3.33333) -->              also a column in another unit
    <!-- numbers: check.csv (sum count by case) -->                         also sums of a column by others
    <!-- numbers: ica.csv (count converged=False by d peer) -->             also how many rows are so, are not, and all
    <!-- numbers: screens.csv, given 0.97 -->                               besides these numbers, which are settings
    <!-- given: limits of the verdict -->                                   nothing that was measured

Every decimal, percentage, count ("9 of 10"), factor ("14 times"), time and size of memory there is a number of these
sources, rounded as it is printed; counts are equal. A paragraph that links to findings names their folders that way.
Every table, paragraph and list with such numbers has a comment.
"""

import csv
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from congruence.experiments.recipes._book import _measured
from congruence.experiments.recipes._files import read_if_there, read_numbers

ROOT = Path(__file__).parents[2]
DOCS, BENCHMARKS = ROOT / "docs", ROOT / "benchmarks" / "results"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
GENERATED = ("table.md", "index.md")  # in docs/results, by the program
PAGES += [page for page in sorted(DOCS.rglob("*.md")) if page.parent == DOCS or page.name not in GENERATED]
LEARNED = (DOCS / "results" / "learned.md").read_text(encoding="utf-8")
FINDING = re.compile(r"\[([\w-]+): ([^\]]+)\]\(([\w-]+)/report\.html\)")
QUOTED = FINDING.findall(LEARNED)
MARK = "<!-- (?:numbers|given): "
MARKED = re.compile(r"<!-- numbers: ([^>]+) -->\n+(.+?)(?=\n\s*\n|\Z)", re.DOTALL)
GIVEN = re.compile(r", given ([\d., ]+)$")
SOURCE = re.compile(r"([\w-]+(?:\.csv|/numbers)?)(?: \(([^()]+)\))?(?:, |$)")
DECIMAL = r"[−+-]?\d*\.\d+"
SHARE = r"[−+-]?\d+(?:\.\d+)?"
PERCENT = re.compile(rf"(?<![\w.])({SHARE})(?: to ({SHARE}))? %(?: \(({SHARE}) to ({SHARE})\))?")
COUNT = re.compile(r"(?<![\w.,])(\d[\d,]*) of (?:the |these )?(\d[\d,]*)(?!\w|\.\d)")
FACTOR = re.compile(rf"(?<![\w.,])(?:({SHARE})(?:-fold| x faster| times (?!\d))|factor of ({SHARE}))")
UNIT = re.compile(rf"(?<![\w.,])({SHARE})(?: to ({SHARE}))? (?:s|ms|µs|seconds?|minutes?|min|hours?|MB|GB)\b")


def marked_blocks():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        yield from ((page.name, *found) for found in MARKED.findall(text))
        for paragraph in text.split("\n\n"):
            if folders := {folder for folder, *_ in FINDING.findall(paragraph)}:
                yield page.name, ", ".join(sorted(folders)), FINDING.sub("", paragraph)


def without_code(text):
    text = re.sub(r"<!-- table: .*?<!-- end of table -->|```.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


BLOCKS = list(marked_blocks())


def as_number(text):
    return float(text.replace("−", "-").replace(",", ""))


def quoted_numbers(block):
    """Each quoted number as printed, and whether it is a percentage, a count or another number."""
    text = without_code(block)
    yield from ((share, "percentage") for found in PERCENT.findall(text) for share in found if share)
    text = PERCENT.sub("", text)
    yield from ((one.rstrip(","), "count") for found in COUNT.findall(text) for one in found)
    yield from ((one, "number") for kind in (FACTOR, UNIT) for found in kind.findall(text) for one in found if one)
    yield from ((one, "number") for one in re.findall(rf"(?<![\w.])(?:{DECIMAL})(?!\w|\.\d)", text))


def column_means(rows):
    """The mean of each column of a table that has numbers only."""
    for column in zip(*rows, strict=True):
        values = [cell["value"] if isinstance(cell, dict) else cell for cell in column]
        if all(isinstance(value, int | float) for value in values):
            yield float(np.mean(values))


def scalars(content):
    """All numbers in mappings and lists."""
    if isinstance(content, dict | list):
        for one in content.values() if isinstance(content, dict) else content:
            yield from scalars(one)
    elif isinstance(content, int | float):
        yield float(content)


def derived_numbers(rows, how):
    """Means, sums or counts of the rows of a table by the values of columns, or a column in another unit."""
    if scaled := re.fullmatch(r"(\w+) times ([\d.]+)", how):
        return [float(row[scaled[1]]) * float(scaled[2]) for row in rows if row[scaled[1]]]
    kind, column, sign, value, by = re.fullmatch(r"(mean|sum|count) (\w+)(?:([=<])(\S+))? by ([\w ]+)", how).groups()
    groups = defaultdict(list)
    for row in rows:
        if row[column] or kind == "mean":
            key = tuple(re.sub(r"[\d, ]+(from \d)?$", "", row[one]) or row[one] for one in by.split())
            groups[key].append(row[column] or "nan")
    if kind == "count":
        found = [
            sum(one == value if sign == "=" else float(one) < float(value) for one in group)
            for group in groups.values()
        ]
        return [*found, *map(len, groups.values()), *(len(g) - n for g, n in zip(groups.values(), found, strict=True))]
    average = np.mean if kind == "mean" else np.sum
    return [float(average(np.array(group, float))) for group in groups.values()]


def known_numbers(sources):
    """All numbers of the sources; of folders also percentages as shares, and the means of columns."""
    found = []
    for name, derived in SOURCE.findall(sources):
        if name.endswith("/numbers"):
            found += scalars(read_numbers(DOCS / "results" / name.removesuffix("/numbers"))["ours"])
            continue
        if not name.endswith(".csv"):
            text = (DOCS / "results" / name / "table.md").read_text(encoding="utf-8")
            numbers = re.findall(r"[−-]?\d+(?:\.\d+)?(?:e[−-]?\d+)?", text)
            found += [as_number(one) for one in numbers]
            found += [as_number(one) / 100 for one in re.findall(rf"({SHARE})(?= ?%| to {SHARE} %)", text)]
            result = read_if_there(DOCS / "results" / name / "result.json")
            found += [mean for table in result["numbers"]["tables"] for mean in column_means(table["rows"])]
            found += scalars([[one["number"], one["interval"]] for one in result["findings"]])
            continue
        with (BENCHMARKS / name).open(encoding="utf-8") as handle:
            lines = (line for line in handle if not line.startswith("#"))
            rows = list(csv.DictReader(lines, restval=""))
        found += [float(cell) for row in rows for cell in row.values() if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", cell)]
        found += derived_numbers(rows, derived) if derived else []
    return np.array(found)


def is_known(printed, kind, known):
    digits = len(printed.partition(".")[2])
    value, half = as_number(printed), 1e-9 if kind == "count" else 0.5000001 * 10.0**-digits
    known = (100 if kind == "percentage" else 1) * (known if printed[0] in "−-+" else np.abs(known))  # "lower by 0.1"
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
    unknown = [printed for printed, kind in quoted if not is_known(printed, kind, known)]
    assert [printed for printed in unknown if printed not in settings] == []
    assert set(settings) <= {printed for printed, _ in quoted}
    assert quoted


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_paragraph_and_table_with_numbers_says_where_they_come_from(page):
    parts = re.split(r"\n\s*\n", without_code(page.read_text(encoding="utf-8")))
    marks = ["", *parts]  # the comment is the first line of a paragraph, or the part before a list
    unmarked = [
        part
        for before, part in zip(marks, parts, strict=False)
        if not re.match(MARK, part) and not re.fullmatch(f"{MARK}.* -->", before) and not FINDING.search(part)
        if any(quoted_numbers(part))
    ]
    assert unmarked == []


@pytest.mark.parametrize(
    ("page", "net", "side"), [("models", "published", 64), ("models", "small", 64), ("disentanglement", "small", 32)]
)
def test_sizes_of_networks_are_those_of_the_networks(page, net, side):
    pytest.importorskip("torch")
    from congruence.experiments.models import AutoEncoder

    weights = AutoEncoder(latents=12, net=net, shape=(3, side, side)).parameters()
    printed = f"{sum(one.numel() for one in weights) / 1e6:.1f} million weights"
    assert printed in (DOCS / f"{page}.md").read_text(encoding="utf-8")


def test_a_number_that_is_in_no_source_is_noticed():
    known = np.array([0.4567, 12.0])
    text = "46 % (45 to 47), 3 to 12.5 %, 9 of 1,040, 14 times faster, 2 to 3 s, −0.46. `0.9`"
    assert list(quoted_numbers(text)) == [
        *((share, "percentage") for share in ("46", "45", "47", "3", "12.5")),
        ("9", "count"), ("1,040", "count"), ("14", "number"), ("2", "number"), ("3", "number"), ("−0.46", "number"),
    ]  # fmt: skip
    assert is_known("46", "percentage", known)
    assert is_known("0.457", "number", known)
    assert not is_known("0.456", "number", known)
    assert not is_known("45", "percentage", known)
    assert is_known("12", "count", known)
    assert not is_known("0", "count", known)
    assert len(BLOCKS) > 25
    assert len(QUOTED) > 15
