import math
import re

import pytest

from congruence.maps.nearness import HeldOut
from congruence.report import render_translation
from congruence.report.translation import drift_sentence, enough_sentence
from congruence.report.words import DECISIONS
from congruence.translation.certificate import CurvePoint, Drift, Probe, Retrieval


def curve(*errors):
    return [CurvePoint(10 * 2**i, error, 0.9 * error, 1.1 * error) for i, error in enumerate(errors)]


@pytest.fixture(scope="module")
def page(make_translation):
    return render_translation(make_translation())


@pytest.fixture(scope="module")
def text(page, outline):
    return " ".join(outline(page).text.split())


def test_the_parts_come_in_the_order_a_reader_needs_them(page):
    parts = [
        "can its vectors be translated?</h1>",
        "New vectors can be translated into the old space.",
        "translated vectors find 95",
        'class="badge go"',
        "What do translated vectors find?</h2>",
        "What does a probe trained on old vectors score?</h2>",
        "How many paired rows does it take?</h2>",
        "Which kind of map does it take?</h2>",
        "How to read this</h2>",
        "How this was made</h2>",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize("decision", list(DECISIONS))
def test_the_decision_is_told_in_words_and_shape_not_only_in_colour(decision, make_translation, outline):
    page = render_translation(make_translation(decision))
    claim = re.search(r'<p class="claim">.*?</p>', page, re.DOTALL)[0]
    assert outline(claim).text.split()[-2:] == [DECISIONS[decision][0], decision]
    assert DECISIONS[decision][1] in page


def test_retrieval_is_told_with_its_intervals_and_beside_doing_nothing(text):
    for words in (
        "recall@10 95.1 % (94.7 to 95.5 %)",
        "a go takes 90 %",
        "recall@1 91.0 % (90.0 to 92.0 %)",
        "itself found 99.3 %",
        "rank agreement 0.987",
        "recall@10, untranslated 3.10 %",
        "recall@10, by chance 0.250 %",
    ):
        assert words in text


def test_the_probe_is_told_where_there_is_one(text, make_translation):
    assert "The accuracy of a linear probe" in text
    for words in ("old vectors 0.874", "translated vectors 0.861", "untranslated vectors 0.507", "no vectors 0.500"):
        assert words in text
    assert "linear probe" not in render_translation(make_translation(probe=None))
    assert "always the mean" in render_translation(make_translation(probe=Probe("R squared", 0.8, 0.7, -3.0, 0.0)))


def test_enough_rows_are_the_fewest_within_a_tenth_of_the_last():
    assert enough_sentence(curve(0.3, 0.1099, 0.105, 0.1), False) == (
        "About 20 paired rows seem enough: their error, 11.0 %, is within a tenth of the 10.0 % that 80 rows leave."
    )


def test_rows_before_a_later_rise_are_not_enough():
    assert enough_sentence(curve(0.3, 0.1, 0.2, 0.1, 0.1), False).startswith("About 80 paired rows seem enough")


def test_a_curve_that_keeps_falling_asks_for_more_rows():
    assert "and more would still help" in enough_sentence(curve(0.3, 0.2, 0.1), True)
    assert "though the error hardly falls any more" in enough_sentence(curve(0.3, 0.2, 0.1), False)
    assert "more rows would help" in enough_sentence(curve(0.3, 0.107, 0.1), True)


def test_rounding_is_not_read_as_a_curve():
    assert enough_sentence(curve(0.3, 5e-16, 9e-16, 2e-16), True) == (
        "20 paired rows are enough: no more than rounding is left."
    )


def test_a_short_curve_is_not_read():
    assert enough_sentence(curve(0.1), False).startswith("There are too few paired rows")
    assert enough_sentence([], False).startswith("There are too few paired rows")


@pytest.mark.parametrize(
    ("drift", "said"),
    [
        (Drift(0.12, True), "by more than a linear map: a nonlinear map predicts 12.0 % of what the best linear one"),
        (Drift(0.012, False), "no sign of a nonlinear difference: a nonlinear map predicts 1.20 %"),
        (Drift(0.4, False), "leaves no more than rounding"),
        (Drift(math.nan, False), "too few rows"),
    ],
)
def test_drift_is_told_with_its_number(drift, said):
    assert said in drift_sentence(drift)


def test_the_kind_of_map_is_said_to_be_chosen_or_asked_for(page, make_translation):
    assert "The <strong>similarity</strong> map was chosen" in page
    asked = make_translation(settings={"group": "similarity"})
    assert "A <strong>similarity</strong> map was asked for." in render_translation(asked)


def test_every_candidate_is_listed_with_its_null(text):
    for words in ("rigid 2.10 % 2.02 to 2.18 % 25.0 %", "linear 1.71 % 1.64 to 1.78 % 25.0 %"):
        assert words in text


def test_settings_are_told(text):
    for words in ("paired rows 4000", "old dimensions 2", "new dimensions 3", "old diameter 12.35", "require 0.9"):
        assert words in text


def test_undefined_numbers_print_as_a_dash_that_says_so(make_translation, undefined):
    nan = math.nan
    bare = Retrieval(HeldOut(0.5, nan, nan), HeldOut(0.5, nan, nan), 0.1, nan, nan, 0.1)
    candidates = undefined.pairs[0].groups
    points = [CurvePoint(10, nan, nan, nan)]
    unclear = make_translation("unsure", retrieval=bare, candidates=candidates, curve=points, drift=Drift(nan, False))
    page = render_translation(unclear)
    assert '<span title="undefined">–</span>' in page
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_text_cannot_inject_markup(make_translation, outline):
    bad = "<script>alert(1)</script>\"'>"
    page = render_translation(make_translation(verdict=bad, advice=[bad], settings={bad: bad}))
    assert page.count("<script") == 1
    assert not outline(page).misplaced
    assert outline(page).text.count(bad) == 4
