"""The page of codes against factors: the answer first, and every number with what is needed to judge it."""

import dataclasses
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from congruence.document import Image, Table
from congruence.metrics._document import TABLE_CELLS, TABLE_CODES
from congruence.metrics.evaluation import Score
from congruence.report.figures import factor_code_map, score_range
from congruence.report.figures.evaluation import CELLS, MARGIN, WIDTH

MIXED = [[0.5, 0.48], [0.47, 0.5]]
BAD = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
NAN = math.nan


def score(value=0.5, low=0.4, high=0.6, chance=0.1, ends=(0.0, 1.0), direction="higher is better", reason=""):
    return Score("infomec", "infom", value, low, high, chance, ends, direction, reason)


@pytest.fixture(scope="module")
def page(page_file):
    return page_file("evaluation").read_text(encoding="utf-8")


@pytest.fixture
def lost(make_evaluation):
    """An evaluation of constant factors: nothing can be measured."""
    scores = (score(NAN, NAN, NAN, NAN, reason="No factor varies."),)
    nothing = {"scores": scores, "structural": None, "sensitivity": (), "notes": ()}
    return make_evaluation(np.full((2, 2), NAN), **nothing)


@pytest.fixture(scope="module")
def text(page, outline):
    return text_of(page, outline)


def text_of(page, outline):
    return " ".join(outline(page).text.split())


def tables(result, start):
    """The tables of a document whose label starts with some words."""
    return [b for b in result.document().blocks() if isinstance(b, Table) and b.label.startswith(start)]


def test_the_answer_comes_first(text, make_evaluation):
    answer = text[: text.index("Factors are rows, codes are columns")]
    assert "2 of 3 factors have a code of their own. Not encoded: hue. 1 code encodes no factor: z2." in answer
    assert "≈ ambiguous 3 codes, 3 factors, 5000 rows" in answer
    result = make_evaluation()
    assert result.verdict == "2 of 3 factors have a code of their own. Not encoded: hue."
    assert (result.status, result.findings[0].number) == ("ambiguous", pytest.approx(2 / 3))
    assert result.to_dict()["verdict"] == result.verdict
    assert str(result).startswith("2 of 3 factors have a code of their own.")


def test_rotated_codes_are_nobodys_own(make_evaluation):
    result = make_evaluation(MIXED)
    assert result.own_codes == {}
    assert result.verdict == (
        "None of 2 factors has a code of its own. Encoded, but without a code of their own: size, shape."
    )
    assert result.status == "fails"


def test_all_factors_with_own_codes_hold(make_evaluation):
    result = make_evaluation([[0.9, 0.3], [0.3, 0.91]])
    assert result.own_codes == {"size": "z0", "shape": "z1"}
    assert result.status == "holds"


def test_one_factor_and_one_code(make_evaluation, render, outline):
    text = text_of(render(make_evaluation([[0.8]])), outline)
    assert "The factor has a code of its own." in text
    assert "1 code, 1 factor, 5000 rows" in text
    assert "without a code" not in text


def test_what_cannot_be_measured_says_why(lost, render, outline):
    text = text_of(render(lost), outline)
    assert lost.verdict == "No factor could be measured. No factor varies."
    assert lost.status == "unknown"
    assert "No factor could be measured. No factor varies. One code for each factor? ? unknown" in text
    for absent in ("Which code encodes", "How far from the factors", "depend on the bins", "is idle", "Notes"):
        assert absent not in text


def test_scores_and_factors_are_found_by_name(make_evaluation):
    result = make_evaluation(factors=("size", "infom", "hue"))
    assert result["infom"].value == 0.91  # the score, since a factor has the same name
    assert result["size"].code == "z1"
    with pytest.raises(KeyError, match="'mig'"):
        _ = result["speed"]


def test_a_score_has_its_interval_chance_direction_and_question_or_a_reason(text, make_evaluation):
    assert "InfoM infom 0.910 0.890 to 0.930" in text
    assert "is each code informative about one factor only?" in text
    assert "0.120 beaten met higher" in text
    assert "0.650 not beaten met higher" in text
    assert "Not computed: mig (Only one code)." in text
    assert "0.020 0.010 to 0.050" in text
    assert "0.500 beaten met lower" in text
    for metric in ("InfoMEChow information", "IRSwhether a code"):
        assert metric in text
    assert "DCItrees" not in text
    assert "mig (Only one code)" in str(make_evaluation())


def at(svg):
    """Where the dot and the two ends of the interval are, as shares of the bar."""
    dot = re.search(r'<circle cx="([\d.]+)"', svg)[1]
    ends = re.search(r'<line x1="([\d.]+)" y1="11" x2="([\d.]+)" y2="11" style="stroke: var\(--c-heldout', svg)
    return [(float(x) - MARGIN) / (WIDTH - 2 * MARGIN) for x in (dot, *(ends.groups() if ends else ()))]


@pytest.mark.parametrize(
    ("one", "places"),
    [
        (score(), [0.5, 0.4, 0.6]),
        (score(0.0, -0.5, 0.5, ends=(-1.0, 1.0)), [0.5, 0.25, 0.75]),
        (score(-0.3, -0.4, 0.2, ends=(-math.inf, 1.0)), [0, 0, 0.2]),
        (score(5.0, NAN, NAN, 10.0, ends=(0.0, math.inf)), [5 / 11]),
        (score(0.0, NAN, NAN, NAN, ends=(0.0, math.inf)), [0.0]),
    ],
)
def test_the_bar_shows_value_and_interval_on_the_range(one, places):
    assert at(score_range(one).svg()) == pytest.approx(places, abs=0.001)


def test_chance_is_marked_and_said():
    assert 'aria-label="0.500 between 0 and 1.00; chance 0.100"' in score_range(score()).svg()
    assert "c-null" in score_range(score()).svg()
    assert "c-null" not in score_range(score(chance=NAN)).svg()


def test_matched_codes_lie_on_the_diagonal_and_every_cell_has_its_names(make_evaluation):
    table = tables(make_evaluation(), "Information")[0]
    assert [column.name for column in table.columns] == ["factor", "z1", "z0", "z2"]
    assert [row[i + 1].text for i, row in enumerate(table.rows)] == ["0.90", "0.80", "0.02"]
    assert table.rows[0][1].hint == "size, z1: 0.900"


def test_tints_grow_with_size_whatever_the_sign(make_evaluation):
    result = make_evaluation([[1.2, 0.0, 0.5], [0.0, 0.2, NAN]], order=(0, 1, 2))
    information, correlation = tables(result, "Information")[0], tables(result, "Correlation")[0]
    assert [cell.tint for cell in information.rows[0][1:]] == [0.9, 0.0, 0.45]
    assert [cell.tint for cell in correlation.rows[0][1:]] == [0.9, 0.0, 0.45]
    assert [cell.text for cell in correlation.rows[1][1:]] == ["0.00", "−0.20", "–"]


def test_the_heat_map_prints_numbers_only_where_they_fit():
    few = factor_code_map([[0.91, NAN], [0.0, 0.5]], ("a", "b"), ("z0", "z1"), "Information").svg()
    assert ">0.91<" in few
    assert ">–<" in few
    many = factor_code_map(np.full((2, TABLE_CODES + 1), 0.91), ("a", "b"), ["z"] * (TABLE_CODES + 1), "I").svg()
    assert ">0.91<" not in many


@pytest.mark.parametrize("codes", [TABLE_CODES + 1, 2000])
def test_many_codes_are_a_map_of_colours_and_the_page_stays_small(codes, make_evaluation, render_figures):
    shares = np.random.default_rng(0).uniform(0, 0.04, size=(6, codes))
    shares[range(6), range(6)] = 0.9
    result = make_evaluation(shares)
    table = tables(result, "Information")[0]
    assert len(table.columns) == 1 + min(codes, TABLE_CELLS // 6)
    assert table.note == ("" if codes < 200 else f"The first 200 of {codes} codes.")
    page = render_figures(result)
    assert len(page.encode()) < 1_900_000
    assert f"of {min(codes, CELLS // 6)} codes and 6 factors, as colours" in page


def test_words_are_the_marks_of_a_factor_made_of_them(page):
    for word in ("round", "square", "heart"):
        assert re.search(rf"<text [^>]*>{word}</text>", page)


def test_a_factor_that_no_code_encodes_is_drawn_and_says_so(page):
    assert page.count("no single code above chance") == 2  # in the table and above the figure
    assert len(re.findall(r'aria-label="\w+ \([^"]*\) against z\d, 120 rows"', page)) == 3


def test_what_was_not_asked_for_is_left_out(make_evaluation, text, render, outline):
    shown = (
        "R² nonlin.",
        "permutation 12.0 % 11.5 to 12.5 % 3.00 % 25.0 %",
        "up to which map",
        "bins MIG 10 0.510 20 0.480",
    )
    rows = [replace(row, linear=NAN, nonlinear=NAN) for row in make_evaluation().per_factor]
    bare = make_evaluation(per_factor=tuple(rows), structural=None, sensitivity=())
    without = text_of(render(bare), outline)
    for part in shown:
        assert part in text
        assert part not in without


def test_names_of_codes_and_factors_cannot_inject_markup(make_evaluation, render_figures, outline):
    shares = np.full((2, 20), 0.01)
    shares[[0, 1], [0, 1]] = 0.9
    names = {"factors": (BAD, "b"), "codes": (BAD + "0", *(f"z{j}" for j in range(19)))}
    page = render_figures(make_evaluation(shares, name=BAD, notes=(BAD,), levels={"b": (BAD, "x")}, **names))
    assert page.count("<script") == 1
    assert "<img" not in page
    assert not outline(page).misplaced
    assert BAD in outline(page).text


def test_long_notes_are_folded_and_printed(page, make_evaluation, render):
    assert "<details open>" in page
    many = make_evaluation(notes=tuple(f"note {i}" for i in range(9)))
    assert "<details open>" not in render(many)
    assert "note: note 8" in str(many)


def pictures(codes, rng):
    images = rng.integers(0, 256, size=(2, 1, 4, 4), dtype=np.uint8)
    values = (np.array([-1.0, 2.0]),) * codes
    return SimpleNamespace(originals=images, reconstructions=images, traversals=(images,) * codes, values=values)


def test_each_code_has_a_traversal_and_the_factor_that_it_encodes(make_evaluation, rng):
    result = make_evaluation(pictures=pictures(3, rng))
    (table,) = tables(result, "Traversals of codes")
    assert [(row[0].text, row[0].below, row[1].image.label) for row in table.rows] == [
        ("z0", "shape, −1.00 to 2.00", "z0 from −1.00 to 2.00"),
        ("z1", "size, −1.00 to 2.00", "z1 from −1.00 to 2.00"),
        ("z2", "no factor, −1.00 to 2.00", "z2 from −1.00 to 2.00"),
    ]
    assert [b.label for b in result.document().blocks() if isinstance(b, Image)] == ["images", "their reconstructions"]


def test_what_codes_changed_before_is_next_to_what_they_change_now(make_evaluation, rng, render):
    before = make_evaluation(pictures=pictures(3, rng))
    after = dataclasses.replace(before, name="my model + ICA", compared=(before,), pictures=pictures(2, rng))
    after = dataclasses.replace(after, codes=("c0", "c1"), per_code=after.per_code[:2], order=(1, 0))
    after = dataclasses.replace(after, matrices={"nmi": after.matrices["nmi"][:, :2]})
    (scores,) = tables(after, "Scores before and after")
    assert [column.name for column in scores.columns] == ["score", "before", "+ ICA"]
    (moved,) = tables(after, "Traversals before and after")
    assert [(row[0].text, row[2].text) for row in moved.rows] == [("z1", "z1"), ("z0", "z0"), ("z2", "")]
    page = render(after)
    assert page.count("strip-of-images") > 3 * 2
    assert "What did ICA change?" in page
    assert "What did ICA change?" not in render(before)
    rows = list(after.rows())
    assert [row["codes"] for row in rows[:: len(before.scores)]] == ["my model + ICA", "my model"]
    assert after.numbers()["compared"][0]["name"] == "my model"


def test_a_factor_whose_copy_has_the_code_is_not_called_mixed(rng):
    from congruence import evaluate

    size, shape = rng.normal(size=(2, 600))
    factors = {"size": size, "copy": size + 0.1 * rng.normal(size=600), "shape": shape}
    codes = np.column_stack([size + 0.02 * rng.normal(size=600), shape])
    result = evaluate(codes, factors, metrics=["infomec"], resamples=0, structural=False)
    (table,) = (
        block
        for section in result.document().sections
        for block in section.blocks
        if getattr(block, "label", "") == "Factors"
    )
    rows = {row[0]: row for row in table.rows}
    assert [rows[name][1] for name in factors] == ["own code", "the code of size", "own code"]
    assert rows["copy"][5].text == "> 10"
