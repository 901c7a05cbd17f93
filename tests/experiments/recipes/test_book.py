"""The committed results are those of their numbers, and the book is that of the committed results."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from congruence.errors import InputError
from congruence.experiments.recipes import verify
from congruence.experiments.recipes._book import book, read_catalogue, render_book
from congruence.experiments.recipes._files import read_if_there

RESULTS = Path(__file__).parents[3] / "docs" / "results"
FOLDERS = sorted(path.parent for path in RESULTS.glob("*/result.json"))
ROW = re.compile(r"^\| `(.+)` \| (\S+) \| (\S+) \| (.+) \|$", re.MULTILINE)
ITEMS = [(paper["name"], item) for paper in read_catalogue() for item in paper["items"]]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_claims_tables_and_figures_are_those_of_the_kept_numbers(folder):
    assert verify(folder) == []


def test_the_committed_book_is_that_of_the_committed_results():
    assert (RESULTS / "index.md").read_text(encoding="utf-8") == render_book(RESULTS)


@pytest.mark.parametrize(("paper", "item"), ITEMS, ids=lambda one: one if isinstance(one, str) else one["item"])
def test_what_implements_an_item_can_be_imported(paper, item):
    assert item["code"] or item["open"]  # what is not implemented says why
    if not item["code"]:
        return
    module, _, name = item["code"].rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except AttributeError:
        found = import_module(item["code"])
    assert found is not None
    if "page" in item:
        assert (RESULTS.parent / item["page"]).is_file()


def test_the_catalogue_has_every_numbered_item_once():
    names = [(paper, item["item"]) for paper, item in ITEMS]
    assert len(set(names)) == len(names)
    of = {paper: " ".join(item["item"] for name, item in ITEMS if name == paper) for paper, _ in ITEMS}
    for kind, numbers in (("Table", "1234567"), ("Theorem", "123"), ("Figure A.", "3456")):
        assert all(f"{kind} {n}".replace(". ", ".") in of["Nelson et al. 2026"] for n in numbers)
    assert all(f"heorem {n}" in of["Matthes et al. 2026"] for n in "12345")
    assert all(
        item in of["Kivva et al. 2022"] for item in ("Theorem 3.9", "Theorem 3.10", "Remark 3.12", "Corollary 3.1")
    )


def test_the_book_marks_claims_whose_rule_was_written_after_the_numbers():
    rows = [
        one for one in render_book(RESULTS).splitlines() if one.startswith("| ") and "/report.html), post hoc" in one
    ]
    assert any("better than the line" in one for one in rows)
    assert not any("The worse the constant of the decoders" in one for one in rows)


def test_every_claim_is_among_the_changed_ones_or_of_a_new_result():
    introduction, *sections = (RESULTS / "changes.md").read_text(encoding="utf-8").split("\n## ")
    tables = {re.match(r"\[([\w-]+)\]", one)[1]: ROW.findall(one) for one in sections}
    assert set(tables).isdisjoint(new := re.findall(r"\]\(([\w-]+)/report\.html\)", introduction))
    assert {*tables, *new} == {folder.name for folder in FOLDERS}
    for folder, rows in tables.items():
        findings = read_if_there(RESULTS / folder / "result.json")["findings"]
        assert [(name, now) for name, _, now, _ in rows if now != "–"] == [(f["name"], f["status"]) for f in findings]
        kept = ("holds", "fails", "undecided")
        assert all(before in kept or (before, why[:3]) == ("–", "new") for _, before, _, why in rows)
        same = {("undecided", "ambiguous"), ("undecided", "unknown")}
        assert all(before == now or (before, now) in same or why != "–" for _, before, now, why in rows)


def test_a_book_without_results_or_with_an_unknown_finding_is_refused(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="holds no results"):
        book(tmp_path)
    (tmp_path / "a").mkdir()
    empty = {"findings": [], "numbers": {"claims": []}, "settings": {}, "verdict": ""}
    (tmp_path / "a" / "result.json").write_text(json.dumps(empty))
    with pytest.raises(InputError, match="which is in no result folder"):
        book(tmp_path)
    monkeypatch.setattr("congruence.experiments.recipes._book.read_catalogue", lambda: [])
    assert re.search(r"\[a\]\(a/report.html\)", book(tmp_path).read_text())


FINDING = {"name": "a", "claim": "It holds.", "status": "holds", "number": 1.5, "interval": [1.0, 2.0]}
RESULT = {"findings": [FINDING], "numbers": {"claims": []}, "settings": {"command": "c"}, "verdict": "It holds."}


@pytest.mark.parametrize(
    "content",
    [
        None,
        RESULT | {"findings": None},
        RESULT | {"numbers": {"claims": [{}]}},
        RESULT | {"settings": []},
        *(RESULT | {"findings": [FINDING | {key: value}]} for key in ("name", "status") for value in ({}, [])),
        *(RESULT | {"findings": [FINDING | {"number": value}]} for value in ("1", [], {})),
        *(RESULT | {"findings": [FINDING | {"interval": value}]} for value in (3, [], ["1", "2"])),
    ],
)
def test_a_book_names_a_result_that_is_damaged(tmp_path, monkeypatch, content):
    monkeypatch.setattr("congruence.experiments.recipes._book.read_catalogue", lambda: [])
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "result.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"one.result\.json"):
        book(tmp_path)


def test_a_book_has_a_line_for_each_result_whatever_its_verdict_and_follows_no_link(tmp_path, monkeypatch):
    monkeypatch.setattr("congruence.experiments.recipes._book.read_catalogue", lambda: [])
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "result.json").write_text(json.dumps(RESULT | {"verdict": "a\n\n# b | c"}))
    assert book(tmp_path).read_text().endswith(r"| [one](one/report.html) | `c` | 1 holds | a # b \| c |" + "\n")
    (tmp_path / "one" / "result.json").rename(tmp_path / "other.json")
    (tmp_path / "one" / "result.json").symlink_to(tmp_path / "other.json")
    with pytest.raises(InputError, match="is a link out of"):
        book(tmp_path)
