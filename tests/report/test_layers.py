"""The page of a map of layers: the answer first, a picture, and the nearest layer of each."""

import re

import numpy as np
import pytest

from congruence.align import LayerMap
from congruence.report import layer_picture, render_layers, write_layers_report


@pytest.fixture
def make():
    """A map of as many layers as asked, the diagonal nearest."""

    def make(rows=3, columns=3, **changes):
        nearness = np.full((rows, columns), 0.2)
        np.fill_diagonal(nearness, 0.01)
        values = {
            "source": "old & <new>",
            "target": "b",
            "rows": [f"layers.{i}" for i in range(rows)],
            "columns": [f"$l_{i}$" for i in range(columns)],
            "measure": "similarity",
            "direction": "lower is closer",
            "perfect": 0.0,
            "held_out": True,
            "nearness": nearness,
            "null": np.full((rows, columns), 0.21),
            "n": 50,
            "advice": ["A note."],
            "settings": {"folds": 5},
        }
        return LayerMap(**(values | changes))

    return make


def test_the_page_says_the_answer_first_and_lists_the_nearest(make):
    page = render_layers(make())
    assert '<p class="lead">All 3 layers of old &amp; &lt;new&gt; are nearer' in page
    assert "<new>" not in page
    assert page.count("1.00\u00a0%") + page.count("1.00 %") >= 3
    assert "after the best rotation and scale" in page
    assert "A note." in page


def test_same_map_same_bytes_and_names_are_text(make, tmp_path):
    write_layers_report(make(), tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == render_layers(make())
    assert "$l_1$" in layer_picture(make())


def test_strong_colours_are_near_and_frames_only_where_nearer_than_chance(make):
    opacities = [float(o) for o in re.findall(r"opacity: ([\d.]+)", layer_picture(make()))]
    assert sorted(opacities)[-3:] == pytest.approx([0.86] * 3, abs=0.02)
    assert min(opacities) < 0.2
    framed, plain = layer_picture(make()), layer_picture(make(nearness=np.full((3, 3), 0.21)))
    frames = [svg.count("stroke: var(--ink") for svg in (framed, plain)]
    assert frames[0] - frames[1] == 3


def test_many_layers_undefined_ones_and_no_null_are_drawn(make):
    assert "The first 60 layers are drawn" in render_layers(make(2, 61))
    undefined = make(nearness=np.full((3, 3), np.nan))
    assert "No pair of layers has a defined value." in render_layers(undefined)
    without = render_layers(make(null=np.full((3, 3), np.nan)))
    assert "the stronger, the closer" in without
    assert "no nearer than chance" not in without


def test_a_similarity_is_not_a_percentage(make):
    page = render_layers(make(measure="svcca", held_out=False, direction="higher is closer", perfect=1.0))
    assert "SVCCA, in sample; higher is closer" in page
    assert "of the diameter" not in page
