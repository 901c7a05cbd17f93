import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from safetensors import safe_open
from scipy.stats import ortho_group
from sklearn.base import clone
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from congruence import ICA, Table, Whitener
from congruence._saved import read_tensors
from congruence.errors import InputError, NotConvergedWarning
from congruence.ica import load_ica
from congruence.maps.matching import strong_mcc
from congruence.result import SCHEMA_VERSION

DATA = Path(__file__).parent / "data"

pytestmark = pytest.mark.filterwarnings("ignore::congruence.errors.NotConvergedWarning")


@parametrize_with_checks([ICA(), ICA(starts=1, rows="auto"), ICA(whiten=False), Whitener(), Whitener("zca-cor")])
def test_the_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


@pytest.fixture
def mixture(mixtures):
    sources = mixtures.sources(5000, 6)
    return sources, mixtures.mixed(sources)[0] + 4


def test_independent_sources_are_recovered(mixture):
    sources, x = mixture
    ica = ICA(random_state=0).fit(x)
    assert ica.converged_
    assert ica.identified_.all()
    assert strong_mcc(ica.transform(x), sources) > 0.998


def test_components_are_white_and_lead_back(mixture):
    x = mixture[1]
    ica = ICA(random_state=0).fit(x)
    s = ica.transform(x)
    assert_allclose(np.cov(s, rowvar=False, bias=True), np.eye(6), atol=1e-10)
    assert_allclose(ica.inverse_transform(s), x, atol=1e-10)
    assert_allclose(ica.mixing_, np.linalg.pinv(ica.components_), atol=1e-10)


@pytest.mark.parametrize("contrast", ["logcosh", "exp", "cube"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_starts_give_the_same_matrix(contrast, dtype, mixture):
    x = mixture[1].astype(dtype)
    first, second = (ICA(contrast=contrast, random_state=seed).fit(x) for seed in (0, 1))
    assert first.identified_.all()
    assert_allclose(first.components_, second.components_, atol=1e-4 * np.abs(first.components_).max())


def test_what_is_not_identified_is_flagged(mixtures, rng):
    s = mixtures.sources(20_000, 9)
    s[:, :4] = rng.normal(size=(20_000, 4))
    x = mixtures.mixed(s)[0]
    first, second = (ICA(random_state=seed).fit(x) for seed in (0, 1))
    assert_array_equal(first.identified_, [True] * 5 + [False] * 4)
    assert_allclose(first.components_[:5], second.components_[:5], atol=1e-4 * np.abs(first.components_).max())
    assert first.agreement_[:5].min() > 0.99


def test_float32_agrees_with_float64(mixtures, monkeypatch):
    x = mixtures.mixed(mixtures.sources(20_000, 12))[0]
    exact = ICA(random_state=0).fit(x)
    monkeypatch.setattr("congruence.ica._passes.SMALL", 0)  # float32 products although the rows are few
    single = ICA(random_state=1).fit(x.astype(np.float32))
    assert_allclose(single.components_, exact.components_, atol=1e-4 * np.abs(exact.components_).max())


def test_float32_rows_far_from_the_origin_agree_with_float64(mixtures, monkeypatch):
    x = (mixtures.mixed(mixtures.sources(20_000, 12))[0] + 3e4 / 7).astype(np.float32)
    exact = ICA(random_state=0).fit(x.astype(np.float64))
    monkeypatch.setattr("congruence.ica._passes.SMALL", 0)
    single = ICA(random_state=1).fit(x)
    assert_allclose(single.components_, exact.components_, atol=1e-4 * np.abs(exact.components_).max())


def test_the_order_is_by_negentropy_and_the_sign_by_skewness(mixture):
    x = mixture[1]
    ica = ICA(random_state=0).fit(x)
    s = ica.transform(x)
    assert (np.diff(ica.negentropy_) <= 0).all()
    assert_allclose((s**3).mean(0), ica.skewness_, atol=1e-6)
    assert_allclose((s**4).mean(0) - 3, ica.kurtosis_, atol=1e-5)
    assert (ica.skewness_ > -1e-5).all()


@given(st.permutations(range(5)), st.lists(st.sampled_from([-3.0, 0.2, 1.0, 50.0]), min_size=5, max_size=5))
@settings(max_examples=10)
def test_components_do_not_depend_on_the_frame(order, scales):
    """Turned, stretched and shifted rows have the same components."""
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(2000, 5)) ** 3 @ rng.normal(size=(5, 5))
    other = x[:, order] * scales + 7
    s, t = (ICA(random_state=0).fit_transform(rows) for rows in (x, other))
    assert_allclose(np.abs(s), np.abs(t), atol=1e-3 * np.abs(s).max())


def test_the_same_seed_gives_the_same_numbers(mixture):
    x = mixture[1]
    first, second = (ICA(random_state=3).fit(x) for _ in range(2))
    assert_array_equal(first.components_, second.components_)


def test_fewer_components_than_dimensions(mixture):
    x = mixture[1]
    ica = ICA(n_components=3, random_state=0).fit(x)
    assert ica.transform(x).shape == (5000, 3)
    assert_allclose(np.cov(ica.transform(x), rowvar=False, bias=True), np.eye(3), atol=1e-10)
    assert ICA(n_components=0.5, random_state=0).fit(x).components_.shape[0] < 6


def test_low_rank_and_dead_columns_give_as_many_components_as_there_are_directions(mixture, rng):
    x = np.column_stack([mixture[1] @ rng.normal(size=(6, 10)), np.full(5000, 3.0)]).astype(np.float32)
    ica = ICA(random_state=0).fit(x)
    assert ica.rank_ == 6
    assert ica.components_.shape == (6, 11)
    assert_allclose(np.cov(ica.transform(x.astype(float)), rowvar=False, bias=True), np.eye(6), atol=1e-5)


def test_without_whitening_rows_are_only_turned(mixture):
    z = Whitener().fit_transform(mixture[1])
    ica = ICA(whiten=False, random_state=0).fit(z)
    assert_allclose(ica.components_ @ ica.components_.T, np.eye(6), atol=1e-10)
    assert_allclose(ica.mean_, 0)
    whitened = ICA(random_state=0).fit(mixture[1])
    assert_allclose(np.abs(ica.transform(z)), np.abs(whitened.transform(mixture[1])), atol=1e-3)
    assert ICA(whiten=False, n_components=2, random_state=0).fit_transform(z).shape == (5000, 2)


@pytest.mark.parametrize("unit", [1e-30, 1000.0, 1e150])
def test_without_whitening_units_do_not_matter(mixture, unit):
    rows = mixture[0] @ ortho_group.rvs(6, random_state=0)
    here, there = (ICA(whiten=False, random_state=0).fit(one) for one in (rows, unit * rows))
    assert_allclose(there.components_, here.components_, atol=1e-4)
    assert here.identified_.all()
    assert_allclose(here.components_ @ here.components_.T, np.eye(6), atol=1e-10)
    assert_array_equal(there.identified_, here.identified_)


def test_without_whitening_values_too_small_to_be_squared_are_refused(mixture):
    with pytest.raises(InputError, match="too small to be squared"):
        ICA(whiten=False).fit(mixture[1][:100] * 1e-150)


def test_it_is_no_worse_than_scikit_learn_and_picard(mixtures):
    """On the same mixtures ours separates as well as float64 FastICA and Picard-O."""
    picard = pytest.importorskip("picard")
    for d in (16, 64):
        x, mixing = mixtures.mixed(mixtures.sources(10_000, d))
        ours = mixtures.amari(ICA(random_state=0).fit(x.astype(np.float32)).components_ @ mixing)
        sklearn = FastICA(whiten="unit-variance", random_state=0, max_iter=500, tol=1e-8).fit(x)
        k, w, _ = picard.picard(x.T, ortho=True, extended=True, random_state=0, tol=1e-7)
        theirs = min(mixtures.amari(sklearn.components_ @ mixing), mixtures.amari(w @ k @ mixing))
        assert ours <= theirs * 1.001


def test_wide_float32_rows_separate(mixtures):
    """Where scikit-learn often returns a random rotation: benchmarks/ica.py counts how often."""
    x, mixing = mixtures.mixed(mixtures.sources(12_000, 128))
    ours = ICA(starts=1, random_state=0).fit(x.astype(np.float32))
    assert ours.converged_
    assert mixtures.amari(ours.components_ @ mixing) < 0.01


def test_rows_that_are_no_mixture_converge_where_fastica_reaches_its_cap(mixtures):
    x = mixtures.network_features(10_000, 48).astype(np.float32)
    with pytest.warns(ConvergenceWarning), threadpool_limits(1):  # else rounding may let it converge
        FastICA(whiten="unit-variance", random_state=0).fit(x)
    ica = ICA(random_state=0).fit(x)
    assert ica.converged_
    assert ica.gradients_[-1] < 3e-3


def test_noise_is_warned_about_with_what_to_do(rng):
    with pytest.warns(
        NotConvergedWarning, match=r"No component is distinguishable from Gaussian noise.*200 rows are few"
    ):
        ICA(random_state=0).fit(rng.normal(size=(200, 15)))


def test_the_cap_is_warned_about_with_the_reason(mixtures):
    with pytest.warns(NotConvergedWarning, match=r"after 5 passes .* still turned by .*Raise max_iter"):
        ICA(max_iter=5, random_state=0).fit(mixtures.network_features(3000, 8))


def test_a_few_of_many_rows_are_enough_and_it_says_so(mixtures):
    x, mixing = mixtures.mixed(mixtures.sources(40_000, 4))
    ica = ICA(rows="auto", random_state=0).fit(x)
    assert ica.n_rows_ < 40_000
    assert 0 < ica.error_left_ <= 0.05
    unmixed = ica.components_ @ mixing
    angle = np.arccos(np.abs(unmixed).max(1) / np.linalg.norm(unmixed, axis=1))
    assert np.quantile(angle, 0.9) < 3 * ica.error_left_
    assert ICA(rows=3000, random_state=0).fit(x).n_rows_ == 3000
    assert ICA(random_state=0).fit(x).error_left_ is None


def test_many_rows_and_a_few_to_begin_with_give_the_same_components(mixtures, monkeypatch):
    x = mixtures.mixed(mixtures.sources(30_000, 5))[0]
    quick = ICA(random_state=0).fit(x)
    monkeypatch.setattr("congruence.ica._passes.LEAST", 10**9)
    plain = ICA(random_state=0).fit(x)
    assert quick.n_iter_ < plain.n_iter_
    assert_allclose(quick.components_, plain.components_, atol=1e-4 * np.abs(plain.components_).max())


def test_a_start_can_be_given(mixture):
    x = mixture[1]
    solved = ICA(random_state=0, starts=1).fit(x)
    start = solved.components_ @ Whitener().fit(x).inverse_
    again = ICA(w_init=start, starts=1, random_state=0).fit(x)
    assert again.n_iter_ <= 2
    assert_allclose(again.components_, solved.components_, atol=1e-4 * np.abs(solved.components_).max())


def test_a_start_is_used_where_rows_are_chosen(mixtures):
    x = mixtures.mixed(mixtures.sources(9000, 4))[0]
    given = {"rows": "auto", "starts": 1, "max_iter": 1, "w_init": np.eye(4)}
    with pytest.warns(NotConvergedWarning):
        first, second = (ICA(**given, random_state=seed).fit(x) for seed in (0, 1))
    assert first.n_rows_ == second.n_rows_ == 9000
    assert_allclose(first.components_, second.components_, atol=1e-3)


def test_no_more_passes_than_allowed(mixture):
    with pytest.warns(NotConvergedWarning, match="raise tol"):
        assert ICA(random_state=0, tol=1e-17, max_iter=60).fit(mixture[1]).n_iter_ == 60


def test_data_frames_names_and_pipelines(mixture):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(mixture[1], columns=list("abcdef"))
    pipeline = make_pipeline(StandardScaler(), ICA(random_state=0)).set_output(transform="pandas")
    out = pipeline.fit_transform(frame)
    assert list(out.columns) == [f"ica{i}" for i in range(6)]
    assert clone(pipeline).get_params()["ica__random_state"] == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_tensors_in_tensors_out(dtype, mixture):
    torch = pytest.importorskip("torch")
    x = torch.tensor(mixture[1]).to(getattr(torch, dtype))
    ica = ICA(random_state=0).fit(x)
    s = ica.transform(x)
    assert isinstance(s, torch.Tensor)
    assert s.dtype == x.dtype
    assert s.device == x.device
    assert isinstance(ica.inverse_transform(s), torch.Tensor)


def test_chunks_maps_and_files_give_the_same_components(mixture, tmp_path):
    x = mixture[1].astype(np.float32)
    expected = ICA(random_state=0).fit(x).components_
    np.save(tmp_path / "x.npy", x)
    for given_rows in (np.load(tmp_path / "x.npy", mmap_mode="r"), tmp_path / "x.npy", iter(np.array_split(x, 4))):
        found = ICA(random_state=0).fit(given_rows).components_
        assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_files_that_match_a_pattern_are_one_table(mixture, tmp_path):
    x = mixture[1]
    for i, part in enumerate(np.array_split(x, 3)):
        np.save(tmp_path / f"part-{i}.npy", part)
    whole, parts = ICA(random_state=0).fit(x), ICA(random_state=0).fit(f"{tmp_path}/part-*.npy")
    assert_array_equal(parts.components_, whole.components_)
    assert_array_equal(parts.transform(tmp_path / "part-*.npy"), whole.transform(x))
    with pytest.raises(InputError, match=r"no file matches .*other-\*.npy"):
        ICA().fit(tmp_path / "other-*.npy")


def test_files_with_other_columns_are_refused(mixture, tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(mixture[1], columns=list("abcdef"))
    frame.to_parquet(tmp_path / "x.parquet")
    frame[list("fedcba")].to_parquet(tmp_path / "turned.parquet")
    ica = ICA(random_state=0).fit(tmp_path / "x.parquet")
    assert list(ica.feature_names_in_) == list("abcdef")
    assert_array_equal(ica.transform(tmp_path / "x.parquet"), ica.transform(frame))
    with pytest.raises(InputError, match="not in their order"):
        ica.transform(tmp_path / "turned.parquet")


def test_zarr_arrays_are_read_chunk_by_chunk(mixture, tmp_path):
    zarr = pytest.importorskip("zarr")
    x = mixture[1].astype(np.float32)
    array = zarr.create_array(store=str(tmp_path / "x.zarr"), shape=x.shape, chunks=(1000, 6), dtype="f4")
    array[:] = x
    expected = ICA(random_state=0).fit(x).components_
    assert_allclose(ICA(random_state=0).fit(array).components_, expected, atol=1e-5 * np.abs(expected).max())


def test_components_saved_by_the_first_release_load():
    ica = load_ica(DATA / "ica_0.1.0.safetensors")
    assert (ica.starts, ica.random_state, ica.rank_, ica.n_rows_, ica.n_iter_) == (3, 0, 3, 500, 9)
    assert list(ica.feature_names_in_) == ["a", "b", "c"]
    assert ica.identified_.all()
    rows = pd.DataFrame([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]], columns=["a", "b", "c"])
    expected = [[1.64431521, 1.48726965, 2.79034562], [-1.7914976, -3.44667736, -2.74427583]]  # of that release
    assert_allclose(ica.transform(rows), expected, rtol=1e-8)


def test_saved_components_name_their_schema(mixture, tmp_path):
    ICA(random_state=0).fit(mixture[1]).save(tmp_path / "ica.safetensors")
    with safe_open(tmp_path / "ica.safetensors", framework="numpy") as file:
        header = json.loads(file.metadata()["congruence"])
    assert (header["kind"], header["schema_version"]) == ("ica", SCHEMA_VERSION)


def test_estimators_fit_on_one_line(mixture):
    assert repr(ICA()) == "ICA()"
    assert repr(ICA(4, contrast="exp", w_init=np.eye(4))) == "ICA(contrast='exp', n_components=4, w_init=array(4, 4))"
    x = mixture[1]
    expected = "<ICA(random_state=0) fitted on 6 columns: 6 of 6 components identified>"
    assert repr(ICA(random_state=0).fit(x)) == expected
    assert repr(Whitener("zca")) == "Whitener(method='zca')"
    assert repr(Whitener().fit(x)) == "<Whitener() fitted on 6 columns: 6 of 6 directions kept>"


def test_an_estimator_is_made_from_components_found_before(mixture):
    fitted = ICA(random_state=0).fit(mixture[1])
    again = ICA.from_components(fitted.found_, random_state=0)
    assert again.get_params() == fitted.get_params()
    assert_array_equal(again.transform(mixture[1]), fitted.transform(mixture[1]))


def test_saved_components_load_the_same(mixture, tmp_path):
    x = mixture[1]
    ica = ICA(n_components=np.int64(4), random_state=0).fit(x)
    ica.save(tmp_path / "ica.safetensors", source="x.parquet")
    again = load_ica(tmp_path / "ica.safetensors")
    assert_array_equal(again.transform(x), ica.transform(x))
    assert_array_equal(again.identified_, ica.identified_)
    for name in ("agreement_", "variances_", "changes_", "gradients_"):
        assert_array_equal(getattr(again, name), getattr(ica, name))
    assert again.get_params() == ica.get_params()
    assert (again.converged_, again.n_iter_, again.rank_) == (ica.converged_, ica.n_iter_, ica.rank_)


def test_a_file_keeps_what_error_is_left(mixtures, tmp_path):
    ica = ICA(rows="auto", random_state=0).fit(mixtures.sources(9000, 3))
    ica.save(tmp_path / "ica.safetensors")
    assert load_ica(tmp_path / "ica.safetensors").error_left_ == ica.error_left_ > 0


def test_files_that_hold_no_components_are_refused(mixture, tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "ica.safetensors"
    ica = ICA(random_state=0).fit(mixture[1])
    ica.save(path)
    whole = path.read_bytes()
    for damaged, message in (
        (whole[: len(whole) // 2], "cannot read components"),
        (whole.replace(b'\\"schema_version\\": 1', b'\\"schema_version\\": 9'), "schema version 9"),
        (whole.replace(b'\\"rank\\": 6', b'\\"rank\\":[]'), "its checksum differs"),
        (whole.replace(b'\\"kind\\": \\"ica\\"', b'\\"kind\\": \\"map\\"'), "not components"),
    ):
        assert damaged != whole
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=message):
            load_ica(path)
    path.write_bytes(whole)
    arrays, header = read_tensors(path, "components")
    save_file(arrays, path, {"congruence": json.dumps({**header, "rank": []})})  # without a checksum
    with pytest.raises(InputError, match="header is damaged"):
        load_ica(path)
    save_file({"mean_": np.zeros(3)}, path)
    with pytest.raises(InputError, match="not components"):
        load_ica(path)
    with pytest.raises(InputError, match="cannot read"):
        load_ica(tmp_path / "missing.safetensors")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contrast": "tanh"}, "contrast must be one of"),
        ({"starts": 0}, "starts"),
        ({"starts": 1.5}, "starts"),
        ({"rows": "some"}, "rows"),
        ({"rows": None}, "rows"),
        ({"rows": 1}, "rows"),
        ({"tol": 0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"w_init": np.eye(2)}, "shape"),
        ({"w_init": np.eye(3) * np.nan}, "NaN"),
        ({"w_init": np.eye(3) * 1j}, "real numbers"),
        ({"w_init": np.zeros((3, 3))}, "linearly dependent"),
        ({"n_components": float("inf")}, "positive integer"),
        ({"whiten": False, "n_components": float("inf")}, "n_components"),
        ({"device": "tpu"}, "device"),
        ({"n_components": -1}, "n_components"),
        ({"whiten": False, "n_components": 0.5}, "n_components"),
    ],
)
def test_wrong_options_are_named(options, message, rng):
    with pytest.raises(InputError, match=message):
        ICA(**options).fit(rng.laplace(size=(50, 3)))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones((5, 2)), "all rows are equal"),
        (np.full((1000, 3), 1e8 / 3), "all rows are equal"),
        (np.random.default_rng(0).laplace(size=(50, 3)) * 1e-150, "vary too little"),
        (np.random.default_rng(0).laplace(size=(50, 3)) * [1, 1e-160, 1], "vary too little"),
        (np.ma.masked_greater(np.random.default_rng(0).laplace(size=(50, 3)), 1.0), "NaN"),
        (np.array([[1.0, np.nan], [2.0, 3.0], [1.0, 2.0]]), "NaN"),
        (np.ones((1, 3)), "1 sample"),
    ],
)
def test_rows_that_cannot_be_resolved_are_refused(x, message):
    with pytest.raises(ValueError, match=message):
        ICA().fit(x)


def test_a_map_with_nan_names_the_row(tmp_path, rng):
    x = rng.laplace(size=(3000, 3))
    x[2345, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(InputError, match="row 2345"):
        ICA().fit(np.load(tmp_path / "x.npy", mmap_mode="r"))


def test_real_embeddings_with_dead_units_fit_with_honest_warnings(model_pair):
    for run in model_pair:
        ica = ICA(n_components=32, random_state=0).fit(run)
        assert ica.rank_ < run.shape[1]
        assert_allclose(np.cov(ica.transform(run.astype(float)), rowvar=False, bias=True), np.eye(32), atol=1e-6)


MEMORY = """
import sys, numpy as np
from congruence import ICA
def private():
    return sum(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) / 1024
x = np.load(sys.argv[1], mmap_mode="r")
ICA(starts=1, random_state=0, max_iter=20).fit(x[:2000])
before, most = private(), 0.0
from congruence.ica import _passes as passes
whole = passes.Passes.averages
def watched(self, rotation, **options):
    global most
    found = whole(self, rotation, **options)
    most = max(most, private())
    return found
passes.Passes.averages = watched
ICA(starts=1, random_state=0).fit(x)
print(most - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="private memory is read from /proc")
def test_a_map_larger_than_the_memory_used_is_resolved(tmp_path):
    """58 MB of rows need a fraction of that: a copy of them would be seen."""
    rng = np.random.default_rng(0)
    x = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(450_000, 32))
    mixing = rng.normal(size=(32, 32)).astype(np.float32)
    for start in range(0, len(x), 50_000):
        x[start : start + 50_000] = rng.laplace(size=(50_000, 32)).astype(np.float32) @ mixing
    x.flush()
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "x.npy")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    assert float(done.stdout) < 28


def test_tables_are_transformed_by_the_names_of_their_columns(mixture):
    x = mixture[1]
    table = Table(x, "x", features=tuple("abcdef"))
    ica = ICA(random_state=0).fit(table)
    assert list(ica.feature_names_in_) == list("abcdef")
    assert_array_equal(ica.transform(table), ICA(random_state=0).fit_transform(x))
    with pytest.raises(InputError, match="are not those of the fit, or not in their order"):
        ica.transform(Table(x, "x", features=tuple("abcdfe")))
