import math
import re

import pytest

from congruence.maps.nearness import HeldOut
from congruence.translation._document import DECISIONS, drift_sentence, enough_sentence
from congruence.translation._verdict import ANSWERS
from congruence.translation.certificate import Certificate, CurvePoint, Drift, Probe, Retrieval


def enough(*errors, rows=10):
    """The sentence about a learning curve with these errors, at 10, 20, 40, ... rows."""
    curve = [CurvePoint(rows * 2**i, error, 0.9 * error, 1.1 * error) for i, error in enumerate(errors)]
    return enough_sentence(curve, Certificate(None, None, curve, Drift(0.0, False)))


@pytest.fixture(scope="module")
def page(make_translation, render):
    return render(make_translation())


@pytest.fixture(scope="module")
def text(page, outline):
    return " ".join(outline(page).text.split())


def test_the_parts_come_in_the_order_a_reader_needs_them(page):
    parts = [
        "can its vectors be translated?</h1>",
        "New vectors can be translated into the old space.",
        "translated vectors find 95",
        'class="badge holds"',
        "Which neighbours do translated vectors find?</h2>",
        "What does a probe trained on old vectors score?</h2>",
        "How many paired rows are needed?</h2>",
        "Which group of maps is needed?</h2>",
        "How to read this</h2>",
        "How this was made</h2>",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("status", "mark", "word"),
    [("holds", "✓", "go"), ("fails", "✕", "no-go"), ("ambiguous", "≈", "unsure"), ("unknown", "?", "unsure")],
)
def test_the_decision_is_shown_in_words_and_shape_not_only_in_colour(
    status, mark, word, make_translation, render, outline
):
    page = render(make_translation(status))
    claim = outline(re.search(r'<p class="claim">.*?</p>', page, re.DOTALL)[0]).text
    assert f"Translate, and keep the old index? {mark} {word}" in " ".join(claim.split())
    assert DECISIONS[status] == word
    assert ANSWERS[status] in page
    assert f"{mark} {word}" in str(make_translation(status))


def test_retrieval_is_shown_with_its_interval_and_what_doing_nothing_gives(text):
    for words in (
        "recall@10 95.1 % 94.7 to 95.5 % 3.10 % 0.250 %",
        "a go requires 90 %",
        "recall@1 91.0 % 90.0 to 92.0 %",
        "itself found 99.3 %",
        "rank agreement 0.987",
    ):
        assert words in text


def test_the_probe_is_shown_where_there_is_one(text, make_translation, render):
    assert "The accuracy of a linear probe" in text
    for words in ("old vectors 0.874", "translated vectors 0.861", "untranslated vectors 0.507", "no vectors 0.500"):
        assert words in text
    assert "linear probe" not in render(make_translation(probe=None))
    assert "always the mean" in render(make_translation(probe=Probe("R squared", 0.8, 0.7, -3.0, 0.0)))


def test_enough_rows_are_the_fewest_within_a_tenth_of_the_last():
    assert enough(0.3, 0.1099, 0.105, 0.1) == (
        "About 20 paired rows seem enough: their error, 11.0 %, is within 10 % of the 10.0 % that 80 rows leave."
    )


def test_rows_before_a_later_rise_are_not_enough():
    assert enough(0.3, 0.1, 0.2, 0.1, 0.1).startswith("About 80 paired rows seem enough")


def test_a_curve_that_keeps_falling_asks_for_more_rows():
    assert enough(0.3, 0.2, 0.1).startswith("All 40 rows are needed, and more would help")
    assert enough(0.3, 0.107, 0.1).endswith("The error still decreases, so more rows would help.")
    assert not enough(0.3, 0.102, 0.1).endswith("more rows would help.")


def test_rounding_is_not_read_as_a_curve():
    assert enough(0.3, 5e-16, 9e-16, 2e-16) == "20 paired rows are enough: the remaining error is rounding."


def test_a_short_curve_is_not_read():
    assert enough(0.1).startswith("There are too few paired rows")
    assert enough().startswith("There are too few paired rows")


@pytest.mark.parametrize(
    ("drift", "said"),
    [
        (Drift(0.12, True), "by more than a linear map: a nonlinear map predicts 12.0 % of the residual"),
        (Drift(0.012, False), "no sign of a nonlinear difference: a nonlinear map predicts 1.20 %"),
        (Drift(0.4, False), "The residual of the best linear map is rounding"),
        (Drift(math.nan, False), "too few rows"),
    ],
)
def test_drift_is_stated_with_its_number(drift, said):
    assert said in drift_sentence(drift)


def test_the_page_says_whether_the_kind_of_map_was_chosen_or_requested(page, make_translation, render):
    assert "<strong>The similarity map</strong> was chosen" in page
    assert "<strong>The similarity map</strong> was requested." in render(
        make_translation(settings={"group": "similarity"})
    )


def test_every_candidate_is_listed_with_its_null(text):
    for words in ("rigid 8.40 % 8.06 to 8.74 % 2.10 % 2.02 to 2.18 % 25.0 %", "linear 6.84 %"):
        assert words in text


def test_settings_are_listed(text):
    for words in ("paired rows 4000", "old dimensions 2", "new dimensions 3", "old diameter 12.35", "require 0.9"):
        assert words in text


def test_undefined_numbers_print_as_a_dash_that_says_so(make_translation, undefined, render_figures):
    nan = math.nan
    bare = Retrieval(HeldOut(0.5, nan, nan), HeldOut(0.5, nan, nan), 0.1, nan, nan, 0.1)
    candidates = undefined.pairs[0].groups
    points = [CurvePoint(10, nan, nan, nan)]
    unclear = make_translation(
        "ambiguous", retrieval=bare, candidates=candidates, curve=points, drift=Drift(nan, False)
    )
    page = render_figures(unclear)
    assert '<span title="undefined">–</span>' in page
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_text_cannot_inject_markup(make_translation, outline, render_figures):
    bad = "<script>alert(1)</script>\"'>"
    page = render_figures(make_translation(headlines=(bad, bad), notes=(bad,), settings={bad: bad}))
    assert page.count("<script") == 1
    assert not outline(page).misplaced
    assert outline(page).text.count(bad) == 5


def test_without_paired_rows_every_check_is_listed_and_nothing_is_called_a_go(make_unpaired, render, outline):
    text = " ".join(outline(render(make_unpaired())).text.split())
    assert "Without paired rows, one map from new to old vectors stands out." in text
    assert "Is the map determined without paired rows? ✓ holds" in text
    assert "Experimental: only paired rows can confirm this map." in text
    assert "agreement of halves, R² 0.880 at least 0.7 yes" in text
    assert "lead over the best different map 20.6 standard errors at least 4 yes" in text
    assert "rearranged (null) 0.447 0.441 to 0.452, 3 searches" in text
    assert "old rows 2000 new rows 1800" in text
    assert not re.search(r"\bgo\b", text)


def test_without_nulls_halves_and_rivals_the_page_says_so(make_unpaired, render, outline):
    bare = make_unpaired(
        nulls={"permuted": (), "rearranged": ()}, agreement=(), agreement_within=(), rival=math.nan, lead=math.inf
    )
    text = " ".join(outline(render(bare)).text.split())
    assert "No null was searched (nulls is 0). No halves were compared (splits is 0)." in text
    assert "lead over the best different map no different map at least 4 yes" in text
    assert "best different map 0" not in text
