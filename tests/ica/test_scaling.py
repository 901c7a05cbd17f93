"""`standardize` and `normalize` of ICA: what they do to the fit, and that transforms and saved models keep to them."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence import ICA, component_stability
from congruence.errors import CongruenceWarning, InputError
from congruence.ica import load_ica, resolve, write_components
from congruence.tables import Table, read_table, stream_parts, write_table

WAYS = [{"standardize": True}, {"normalize": "cosine"}, {"standardize": True, "normalize": "cosine"}]


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture
def rows(rng):
    """Eight columns in very different units, one of them constant."""
    x = rng.laplace(size=(1500, 7)) @ rng.normal(size=(7, 7)) + 4
    return np.insert(x * [1e4, 1, 1, 10, 0.1, 1, 100], 3, 2.5, axis=1)


@pytest.fixture
def units(rng):
    """Ten columns, of which one has a unit that makes its variance 10,000 times that of the others."""
    x = rng.laplace(size=(1500, 10)) @ rng.normal(size=(10, 10))
    x[:, 2] *= 100
    return x


def test_standardized_columns_are_those_divided_by_their_deviations(rows):
    scale = np.where(rows.std(0) > 0, rows.std(0), 1)
    ours = ICA(4, standardize=True, random_state=0).fit(rows)
    by_hand = ICA(4, random_state=0).fit(rows / scale)
    assert_allclose(ours.transform(rows), by_hand.transform(rows / scale), atol=1e-8)
    assert_allclose(ours.mixing_, by_hand.mixing_ * scale[:, None], atol=1e-8 * scale.max())
    assert_allclose(ours.variances_.sum(), 7)
    assert ours.rank_ == 7


def test_columns_in_other_units_give_the_same_components(units, rng):
    other = units * 10 ** rng.uniform(-2, 2, size=10)
    first, second = (ICA(4, standardize=True, random_state=0).fit_transform(x) for x in (units, other))
    assert_allclose(first, second, atol=1e-6)


def test_standardizing_does_not_change_components_of_all_directions(units):
    plain, scaled = (ICA(standardize=flag, random_state=0).fit_transform(units) for flag in (False, True))
    assert_allclose(np.abs(np.corrcoef(plain.T, scaled.T)[:10, 10:]).max(1), 1, atol=1e-4)


def test_standardizing_changes_which_directions_are_kept(units):
    assert len(ICA(0.95, random_state=0).fit(units).components_) == 1
    assert len(ICA(0.95, standardize=True, random_state=0).fit(units).components_) > 3


def test_normalized_rows_are_those_on_the_unit_sphere(rows):
    ours = ICA(4, normalize="cosine", random_state=0).fit(rows)
    by_hand = ICA(4, random_state=0).fit(unit(rows))
    assert_allclose(ours.transform(rows), by_hand.transform(unit(rows)), atol=1e-8)
    assert_allclose(ours.transform(rows * 7), ours.transform(rows), atol=1e-8)


@pytest.mark.parametrize("way", WAYS)
def test_components_lead_back_to_the_rows(way, units):
    ica = ICA(**way, random_state=0).fit(units)
    back = ica.inverse_transform(ica.transform(units))
    assert_allclose(back, unit(units) if "normalize" in way else units, atol=1e-7)
    assert_allclose(np.cov(ica.transform(units), rowvar=False, bias=True), np.eye(10), atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_constant_columns_come_back_as_they_were(way, rows):
    ica = ICA(**way, random_state=0).fit(rows)
    back = ica.inverse_transform(ica.transform(rows))
    assert_allclose(back, unit(rows) if "normalize" in way else rows, rtol=1e-6, atol=1e-6)
    if "normalize" not in way:
        assert_allclose(back[:, 3], 2.5)
        assert not ica.components_[:, 3].any()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_saved_model_transforms_as_the_fitted_one(way, dtype, rows, tmp_path):
    rows = rows.astype(dtype)
    ica = ICA(3, **way, random_state=0).fit(rows)
    ica.save(tmp_path / "m.safetensors")
    loaded = load_ica(tmp_path / "m.safetensors")
    assert {name: loaded.get_params()[name] for name in way} == way
    assert_allclose(loaded.transform(rows), ica.transform(rows))
    assert loaded.transform(rows).dtype == dtype


def test_a_model_without_these_options_is_read_as_before(rows, tmp_path):
    ICA(3, random_state=0).fit(rows).save(tmp_path / "m.safetensors")
    loaded = load_ica(tmp_path / "m.safetensors")
    assert (loaded.standardize, loaded.normalize) == (False, None)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["table", "stream", "dask"])
def test_components_of_tables_are_those_of_the_estimator(way, kind, rows, tmp_path):
    ica = ICA(3, **way, random_state=0).fit(rows)
    table = Table(rows, "run", np.array([f"r{i}" for i in range(len(rows))]))
    write_table(table, tmp_path / "run.parquet")
    if kind == "dask":
        da = pytest.importorskip("dask.array")
        table = Table(da.from_array(rows, chunks=(400, 8)), "run", table.ids)
    given = stream_parts([str(tmp_path / "run.parquet")], id="id") if kind == "stream" else table
    write_components(given, ica, tmp_path / "c.parquet")
    assert_allclose(read_table(tmp_path / "c.parquet").values, ica.transform(rows), atol=1e-9)
    write_components(read_table(tmp_path / "c.parquet"), ica, tmp_path / "b.parquet", inverse=True)
    assert_allclose(read_table(tmp_path / "b.parquet").values, ica.inverse_transform(ica.transform(rows)), atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["dask", "tensor", "memmap", "chunks"])
def test_every_kind_of_rows_gives_the_same_components(way, kind, rows, tmp_path):
    ica = ICA(3, **way, random_state=0).fit(rows)
    if kind == "dask":
        given = pytest.importorskip("dask.array").from_array(rows, chunks=(400, 8))
    elif kind == "tensor":
        given = pytest.importorskip("torch").from_numpy(rows)
    elif kind == "memmap":
        np.save(tmp_path / "x.npy", rows)
        given = np.load(tmp_path / "x.npy", mmap_mode="r")
    else:
        given = iter([rows[:700], rows[700:]])
    again = ICA(3, **way, random_state=0).fit(given)
    assert_allclose(again.components_, ica.components_, rtol=1e-3, atol=1e-4 * np.abs(ica.components_).max())
    given = rows if kind == "chunks" else given
    assert_allclose(np.asarray(again.transform(given)), again.transform(rows), atol=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_stability_and_profiles_are_those_of_the_scaled_rows(way, rows):
    result = resolve(rows, components=3, stability=3, curve=(2, 4), **way)
    s = result.ica.transform(rows)
    assert [one.row for one in result.profiles[0].highest] == np.argsort(-s[:, 0])[:5].tolist()
    assert_allclose(result.profiles[0].highest[0].value, s[:, 0].max())
    assert [point.n_components for point in result.stability.curve] == [2, 4]
    again = component_stability(rows, n_components=3, bootstrap=3, restarts=0, found=result.ica.found_, **way)
    assert_allclose(again.agreement.bootstrap, result.stability.agreement.bootstrap)
    assert {"standardize": False, "normalize": None, **way}.items() <= result.settings.items()


def test_shares_of_the_variance_are_those_of_the_standardized_columns(units):
    stability = component_stability(units, restarts=1, bootstrap=0, standardize=True)
    assert_allclose(stability.variance_share.sum(), 1)
    assert stability.variance_share.max() < 0.6


@pytest.mark.parametrize("kind", ["fit", "transform", "dask", "table"])
def test_rows_of_zeros_have_no_direction(kind, rows, tmp_path):
    ica = ICA(3, normalize="cosine", random_state=0).fit(rows)
    bad = rows.copy()
    bad[604] = 0
    with pytest.raises(InputError, match=r"has rows that are all zero and so have no direction \(row 604\)"):
        if kind == "fit":
            ICA(normalize="cosine").fit(bad)
        elif kind == "transform":
            ica.transform(bad)
        elif kind == "dask":
            ica.transform(pytest.importorskip("dask.array").from_array(bad, chunks=(400, 8))).compute()
        else:
            write_components(Table(bad, "run"), ica, tmp_path / "c.npy")


def test_rows_that_are_not_finite_are_named(rows):
    rows[7, 2] = np.inf
    with pytest.raises(InputError, match="row 7"):
        resolve(rows, normalize="cosine")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalize": "l2"}, "normalize must be one of None, 'cosine'; got 'l2'"),
        (
            {"standardize": True, "whiten": False},
            "standardize scales columns before whitening, so it needs whiten=True",
        ),
        ({"n_components": 1.0}, "n_components is 1.0, which could mean one component or all of the variance; use 1"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, message, rows):
    with pytest.raises(InputError, match=message):
        ICA(**options).fit(rows)


def test_rows_on_the_sphere_can_be_rotated_without_whitening(rows):
    ica = ICA(whiten=False, normalize="cosine", random_state=0, max_iter=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CongruenceWarning)
        turned = ica.fit_transform(rows)
    assert_allclose(np.linalg.norm(turned, axis=1), 1)


def test_more_components_than_directions_are_announced(rows):
    with pytest.warns(CongruenceWarning, match=r"400 components were requested, but the rows vary in 7 directions, so"):
        assert len(ICA(400, random_state=0).fit(rows).components_) == 7
