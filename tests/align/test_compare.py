import json
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

from congruence.align._compare import compare
from congruence.align._consensus import consensus
from congruence.errors import FewRowsWarning, InputError, NotConvergedWarning
from congruence.ica._unmixing import unmix
from congruence.report.html import render_html
from congruence.tables import Table

LADDER = ("identity", "permutation", "rigid", "similarity", "ridge", "linear")
QUICK = {"nulls": 3, "bootstrap": 20}


def cloud(rng, n=400, d=5):
    """Rows with independent, non-Gaussian dimensions of different size, away from the origin."""
    return rng.laplace(size=(n, d)) * np.arange(1, d + 1) + 3


def held(pair):
    return {name: near.held_out.mean for name, near in pair.groups.items()}


def test_two_trainings_of_a_graph_network_agree_with_the_reference_figures(model_pair):
    with pytest.warns(FewRowsWarning, match="2784 rows for 300 dimensions"):
        result = compare({"a": model_pair[0], "b": model_pair[1]}, groups=LADDER, nulls=6, bootstrap=50)
    pair = result["a", "b"]
    assert_allclose(pair.diameter, 43.592, atol=1e-3)
    assert pair.diameter_exact
    expected = {
        "identity": 0.0727,
        "permutation": 0.03376,
        "rigid": 0.01819,
        "similarity": 0.01829,
        "linear": 0.00911,
    }
    for group, value in expected.items():
        assert_allclose(pair.groups[group].mean, value, atol=1e-4)
    for group, value in {"similarity": 0.0188, "rigid": 0.0187, "linear": 0.0110}.items():
        assert_allclose(pair.groups[group].held_out.mean, value, atol=3e-4)
    assert_allclose(pair.groups["similarity"].null, 0.053, atol=5e-4)
    assert_allclose(pair.groups["rigid"].null, 0.076, atol=1.5e-3)
    assert pair.verdict.status == "fails"
    assert "the held-out error is 35." in result.verdict
    assert "and R² is 0.88" in result.verdict
    assert "Distortion: some |log gain| is above 0.2" in result.verdict
    assert "A linear map reduces the error by 41 %." in result.verdict
    assert not pair.dependence.matters  # neighbouring molecules have a correlation of 0.1
    assert_allclose(pair.dependence.consecutive, pair.dependence.scattered, rtol=0.02)
    assert_allclose(pair.dependence.neighbours, 0.39, atol=0.01)  # of chance, against 0.35
    assert any("dead units" in note for note in result.notes)


def test_a_rotated_scaled_shifted_float32_copy_is_recognised(rng):
    x = cloud(rng).astype(np.float32)
    y = (2.5 * x @ ortho_group.rvs(5, random_state=0) + 7).astype(np.float32)
    pair = compare([x, y]).pairs[0]
    assert pair.groups["similarity"].mean < 1e-6
    assert held(pair)["similarity"] < 1e-6
    assert held(pair)["identity"] > 0.1
    assert (pair.verdict.status, pair.verdict.group) == ("holds", "similarity")
    assert_allclose(pair.cka.value, 1, atol=1e-6)
    assert pair.neighbour_overlap.value > 0.999
    assert pair.mcc.weak > 0.999


def test_ica_undoes_a_rotation_without_being_shown_it(rng):
    x = cloud(rng, n=4000)
    pair = compare([x, x @ ortho_group.rvs(5, random_state=1)], **QUICK).pairs[0]
    assert held(pair)["ica"] < 0.01
    assert pair.efficiency > 0.95
    assert pair.held_out_efficiency > 0.95
    assert pair.components.held_out.mean < 0.02
    assert pair.components.null > 0.1


def test_a_run_compared_with_itself_is_at_distance_zero(rng):
    x = cloud(rng)
    pair = compare([x, x.copy()], **QUICK).pairs[0]
    for name, near in pair.groups.items():
        assert near.sup < 1e-10, name
        assert near.held_out.mean < 1e-10, name
    assert (pair.verdict.status, pair.verdict.group) == ("holds", "identity")
    assert_allclose([pair.mcc.strong, pair.mcc.weak, pair.cka.value, pair.neighbour_overlap.value], 1)


def test_wide_unrelated_gaussians_never_look_similar(rng):
    x, y = rng.normal(size=(2, 500, 256))
    with pytest.warns(FewRowsWarning):
        pair = compare([x, y], groups=["similarity", "linear"], **QUICK).pairs[0]
    similarity = pair.groups["similarity"]
    assert_allclose(similarity.held_out.mean, similarity.null, rtol=0.01)
    assert pair.groups["linear"].mean < 0.75 * pair.groups["linear"].null  # in sample it flatters
    assert pair.groups["linear"].held_out.mean > similarity.null  # held out it does not
    assert pair.verdict.group == "none"
    assert pair.verdict.status in ("fails", "unknown")
    assert abs(pair.cka.value) < 0.02
    assert pair.neighbour_overlap.value < 0.03


@settings(max_examples=15)
@given(st.integers(0, 1000))
def test_in_sample_rms_falls_from_rigid_to_similarity_to_linear(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 60, 4))
    pair = compare([x, y], groups=["rigid", "similarity", "linear"], nulls=0, bootstrap=0).pairs[0]
    rms = [pair.groups[g].rms for g in ("rigid", "similarity", "linear")]
    assert rms[0] >= rms[1] - 1e-12
    assert rms[1] >= rms[2] - 1e-12


@settings(max_examples=10)
@given(st.integers(0, 1000), st.floats(0.01, 100))
def test_nearness_ignores_what_it_says_it_ignores(seed, scale):
    rng = np.random.default_rng(seed)
    x, y = cloud(rng, 80, 3), cloud(rng, 80, 3)
    moved = scale * x @ ortho_group.rvs(3, random_state=seed) + 5
    plain, other = (compare([z, y], groups=LADDER, **QUICK).pairs[0] for z in (x, moved))
    for group in ("similarity", "linear"):
        assert_allclose(other.groups[group].held_out.mean, plain.groups[group].held_out.mean, rtol=1e-6)
        assert_allclose(other.groups[group].null, plain.groups[group].null, rtol=1e-6)
    assert_allclose(other.cka.value, plain.cka.value, rtol=1e-6)
    assert other.neighbour_overlap.value == plain.neighbour_overlap.value


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(rng):
    runs = {"a": cloud(rng), "b": cloud(rng)}
    first, again, other = (compare(runs, seed=s, **QUICK).to_json() for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_json_has_exactly_the_fields_of_the_contract(rng):
    result = json.loads(compare({"a": cloud(rng), "b": cloud(rng, d=6)}, **QUICK).to_json())
    assert list(result)[:7] == ["status", "verdict", "findings", "numbers", "notes", "settings", "versions"]
    assert [finding["name"] for finding in result["findings"]] == ["a -> b"]
    assert result["findings"][0]["status"] == result["status"]
    result = result["numbers"] | {"verdict": result["verdict"]}
    assert result["runs"] == [{"name": "a", "n": 400, "d": 5}, {"name": "b", "n": 400, "d": 6}]
    assert isinstance(result["verdict"], str)
    (pair,) = result["pairs"]
    assert list(pair) == [
        "source", "target", "n", "diameter", "diameter_exact", "group", "groups", "distortion", "dependence", "moved",
        "mcc", "cka", "neighbour_overlap", "similarities",
    ]  # fmt: skip
    assert set(pair["mcc"]) == {"strong", "weak"}
    assert list(pair["groups"]) == [*LADDER, "ica"]
    fields = {"of_chance", "r2", "trimmed", "p", "mean", "rms", "q95", "sup", "held_out", "null"}
    for name, group in pair["groups"].items():
        assert set(group) == (fields | {"efficiency"} if name == "ica" else fields)
        assert set(group["held_out"]) == {"mean", "low", "high"}


def test_undefined_numbers_are_null_in_json(rng):
    x = cloud(rng)
    result = json.loads(compare([x, x], groups=["identity", "ica"], nulls=0, bootstrap=0).to_json())
    group = result["numbers"]["pairs"][0]["groups"]["ica"]
    assert group["efficiency"] is None
    assert group["null"] is None
    assert group["held_out"]["low"] is None


def test_pairs_go_forward_or_both_ways(rng):
    runs = {"a": cloud(rng), "b": cloud(rng), "c": cloud(rng)}
    quick = {"groups": ["similarity"], **QUICK}
    names = [(p.source, p.target) for p in compare(runs, **quick).pairs]
    assert names == [("a", "b"), ("a", "c"), ("b", "c")]
    both = [(p.source, p.target) for p in compare(runs, directions="both", **quick).pairs]
    assert both == [*names, ("b", "a"), ("c", "a"), ("c", "b")]


def test_a_pair_does_not_depend_on_the_other_runs(rng):
    a, b, c = cloud(rng), cloud(rng), cloud(rng)
    alone = compare({"a": a, "b": b}, groups=LADDER, **QUICK)["a", "b"].to_dict()
    among = compare({"c": c, "a": a, "b": b}, groups=LADDER, **QUICK)["a", "b"].to_dict()
    assert alone == among


def test_cosine_normalisation_compares_directions(rng):
    x = cloud(rng)
    stretched = x * rng.uniform(0.1, 10, size=(400, 1))
    pair = compare([x, stretched], normalize="cosine", groups=["identity"], **QUICK).pairs[0]
    assert pair.groups["identity"].sup < 1e-12
    assert pair.diameter <= 2


def test_rows_of_a_cluster_are_held_out_together(rng):
    """Rows that repeat within a plate make a flexible map look good unless the plate is held out whole."""
    plate = np.repeat(np.arange(30), 20)
    x, y = rng.normal(size=(2, 30, 25))
    x, y = (z[plate] + 0.01 * rng.normal(size=(600, 25)) for z in (x, y))
    options = {"groups": ["linear"], **QUICK}
    naive = compare([x, y], **options).pairs[0].groups["linear"]
    honest = compare([x, y], cluster=plate, **options).pairs[0].groups["linear"]
    assert naive.held_out.mean < 0.8 * naive.null
    assert honest.held_out.mean > 2 * naive.held_out.mean
    assert honest.held_out.high - honest.held_out.low > 2 * (naive.held_out.high - naive.held_out.low)


def test_tensors_and_arrays_give_the_same_answer(rng):
    x, y = cloud(rng).astype(np.float32), cloud(rng).astype(np.float32)
    plain = compare([x, y], groups=LADDER, **QUICK).to_json()
    assert compare([torch.from_numpy(x), torch.from_numpy(y)], groups=LADDER, **QUICK).to_json() == plain


def test_one_large_dimension_does_not_drown_the_others():
    """bfloat16 with one far-off column, as language models have: the run must still be found equal to itself."""
    x = torch.randn(500, 16, generator=torch.Generator().manual_seed(0))
    x[:, 3] += 2000
    x = x.to(torch.bfloat16)
    pair = compare([x, x.clone()], groups=LADDER, **QUICK).pairs[0]
    assert pair.groups["linear"].held_out.mean < 1e-10
    scaled = (x.float() * torch.linspace(0.5, 2, 16)).numpy()
    pair = compare([x, scaled], groups=("similarity", "linear"), **QUICK).pairs[0]
    assert pair.groups["linear"].rms < 0.01
    wide = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32) * np.float32([1e9, 1])
    pair = compare([wide, wide / np.float32([1e9, 1])], groups=["linear"], **QUICK).pairs[0]
    assert pair.groups["linear"].held_out.mean < 1e-5


def test_the_null_of_clustered_rows_destroys_what_clusters_share(rng):
    """Five plates in five folds: a shuffle inside folds would leave the plates paired."""
    plate = np.repeat(np.arange(5), 60)
    centres = 3 * rng.normal(size=(5, 4))
    x, y = (
        centres[plate] @ turn + rng.normal(size=(300, 4)) for turn in (np.eye(4), ortho_group.rvs(4, random_state=0))
    )
    with pytest.warns(FewRowsWarning, match="only 5 clusters"):
        result = compare([x, y], cluster=plate, groups=["similarity"], nulls=10)
    assert result.pairs[0].groups["similarity"].of_chance.mean < 0.7
    assert result.status in ("unknown", "ambiguous")  # five clusters
    assert any("only 5 clusters" in note for note in result.notes)


def test_a_shifted_permutation_has_no_efficiency_to_speak_of(rng):
    x = cloud(rng).astype(np.float32)
    y = x[:, ::-1] + np.float32(7)
    assert np.isnan(compare([x, y], **QUICK).pairs[0].efficiency)


def test_directions_of_huge_and_tiny_rows_are_compared(rng):
    x = cloud(rng)
    for scale in (1e200, 1e-200):
        pair = compare([x * scale, x], normalize="cosine", groups=["identity"], **QUICK).pairs[0]
        assert pair.groups["identity"].sup < 1e-12


def test_tables_keep_their_names(rng, tmp_path):
    from congruence.tables import Table

    np.save(tmp_path / "a.npy", cloud(rng))
    tables = [Table(cloud(rng), "model.v2"), Table(cloud(rng), "baseline", path=tmp_path / "a.npy"), tmp_path / "a.npy"]
    result = compare(tables, groups=["identity"], **QUICK)
    assert [run.name for run in result.runs] == ["model.v2", "baseline", "a"]


def test_data_frames_must_agree_about_their_rows(rng):
    import pandas as pd

    x = pd.DataFrame(cloud(rng))
    for other in (x, x.iloc[::-1], x.sample(frac=1, random_state=0)):
        assert compare([x, other], groups=["identity"], **QUICK).pairs[0].groups["identity"].sup < 1e-15
    with pytest.raises(
        InputError, match="no id is in all tables: run0 has 0, 1, 2, ...; run1 has 1000, 1001, 1002, ..."
    ):
        compare([x, x.set_axis(range(1000, 1400))])


def test_masked_and_matrix_arrays_are_understood(rng):
    x = cloud(rng)
    masked = np.ma.masked_array(x, mask=np.zeros_like(x, dtype=bool))
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix(x)
    assert compare([matrix, masked], groups=["identity"], **QUICK).pairs[0].groups["identity"].sup == 0
    masked[7, 0] = np.ma.masked
    with pytest.raises(InputError, match=r"NaN or infinite values: run1 in 1 row of 400 \(row 7\)"):
        compare([x, masked])


def test_memory_maps_are_compared_where_they_lie(rng, tmp_path):
    x, y = cloud(rng), cloud(rng)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    result = compare([tmp_path / "x.npy", str(tmp_path / "y.npy")], groups=LADDER, **QUICK)
    assert [run.name for run in result.runs] == ["x", "y"]
    expected = compare({"x": x, "y": y}, groups=LADDER, **QUICK)
    assert [pair.to_dict() for pair in result.pairs] == [pair.to_dict() for pair in expected.pairs]


def test_missing_values_are_refused_or_dropped(rng):
    x, y = cloud(rng), cloud(rng)
    x[[3, 17], 0] = np.nan
    y[20, 1] = np.inf
    with pytest.raises(InputError, match=r"NaN or infinite values: a in 2 rows of 400 \(row 3, 17\); b in 1 row"):
        compare({"a": x, "b": y})
    result = compare({"a": x, "b": y}, drop_missing=True, groups=["similarity"], **QUICK)
    keep = np.setdiff1d(np.arange(400), [3, 17, 20])
    expected = compare({"a": x[keep], "b": y[keep]}, groups=["similarity"], **QUICK)
    assert result.pairs[0].to_dict() == expected.pairs[0].to_dict()
    assert "Rows with NaN or infinite values were left out: 2 of a, 1 of b." in result.notes
    with pytest.raises(InputError, match="no rows are left without NaN"):
        compare([np.full((5, 2), np.nan), y[:5, :2]], drop_missing=True)


def test_gaussian_data_are_said_to_have_no_independent_components(rng):
    with pytest.warns(NotConvergedWarning, match="No independent component of a"):
        result = compare({"a": rng.normal(size=(300, 12)), "b": cloud(rng, 300)}, groups=["ica"], **QUICK)
    assert any("differs from Gaussian noise, so the ICA row is arbitrary" in note for note in result.notes)


def test_components_that_did_not_converge_are_reported(rng, monkeypatch):
    monkeypatch.setattr("congruence.ica._unmixing.unmix", partial(unmix, max_iter=3))
    with pytest.warns(NotConvergedWarning, match="ICA did not converge on a"):
        compare({"a": rng.laplace(size=(300, 6)), "b": cloud(rng, 300)}, groups=["ica"], **QUICK)


@pytest.mark.parametrize(("n", "d"), [(4, 1), (6, 1), (5, 8), (12, 3)])
def test_small_data_give_an_answer(n, d, rng):
    x, y = rng.laplace(size=(2, n, d))
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRowsWarning)
        warnings.simplefilter("ignore", NotConvergedWarning)
        pair = compare([x, y], **QUICK).pairs[0]
    assert all(np.isfinite(near.held_out.mean) for near in pair.groups.values())


def test_a_collapsed_run_is_unrelated_to_a_live_one(rng):
    result = compare([np.ones((400, 5)), cloud(rng)], **QUICK)
    assert result.pairs[0].verdict.group == "none"
    assert result.pairs[0].components is None
    assert any("5 of 5 in run0" in note for note in result.notes)


def test_a_rotation_of_too_few_rows_is_not_called_something_else(rng):
    x = rng.normal(size=(50, 100))
    with pytest.warns(FewRowsWarning):
        pair = compare([x, x @ ortho_group.rvs(100, random_state=0)], groups=["similarity", "linear"], **QUICK).pairs[0]
    assert pair.verdict.status == "unknown"


def test_steps_are_reported_to_the_end(rng):
    seen = []
    compare([cloud(rng), cloud(rng)], progress=lambda what, done, total: seen.append((done, total)), **QUICK)
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert {total for _, total in seen} == {len(seen)}


def test_a_comparison_prints_its_verdict_and_table(rng):
    text = str(compare({"a": cloud(rng), "b": cloud(rng)}, **QUICK))
    assert text.startswith("The ")
    assert "a → b" in text
    assert "similarity" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": ["affine"]}, "groups must be .* a list of names from identity, .*; got 'affine'"),
        ({"groups": "linear"}, "groups must be .* a list of names from identity, .*; got"),
        ({"groups": []}, "groups must be .* a list of names from identity, .*; got"),
        ({"groups": ["rigid", "rigid"]}, "groups must not repeat a name; got rigid, rigid"),
        ({"directions": "up"}, "directions must be one of 'forward', 'both'; got 'up'"),
        ({"normalize": "l1"}, "normalize must be one of None, 'cosine'; got 'l1'"),
        ({"folds": 1}, "folds must be an integer of at least 2; got 1"),
        ({"nulls": -1}, "nulls must be an integer of at least 0; got -1"),
        ({"bootstrap": -1}, "bootstrap must be an integer of at least 0; got -1"),
        ({"folds": 2.5}, "folds must be an integer of at least 2; got 2.5"),
        ({"nulls": "3"}, "nulls must be an integer of at least 0; got '3'"),
        ({"seed": -1}, "seed must be an integer from 0 to 4294967295; got -1"),
        ({"seed": 2**32}, r"seed must be an integer from 0 to 4294967295"),
        ({"device": 0}, "device must be 'auto', 'cpu' or 'cuda'"),
        ({"device": "cudafoo"}, "device must be 'auto', 'cpu' or 'cuda'"),
        ({"cluster": [None] + ["a"] * 7}, r"cluster has missing labels \(row 0\)"),
        ({"cluster": [float("nan")] * 2 + [1.0] * 6}, r"cluster has missing labels \(row 0, 1\)"),
        ({"device": "tpu"}, "device must be 'auto', 'cpu' or 'cuda'"),
        ({"cluster": [1, 2]}, r"cluster must have one label per row, shape \(8,\), but has shape \(2,\)"),
        ({"cluster": "plate"}, "cluster='plate' names a metadata column, but the runs have none"),
    ],
)
def test_wrong_options_are_named(change, message, rng):
    x, y = rng.normal(size=(2, 8, 2))
    with pytest.raises(InputError, match=message):
        compare([x, y], **change)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([np.zeros((3, 2))], "comparing takes at least 2 runs, but 1 was given"),
        ([], "no runs given"),
        ("a.npy", "comparing takes at least 2 runs, but one str was given; pass a list of runs"),
        ([np.eye(4), np.eye(5)], "paired by position, so their numbers must agree: run0 has 4, run1 has 5"),
        ([np.eye(3), np.eye(3)], "at least 4 paired rows; got 3"),
        ([np.eye(4), np.ones((4, 4))], "all rows of run1 are equal"),
        ([np.eye(4), np.full((4, 4), 0.1, dtype=np.float32)], "all rows of run1 are equal"),
        ([np.eye(4) * 1e200, np.eye(4)], "run0: the values are too large or too small to be squared"),
        ([np.eye(4), np.eye(4) * 1e-200], "run1: the values are too large or too small to be squared"),
        ([np.eye(4) * 1e-80, np.eye(4) * 1e80], r"the runs differ in size by a factor of 1e\+160; rescale one of them"),
        ([np.ones(4), np.eye(4)], r"run0 must be a matrix \(rows, dimensions\), but has shape \(4,\)"),
        ([[[1, 2], [3]], np.eye(4)], "run0 is ragged"),
        ([np.eye(4) * 1j, np.eye(4)], "run0 must hold real numbers, but its dtype is complex128"),
        ([np.array([["a"]] * 4), np.eye(4)], "run0 must hold real numbers"),
        ([np.eye(4).astype("timedelta64[s]"), np.eye(4)], "run0 must hold real numbers, but its dtype is timedelta64"),
        ({1: np.eye(4), "1": np.eye(4)}, "runs must have different names, but are called 1, 1"),
        ([np.zeros((0, 3)), np.eye(4)], r"run0 is empty: its shape is \(0, 3\)"),
    ],
)
def test_wrong_runs_are_named(runs, message):
    with pytest.raises(InputError, match=message):
        compare(runs)


@pytest.mark.parametrize("exponents", [(-150, -150), (-120, -120), (-90, 0), (0, 80), (120, 120), (150, 150)])
def test_any_scale_gives_the_same_numbers_or_is_refused(rng, exponents):
    x = rng.laplace(size=(300, 3))
    runs = [x, x @ rng.normal(size=(3, 3)) + 0.1 * rng.normal(size=x.shape)]
    how = {"groups": ["similarity", "linear", "ica"], "similarities": "all"}
    here = compare(runs, **how, **QUICK).pairs[0]
    scaled = [10.0**e * run for e, run in zip(exponents, runs, strict=True)]
    if max(map(abs, exponents)) > 125:
        with pytest.raises(InputError, match="too large or too small to be squared"):
            compare(scaled, **how, **QUICK)
        return
    there = compare(scaled, **how, **QUICK).pairs[0]
    for group, near in here.groups.items():
        assert_allclose(there.groups[group].of_chance.mean, near.of_chance.mean, rtol=1e-6)
        assert_allclose(there.groups[group].r2.mean, near.r2.mean, rtol=1e-6)
    for name, score in here.similarities.items():
        if name != "size_and_shape":
            assert_allclose(there.similarities[name].value, score.value, rtol=1e-6, err_msg=name)
    assert_allclose(there.mcc.strong, here.mcc.strong, rtol=1e-9)


def test_rows_without_direction_are_refused_under_cosine(rng):
    x = rng.normal(size=(8, 2))
    x[5] = 0
    with pytest.raises(InputError, match=r"run0 has rows that are all zero and so have no direction \(row 5\)"):
        compare([x, rng.normal(size=(8, 2))], normalize="cosine")


def test_the_consensus_comes_along_when_asked_for(rng):
    runs = {name: cloud(rng) for name in "abc"}
    result = compare(runs, groups=["similarity"], consensus=True, **QUICK)
    assert set(result.consensus.held_out) == set(runs)
    assert set(json.loads(result.to_json())["numbers"]["consensus"]["runs"]) == set(runs)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([1, 2], "steps must have one entry for each of the 3 runs; got 2"),
        ([1, 3, 2], "steps must increase from run to run; got 1, 3, 2"),
        ([1, 2, np.nan], "steps must increase from run to run; got 1, 2, nan"),
        ([1, 2, np.inf], "steps must increase from run to run; got 1, 2, inf"),
    ],
)
def test_wrong_steps_are_named(steps, message, rng):
    with pytest.raises(InputError, match=message):
        compare([cloud(rng) for _ in range(3)], steps=steps)
    with pytest.raises(InputError, match="directions must be 'forward' for a series"):
        compare([cloud(rng) for _ in range(3)], steps=[1, 2, 3], directions="both")


def test_a_diameter_that_was_not_searched_to_the_end_is_labelled(rng, monkeypatch):
    from congruence.align import _run_statistics
    from congruence.maps._diameter import Diameter

    monkeypatch.setattr(_run_statistics, "rows_diameter", lambda rows: Diameter(20.0, False, 20.0, 30.0, (0, 1)))
    result = compare({"a": cloud(rng), "b": cloud(rng)}, groups=["rigid"], **QUICK)
    assert not result.pairs[0].diameter_exact
    assert any(
        "The search for the diameter of b stopped at its limit: it lies between 20 and 30" in a for a in result.notes
    )


def test_an_unknown_pair_is_named(rng):
    result = compare({"a": cloud(rng), "b": cloud(rng)}, groups=["rigid"], **QUICK)
    with pytest.raises(InputError, match="there is no \\('b', 'a'\\) in this Comparison; the keys are \\('a', 'b'\\)"):
        result["b", "a"]


def frames(rng, n=200):
    """Two frames of the same rows, the second rotated."""
    pd = pytest.importorskip("pandas")
    x = cloud(rng)[:n]
    turned = x @ np.linalg.qr(rng.normal(size=(5, 5)))[0]
    return [pd.DataFrame(values).add_prefix("e") for values in (x, turned)]


ONE = {"groups": ["similarity"], **QUICK}


def test_an_index_of_fractions_identifies_rows(rng):
    a, b = (frame.set_index(np.arange(200) / 7) for frame in frames(rng))
    shuffled = compare(a, b.sample(frac=1, random_state=0), **ONE)
    assert shuffled.settings["paired"] == "by id"
    assert shuffled.findings[0].number < 1e-9


def test_labels_with_an_index_are_brought_into_the_order_of_the_rows(rng):
    a, b = (frame.set_index(np.array([f"r{i}" for i in range(200)])) for frame in frames(rng))
    plates = a["e0"].rank().astype(int) // 20
    expected = compare(a, b, cluster=plates, **ONE).to_json()
    assert compare(a, b, cluster=plates.sample(frac=1, random_state=1), **ONE).to_json() == expected
    other = plates.rename(index={"r0": "elsewhere"})
    with pytest.raises(InputError, match="the index of cluster differs from the ids of the rows"):
        compare(a, b, cluster=other, **ONE)


def test_repeated_ids_that_differ_row_by_row_are_refused(rng):
    a, b = (frame.assign(cell_id=np.arange(200) // 2) for frame in frames(rng))
    assert compare(a, b, **ONE).pairs[0].n == 200
    with pytest.raises(InputError, match="column cell_id is named like an id, but cannot be used as one"):
        compare(a, b.sample(frac=1, random_state=0).reset_index(drop=True), **ONE)


def test_sparse_tensors_are_unpacked(rng):
    torch = pytest.importorskip("torch")
    x, y = (torch.from_numpy(cloud(rng)) for _ in range(2))
    expected = compare(x, y, **ONE).numbers()
    assert compare(x.to_sparse(), y.to_sparse(), **ONE).numbers() == expected


def test_parts_of_a_result_print_on_one_line(rng):
    result = compare({"a": cloud(rng), "b": cloud(rng)}, **ONE)
    for part in (result, result["a", "b"], result.moved(), consensus([cloud(rng), cloud(rng)], nulls=0)):
        assert len(repr(part)) <= 140
        assert "\n" not in repr(part)


@pytest.mark.parametrize("scale", [1e-100, 1e-60, 1e60, 1e100])
def test_values_of_any_size_that_can_be_squared_are_compared(scale, rng):
    x = cloud(rng)
    y = x @ np.linalg.qr(rng.normal(size=(5, 5)))[0] + 0.1 * rng.normal(size=x.shape)
    plain, scaled = (compare(x * by, y * by, groups=LADDER, **QUICK).pairs[0] for by in (1, scale))
    for group, near in plain.groups.items():
        assert_allclose(scaled.groups[group].held_out.mean, near.held_out.mean, rtol=1e-6)


def test_components_that_are_noise_converge_on_all_rows_and_are_noted(rng):
    """In sample the ICA row is the paper's: noise is the same noise in a rotated run; a note says how much is noise."""
    sources = np.hstack([rng.laplace(size=(1000, 10)), rng.normal(size=(1000, 4))])
    x = sources @ rng.normal(size=(14, 14))
    y = x @ np.linalg.qr(rng.normal(size=(14, 14)))[0]
    result = compare(x, y, groups=["similarity", "ica"], **QUICK)
    assert result.pairs[0].groups["ica"].mean < 1e-3
    assert sum("of 14 independent components" in note for note in result.notes) == 2


@pytest.mark.parametrize("groups", ["auto", "all"])
@pytest.mark.parametrize("far", ["source", "target"])
def test_one_huge_value_is_a_far_row_and_not_a_failure(groups, far):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5))
    y = x @ ortho_group.rvs(5, random_state=0)
    y[0, 4] = 1e20
    runs = (y, x) if far == "source" else (x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compare(*runs, groups=groups)
    assert "except for 1 of 60 far rows" in found.verdict
    assert len(max(found.verdict.split(), key=len)) < 30  # 1e37 is not written out


def test_rows_are_coloured_by_a_column_or_an_array(rng):
    x = rng.normal(size=(40, 3))
    plate = np.array([f"p{i % 3}" for i in range(40)])
    tables = [Table(x + i, f"run{i}", metadata={"plate": plate}) for i in range(2)]
    by_name, by_array = (compare(tables, color=color, groups=["similarity"], nulls=2) for color in ("plate", plate))
    for result, name in ((by_name, "plate"), (by_array, "color")):
        (pair,) = result.pairs
        assert result.settings["color"] == name
        assert list(result.color[pair.plane.rows]) == [f"p{i % 3}" for i in pair.plane.rows]
        assert f"colours: {name}" in render_html(result.document())
    with pytest.raises(InputError, match="run0 has no metadata column 'well' to take labels from; it has plate"):
        compare(tables, color="well")


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_rows_that_are_zero_except_for_one_are_compared():
    x = np.zeros((300, 5))
    x[0] = np.arange(1.0, 6.0)
    compared = compare(x, 2 * x, seed=0)
    assert compared.status == "ambiguous"
    assert "1 of 300 rows holds 100 % of the variance" in compared.verdict
