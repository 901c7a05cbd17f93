import math
import re

import numpy as np
import pytest
from matplotlib import pyplot

from congruence.ica._document import convergence_sentence, directions_sentence


@pytest.fixture(scope="module")
def page(make_resolution, render):
    return render(make_resolution())


@pytest.fixture(scope="module")
def text(page, outline):
    return " ".join(outline(page).text.split())


def test_the_parts_come_in_the_order_a_reader_needs_them(page):
    parts = [
        "can the rotation be undone without labels?</h1>",
        '<p class="lead">4 of 6 components are identified.</p>',
        "1 of these 4 components is stable across 20 bootstrap resamples.",
        'class="badge ambiguous"',
        "Which components are identified?</h2>",
        "Are they stable on other rows?</h2>",
        "With other numbers of components</h3>",
        "What are the components made of?</h2>",
        "How were they found?</h2>",
        "How to read this</h2>",
        "How this was made</h2>",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("changes", "status", "lead"),
    [
        (
            {"identified": np.ones(6, bool), "sampling_error": np.full(6, 0.1)},
            "✓ holds",
            "All 6 components are identified.",
        ),
        ({}, "≈ ambiguous", "4 of 6 components are identified."),
        ({"identified": np.zeros(6, bool)}, "✕ fails", "No component is identified."),
        ({"reason": "cap", "converged": False}, "? unknown", "ICA did not converge."),
    ],
)
def test_the_status_is_shown_in_words_and_shape(changes, status, lead, make_resolution, outline, render):
    page = render(make_resolution(stable=False, **changes))
    claim = re.search(r'<p class="claim">.*?</p>', page, re.DOTALL)[0]
    assert f"Are all components identified? {status} 4000 rows" in " ".join(outline(claim).text.split())
    assert f'<p class="lead">{lead}</p>' in page


def test_every_component_is_listed_with_why_it_is_not_identified(text):
    for words in (
        "ica0 ✓ stable",
        "ica4 ✕ depends on start",
        "ica5 ✕ Gaussian",
        "22.9°",
        "0.999",
        "−1.20",
    ):
        assert words in text


def test_a_component_that_resamples_do_not_reproduce_is_unstable(make_resolution, outline, render):
    result = make_resolution()
    result.stability.agreement.bootstrap[:, 1] = 0.5
    text = " ".join(outline(render(result)).text.split())
    assert "ica1 ✕ unstable 0.500 0.500 to 0.500" in text


def test_rows_are_named_by_id_or_by_number(text, make_resolution, outline, render):
    assert "value id plate logP 7.00 mol0 p1 0" in text
    bare = " ".join(outline(render(make_resolution(ids=False))).text.split())
    assert "value row plate logP 7.00 0 p1 0" in bare


def test_without_resamples_and_with_one_start_the_page_does_not_mention_them(make_resolution, outline, render):
    text = outline(render(make_resolution(stable=False, agreement=None))).text
    assert "on other rows?" not in text
    assert "smallest correlation" not in text
    assert "There was one start, so agreement across starts is unknown" in text


def test_the_command_and_the_settings_are_shown(text):
    assert "congruence resolve 'my run.parquet' --report r.html" in text
    for words in ("contrast logcosh", "seed 0", "4000 rows; 7 of 8 directions vary, 6 kept; converged after 20 passes"):
        assert words in text


def test_a_result_made_in_python_has_no_command(make_resolution, render):
    assert 'aria-label="Command"' not in render(make_resolution(settings={}))


def test_directions_are_described(make_resolution):
    assert directions_sentence(make_resolution()) == (
        "The 4000 rows vary in 7 of 8 directions; the remaining 1 is constant or linearly dependent. "
        "The first 6 were kept, with 99.9 % of the variance."
    )
    assert "as they are" in directions_sentence(make_resolution(settings={"whiten": False}))


def test_convergence_is_described(make_resolution):
    assert convergence_sentence(make_resolution()) == "The solver converged after 20 passes over all 4000 rows."
    cut = make_resolution(reason="cap", converged=False, n=1000)
    assert convergence_sentence(cut) == "The solver had not converged after 20 passes over 1000 of 4000 rows."
    assert "no component was distinguishable" in convergence_sentence(make_resolution(reason="gaussian"))
    assert convergence_sentence(make_resolution(changes=(), gradients=())) == "There was nothing to rotate."
    auto = make_resolution(error_left=math.radians(2), stable=False)
    assert convergence_sentence(auto).endswith(
        "More rows would turn nine in ten identified components by at most 2.0° (95 % limit)."
    )


@pytest.mark.parametrize("changes", [{"k": 1}, {"k": 7}, {"changes": (0.0,), "gradients": (0.0,)}, {"switched": None}])
def test_odd_results_can_be_drawn(changes, make_resolution, outline, render_figures):
    page = render_figures(make_resolution(**changes))
    assert not outline(page).misplaced
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_nothing_to_rotate_leaves_out_the_convergence(make_resolution, render, page):
    assert "<figcaption>Convergence</figcaption>" in page
    assert "<figcaption>Convergence</figcaption>" not in render(make_resolution(changes=(), gradients=()))


def test_the_notebook_shows_stability_or_else_negentropy(make_resolution):
    for stable, axis in ((True, "|correlation|"), (False, "negentropy (log)")):
        axes = make_resolution(stable=stable).plot()
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("component", axis)
        pyplot.close(axes.figure)


def test_text_cannot_inject_markup(make_resolution, outline, render_figures):
    bad = "<script>alert(1)</script>\"'>"
    result = make_resolution(settings={bad: bad, "command": bad})
    object.__setattr__(result, "name", bad)
    for loading in result.profiles[0].highest:
        object.__setattr__(loading, "id", bad)
        loading.metadata["logP"] = bad
    page = render_figures(result)
    assert page.count("<script") == 1
    assert not outline(page).misplaced
    assert outline(page).text.count(bad) > 10
