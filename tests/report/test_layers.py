"""The page of a comparison of layers: the answer first, a picture, and the nearest layer of each."""

import re

import numpy as np
import pytest

from congruence.report.figures import layer_picture


def test_the_page_says_the_answer_first_and_lists_the_nearest(make_layers, render):
    page = render(make_layers())
    assert '<p class="lead">All 3 layers of old &amp; &lt;new&gt; are closer' in page
    assert "<new>" not in page
    assert page.count("4.76\u00a0%") + page.count("4.76 %") >= 3  # 1 % of 21 %
    assert "after the best rotation and scale" in page
    assert "A note." in page


def test_same_layers_same_bytes_and_names_are_text(make_layers, render):
    assert render(make_layers()) == render(make_layers())
    assert "$l_1$" in layer_picture(make_layers()).svg()


def test_strong_colours_are_near_and_frames_only_where_nearer_than_chance(make_layers):
    framed, plain = (layer_picture(x).svg() for x in (make_layers(), make_layers(p=np.ones((3, 3)))))
    opacities = [float(o) for o in re.findall(r"opacity: ([\d.]+)", framed)]
    assert sorted(opacities)[-3:] == pytest.approx([0.86] * 3, abs=0.02)
    assert min(opacities) < 0.2
    frames = [svg.count("stroke: var(--ink") for svg in (framed, plain)]
    assert frames[0] - frames[1] == 3


def test_many_layers_undefined_ones_and_no_null_are_drawn(make_layers, render_figures):
    assert "The first 60 layers are drawn" in render_figures(make_layers(2, 61))
    undefined = make_layers(nearness=np.full((3, 3), np.nan), p=np.full((3, 3), np.nan), p_layer=np.full(3, np.nan))
    assert "No pair of layers has a defined value." in render_figures(undefined)
    without = make_layers(null=np.full((3, 3), np.nan), p=np.full((3, 3), np.nan), p_layer=np.full(3, np.nan))
    assert "the stronger, the closer" in render_figures(without)
    assert [finding.status for finding in without.findings] == ["unknown"] * 3
    assert "badge fails" not in render_figures(without)  # nothing is said of chance


def test_a_layer_that_is_no_nearer_than_chance_is_marked_in_the_table(make_layers, render, outline):
    nearness, p = make_layers().nearness, make_layers().p
    nearness[2], p[2] = 0.21, 1.0
    found = make_layers(nearness=nearness, p=p, p_layer=np.array([0.05, 0.05, 0.4]))
    page = " ".join(outline(render(found)).text.split())
    assert "fails for 1, holds for 2 of 3 layers" in page
    assert "layers.2 $l_0$ ✕ fails 100 % 21.0 % 21.0 % 1.00" in page


def test_a_similarity_is_not_a_percentage(make_layers, render):
    page = render(make_layers(measure="svcca", held_out=False, direction="higher is closer", perfect=1.0))
    assert "SVCCA, in sample; higher is closer" in page
    assert "of the diameter" not in page
