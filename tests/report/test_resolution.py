import math
import re

import numpy as np
import pytest

from congruence.report import render_resolution
from congruence.report.resolution import directions_sentence, rest_sentence


@pytest.fixture(scope="module")
def page(make_resolution):
    return render_resolution(make_resolution())


@pytest.fixture(scope="module")
def text(page, outline):
    return " ".join(outline(page).text.split())


def test_the_parts_come_in_the_order_a_reader_needs_them(page):
    parts = [
        "can the rotation be undone without labels?</h1>",
        "of 6 axes come back.</p>",
        "4 of 6 components are identified",
        'class="badge partly"',
        "Which components come back?</h2>",
        "Do they come back on other rows?</h2>",
        "With other numbers of components</h3>",
        "What do the first components look like?</h2>",
        "How were they found?</h2>",
        "How to read this</h2>",
        "How this was made</h2>",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("changes", "status", "lead"),
    [
        ({"identified": np.ones(6, bool), "sampling_error": np.full(6, 0.1)}, "✓ holds", "All 6 axes come back."),
        ({}, "≈ partly", "4 of 6 axes come back."),
        ({"identified": np.zeros(6, bool)}, "✕ fails", "None of 6 axes comes back."),
        ({"reason": "cap", "converged": False}, "? unknown", "The axes did not come to rest."),
    ],
)
def test_the_verdict_is_told_in_words_and_shape(changes, status, lead, make_resolution, outline):
    page = render_resolution(make_resolution(stable=False, **changes))
    claim = re.search(r'<p class="claim">.*?</p>', page, re.DOTALL)[0]
    assert " ".join(outline(claim).text.split()).endswith(status)
    assert f'<p class="lead">{lead}</p>' in page


def test_every_component_is_listed_with_what_keeps_it_from_coming_back(text):
    for words in (
        "ica0 yes",
        "ica4 no: depends on the start",
        "ica5 no: as good as Gaussian",
        "22.9°",
        "0.999",
        "−1.20",
    ):
        assert words in text


def test_a_component_lost_on_resamples_says_so(make_resolution, outline):
    result = make_resolution()
    result.stability.agreement.bootstrap[:, 1] = 0.5
    text = " ".join(outline(render_resolution(result)).text.split())
    assert "ica1 no: not on resamples 0.500 0.500 to 0.500" in text


def test_rows_are_named_by_id_or_by_number(text, make_resolution, outline):
    assert "value id plate logP 7.00 mol0 p1 0" in text
    bare = " ".join(outline(render_resolution(make_resolution(ids=False))).text.split())
    assert "value row plate logP 7.00 0 p1 0" in bare


def test_without_resamples_and_with_one_start_the_page_does_not_speak_of_them(make_resolution, outline):
    text = outline(render_resolution(make_resolution(stable=False, agreement=None))).text
    assert "on other rows?" not in text
    assert "random start" not in text
    assert "There was one start, so it is not known" in text


def test_how_to_make_it_again_is_told(text):
    assert "congruence resolve 'my run.parquet' --report r.html" in text
    for words in ("contrast logcosh", "seed 0", "table rows 4000", "table columns 8"):
        assert words in text


def test_a_result_made_in_python_has_no_command(make_resolution):
    assert "To make it again" not in render_resolution(make_resolution(settings={}))


def test_directions_are_told(make_resolution):
    assert directions_sentence(make_resolution()) == (
        "The 4000 rows vary in 7 of 8 directions; the other 1 is constant or made of these. "
        "The first 6 were kept, with 99.9 % of the variance."
    )
    assert "as they are" in directions_sentence(make_resolution(settings={"whiten": False}))


def test_the_end_of_the_solver_is_told(make_resolution):
    assert rest_sentence(make_resolution()) == "The components came to rest after 20 passes over all 4000 rows."
    cut = make_resolution(reason="cap", converged=False, n=1000)
    assert rest_sentence(cut) == "The components had not come to rest after 20 passes over 1000 of 4000 rows."
    assert "no component could be told" in rest_sentence(make_resolution(reason="gaussian"))
    assert rest_sentence(make_resolution(changes=(), gradients=())) == "There was nothing to rotate."
    auto = make_resolution()
    object.__setattr__(auto.components, "error_left", math.radians(2))
    assert rest_sentence(auto).endswith("More rows would still turn nine in ten of them, by up to 2.0°.")


@pytest.mark.parametrize("changes", [{"k": 1}, {"k": 7}, {"changes": (0.0,), "gradients": (0.0,)}, {"switched": None}])
def test_odd_results_can_be_drawn(changes, make_resolution, outline):
    page = render_resolution(make_resolution(**changes))
    assert not outline(page).misplaced
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_nothing_to_rotate_leaves_out_the_way_of_the_solver(make_resolution):
    assert "The way of the solver" not in render_resolution(make_resolution(changes=(), gradients=()))


def test_text_cannot_inject_markup(make_resolution, outline):
    bad = "<script>alert(1)</script>\"'>"
    result = make_resolution(settings={bad: bad, "command": bad})
    object.__setattr__(result, "name", bad)
    for loading in result.portraits[0].highest:
        object.__setattr__(loading, "id", bad)
        loading.metadata["logP"] = bad
    page = render_resolution(result)
    assert page.count("<script") == 1
    assert not outline(page).misplaced
    assert outline(page).text.count(bad) > 10
