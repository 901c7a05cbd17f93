import csv
import io
import math
import re

import numpy as np
import pytest

from congruence.document import Cell, Column, Document, Section, Table
from congruence.maps.nearness import HeldOut, Nearness
from congruence.report.terminal import render_text


def test_csv_gives_back_every_number_exactly(three):
    rows = list(csv.DictReader(io.StringIO(three.to_csv())))
    expected = list(three.rows())
    assert len(rows) == len(expected) == 21
    for row, truth in zip(rows, expected, strict=True):
        assert list(row) == list(truth)
        assert [type(value)(row[name]) for name, value in truth.items()] == list(truth.values())


def test_csv_leaves_undefined_numbers_empty(undefined):
    (row,) = csv.DictReader(io.StringIO(undefined.to_csv()))
    assert (row["low"], row["high"], row["null"]) == ("", "", "")
    assert (row["of_chance"], row["r2_low"], row["trimmed"]) == ("", "", "")
    assert row["held_out"] == "0.1"


def test_csv_leads_with_the_share_of_chance_and_r2(three):
    first = next(iter(three.rows()))
    leading = ["of_chance", "of_chance_low", "of_chance_high", "r2", "r2_low", "r2_high", "trimmed", "held_out"]
    assert list(first)[4:12] == leading
    assert first["of_chance"] == first["held_out"] / first["null"]


def test_csv_writes_numpy_scalars_as_plain_numbers(make_pair, make_comparison):
    one = np.float64(0.1)
    near = Nearness("rigid", one, one, one, one, HeldOut(one, one, np.float64(math.nan)), one, np.ones(1))
    (row,) = csv.DictReader(io.StringIO(make_comparison(pairs=[make_pair(groups={"rigid": near})]).to_csv()))
    assert (row["held_out"], row["high"]) == ("0.1", "")


def test_csv_keeps_commas_quotes_and_line_breaks_of_names(make_comparison):
    names = ('a, "b"', "c\nd")
    row = next(csv.DictReader(io.StringIO(make_comparison(names).to_csv())))
    assert (row["source"], row["target"]) == names


def test_latex_has_one_line_per_pair_and_one_column_per_group(three):
    text = three.to_latex()
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().split("\n")
    assert len(body) == 3
    assert r"\begin{tabular}{lrrrrrrr}" in text
    assert all(line.count("&") == 7 and line.endswith(r"\\") for line in body)
    assert "7.32 (0.995)" in body[0]


def test_latex_caption_says_what_the_numbers_are(three):
    caption = three.to_latex().split(r"\caption{")[1].split("}\n")[0]
    assert all(word in caption for word in ("Held-out", "chance", "R^2", "per cent"))


def test_latex_escapes_names(make_comparison):
    text = make_comparison((r"[50%_a&b]#\x", '*~^$"<|>{}')).to_latex()
    line = next(line for line in text.split("\n") if r"$\to$" in line)
    assert r"{[}50\%\_a\&b]\#\textbackslash{}x" in line
    assert r"{*}\textasciitilde{}\textasciicircum{}\$''\textless{}\textbar{}\textgreater{}\{\}" in line
    assert len(re.findall(r"(?<!\\)&", line)) == 7


def test_latex_says_where_a_number_is_undefined_or_tiny(undefined, make_nearness, make_pair, make_comparison):
    assert "-- (--)" in undefined.to_latex()
    tiny = make_pair(groups={"rigid": make_nearness("rigid", 1e-9)})
    assert "$< 0.001$ (1.000)" in make_comparison(pairs=[tiny]).to_latex()


def test_latex_leaves_groups_a_pair_lacks_empty(make_nearness, make_pair, make_comparison):
    pairs = [make_pair("a", "b"), make_pair("b", "c", groups={"rigid": make_nearness("rigid", 0.5)})]
    line = next(line for line in make_comparison("abc", pairs).to_latex().split("\n") if "b $\\to$ c" in line)
    assert line.strip() == r"b $\to$ c &  &  & 200 ($-$3.000) &  &  &  &  \\"


def test_a_crowded_table_keeps_its_words_whole_on_a_terminal_of_80_columns():
    names = ("identity", "permutation", "rigid", "similarity", "ridge", "linear", "ica")
    columns = [Column("pair", "text"), Column("verdict", "text"), *(Column(name) for name in names)]
    row = ["seed0 → seed1", Cell("ambiguous", status="ambiguous"), *("58.0 %" for _ in names)]
    table = Table("T", columns, [row], brief=True)
    document = Document("A question", "A headline", "holds", sections=[Section("S", [table])])
    wide, narrow = render_text(document, 120), render_text(document, 80)
    assert "≈ ambiguous" in wide
    assert "≈" in narrow
    assert "ambiguous" not in narrow
    assert all(name in narrow for name in names)


@pytest.fixture
def numbers():
    """A table of intervals that is wider than 80 columns if its names and its second lines are on one line."""
    columns = [Column("pair", "text"), *(Column(f"error of the map {i}") for i in range(3))]
    row = ["a long name → another long name", *(Cell("57.1 to 58.7 %", below="R² 0.922") for _ in range(3))]
    return Document(
        "A question", "A headline", "holds", sections=[Section("S", [Table("T", columns, [row], brief=True)])]
    )


@pytest.mark.parametrize("width", [72, 80, 90, 100, 140])
def test_numbers_are_not_broken_on_a_terminal(numbers, width):
    text = render_text(numbers, width)
    assert text.count("57.1 to 58.7 %") == text.count("(R² 0.922)") == 3
    assert max(map(len, text.split("\n"))) <= width


def test_second_lines_of_numbers_are_below_them_where_a_terminal_is_narrow(numbers):
    (line,) = (line for line in render_text(numbers, 80).split("\n") if "(R² 0.922)" in line)
    assert "57.1" not in line
    assert "57.1 to 58.7 % (R² 0.922)" in render_text(numbers, 140)


def test_a_line_break_in_a_cell_is_not_printed():
    table = Table("T", [Column("n")], [[Cell("1\n2", below="3\n4")]], brief=True)
    text = render_text(Document("A question", "A headline", "holds", sections=[Section("S", [table])]))
    assert r"1\n2 (3\n4)" in text
