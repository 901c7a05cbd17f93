"""Numbers that the documentation quotes are those of the committed results."""

import re
from pathlib import Path

import pytest

from congruence.experiments.recipes._book import _measured
from congruence.experiments.recipes._files import read_json

DOCS = Path(__file__).parents[3] / "docs"
LEARNED = (DOCS / "results" / "learned.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"\[([\w-]+): ([^\]]+)\]\(([\w-]+)/report\.html\)", LEARNED)
TABLES = [
    (page.name, folders.split(", "), table)
    for page in sorted(DOCS.glob("*.md"))
    for folders, table in re.findall(r"<!-- numbers: ([\w, -]+) -->\n((?:\|.*\n)+)", page.read_text(encoding="utf-8"))
]
NUMBER = re.compile(r"(?<![\w.])[−-]?\d+\.\d+")


@pytest.mark.parametrize(("folder", "name", "link"), QUOTED)
def test_what_we_learned_quotes_the_finding_next_to_it(folder, name, link):
    findings = read_json(DOCS / "results" / folder / "result.json")["findings"]
    shown = _measured(next(one for one in findings if one["name"] == name))
    paragraph = next(one for one in LEARNED.split("\n\n") if f"[{folder}: {name}]" in one)
    assert link == folder
    assert shown in " ".join(paragraph.split())


@pytest.mark.parametrize(("page", "folders", "table"), TABLES, ids=[page for page, _, _ in TABLES])
def test_every_decimal_of_a_marked_table_is_in_its_results(page, folders, table):
    known = "".join((DOCS / "results" / folder / "table.md").read_text(encoding="utf-8") for folder in folders)
    assert set(NUMBER.findall(table)) - set(NUMBER.findall(known)) == set()


def test_pages_of_results_are_marked():
    assert {page for page, _, _ in TABLES} >= {"mnist-bilipschitz.md", "statistical-versus-structural.md"}
    assert len(QUOTED) > 15
