import math
import re
from dataclasses import replace

import numpy as np
import pytest

from congruence.align import _document as document
from congruence.align import _sections
from congruence.align.comparison import PairMCC
from congruence.align.similarities import SimilarityScore
from congruence.maps._names import MEANINGS
from congruence.maps.dependence import Dependence
from congruence.report import html
from congruence.result import STATUSES, Finding


@pytest.fixture(scope="module")
def page(three, render):
    return render(three)


@pytest.fixture(scope="module")
def twenty_page(make_comparison, render_figures, drawn_once):
    """The report of 20 runs, 190 pairs."""
    with drawn_once():
        return render_figures(make_comparison([f"run {i}" for i in range(20)]))


def test_the_parts_come_in_the_order_a_reader_needs_them(page):
    parts = [
        "did the embeddings only rotate",
        "The difference is only a rotation and a scale.",
        "Only a rotation and a scale?",
        "All pairs",
        "How close is every run to every other?",
        "Pair by pair",
        "Further numbers",
        "Which rows differ most?</h2>",
        '<h2 id="reading">How to read this</h2>',
        "How this was made",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


def test_every_group_is_explained_in_one_line(page, outline):
    text = outline(page).text
    compared = {name: meaning for name, meaning in MEANINGS.items() if name != "ridge_similarity"}  # of translate
    assert all(meaning in text for meaning in compared.values())


def test_notes_are_shown_when_there_are_any(make_comparison, page, render):
    assert 'class="notes"' not in page
    assert "<li>Use more rows.</li>" in render(make_comparison(notes=["Use more rows."]))


@pytest.mark.parametrize("status", STATUSES)
def test_the_verdict_is_shown_in_words_and_shape_not_only_in_colour(
    status, make_pair, make_comparison, outline, render
):
    page = render(make_comparison(pairs=[make_pair(status=status)]))
    claim = re.search(r'<p class="claim">.*?</p>', page, re.DOTALL)[0]
    words = ["Only", "a", "rotation", "and", "a", "scale?", html.MARKS[status], status]
    assert outline(claim).text.split()[: len(words)] == words
    assert document.REMARKS[status] in claim


def test_one_pair_that_fails_makes_the_whole_fail_and_the_counts_are_told(page):
    claim = re.search(r'<p class="claim">.*?</p>', page, re.DOTALL)[0]
    assert "badge fails" in claim
    assert "fails for 1, ambiguous for 1, holds for 1 of 3 pairs" in claim


def test_further_numbers_are_there(page, outline):
    text = outline(page).text
    for words in ("MCC, strong", "0.410", "MCC, weak", "CKA", "0.980", "neighbour overlap", "76.0 %", "12.35", "exact"):
        assert words in text
    for words in (
        "ICA efficiency, held out",
        "94.7 %",
        "ICA efficiency, in sample",
        "20.0 % of chance",
        "5.00 % of their own diameter",
    ):
        assert words in text


def test_an_estimated_diameter_is_called_one(make_pair):
    assert "estimated" not in str(_sections._facts(make_pair()))
    assert "estimated" in str(_sections._facts(make_pair(diameter_exact=False)))


def test_settings_runs_and_versions_are_shown(page, outline):
    text = outline(page).text
    for words in ("normalize", "none", "identity, permutation, rigid", "seed 10", "python", "numpy", "scikit-learn"):
        assert words in text


def test_undefined_numbers_print_as_a_dash_that_says_so(undefined, render_figures):
    page = render_figures(undefined)
    assert '<span title="undefined">–</span>' in page
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_a_missing_group_leaves_an_empty_cell(make_pair, make_nearness, make_comparison, render):
    pairs = [make_pair("a", "b"), make_pair("b", "c", groups={"rigid": make_nearness("rigid", 0.5)})]
    assert '<td class="num" data-value=""><bdi></bdi></td>' in render(make_comparison("abc", pairs))


def test_two_runs_need_no_heat_map(comparison, page, render):
    assert "How close is every run" not in render(comparison)
    assert "How close is every run" in page


def test_190_pairs_stay_below_2_mb_and_say_how_many_are_shown(twenty_page):
    assert len(twenty_page.encode()) < 2_000_000
    assert twenty_page.count("<details") == document.DETAILED_PAIRS
    assert f"{document.DETAILED_PAIRS} of 190 pairs are shown in detail" in twenty_page
    assert twenty_page.count('<th scope="row" class="name">') == 190 + 20 + 1  # pairs, runs and the mean null


def test_the_pairs_shown_of_many_are_the_worst(make_comparison, monkeypatch):
    monkeypatch.setattr(document, "DETAILED_PAIRS", 3)
    pairs = make_comparison([f"run {i}" for i in range(20)]).pairs
    chosen = document._worst(pairs)
    assert [(pair.source, pair.target) for pair in chosen] == [
        ("run 18", "run 19"),
        ("run 17", "run 19"),
        ("run 17", "run 18"),
    ]


def test_the_limit_holds_for_thousands_of_pairs_with_long_names(make_pair, make_comparison, monkeypatch, render):
    monkeypatch.setattr(document, "DETAILED_PAIRS", 2)
    one = make_pair()
    names = [f"{'very/long/' * 25}{i}" for i in range(64)]
    pairs = [make_pair(a, b, groups=one.groups, plane=one.plane) for a in names for b in names if a < b]
    page = render(make_comparison(names, pairs))
    assert len(pairs) == 2016
    assert len(page.encode()) < 2_000_000
    assert re.search(r"The first \d+ of 2016 rows are shown", page)
    assert "The first 40 of 64 runs are shown." in page


def test_a_page_that_is_too_large_loses_details_and_says_so(monkeypatch, make_comparison, render_figures, drawn_once):
    names = [f"run {i}" for i in range(4)]
    monkeypatch.setattr(html, "LIMIT", 250_000)
    with drawn_once():
        page = render_figures(make_comparison(names))
    assert len(page.encode()) < 250_000
    assert re.search(r"\d+ more are left out of this page", page)


def test_a_consensus_is_shown_run_by_run_with_its_null(make_rich, outline, render):
    text = " ".join(outline(render(make_rich())).text.split())
    assert "Consensus of the runs" in text
    assert "All runs were rotated and scaled onto one common configuration" in text
    assert "seed 10 14.3 % 12.9 to 15.7 % 3.00 % 2.70 to 3.30 %" in text
    assert "did not converge" not in text


def test_a_consensus_of_rotations_is_not_said_to_be_scaled(make_rich, render):
    assert "All runs were rotated onto" in render(make_rich(group="rigid"))


def test_a_consensus_that_did_not_converge_says_so(make_rich, render):
    assert "The fit did not converge" in render(make_rich(converged=False))


def test_without_a_consensus_there_is_no_section_on_it(page):
    assert "Consensus of the runs" not in page


@pytest.mark.parametrize("groups", [["rigid"], ["permutation"], ["ica"]])
def test_whatever_was_compared_is_drawn(groups, render_figures, drawn_once):
    from congruence import compare

    rng = np.random.default_rng(0)
    runs = {name: rng.laplace(size=(200, 2)) for name in "abc"}
    with drawn_once():
        page = render_figures(compare(runs, groups=groups, nulls=1, bootstrap=5))
    assert f"Held-out error up to {groups[0]}, in" in page
    assert "% of chance" in page


def test_the_two_statements_and_their_status_are_shown(make_pair, make_comparison, outline, render):
    premises = (
        Finding("distortion", "No direction is stretched.", "fails", number=0.2, interval=(0.14, 0.23)),
        Finding("unexplained", "Little is left.", "holds", number=0.012, interval=(0.01, 0.02)),
    )
    verdict = make_pair().verdict
    pair = make_pair(verdict=replace(verdict, finding=replace(verdict.finding, premises=premises), moved=7))
    text = " ".join(outline(render(make_comparison(pairs=[pair]))).text.split())
    assert "No direction is stretched. ✕ fails |log gain| 0.20 0.14 to 0.23" in text
    assert "Little is left. ✓ holds 1.20 % 1.00 to 2.00 %" in text
    assert "moved rows 7" in text


def test_gains_are_drawn_only_where_directions_were_tested(make_pair, make_comparison, make_distortion, render):
    title = "Are all directions stretched alike?"
    assert title in render(make_comparison(pairs=[make_pair(distortion=make_distortion())]))
    assert title not in render(make_comparison(pairs=[make_pair(distortion=make_distortion(tested=0))]))
    assert title not in render(make_comparison())


def test_the_effect_of_dependent_rows_is_shown(make_pair, make_comparison, outline, render):
    found = Dependence(0.2, 0.5, 0.21, ordered=True, clustered=False, copies=np.arange(3), n=400)
    text = " ".join(outline(render(make_comparison(pairs=[make_pair(dependence=found)]))).text.split())
    assert "3 of 400 rows repeat another row" in text
    assert "consecutive rows 50.0 % higher: these rows depend on each other" in text
    assert "rows close to each other in the source 21.0 % no effect" in text


def test_the_verdict_of_a_single_pair_is_stated_once(make_pair, make_comparison, outline, render):
    pairs = [make_pair("a", "b"), make_pair("b", "c"), make_pair("a", "c")]
    sentence = "The difference is only a rotation and a scale."
    assert outline(render(make_comparison("ab", pairs[:1]))).text.count(sentence) == 1
    assert outline(render(make_comparison("abc", pairs))).text.count(sentence) == 4


def test_measures_that_were_not_computed_are_not_listed(make_pair, make_comparison, outline, render):
    none = SimilarityScore(math.nan, math.nan, math.nan, math.nan)
    brief = make_pair(mcc=PairMCC(math.nan, math.nan), cka=none, neighbour_overlap=none)
    names = ("MCC, strong", "MCC, weak", "CKA", "neighbour overlap")
    for pair, listed in ((make_pair(), True), (brief, False)):
        text = outline(render(make_comparison(pairs=[pair]))).text
        assert [name in text for name in names] == [listed] * len(names)


def test_the_table_of_similarities_has_a_heading(make_pair, make_comparison, render):
    pair = make_pair(similarities={"svcca": SimilarityScore(0.9, 0.1, 0.8, math.nan)})
    assert "<h3>Similarities, in sample, with their null" in render(make_comparison(pairs=[pair]))
