import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import pyplot

from congruence.align.comparison import Plane
from congruence.maps.nearness import NOTHING, HeldOut
from congruence.report import figures
from congruence.report.figures.svg import PALETTE


def _svg(name):
    """The figure of that name as an SVG element."""
    return lambda *data, **options: getattr(figures, name)(*data, **options).svg()


ladder, planes, error_histogram = map(_svg, ("ladder", "planes", "error_histogram"))
heat_map, learning_curve, moved_curve = map(_svg, ("heat_map", "learning_curve", "moved_curve"))
training_curves, gains, recall_by_size = map(_svg, ("training_curves", "gains", "recall_by_size"))
SVG = "{http://www.w3.org/2000/svg}"
OF_PAIRS = [ladder, planes, error_histogram]


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]


FALLING = np.linspace(0.3, 0.01, 500)


@pytest.fixture(
    scope="module", params=["ladder", "planes", "histogram", "heat map", "moved", "training", "gains", "learning curve"]
)
def svg(request, pair, three, make_pair, make_distortion, make_training, make_translation):
    draw = {
        "ladder": lambda: ladder(pair),
        "planes": lambda: planes(pair),
        "histogram": lambda: error_histogram(pair),
        "heat map": lambda: heat_map(three),
        "moved": lambda: moved_curve(FALLING, True, ["a", "b"]),
        "training": lambda: training_curves(make_training().series()[:-1], ["rigid", "similarity"]),
        "gains": lambda: gains(make_pair(distortion=make_distortion())),
        "learning curve": lambda: learning_curve(make_translation().certificate.curve, 4000, 0.9),
    }
    return draw[request.param]()


def test_figures_are_well_formed_and_described(svg):
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert len(root.get("aria-label")) > 20


def test_figures_are_small_and_hold_no_pixels(svg):
    assert len(svg) < 60_000
    assert "<image" not in svg
    assert "base64" not in svg


def test_colours_are_variables_of_the_page_with_a_fallback(svg):
    plain = re.sub(r"var\(--([\w-]+), #[0-9a-f]{6}\)", lambda m: "" if m[1] in PALETTE else m[0], svg)
    assert not re.search(r"#[0-9a-f]{6}\b(?!-)|rgb|var\(|: (black|white)", plain)


def test_figures_name_no_other_address(svg):
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]


@pytest.mark.parametrize("draw", OF_PAIRS)
def test_the_same_pair_gives_the_same_bytes(draw, make_pair):
    assert draw(make_pair()) == draw(make_pair())


@pytest.mark.parametrize("draw", OF_PAIRS)
def test_figures_of_different_pairs_share_no_id(draw, make_pair):
    drawn = [draw(make_pair("a", "b")), draw(make_pair("a", "c"))]
    ids = [re.findall(r' id="([^"]+)"', svg) for svg in drawn]
    assert ids[0]
    assert not set(ids[0]) & set(ids[1])
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', drawn[0])) == set(ids[0])


@pytest.mark.parametrize("name", ["<script>", "$x_1$ & y", "嵌入", "_hidden", "lr=0.00012345", 'a" id="b', "#fe0112"])
def test_any_name_is_drawn_as_it_is(name, make_pair):
    svg = planes(make_pair(name, "other"))
    assert name in ET.fromstring(svg).get("aria-label")
    assert f"source {name}" in texts(svg)


def test_the_heat_map_draws_any_name_as_it_is(make_comparison):
    names = ["<b>", "$x_1$", "嵌入", "_hidden", "0.00012345"]
    assert set(names) <= set(texts(heat_map(make_comparison(names))))


def test_the_ladder_shows_every_group_and_its_held_out_number(pair):
    written = texts(ladder(pair))
    for group, number in [("identity", "124 %"), ("similarity", "7.32 %"), ("ica", "12.0 %"), ("rigid", "R² 0.993")]:
        assert group in written
        assert number in written
    assert {"in sample", "chance", "error, % of chance", "100"} <= set(written)


def test_the_ladder_starts_at_zero(pair):
    assert "0" in texts(ladder(pair))


def test_a_raw_difference_far_above_the_rest_does_not_flatten_the_ladder(make_pair, make_nearness):
    pair = make_pair()
    groups = pair.groups | {"identity": make_nearness("identity", 40.0, null=40.0)}
    without_null = {name: replace(near, null=np.nan, of_chance=NOTHING) for name, near in groups.items()}
    far = make_pair(groups=without_null)
    written = texts(ladder(far))
    assert "4000 %" in written
    assert "error, % of the target's diameter" in written
    assert max(float(text) for text in written if text.isdigit()) <= 30


def test_the_heat_map_prints_only_what_was_computed(three):
    written = texts(heat_map(three))
    assert {"7.32", "7.69", "8.05"} <= set(written)
    assert sum(bool(re.fullmatch(r"[\d.]+", text)) for text in written) == 3


def test_a_large_heat_map_has_a_scale_instead_of_numbers(make_comparison):
    written = texts(heat_map(make_comparison([str(i) for i in range(100, 114)])))
    assert {"0 %", "100 %"} <= set(written)  # of chance
    assert "7.32" not in written


def test_the_heat_map_of_very_many_runs_shows_the_first_ones(make_pair, make_comparison):
    names = [f"run {i}" for i in range(60)]
    svg = heat_map(make_comparison(names, [make_pair("run 0", "run 1"), make_pair("run 0", "run 59")]))
    assert "run 39" in texts(svg)
    assert "run 40" not in texts(svg)


def test_planes_say_how_much_of_the_variance_they_show(pair):
    assert "the target's principal plane, 62.0 % of its variance" in texts(planes(pair))


def test_planes_draw_a_sample_of_the_rows(pair):
    assert ET.fromstring(planes(pair)).findall(f".//{SVG}use").__len__() <= 4 * 200 + 8


def test_a_source_that_lies_far_away_is_zoomed_out(make_pair, make_plane):
    assert "before" in texts(planes(make_pair()))
    assert "before (zoomed out)" in texts(planes(make_pair(plane=make_plane(shift=50.0))))


def far_plane(make_plane, rows, far=60.0):
    plane = make_plane()
    after = plane.after.copy()
    after[rows] += far
    return replace(plane, after=after)


def test_far_rows_are_left_out_of_planes_and_counted(make_pair, make_plane):
    assert not any("far row" in text for text in texts(planes(make_pair())))
    drawing = figures.planes(make_pair(plane=far_plane(make_plane, [3, 8])))
    assert "2 far rows of 200 outside the frame" in drawing.label
    assert any("2 far rows of 200 outside the frame" in text for text in texts(drawing.svg()))
    assert "1 far row of" in figures.planes(make_pair(plane=far_plane(make_plane, [3]))).label
    axes = drawing.plot()
    assert np.abs(axes.figure.axes[1].get_xlim()).max() < 20
    pyplot.close(axes.figure)


def test_many_rows_that_lie_far_away_are_a_part_of_the_figure(make_pair, make_plane):
    assert "far row" not in figures.planes(make_pair(plane=far_plane(make_plane, np.arange(60)))).label


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.arange(300) % 3, ["0", "1", "2"]),
        (np.array([f"p{i % 12}" for i in range(300)]), [f"p{i}" for i in (0, 1, 2, 3, 4, 5, 6)] + ["other"]),
        (np.linspace(0, 1, 300) ** 2, ["0 to 0.02769", "0.02769 to 0.1107", "0.1107 to 0.2492", "0.2492 to 0.4430"]),
        (np.where(np.arange(300) < 250, np.arange(300.0), np.nan), ["0 to 49.75"]),
        (np.arange(300) % 10, ["0 to 1", "2 to 4", "5 to 6", "7 to 9"]),  # no value is in two names
        (np.minimum(np.arange(300) % 100, 20), ["0 to 20"]),
    ],
)
def test_planes_are_coloured_by_a_column(pair, values, expected):
    written = texts(planes(pair, color=("plate", values)))
    assert set(expected) <= set(written)
    assert any("colours: plate" in text for text in written)


def test_the_labels_of_a_ladder_do_not_overlap_on_small_axes(make_pair, make_nearness):
    groups = ("identity", "permutation", "rigid", "similarity", "ridge", "linear", "ica")
    far = {name: replace(make_nearness(name, 0.2), r2=HeldOut(-23.0491, -23.3, -22.8)) for name in groups}
    for width in (4.0, 6.4):
        figure, axes = pyplot.subplots(figsize=(width, 4))
        figures.ladder(make_pair(groups=far)).plot(axes)
        figure.draw_without_rendering()
        boxes = [label.get_window_extent() for label in axes.texts]
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[i + 1 :])
        pyplot.close(figure)
    assert "R² −23.0" in [label.get_text() for label in axes.texts]


def test_missing_numbers_are_other(pair):
    values = np.where(np.arange(300) < 150, np.arange(300.0), np.nan)
    assert "other" in texts(planes(pair, color=("dose", values)))


def test_texts_at_the_pointer_lie_on_the_points_and_only_on_pages(pair):
    drawing = figures.planes(pair, [f"row {i}" for i in range(300)])
    assert "data-hover" not in drawing.svg()
    root = ET.fromstring(drawing.svg(hover=True))
    data = json.loads(root.get("data-hover"))
    assert data["texts"] == [f"row {i}" for i in range(200)]
    assert [len(places) for _, _, places in data["marks"]] == [200] * 4  # both runs, before and after
    drawn = np.array([(float(use.get("x")), float(use.get("y"))) for use in root.iter(f"{SVG}use")])
    found = np.array([(x, y) for _, _, places in data["marks"] for x, y, _ in places])
    assert np.linalg.norm(found[:, None] - drawn, axis=2).min(1).max() < 0.15  # CSS pixels


def test_texts_at_the_pointer_cannot_inject_markup(pair):
    bad = "</svg><script>alert('x')</script>&\""
    svg = figures.planes(pair, [bad] * 300).svg(hover=True)
    assert "<script" not in svg
    assert json.loads(ET.fromstring(svg).get("data-hover"))["texts"] == [bad]


def test_planes_without_any_spread_are_drawn(make_pair):
    still = np.zeros((5, 2))
    assert "before" in texts(planes(make_pair(plane=Plane(still, still, still, 1.0, np.arange(len(still))))))


def test_the_histogram_turns_logarithmic_only_where_groups_lie_far_apart(make_pair, make_nearness):
    near = {name: make_nearness(name, 0.2) for name in ("identity", "similarity", "linear")}
    assert not any("log" in text for text in texts(error_histogram(make_pair(groups=near))))
    assert any("log" in text for text in texts(error_histogram(make_pair())))


def test_the_histogram_survives_errors_of_exactly_zero(make_pair, make_nearness):
    exact = {name: make_nearness(name, 0.0) for name in ("identity", "similarity", "linear")}
    assert "similarity" in texts(error_histogram(make_pair(groups=exact)))


@pytest.mark.parametrize("draw", OF_PAIRS)
def test_undefined_numbers_leave_a_figure_that_can_be_drawn(draw, undefined):
    ET.fromstring(draw(undefined.pairs[0]))


def test_drawing_leaves_the_settings_of_matplotlib_alone(pair):
    import matplotlib

    before = dict(matplotlib.rcParams)
    ladder(pair)
    assert dict(matplotlib.rcParams) == before


def test_the_curve_of_rows_is_logarithmic_only_where_errors_lie_far_apart():
    assert "disagreement, % of chance" in texts(moved_curve(np.linspace(0.9, 0.3, 500), True, "ab"))
    assert "disagreement, % of chance (log)" in texts(moved_curve(FALLING, True, "ab"))
    assert "disagreement, % of the diameter" in texts(moved_curve(np.linspace(0.3, 0.1, 500), False, "ab"))


@pytest.mark.parametrize("rows", [1, 2, 10_000_000])
def test_the_curve_of_rows_is_drawn_for_one_row_or_millions(rows):
    svg = moved_curve(np.linspace(0.3, 0.0, rows), True, "ab")
    assert len(svg) < 20_000
    assert "1" in texts(svg)


def test_the_learning_curve_marks_all_rows_and_the_required_recall(make_translation):
    written = texts(learning_curve(make_translation().certificate.curve, 4000, 0.9))
    assert {"all 4000 rows", "required, 90 %", "10", "100", "1000"} <= set(written)
    assert "required, 90 %" not in texts(learning_curve(make_translation().certificate.curve, 4000, np.nan))


def test_extrapolated_recall_is_told_from_measured(make_retrieval):
    sizes = make_retrieval().sizes
    assert {"measured", "extrapolated", "required, 90 %"} <= set(texts(recall_by_size(sizes, 0.9)))
    assert "extrapolated" not in texts(recall_by_size(sizes[:3], 0.9))


@pytest.mark.parametrize("tested", [1, 12, 300])
def test_gains_name_the_margin_and_the_order_of_the_directions(tested, make_pair, make_distortion):
    svg = gains(make_pair(distortion=make_distortion(tested=tested)))
    assert {"margin, ±0.1", "log gain, 95 % interval", "tested directions, by decreasing covariance"} <= set(texts(svg))
    assert f"Log gains of {tested} directions" in ET.fromstring(svg).get("aria-label")
