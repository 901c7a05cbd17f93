"""A map of layers finds the layer that was only turned, beside chance, and says what it cannot use."""

import json

import numpy as np
import pytest
from scipy.stats import ortho_group

from congruence import compare
from congruence.align import layer_map
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
    found = layer_map(layers, turned(layers))
    assert (found.rows, found.columns) == (list(layers), list(layers))
    assert found.nearness.shape == found.null.shape == (4, 4)
    np.testing.assert_allclose(np.diag(found.nearness), 0, atol=1e-10)
    np.testing.assert_allclose(np.diag(found.above_chance), 1, atol=1e-9)
    others = ~np.eye(4, dtype=bool)
    assert (found.nearness[others] > 0.01).all()
    assert (found.nearest == np.arange(4)).all()
    assert "4 of 4 are nearest to the one in the same place" in found.verdict


def test_numbers_are_those_of_compare(layers):
    other = turned(layers)
    found = layer_map(layers, other, measure="linear", seed=3)
    pair = compare([layers["in"], other["layers.1"]], groups=["linear"], nulls=0, bootstrap=0, seed=3).pairs[0]
    assert found.nearness[0, 2] == pytest.approx(pair.groups["linear"].held_out.mean, rel=1e-12)


@pytest.mark.parametrize("measure", ["identity", "permutation", "rigid", "similarity", "linear", "cka", "procrustes"])
def test_what_a_measure_says_it_ignores_changes_nothing_and_the_rest_does(layers, measure):
    ignores = {"rigid": 1.0, "similarity": 3.0, "linear": 3.0, "cka": 3.0, "procrustes": 3.0}
    plain = layer_map(layers, layers, measure=measure, nulls=1)
    moved = layer_map(layers, turned(layers, ignores.get(measure, 1.0)), measure=measure, nulls=1)
    if measure in ignores:
        # Distances over the diameter stay under a rotation of the target, also up to a map that is found anew.
        np.testing.assert_allclose(moved.nearness, plain.nearness, atol=1e-7)
        return
    assert np.diag(moved.nearness).min() > 0.05 > np.diag(plain.nearness).max()


def test_a_similarity_is_the_number_of_its_function_and_reads_upwards(layers):
    found = layer_map(layers, turned(layers), measure="cka")
    assert found.nearness[1, 3] == pytest.approx(cka(layers["layers.0"], layers["out"]), rel=1e-9)
    assert (found.direction, found.held_out) == ("higher is closer", False)
    assert np.abs(found.null).max() < 0.1
    assert (found.nearest == np.arange(4)).all()


def test_unrelated_layers_are_at_their_null(layers):
    rng = np.random.default_rng(1)
    found = layer_map(layers, {"x": rng.normal(size=(400, 6)), "y": rng.normal(size=(400, 6))})
    np.testing.assert_allclose(found.nearness, found.null, rtol=0.03)
    assert not found.related.any()
    assert found.verdict.startswith("No layer of a is nearer")


def test_one_far_row_does_not_make_a_layer_the_nearest_of_all(layers):
    other = turned(layers) | {"far": np.random.default_rng(2).normal(size=(400, 8))}
    other["far"][0] = 1e4
    found = layer_map(layers, other)
    assert (found.nearness[:, 4] < found.nearness[:, 3])[:3].all()  # in shares of a diameter that one row makes
    assert (found.nearest == np.arange(4)).all()


def test_the_same_seed_gives_the_same_result_and_another_other_folds(layers):
    other = turned(layers)
    first, again, third = (layer_map(layers, other, seed=seed) for seed in (0, 0, 1))
    assert (first.nearness == again.nearness).all()
    assert (first.null == again.null).all()
    assert not (first.null == third.null).any()


def test_without_a_null_nearest_goes_by_the_number_and_it_is_said(layers):
    found = layer_map(layers, turned(layers), nulls=0)
    assert np.isnan(found.null).all()
    assert (found.nearest == np.arange(4)).all()
    assert "There is no null to judge by" in found.verdict


def test_clusters_stay_together(layers):
    group = np.repeat(np.arange(20), 20)
    found = layer_map(layers, turned(layers), cluster=group)
    assert found.settings["clusters"] == 20
    np.testing.assert_allclose(np.diag(found.nearness), 0, atol=1e-10)


def test_it_is_written_as_json_with_what_is_undefined_as_null(layers):
    found = layer_map(layers, {"flat": np.ones((400, 3)), "in": layers["in"]}, measure="cka")
    read = json.loads(found.to_json())
    assert [row[0] for row in read["nearness"]] == [row[0] for row in read["standard_error"]] == [None] * 4
    assert read["nearest"] == ["in"] * 4
    line = next(layer_map(layers, turned(layers), nulls=1).table())
    assert (line["source"], line["target"], line["nearest"]) == ("in", "in", True)


@pytest.mark.parametrize("measure", ["identity", "similarity", "linear", "cka", "neighbour_overlap"])
def test_a_constant_layer_is_left_out_and_named_and_the_others_are_as_without_it(layers, measure):
    flat = {"flat": np.full((400, 3), 0.1)}
    whole, found = (layer_map(a, b, measure=measure) for a, b in ((layers, layers), (flat | layers, layers | flat)))
    np.testing.assert_array_equal(found.nearness[1:, :4], whole.nearness)
    np.testing.assert_array_equal(found.null[1:, :4], whole.null)
    assert np.isnan(found.nearness[0]).all()
    assert np.isnan(found.nearness[:, 4]).all()
    assert found.nearest.tolist() == [-1, 0, 1, 2, 3]
    assert found.verdict.startswith("4 of 5 layers of a are nearer")
    assert found.advice == [f"A layer is left out of the map: all rows of flat of {run} are equal." for run in "ab"]


def test_a_layer_with_a_row_of_no_direction_is_left_out_on_the_unit_sphere(layers):
    dead = {"dead": layers["in"].copy()}
    dead["dead"][7] = 0.0
    found = layer_map(layers, turned(layers) | dead, normalize="cosine")
    assert np.isnan(found.nearness[:, 4]).all()
    assert "dead of b has rows that are all zero and so have no direction (row 7)" in found.advice[-1]


def test_few_rows_are_told_of(layers):
    few = {name: x[:40] for name, x in layers.items()}
    with pytest.warns(FewRowsWarning, match="fewer than 10 per dimension"):
        assert "40 rows for 8 dimensions" in layer_map(few, few).advice[0]


@pytest.mark.parametrize("measure", ["identity", "similarity", "linear", "rsa", "svcca"])
def test_of_few_rows_related_layers_are_called_near_and_unrelated_ones_are_not(measure):
    rng = np.random.default_rng(0)
    a, b = ({str(i): rng.laplace(size=(60, 6)) for i in range(6)} for _ in "ab")
    assert layer_map(a, b, measure=measure).related.sum() == 0
    noisy = {name: x + 0.5 * rng.normal(size=x.shape) for name, x in a.items()}
    assert layer_map(a, noisy, measure=measure).related.all()


def test_the_standard_error_is_how_far_the_gap_moves_from_rows_to_rows():
    rng = np.random.default_rng(0)
    draws = [rng.normal(size=(2, 100, 4)) for _ in range(60)]
    found = [layer_map({"x": x}, {"y": y}, measure="identity", nulls=5, seed=k) for k, (x, y) in enumerate(draws)]
    gaps = [one.null[0, 0] - one.nearness[0, 0] for one in found]
    assert np.std(gaps) == pytest.approx(np.mean([one.standard_error[0, 0] for one in found]), rel=0.2)


def test_rows_of_one_cluster_say_nothing_about_chance(layers):
    with pytest.warns(FewRowsWarning, match="only 2 clusters"):
        found = layer_map(layers, turned(layers), cluster=np.arange(400) // 200, nulls=1)
    assert np.isinf(found.standard_error).all()
    assert not found.related.any()
    assert found.verdict.endswith("than unrelated layers would be. Of 4 too few rows leave it open.")


def test_one_repairing_of_a_similarity_is_told_of(layers):
    assert (
        "One re-pairing does not say how far chance reaches"
        in layer_map(layers, layers, measure="cka", nulls=1).advice[-1]
    )
    assert not layer_map(layers, layers, measure="cka").advice
    assert not layer_map(layers, layers, nulls=1).advice


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measure": "ica"}, "measure must be one of identity, .*, cka, .*; 'ica' is not"),
        ({"a": []}, "a must map names of layers to their rows, not be a list"),
        ({"b": {}}, "b has no layers"),
        ({"a": {1: np.zeros((3, 2)), "1": np.ones((3, 2))}}, "the layers of a must have texts for names, not 1, '1'"),
        ({"names": ("x", "x")}, "names must be two different names"),
        ({"nulls": -1}, "nulls must be a whole number of at least 0, not -1"),
        ({"b": {"short": np.zeros((3, 2))}}, "short of b has 3"),
        ({"b": {"flat": np.ones((400, 2))}}, "no layer of a run is left to measure: all rows of flat of b are equal"),
        ({"a": {"flat": np.ones((400, 2))}, "measure": "cka"}, "all rows of flat of a are equal"),
    ],
)
def test_what_makes_no_map_is_refused_in_a_sentence(layers, change, message):
    with pytest.raises(InputError, match=message):
        layer_map(**({"a": layers, "b": layers} | change))


def test_a_gpu_gives_the_numbers_of_a_cpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    x = np.random.default_rng(0).laplace(size=(3000, 256))  # wide enough for decompositions there
    layers = {"0": x, "1": np.tanh(x)}
    here, there = (layer_map(layers, turned(layers), nulls=1, device=device) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(here.nearness, there.nearness, atol=1e-9)
    np.testing.assert_allclose(here.null, there.null, atol=1e-9)
