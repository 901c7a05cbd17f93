"""Findings, how they combine, and what every result can do."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import congruence
from congruence.document import Cell, Column, Document, Figure, Section, Table, Text, as_cell
from congruence.errors import InputError, InputWarning, MissingDependencyError
from congruence.report.html import render_cell, render_html
from congruence.report.markdown import render_markdown
from congruence.report.terminal import render_text
from congruence.result import ALLOWED, STATUSES, Finding, Result, combine, conclude, json_text, versions
from congruence.schema import result_schema, type_schema

ORDER = {status: i for i, status in enumerate(STATUSES)}
findings = st.sampled_from([(status, basis) for status, bases in ALLOWED.items() for basis in bases]).map(
    lambda pair: Finding("premise", "It is so.", *pair)
)


def finding(status="holds", **more):
    return Finding("claim", "It is so.", status, **more)


def test_the_basis_follows_from_the_status():
    assert [finding(s).basis for s in ("holds", "fails", "ambiguous", "unknown")] == [
        "supported",
        "refuted",
        "not refuted",
        "not refuted",
    ]


@pytest.mark.parametrize(("status", "basis"), [("holds", "refuted"), ("fails", "supported"), ("unknown", "certified")])
def test_a_status_and_a_basis_that_contradict_each_other_are_refused(status, basis):
    with pytest.raises(InputError, match=f"cannot have the basis '{basis}'"):
        finding(status, basis=basis)


def test_an_unknown_status_is_refused():
    with pytest.raises(InputError, match="one of fails, ambiguous, unknown, holds, not 'partly'"):
        finding("partly")


@given(st.lists(findings, max_size=6))
def test_all_hold_only_if_each_holds(premises):
    status = combine(premises)
    assert status == (min((f.status for f in premises), key=ORDER.get) if premises else "unknown")
    assert (status == "holds") == (bool(premises) and all(f.status == "holds" for f in premises))


@given(st.lists(findings, min_size=1, max_size=6))
def test_a_conclusion_is_never_better_than_its_premises(premises):
    made = conclude("theorem", "So it is.", premises)
    assert (made.status == "holds") == all(f.status == "holds" for f in premises)
    assert made.status != "fails"  # a theorem whose premise fails says nothing
    assert (made.basis == "premise fails") == any(f.status == "fails" for f in premises)
    assert (made.basis == "certified") == all(f.basis == "certified" for f in premises)
    assert made.to_dict()["premises"] == [f.to_dict() for f in premises]


class ToyNumbers(TypedDict):
    """Numbers of a toy."""

    mean: float
    names: list[str]


@dataclass(frozen=True, eq=False, repr=False)
class Toy(Result):
    """A toy."""

    verdict: str = "It is so, by 12 %. " + 20 * "And so on. "
    findings: tuple[Finding, ...] = (Finding("a", "A.", "holds"), Finding("b", "B.", "ambiguous"))
    notes: tuple[str, ...] = ("A note.",)
    settings: Any = field(default_factory=lambda: {"seed": 0})

    def numbers(self) -> ToyNumbers:
        return {"mean": math.nan, "names": ["x"]}

    def rows(self):
        return ({"name": name, "value": value} for name, value in (("x", 1.5), ("y", math.nan)))

    def document(self):
        table = Table("Numbers", (Column("what", "text"), Column("value")), [("x", 1.5), ("a|b", None)], brief=True)
        sections = (Section("Numbers", (table, Text("Hidden on a terminal."))),)
        return Document(
            "Is it so?", "It is so.", self.status, sections=sections, notes=self.notes, settings=self.settings
        )


def test_json_starts_with_the_status_and_writes_undefined_numbers_as_null():
    read = json.loads(Toy().to_json())
    assert list(read)[:7] == ["status", "verdict", "findings", "numbers", "notes", "settings", "versions"]
    assert read["status"] == "ambiguous"
    assert read["numbers"] == {"mean": None, "names": ["x"]}
    assert read["versions"] == versions()
    assert {"python", "congruence", "numpy"} <= set(read["versions"])


def test_numpy_values_become_plain_json():
    values = {"a": np.float32(0.5), "b": np.int64(3), "c": np.array([1.0, np.inf]), "d": np.bool_(True), "e": (1, 2)}
    assert json.loads(json_text(values)) == {"a": 0.5, "b": 3, "c": [1.0, None], "d": True, "e": [1, 2]}


def test_a_result_prints_in_one_line_and_shows_in_a_terminal():
    assert len(repr(Toy())) <= 120
    assert "\n" not in repr(Toy())
    assert repr(Toy()).startswith("<Toy ambiguous: It is so, by 12 %.")
    assert str(Toy()) == render_text(Toy().document())
    assert "note: A note." in str(Toy())
    assert "Hidden" not in str(Toy())


def test_a_wrong_key_is_answered_with_the_right_ones():
    assert Toy()["a"].claim == "A."
    with pytest.raises(InputError, match=r"there is no 'c' in this Toy; the keys are 'a', 'b'"):
        Toy()["c"]
    with pytest.raises(KeyError):
        Toy()["c"]
    for key in ([1], slice(0, 2), {}):
        with pytest.raises(InputError, match="the keys are 'a', 'b'"):
            Toy()[key]
    assert "a" in Toy()
    assert "c" not in Toy()
    assert list(Toy()) == ["a", "b"]


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_a_frame_has_one_row_for_each_row(backend):
    frame = Toy().to_frame(backend)
    assert type(frame).__module__.startswith(backend)
    assert len(frame) == 2
    names = frame.column_names if backend == "pyarrow" else list(frame.columns)
    assert names == ["name", "value"]


def test_an_unknown_frame_library_is_refused(monkeypatch):
    with pytest.raises(InputError, match="backend must be one of 'pandas', 'polars', 'pyarrow'; got 'dask'"):
        Toy().to_frame("dask")
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(MissingDependencyError, match="pip install polars"):
        Toy().to_frame("polars")


def test_outputs_are_written_to_a_path(tmp_path):
    toy = Toy()
    assert toy.to_json(tmp_path / "r.json") == (tmp_path / "r.json").read_text()
    assert toy.to_csv(tmp_path / "r.csv") == (tmp_path / "r.csv").read_text() == "name,value\nx,1.5\ny,\n"
    assert toy.to_markdown(tmp_path / "r.md") == (tmp_path / "r.md").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="does not exist"):
        toy.to_json(tmp_path / "missing" / "r.json")


def test_names_cannot_command_a_terminal_or_a_spreadsheet(monkeypatch):
    names = ["=1+1", "+cmd", "-2+3", "@sum", "\t=1", "-0.5", "a\x1b[2J\rb"]
    monkeypatch.setattr(Toy, "rows", lambda self: [{"name": name, "value": -1.5} for name in names])
    cells = [row["name"] for row in csv.DictReader(io.StringIO(Toy().to_csv(), newline=""))]
    assert cells == ["'=1+1", "'+cmd", "'-2+3", "'@sum", r"\t=1", "-0.5", r"a\x1b[2J\rb"]
    assert ",-1.5\n" in Toy().to_csv()
    noted = replace(Toy().document(), headline="file \x1b]0;owned\x07", notes=["column a\x1b[2J\x9bb"])
    for render in (render_text, render_html, render_markdown, render_cell):
        text = render(noted)
        assert text.replace("\n", "").replace("\xa0", "").isprintable()
        assert r"file \x1b]0;owned\x07" in text
        assert r"column a\x1b[2J\x9bb" in text or render is render_cell
    assert r"a\x1b[2Jb" in repr(Toy(verdict="a\x1b[2Jb"))
    assert str(InputWarning("a\x1b[2Jb")) == r"a\x1b[2Jb"
    text = json_text({"a\x9bb": "c\u202ed\udcff"})
    assert text == '{\n  "a\\u009bb": "c\\u202ed\\udcff"\n}\n'
    assert json.loads(text) == {"a\x9bb": "c\u202ed\udcff"}


def test_a_page_loads_and_sends_nothing():
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', render_html(Toy().document()))[1]
    assert {"default-src 'none'", "base-uri 'none'", "form-action 'none'"} <= set(policy.split("; "))


def test_the_command_and_the_input_files_are_shown_in_every_document():
    files = [{"path": "a.npy", "bytes": 1234, "sha256": "ab12", "modified": None}]
    toy = Toy(settings={"seed": 0, "inputs": files}).with_command("congruence toy a.npy")
    for text in (render_html(toy.document()), render_markdown(toy.document())):
        assert all(word in text for word in ("congruence toy a.npy", "a.npy", "ab12", "numpy", "seed"))


def test_markdown_keeps_the_columns_of_a_table():
    lines = Toy().to_markdown().splitlines()
    assert "| x | 1.50 |" in lines
    assert "| a\\|b | – |" in lines


def test_a_result_without_a_figure_says_so():
    with pytest.raises(InputError, match="no figure"):
        Toy().plot()
    with pytest.raises(InputError, match="path must be a str or Path; got None"):
        Toy().report(None)
    assert "It is so." in render_cell(Toy().document())


def test_an_unknown_painter_is_an_error():
    document = Document("?", "!", "holds", sections=(Section("s", (Figure("nothing", ()),)),))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        render_html(document)


@pytest.mark.parametrize(
    ("value", "cell"),
    [(None, Cell("–", "")), ("word", Cell("word")), (3, Cell("3", 3)), (0.25, Cell("0.250", 0.25)),
     (math.nan, Cell("–", "")), (True, Cell("yes")), (np.int64(2), Cell("2", 2))],
)  # fmt: skip
def test_plain_values_become_cells(value, cell):
    assert as_cell(value) == cell


def test_the_schema_follows_the_types():
    schema = result_schema(Toy)
    assert schema["properties"]["numbers"] == {"$ref": "#/$defs/ToyNumbers"}
    assert schema["$defs"]["ToyNumbers"]["properties"]["mean"] == {"type": ["number", "null"]}
    validate = pytest.importorskip("jsonschema").validate
    validate(json.loads(Toy().to_json()), schema)
    with pytest.raises(TypeError, match="no JSON schema for"):
        type_schema(complex, {})


def test_keys_of_a_result_are_completed_in_a_notebook():
    x = np.random.default_rng(0).normal(size=(60, 2))
    result = congruence.compare({"a": x, "b": x}, groups=["rigid"], nulls=2, bootstrap=0)
    assert result._ipython_key_completions_() == [("a", "b")]
