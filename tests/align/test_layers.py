"""`compare_layers` finds the layer that was only rotated, judges it against chance, and names what it leaves out."""

import json
import warnings

import numpy as np
import pytest
from scipy.stats import ortho_group

from congruence import compare
from congruence.align import compare_layers
from congruence.align._layer_tests import max_null, seed_interval
from congruence.align.similarities import cka
from congruence.errors import FewRowsWarning, InputError


@pytest.fixture(scope="module")
def layers():
    """Four layers of a random network, the last one narrower, 400 rows."""
    rng = np.random.default_rng(0)
    found = {"in": rng.laplace(size=(400, 8))}
    for name, width in (("layers.0", 8), ("layers.1", 8), ("out", 5)):
        last = list(found.values())[-1]
        found[name] = np.tanh(2 * last @ rng.normal(size=(last.shape[1], width)))
    return found


def turned(layers, scale=3.0):
    return {
        name: scale * x @ ortho_group.rvs(x.shape[1], random_state=seed) + seed
        for seed, (name, x) in enumerate(layers.items())
    }


def test_a_layer_that_was_only_turned_scaled_and_moved_is_found_in_its_place(layers):
    found = compare_layers(layers, turned(layers))
    assert (found.source_layers, found.target_layers) == (list(layers), list(layers))
    assert found.nearness.shape == found.null.shape == (4, 4)
    np.testing.assert_allclose(np.diag(found.nearness), 0, atol=1e-10)
    np.testing.assert_allclose(np.diag(found.above_chance), 1, atol=1e-9)
    others = ~np.eye(4, dtype=bool)
    assert (found.nearness[others] > 0.01).all()
    assert (found.nearest == np.arange(4)).all()
    assert "4 of 4 are closest to the layer in the same position." in found.headlines
    assert found.status == "holds"
    assert [finding.name for finding in found.findings] == list(layers)


def test_numbers_are_those_of_compare(layers):
    other = turned(layers)
    found = compare_layers(layers, other, measure="linear", seed=3)
    pair = compare([layers["in"], other["layers.1"]], groups=["linear"], nulls=0, bootstrap=0, seed=3).pairs[0]
    assert found.nearness[0, 2] == pytest.approx(pair.groups["linear"].held_out.mean, rel=1e-12)


@pytest.mark.parametrize("measure", ["identity", "permutation", "rigid", "similarity", "linear", "cka", "procrustes"])
def test_what_a_measure_says_it_ignores_changes_nothing_and_the_rest_does(layers, measure):
    ignores = {"rigid": 1.0, "similarity": 3.0, "linear": 3.0, "cka": 3.0, "procrustes": 3.0}
    plain = compare_layers(layers, layers, measure=measure, nulls=1)
    moved = compare_layers(layers, turned(layers, ignores.get(measure, 1.0)), measure=measure, nulls=1)
    if measure in ignores:
        # Distances over the diameter stay under a rotation of the target, also up to a map that is found anew.
        np.testing.assert_allclose(moved.nearness, plain.nearness, atol=1e-7)
        return
    assert np.diag(moved.nearness).min() > 0.05 > np.diag(plain.nearness).max()


def test_a_similarity_is_the_number_of_its_function_and_reads_upwards(layers):
    found = compare_layers(layers, turned(layers), measure="cka")
    assert found.nearness[1, 3] == pytest.approx(cka(layers["layers.0"], layers["out"]), rel=1e-9)
    assert (found.direction, found.held_out) == ("higher is closer", False)
    assert np.abs(found.null).max() < 0.1
    assert (found.nearest == np.arange(4)).all()


def test_unrelated_layers_are_at_their_null(layers):
    rng = np.random.default_rng(1)
    found = compare_layers(layers, {"x": rng.normal(size=(400, 6)), "y": rng.normal(size=(400, 6))})
    np.testing.assert_allclose(found.nearness, found.null, rtol=0.03)
    assert not found.related.any()
    assert found.verdict.startswith("No layer of a is closer")
    assert {finding.status for finding in found.findings} == {"fails"}


def test_one_far_row_does_not_make_a_layer_the_nearest_of_all(layers):
    other = turned(layers) | {"far": np.random.default_rng(2).normal(size=(400, 8))}
    other["far"][0] = 1e4
    found = compare_layers(layers, other)
    assert (found.nearness[:, 4] < found.nearness[:, 3])[:3].all()  # in shares of a diameter that one row makes
    assert (found.nearest == np.arange(4)).all()


def test_the_same_seed_gives_the_same_result_and_another_other_folds(layers):
    other = turned(layers)
    first, again, third = (compare_layers(layers, other, seed=seed) for seed in (0, 0, 1))
    assert (first.nearness == again.nearness).all()
    assert (first.null == again.null).all()
    assert not (first.null == third.null).any()


def test_without_a_null_nearest_goes_by_the_number_and_it_is_said(layers):
    found = compare_layers(layers, turned(layers), nulls=0)
    assert np.isnan(found.null).all()
    assert (found.nearest == np.arange(4)).all()
    assert found.headlines[0].startswith("There is no null to judge by")
    assert found.status == "unknown"


def test_clusters_stay_together(layers):
    group = np.repeat(np.arange(20), 20)
    found = compare_layers(layers, turned(layers), cluster=group)
    assert found.settings["clusters"] == 20
    np.testing.assert_allclose(np.diag(found.nearness), 0, atol=1e-10)


def test_it_is_written_as_json_with_what_is_undefined_as_null(layers):
    found = compare_layers(layers, {"flat": np.ones((400, 3)), "in": layers["in"]}, measure="cka")
    read = json.loads(found.to_json())["numbers"]
    assert [row[0] for row in read["nearness"]] == [row[0] for row in read["p"]] == [None] * 4
    assert read["nearest"] == ["in"] * 4
    line = next(compare_layers(layers, turned(layers), nulls=1).rows())
    assert (line["source"], line["target"], line["nearest"]) == ("in", "in", True)


def test_a_pair_of_layers_is_found_by_its_names_and_a_wrong_one_is_named(layers):
    found = compare_layers(layers, turned(layers), nulls=1)
    pair = found["layers.0", "out"]
    assert (pair.nearness, pair.null) == (found.nearness[1, 3], found.null[1, 3])
    assert not pair.nearest
    with pytest.raises(KeyError, match=r"there is no \('in', 'head'\) in this LayerComparison; the keys are"):
        found["in", "head"]


def test_files_are_named_by_pattern_and_a_list_keeps_its_order(layers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i, x in enumerate((layers["in"], layers["layers.0"])):
        np.save(f"run.{9 + i}.npy", x)
    found = compare_layers("run.*.npy", ["run.10.npy", "run.9.npy"], nulls=1)
    assert (found.source, found.target) == ("run", "b")
    assert (found.source_layers, found.target_layers) == (["9", "10"], ["run.10", "run.9"])
    assert found.nearest.tolist() == [1, 0]
    assert compare_layers("run.*.npy", "run.*.npy", nulls=1).target == "run#2"


@pytest.mark.parametrize("measure", ["identity", "similarity", "linear", "cka", "neighbour_overlap"])
def test_a_constant_layer_is_left_out_and_named_and_the_others_are_as_without_it(layers, measure):
    flat = {"flat": np.full((400, 3), 0.1)}
    whole = compare_layers(layers, layers, measure=measure)
    found = compare_layers(flat | layers, layers | flat, measure=measure)
    np.testing.assert_array_equal(found.nearness[1:, :4], whole.nearness)
    np.testing.assert_array_equal(found.null[1:, :4], whole.null)
    assert np.isnan(found.nearness[0]).all()
    assert np.isnan(found.nearness[:, 4]).all()
    assert found.nearest.tolist() == [-1, 0, 1, 2, 3]
    assert found.verdict.startswith("4 of 5 layers of a are closer")
    assert found.notes == tuple(f"A layer is left out: all rows of flat of {run} are equal." for run in "ab")
    assert found.findings[0].status == "unknown"


def test_a_layer_with_a_row_of_no_direction_is_left_out_on_the_unit_sphere(layers):
    dead = {"dead": layers["in"].copy()}
    dead["dead"][7] = 0.0
    found = compare_layers(layers, turned(layers) | dead, normalize="cosine")
    assert np.isnan(found.nearness[:, 4]).all()
    assert "dead of b has rows that are all zero and so have no direction (row 7)" in found.notes[-1]


def test_few_rows_are_noted(layers):
    few = {name: x[:40] for name, x in layers.items()}
    with pytest.warns(FewRowsWarning, match="fewer than 10 per dimension"):
        assert "40 rows for 8 dimensions" in compare_layers(few, few).notes[0]


@pytest.mark.parametrize("measure", ["identity", "similarity", "linear", "rsa", "svcca"])
def test_of_few_rows_related_layers_are_called_near_and_unrelated_ones_are_not(measure):
    called = 0
    for seed in range(10):  # at a level of 5 %, more than 3 of 10 have a probability of 0.001
        rng = np.random.default_rng(seed)
        a, b = ({str(i): rng.laplace(size=(60, 6)) for i in range(6)} for _ in "ab")
        called += compare_layers(a, b, measure=measure).related.any()
    assert called <= 3
    noisy = {name: x + 0.5 * rng.normal(size=x.shape) for name, x in a.items()}
    assert compare_layers(a, noisy, measure=measure).related.all()


def test_p_values_are_those_of_the_maximum_over_layers_with_shared_re_pairings():
    rng = np.random.default_rng(0)
    closeness = rng.normal(size=(20, 3, 4)) * rng.uniform(1, 9, size=(3, 4)) + rng.normal(size=(3, 4))
    closeness[0, 1, 2] += 200
    p, p_layer = max_null(closeness)
    score = (closeness - closeness.mean(0)) / closeness.std(0)
    for i, j in np.ndindex(3, 4):
        assert p[i, j] == pytest.approx((1 + (score[1:].max((1, 2)) >= score[0, i, j]).sum()) / 20)
    for i in range(3):
        assert p_layer[i] == pytest.approx((1 + (score[1:, i].max(1) >= score[0, i].max()).sum()) / 20)
    assert p[1, 2] == p_layer[1] == 0.05
    assert all(np.isnan(one).all() for one in max_null(closeness[:19]))
    closeness[:, 0] = 1.0  # which no re-pairing changes
    assert np.isnan(max_null(closeness)[0][0]).all()
    assert np.isnan(max_null(closeness)[1]).tolist() == [True, False, False]


@pytest.mark.parametrize("measure", ["cka", "similarity"])
def test_unrelated_runs_are_called_related_as_often_as_the_level_says(measure):
    """At most 6 of 30 pairs of runs have any related layer; 1.5 are expected, more than 6 have a chance of 0.0004."""
    found = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        a, b = ({str(i): rng.normal(size=(40, 5)) for i in range(3)} for _ in "ab")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewRowsWarning)
            found += compare_layers(a, b, measure=measure, seed=seed).related.any()
    assert found <= 6


def test_wide_layers_are_tested_in_their_leading_components(rng):
    x = rng.normal(size=(400, 90)) * np.geomspace(1, 0.1, 90)
    with pytest.warns(FewRowsWarning):
        found = compare_layers({"x": x}, {"turned": turned({"x": x})["x"], "other": rng.normal(size=(400, 90))})
    assert found.p.tolist() == [[0.05, pytest.approx(found.p[0, 1])]]
    assert found.p[0, 1] > 0.05


def test_few_clusters_or_re_pairings_say_nothing_about_chance(layers):
    with pytest.warns(FewRowsWarning, match="only 2 clusters"):
        found = compare_layers(layers, turned(layers), cluster=np.arange(400) // 200)
    assert "Fewer than 5 clusters" in found.notes[-1]
    for one in (found, compare_layers(layers, turned(layers), nulls=18)):
        assert np.isnan(one.p).all()
        assert not one.related.any()
        assert one.verdict.startswith("There are too few re-pairings to judge by.")
        assert one.status == "unknown"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measure": "ica"}, "measure must be one of 'identity', .*, 'cka', .*; got 'ica'"),
        ({"a": [np.zeros((3, 2))]}, "a must be a mapping of names to layers, a list .*; got list"),
        ({"a": []}, "a must have at least one layer; got none"),
        ({"b": {}}, "b must have at least one layer"),
        ({"a": {1: np.zeros((3, 2)), "1": np.ones((3, 2))}}, "the names of the layers of a must be text; got 1, '1'"),
        ({"names": ("x", "x")}, "names must be two different names"),
        ({"nulls": -1}, "nulls must be an integer of at least 0; got -1"),
        ({"b": {"short": np.zeros((3, 2))}}, "short of b has 3"),
        ({"b": {"flat": np.ones((400, 2))}}, "no layer of a run can be measured: all rows of flat of b are equal"),
        ({"a": {"flat": np.ones((400, 2))}, "measure": "cka"}, "all rows of flat of a are equal"),
    ],
)
def test_what_makes_no_map_is_refused_in_a_sentence(layers, change, message):
    with pytest.raises(InputError, match=message):
        compare_layers(**({"a": layers, "b": layers} | change))


def test_a_gpu_gives_the_numbers_of_a_cpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    x = np.random.default_rng(0).laplace(size=(3000, 256))  # wide enough for decompositions there
    layers = {"0": x, "1": np.tanh(x)}
    here, there = (compare_layers(layers, turned(layers), nulls=1, device=device) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(here.nearness, there.nearness, atol=1e-9)
    np.testing.assert_allclose(here.null, there.null, atol=1e-9)


@pytest.fixture(scope="module")
def seeds():
    """Three seeds of one run and two of another, with two layers each; all mix the same latent variables."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(200, 6)) / np.sqrt(np.arange(1, 7))

    def layers():
        first = z + 0.3 * z @ rng.normal(size=(6, 6))
        return {"one": first, "two": np.tanh(3 * first @ rng.normal(size=(6, 6)))}

    return [layers() for _ in range(3)], [layers() for _ in range(2)]


@pytest.mark.parametrize("measure", ["similarity", "cka"])
def test_numbers_of_several_seeds_are_means_over_pairs_of_seeds(seeds, measure):
    a, b = seeds
    found = compare_layers(a, b, measure=measure)
    each = [[compare_layers(x, y, measure=measure) for y in b] for x in a]
    values = np.array([[one.nearness for one in row] for row in each])
    np.testing.assert_allclose(found.by_seed, values, rtol=1e-12)
    np.testing.assert_allclose(found.nearness, values.mean((0, 1)), rtol=1e-12)
    np.testing.assert_allclose(found.null, np.mean([[one.null for one in row] for row in each], axis=(0, 1)), rtol=1e-9)
    low, high = found.interval
    assert (low < found.nearness).all()
    assert (found.nearness < high).all()
    assert each[0][0].interval is None
    assert each[0][0].by_seed is None
    assert np.isnan(each[0][0]["one", "one"].low)
    assert "of 6 pairs of seeds" in found.verdict
    assert found.numbers()["interval"][0] == low.tolist()
    assert "95 % interval" in str(found.document())


def test_one_run_of_each_setting_in_a_list_is_the_same_as_without_the_list(seeds):
    a, b = seeds
    plain, listed = compare_layers(a[0], b[0]), compare_layers(a[:1], b[:1])
    np.testing.assert_array_equal(plain.nearness, listed.nearness)
    assert plain.verdict == listed.verdict


def test_the_interval_is_wide_with_two_seeds_that_differ_and_narrow_where_nothing_varies():
    same = np.full((2, 2, 1, 1), 0.5)
    low, high = seed_interval(same, np.full((10, 1, 1), 0.5))
    assert low[0, 0] == high[0, 0] == 0.5
    unlike = same + np.array([-0.1, 0.1])[:, None, None, None]
    low, high = seed_interval(unlike, np.full((10, 1, 1), 0.5))
    assert (high - low)[0, 0] == pytest.approx(2 * 12.706 * 0.1, rel=1e-3)  # t with one degree of freedom


@pytest.mark.parametrize("pattern", ["run/seed*/layer*.npy", "run_s*.layer*.npy"])
def test_the_first_of_two_stars_is_the_seed(tmp_path, monkeypatch, seeds, pattern):
    monkeypatch.chdir(tmp_path)
    for number, layers in zip((2, 10, 9), seeds[0], strict=True):
        for name, x in layers.items():
            file = tmp_path / pattern.replace("*", str(number), 1).replace("*", name)
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, x)
    found = compare_layers(pattern, seeds[1], measure="cka", nulls=0)
    assert found.settings["seeds"][0] == ["seed 2", "seed 9", "seed 10"]
    assert found.source_layers == ["one", "two"]
    assert found.source in ("run", "run_s")
    first = np.array(found.by_seed)[0]
    np.testing.assert_allclose(first[0], compare_layers(seeds[0][0], seeds[1][0], measure="cka", nulls=0).nearness)


def test_seeds_with_other_layers_are_refused(seeds):
    a, b = seeds
    with pytest.raises(InputError, match="all seeds of a must have the same layers; seed 1 differs in one"):
        compare_layers([a[0], {"two": a[1]["two"]}], b)


def test_ordered_rows_are_judged_only_where_enough_blocks_can_be_shifted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)).cumsum(0)
    with pytest.warns(FewRowsWarning, match="only 8 clusters"):
        few = compare_layers({"x": x}, {"y": x + rng.normal(size=x.shape)}, measure="cka", order_blocks=50)
    assert few.status == "unknown"
    assert any("judged from 40 blocks on" in note for note in few.notes)
    enough = compare_layers({"x": x}, {"y": x + rng.normal(size=x.shape)}, measure="cka", order_blocks=10)
    assert enough.status == "holds"
    finer = compare_layers({"x": x}, {"y": x}, measure="cka", order_blocks=10, nulls=199)
    assert finer.p[0, 0] == pytest.approx(1 / 21)  # 20 shifts are a block apart
