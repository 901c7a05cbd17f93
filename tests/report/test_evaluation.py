"""The report of codes against factors: the answer first, and every number with what it needs to be believed."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from congruence.metrics.evaluation import Score
from congruence.report import render_evaluation
from congruence.report.evaluation import own_codes
from congruence.report.figures.gauge import MARGIN, WIDTH, gauge
from congruence.report.matrices import STRIP_CELLS, TABLE_CODES, heat_tables

MIXED = [[0.5, 0.48], [0.47, 0.5]]
BAD = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
NAN = math.nan


def score(value=0.5, low=0.4, high=0.6, chance=0.1, ends=(0.0, 1.0), direction="higher is better", reason=""):
    return Score("infomec", "infom", value, low, high, chance, ends, direction, reason)


@pytest.fixture(scope="module")
def page(make_evaluation):
    return render_evaluation(make_evaluation())


@pytest.fixture
def lost(make_evaluation):
    """An evaluation of constant factors: nothing can be measured."""
    scores = (score(NAN, NAN, NAN, NAN, reason="no factor varies"),)
    nothing = {"scores": scores, "structural": None, "sensitivity": (), "notes": ()}
    return make_evaluation(np.full((2, 2), NAN), **nothing)


@pytest.fixture(scope="module")
def text(page, outline):
    return text_of(page, outline)


def text_of(page, outline):
    return " ".join(outline(page).text.split())


def test_the_answer_comes_first(text):
    answer = text[: text.index("Which code tells of which factor?")]
    assert "2 of 3 factors have a code of their own. The codes tell nothing of hue. 1 code tells nothing: z2." in answer
    assert "≈ partly 3 codes, 3 factors, 5000 rows" in answer


def test_rotated_codes_are_nobodys_own(make_evaluation, outline):
    result = make_evaluation(MIXED)
    text = text_of(render_evaluation(result), outline)
    assert own_codes(result) == {}
    assert "None of 2 factors has a code of its own." in text
    assert "Told of, but by no code of their own: size, shape." in text
    assert "✕ fails" in text


def test_a_code_is_a_factors_own_if_it_tells_little_of_others(make_evaluation):
    assert own_codes(make_evaluation([[0.9, 0.3], [0.29, 0.89]])) == {"size": "z0"}
    assert own_codes(make_evaluation([[0.9, 0.3], [0.3, 0.91]])) == {"size": "z0", "shape": "z1"}
    assert own_codes(make_evaluation([[0.9, 0.8], [0.1, 0.1]])) == {"size": "z0"}  # a copy does not take it away
    assert own_codes(make_evaluation([[0.09, 0.0], [0.0, 0.9]])) == {"shape": "z1"}  # too little to be anybody's


def test_one_factor_and_one_code(make_evaluation, outline):
    text = text_of(render_evaluation(make_evaluation([[0.8]])), outline)
    assert "The factor has a code that tells of it." in text
    assert "1 code, 1 factor, 5000 rows" in text
    assert "no code of" not in text


def test_what_cannot_be_measured_says_why(lost, outline):
    text = text_of(render_evaluation(lost), outline)
    assert "Nothing can be said: no factor could be measured. No factor varies." in text
    assert "? unknown" in text
    for absent in (
        "Which code tells",
        "How far from the factors",
        "depend on the bins",
        "tell nothing",
        "is idle",
        "Notes",
    ):
        assert absent not in text


def test_a_score_has_its_interval_chance_direction_and_question_or_a_reason(text):
    assert "InfoM does each code tell about one factor only? 0.910 0.890 to 0.930" in text
    assert "0.120 beaten higher" in text
    assert "0.650 not beaten higher" in text
    assert "MIG how far is the best code for a factor ahead of the next? – Only one code. – higher" in text
    assert "0.020 0.010 to 0.050" in text
    assert "0.500 beaten lower" in text
    for family in ("InfoMECasks how information", "IRSasks whether"):
        assert family in text
    assert "DCIasks" not in text


def at(svg):
    """Where the dot and the two ends of the interval are, as shares of the bar."""
    dot = re.search(r'<circle cx="([\d.]+)"', svg)[1]
    ends = re.search(r'<line x1="([\d.]+)" y1="11" x2="([\d.]+)" y2="11" style="stroke: var\(--c-heldout', svg)
    return [(float(x) - MARGIN) / (WIDTH - 2 * MARGIN) for x in (dot, *(ends.groups() if ends else ()))]


def test_the_bar_shows_value_and_interval_on_the_range():
    assert at(gauge(score())) == pytest.approx([0.5, 0.4, 0.6], abs=0.001)
    assert at(gauge(score(0.0, -0.5, 0.5, ends=(-1.0, 1.0)))) == pytest.approx([0.5, 0.25, 0.75], abs=0.001)
    assert at(gauge(score(-0.3, -0.4, 0.2, ends=(-math.inf, 1.0)))) == pytest.approx([0, 0, 0.2], abs=0.001)
    assert at(gauge(score(5.0, NAN, NAN, 10.0, ends=(0.0, math.inf)))) == pytest.approx([5 / 11], abs=0.001)
    assert at(gauge(score(0.0, NAN, NAN, NAN, ends=(0.0, math.inf)))) == [0.0]
    assert gauge(score(NAN)) == ""


def test_chance_is_marked_and_said():
    assert 'aria-label="0.500 between 0 and 1.00; chance 0.100"' in gauge(score())
    assert "c-null" in gauge(score())
    assert "c-null" not in gauge(score(chance=NAN))


def test_matched_codes_lie_on_the_diagonal_and_every_cell_has_its_names(make_evaluation):
    table = heat_tables(make_evaluation())[0]
    assert [whole for _, whole in table.codes] == ["z1", "z0", "z2"]
    assert [row[i].text for i, (_, row) in enumerate(table.rows)] == ["0.90", "0.80", "0.02"]
    assert table.rows[0][1][0].title == "size, z1: 0.900"
    assert not table.strip


def test_tints_grow_with_size_whatever_the_sign(make_evaluation):
    information, correlation = heat_tables(make_evaluation([[1.2, 0.0, 0.5], [0.0, 0.2, NAN]], order=(0, 1, 2)))
    assert [cell.tint for cell in information.rows[0][1]] == [0.9, 0.0, 0.45]
    assert [cell.tint for cell in correlation.rows[0][1]] == [0.9, 0.0, 0.45]
    assert [cell.text for cell in correlation.rows[1][1]] == ["0.00", "−0.20", "–"]


@pytest.mark.parametrize("codes", [TABLE_CODES + 1, 2000])
def test_many_codes_become_a_strip_of_colours_and_the_page_stays_small(codes, make_evaluation):
    shares = np.random.default_rng(0).uniform(0, 0.04, size=(6, codes))
    shares[range(6), range(6)] = 0.9
    result = make_evaluation(shares)
    table = heat_tables(result)[0]
    assert len(table.codes) == TABLE_CODES
    assert table.strip.count("<rect") == table.strip.count("<title>") == 6 * table.shown
    assert table.shown == min(codes, STRIP_CELLS // 6)
    page = render_evaluation(result)
    assert len(page.encode()) < 1_900_000
    assert f"of {'all' if table.shown == codes else f'the first {table.shown} of'} {codes}" in page


def test_words_are_the_marks_of_a_factor_made_of_them(page):
    for word in ("round", "square", "heart"):
        assert re.search(rf"<text [^>]*>{word}</text>", page)


def test_a_factor_that_no_code_tells_of_is_drawn_and_says_so(page):
    assert page.count("no code tells of it") == 1
    assert len(re.findall(r'aria-label="\w+ \([^"]*\) against z\d, 120 rows"', page)) == 3


def test_what_was_not_asked_for_is_left_out(make_evaluation, text, outline):
    shown = ("R², any", "permutation 3.00 % 2.88 to 3.12 % 25.0 %", "up to which map", "bins MIG 10 0.510 20 0.480")
    rows = [replace(row, linear=NAN, nonlinear=NAN) for row in make_evaluation().per_factor]
    bare = make_evaluation(per_factor=tuple(rows), structural=None, sensitivity=())
    without = text_of(render_evaluation(bare), outline)
    for part in shown:
        assert part in text
        assert part not in without


def test_names_of_codes_and_factors_cannot_inject_markup(make_evaluation, outline):
    shares = np.full((2, 20), 0.01)
    shares[[0, 1], [0, 1]] = 0.9
    names = {"factors": (BAD, "b"), "codes": (BAD + "0", *(f"z{j}" for j in range(19)))}
    page = render_evaluation(make_evaluation(shares, name=BAD, notes=(BAD,), levels={"b": (BAD, "x")}, **names))
    assert page.count("<script") == 1
    assert "<img" not in page
    assert not outline(page).misplaced
    assert BAD in outline(page).text


def test_long_notes_are_folded(page, make_evaluation):
    assert "<details open>" in page
    assert "<details open>" not in render_evaluation(make_evaluation(notes=tuple(f"note {i}" for i in range(9))))
