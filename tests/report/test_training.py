import math
import re
from dataclasses import replace

import pytest

from congruence.align import _document as document
from congruence.document import Figure, Table, Text
from congruence.maps.nearness import NOTHING
from congruence.report import html
from congruence.report.figures import drawing


class Training:
    """The section on checkpoints, taken apart."""

    def __init__(self, section):
        self.texts = [block.text for block in section.blocks if isinstance(block, Text)]
        self.sentence = self.texts[0] if len(self.texts) > 1 else ""
        self.drawn = next(block for block in section.blocks if isinstance(block, Figure))
        self.checkpoints = next(block for block in section.blocks if isinstance(block, Table)).rows

    @property
    def figure(self):
        return drawing(self.drawn).svg()


def training_section(comparison):
    found = [s for s in comparison.document().sections if s.title == "Checkpoints of the training"]
    return Training(found[0]) if found else None


@pytest.fixture(scope="module")
def page(make_training, render):
    return render(make_training())


def said(svg):
    return re.findall(r"<text[^>]*>([^<]*)", svg)


def test_runs_that_are_no_checkpoints_have_no_training(comparison):
    assert training_section(comparison) is None


def test_a_training_takes_the_place_of_the_heat_map(make_training, render):
    page = render(make_training((1, 2, 3)))
    parts = ["All pairs</h2>", "Checkpoints of the training</h2>", "Pair by pair</h2>"]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert "How close is every run" not in page


def test_the_sentence_tells_how_the_error_onto_the_last_checkpoint_changes(make_training):
    assert training_section(make_training()).sentence == (
        "The held-out error onto the last checkpoint, after the best rotation and scale, falls from 54.9 % of chance "
        "at step 1 to 16.8 % at step 10000."
    )


def test_every_checkpoint_but_the_last_has_a_row_with_both_errors(page, make_training):
    table = page[page.index("Checkpoints of the training</h2>") : page.index("Pair by pair</h2>")]
    assert table.count('<th scope="row"') == 5
    errors = {(p.source, p.target): p.groups["similarity"].of_chance.mean for p in make_training().pairs}
    assert f'data-value="{errors["step 10", "step 100000"]}"><bdi>36.6 %</bdi><small>next 25.6 %</small>' in table
    assert "step 100000 at step 100000" in table


@pytest.mark.parametrize(
    ("steps", "log", "ticks"),
    [
        ((1, 10, 100, 1000, 10_000), True, {"1", "10", "100", "1000"}),
        ((0, 1, 10, 1000, 100_000), True, {"0", "1", "10", "100", "1000"}),
        ((100, 200, 300, 400), False, {"100", "200", "300"}),
        ((0, 50, 100), False, {"0", "50"}),
        ((-100, 1, 10_000, 20_000), False, {"0", "10000"}),
        ((0.5, 0.75, 1.0), False, set()),
    ],
)
def test_steps_are_logarithmic_where_they_span_more_than_two_decades(steps, log, ticks, make_training):
    written = said(training_section(make_training(steps)).figure)
    assert ("step (log)" in written) is log
    assert ticks <= set(written)


def test_the_figure_has_a_line_for_each_group_and_way(make_training):
    figure = training_section(make_training()).figure
    written = said(figure)
    for words in ("onto the last checkpoint", "onto the next checkpoint", "similarity", "ica", "chance"):
        assert words in written
    dashed = len(re.findall(r"stroke-dasharray: 6,", figure))
    assert dashed == 7  # one of each group, onto the next


def test_two_checkpoints_are_enough(make_training):
    training = training_section(make_training((1, 2)))
    assert training.sentence == ""
    assert len(training.checkpoints) == 1


def test_groups_that_some_checkpoint_lacks_are_left_blank(make_training, make_nearness, render_figures):
    comparison = make_training((1, 2, 3))
    onto_last = comparison["step 1", "step 3"]
    onto_last.groups.clear()
    onto_last.groups["rigid"] = make_nearness("rigid", 0.5)
    page = render_figures(comparison)
    assert '<td class="num" data-value=""><bdi><span title="undefined">–</span>' in page
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_without_a_similarity_the_smallest_group_is_told(make_training, make_nearness):
    comparison = make_training((1, 2, 3))
    for pair, error in zip(comparison.pairs, (0.1, 0.2, 0.3), strict=True):
        pair.groups.clear()
        pair.groups["rigid"] = make_nearness("rigid", error)
    assert training_section(comparison).sentence.startswith(
        "The held-out error onto the last checkpoint, after the best rotation, "
    )


def test_hundreds_of_checkpoints_stay_small(make_training, monkeypatch, render_figures):
    monkeypatch.setattr(document, "DETAILED_PAIRS", 1)
    monkeypatch.setattr(html, "ROWS", 100)
    page = render_figures(make_training(range(1, 302)))
    assert "The first 100 of 300 rows are shown" in page
    assert len(page.encode()) < 1_000_000


def test_without_a_null_errors_are_shares_of_the_diameter(make_training):
    comparison = make_training((1, 2, 3))
    for pair in comparison.pairs:
        for name, near in pair.groups.items():
            pair.groups[name] = replace(near, null=math.nan, of_chance=NOTHING)
    training = training_section(comparison)
    assert "% of the target’s diameter at step 1" in training.sentence
    assert "chance" not in said(training.figure)
