import math
import re

import pytest

from congruence.maps.nearness import HeldOut
from congruence.translation._certificate_document import DECISIONS, drift_sentence, enough_sentence
from congruence.translation._options import TranslateOptions
from congruence.translation._verdict import ANSWERS, judge_retrieval
from congruence.translation.certificate import Certificate, CurvePoint, Drift, Probe, Relevance, RelevanceTest


def enough(*recalls, rows=10):
    """The sentence about a learning curve with these recalls, at 10, 20, 40, ... rows."""
    curve = [CurvePoint(rows * 2**i, recall, recall - 0.01, recall + 0.01) for i, recall in enumerate(recalls)]
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
        "How does recall depend on the index size?</h2>",
        "What would full re-embedding return?</h2>",
        "What does a probe trained on old vectors score?</h2>",
        "How many paired rows are needed?</h2>",
        "Which map is needed?</h2>",
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
        "containment@50 99.1 % 98.9 to 99.3 %",
        "An index of 4,000 old vectors is searched with 2,000 queries",
    ):
        assert words in text


def test_the_probe_is_shown_where_there_is_one(text, make_translation, render):
    assert "The accuracy of a linear probe" in text
    for words in ("old vectors 0.874", "translated vectors 0.861", "untranslated vectors 0.507", "no vectors 0.500"):
        assert words in text
    assert "linear probe" not in render(make_translation(probe=None))
    assert "always the mean" in render(make_translation(probe=Probe("R squared", 0.8, 0.7, -3.0, 0.0)))


def test_the_index_size_is_stated_and_extrapolations_are_labelled(text):
    assert "4,000 measured 95.1 % 94.1 to 96.1 %" in text
    assert "40,000 extrapolated 90.0 % 89.0 to 91.0 %" in text
    assert "Larger ones were not measured: their recall is extrapolated and is no basis for a go." in text


def test_one_size_is_no_curve(make_translation, make_retrieval, render):
    one = make_retrieval(sizes=make_retrieval().sizes[2:3])
    assert "depend on the index size" not in render(make_translation(retrieval=one))


@pytest.mark.parametrize(
    ("depth", "said"),
    [
        (47, "The first 47 translated results contain"),
        (None, "More than 1,000 translated results are needed to contain"),
    ],
)
def test_the_rerank_depth_is_in_the_headline_also_beyond_the_limit(depth, said, make_translation, make_retrieval):
    made = make_translation(retrieval=make_retrieval(rerank_depth=depth))
    sentences = judge_retrieval(made.candidates[made.group], made.certificate, TranslateOptions())[1]
    assert f"{said} 99 % of the 10 true nearest of 4,000 old vectors." in sentences


def test_full_re_embedding_is_defined_where_it_is_named(text):
    assert "translated queries find 83.0 % (82.0 to 84.0 %) of the 10 nearest rows of the new model" in text
    assert "old vectors find 82.0 %" in text


def test_relevance_is_shown_beside_full_re_embedding(make_translation, render, outline):
    old, translated, new = Relevance(0.5, 0.6, 0.7), Relevance(0.48, 0.58, 0.68), Relevance(0.52, 0.62, 0.72)
    ratios = HeldOut(0.923, 0.9, 0.95), HeldOut(0.96, 0.94, 0.98)
    known = RelevanceTest(30, 2, old, translated, new, *ratios)
    words = " ".join(outline(render(make_translation(relevance=known))).text.split())
    assert "translated queries, old index 0.480 0.580 0.680" in words
    assert "Translation keeps 92.3 % (90.0 to 95.0 %) of the nDCG@10 of full re-embedding and 96.0 %" in words
    assert "left out: 2." in words
    unknown = RelevanceTest(30, 0, old, translated, None, None, ratios[1])
    words = " ".join(outline(render(make_translation(relevance=unknown))).text.split())
    assert "Full re-embedding cannot be scored: the new vectors of the index are not known." in words


def test_no_number_of_rows_is_enough_for_chance(make_translation, make_retrieval, render):
    by_chance = make_retrieval(recall_10=HeldOut(0.01, 0.002, 0.02))
    page = render(make_translation("fails", retrieval=by_chance))
    assert "The recall is that of chance" in page
    assert "would hardly help" not in page


def test_enough_rows_are_the_fewest_near_the_last():
    assert enough(0.3, 0.78, 0.79, 0.795) == (
        "More paired rows would hardly help: the recall@10 of 20, 78.0 %, is within 2 percentage points of the 79.5 % "
        "of 80 rows (in a sample of the index)."
    )


def test_rows_before_a_later_fall_are_not_enough():
    assert enough(0.3, 0.9, 0.7, 0.9, 0.9).startswith("More paired rows would hardly help: the recall@10 of 80")


def test_a_curve_that_keeps_rising_asks_for_more_rows():
    assert enough(0.3, 0.5, 0.7).startswith("All 40 rows are needed, and more would help")
    assert enough(0.3, 0.685, 0.7).startswith("The recall still rises, so more rows would help. That of ")
    assert "would hardly help" not in enough(0.3, 0.685, 0.7)
    assert "more rows would help" not in enough(0.3, 0.695, 0.7)


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


def test_every_candidate_is_listed(text):
    for words in ("rigid 90.0 %", "similarity 95.3 %", "ridge 95.4 %"):
        assert words in text


def test_settings_are_listed(text):
    for words in ("paired rows 4000", "index size 4000", "old dimensions 2", "new dimensions 3", "require 0.9"):
        assert words in text


def test_undefined_numbers_print_as_a_dash_that_says_so(make_translation, make_retrieval, undefined, render_figures):
    nan = math.nan
    unknown = HeldOut(0.5, nan, nan)
    bare = make_retrieval(recall_1=unknown, recall_10=unknown, itself=None, before=nan, sizes=(), full=None)
    candidates = undefined.pairs[0].groups
    points = [CurvePoint(10, nan, nan, nan)]
    unclear = make_translation(
        "ambiguous", retrieval=bare, candidates=candidates, curve=points, drift=Drift(nan, False), by_group=None
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
