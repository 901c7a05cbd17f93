import csv
import runpy
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist

from congruence.errors import InputError
from congruence.maps import _diameter as module
from congruence.maps import _pair_bounds as pair_bounds
from congruence.maps._diameter import diameter, rows_diameter
from congruence.maps._pair_bounds import PairBounds, centre_rows, choose_axes
from congruence.rows.engine import Rows

CLOUDS = {
    "gaussian": lambda rng, n, d: rng.normal(size=(n, d)),
    "heavy tails": lambda rng, n, d: rng.standard_t(1.5, size=(n, d)),
    "shell": lambda rng, n, d: (lambda x: x / np.linalg.norm(x, axis=1, keepdims=True))(rng.normal(size=(n, d))),
    "far away": lambda rng, n, d: rng.normal(size=(n, d)) + 1e4,
    "two clumps": lambda rng, n, d: rng.normal(size=(n, d)) + 20 * (rng.random((n, 1)) < 0.1),
    "grid": lambda rng, n, d: rng.integers(3, size=(n, d)).astype(float),
    "duplicates": lambda rng, n, d: rng.normal(size=(3, d))[rng.integers(3, size=n)],
    "low rank": lambda rng, n, d: rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)),
    "decaying": lambda rng, n, d: rng.laplace(size=(n, d)) / np.arange(1, d + 1),
    "all but equal": lambda rng, n, d: 0.1 + 1e-16 * rng.integers(2, size=(n, d)),
}
PATCHED = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
sizes = {"n": st.integers(1, 300), "d": st.integers(1, 20), "seed": st.integers(0, 1000)}


@pytest.fixture
def small(monkeypatch):
    """Tiles, samples and memory so small that a few hundred rows take every path of a large cloud."""
    monkeypatch.setattr(pair_bounds, "CPU_TILE", 16)
    monkeypatch.setattr(pair_bounds, "GPU_TILE", 16)
    monkeypatch.setattr(pair_bounds, "SAMPLE", 32)
    monkeypatch.setattr(pair_bounds, "WIDTHS", (1, 2, 3, 5, 8, 12))
    monkeypatch.setattr(pair_bounds, "KEPT_BYTES", 5000)
    monkeypatch.setattr(pair_bounds, "MEASURE_COST", 8)
    monkeypatch.setattr(module, "PANEL", 3)
    monkeypatch.setattr(module, "STARTS", 1)
    monkeypatch.setattr(module, "SWEEPS", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # many small products: threads would only wait for each other
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["cpu", "cpu:0", "as on a GPU"])
def device(request, monkeypatch):
    """numpy, tensors, and tensors in the float16 arithmetic of a GPU."""
    if request.param != "as on a GPU":
        return request.param
    monkeypatch.setattr(pair_bounds.Cloud, "on_gpu", True)
    return "cpu:0"


def largest(x):
    return pdist(x.astype(np.float64)).max(initial=0)


def check(found, x):
    assert found.exact
    assert found.low == found.value == found.high
    assert_allclose(found.value, largest(x), rtol=1e-12)
    i, j = found.pair
    assert_allclose(np.linalg.norm(x[i].astype(np.float64) - x[j]), found.value, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("cloud", CLOUDS)
@given(**sizes)
@settings(deadline=None)
def test_the_diameter_is_the_largest_of_all_distances(cloud, dtype, n, d, seed):
    x = CLOUDS[cloud](np.random.default_rng(seed), n, d).astype(dtype)
    check(diameter(x), x)


@pytest.mark.parametrize("cloud", CLOUDS)
@given(**sizes)
@PATCHED
def test_so_it_is_when_the_search_goes_by_tiles_and_axes(cloud, device, n, d, seed, small):
    x = CLOUDS[cloud](np.random.default_rng(seed), n, d)
    check(rows_diameter(Rows(x, device)), x)


@pytest.mark.parametrize("cloud", CLOUDS)
@given(**sizes, budget=st.integers(0, 20_000))
@PATCHED
def test_a_limit_of_pairs_leaves_an_interval_that_holds_the_diameter(cloud, device, n, d, seed, budget, small):
    x = CLOUDS[cloud](np.random.default_rng(seed), n, d)
    found = rows_diameter(Rows(x, device), max_pairs=budget)
    truth = largest(x)
    assert found.low <= truth * (1 + 1e-12)
    assert truth <= found.high * (1 + 1e-12)
    assert_allclose(np.linalg.norm(x[found.pair[0]] - x[found.pair[1]]), found.low, rtol=1e-12)
    if found.exact:
        check(found, x)
    else:
        assert found.value == found.low < found.high


def test_without_any_pair_allowed_a_shell_is_not_exact_and_its_interval_is_at_most_that_of_the_ball(rng):
    x = CLOUDS["shell"](rng, 3000, 50)
    found = diameter(x, max_pairs=0)
    assert not found.exact
    assert found.low > 1.4
    assert found.high <= 2 * np.linalg.norm(x - x.mean(0), axis=1).max() * (1 + 1e-12)


def test_a_distant_few_do_not_double_the_upper_bound(rng):
    # The mean is near the many, so the radii of the few add up to twice the distance; a ball in between knows better.
    x = rng.normal(size=(3000, 10)) + 100 * (np.arange(3000)[:, None] < 30) * np.eye(10)[0]
    found = diameter(x, max_pairs=0)
    assert not found.exact
    assert largest(x) <= found.high < 1.1 * largest(x)


def test_the_same_limit_gives_the_same_answer(rng):
    x = CLOUDS["shell"](rng, 3000, 10)
    assert diameter(x, max_pairs=1000) == diameter(x, max_pairs=1000)


def test_float32_rounding_does_not_choose_the_winner(device):
    # 40 pairs of opposite points, all 2 apart to float32 but one, which is longer by a part in 10^10.
    rng = np.random.default_rng(3)
    half = CLOUDS["shell"](rng, 40, 6)
    half[17] *= 1 + 1e-10
    x = np.concatenate([half, -half])
    found = rows_diameter(Rows(x, device))
    assert sorted(found.pair) == [17, 57]
    assert_allclose(found.value, 2 * (1 + 1e-10), rtol=1e-14)


def test_pairs_of_float32_rows_nearer_to_each_other_than_float32_rounding_are_told_apart():
    # |(a, 0)| and |(a, 1)| are one float32 number, so are the squares; the data itself is float32.
    x = np.array([[-4e4, 0], [4e4, 0], [4e4, 1]], dtype=np.float32)
    found = diameter(x)
    assert found.value == np.hypot(8e4, 1) > 8e4
    assert sorted(found.pair) == [0, 2]


@pytest.mark.parametrize("cloud", ["gaussian", "decaying", "two clumps"])
def test_torch_and_numpy_give_the_same_answer(cloud, rng):
    x = CLOUDS[cloud](rng, 9000, 20).astype(np.float32)
    ours = rows_diameter(Rows(x))
    for theirs in (rows_diameter(Rows(x, "cpu:0")), rows_diameter(Rows(torch.from_numpy(x), "cpu:0"))):
        assert sorted(ours.pair) == sorted(theirs.pair)
        assert_allclose(ours.value, theirs.value, rtol=1e-14)


@pytest.mark.parametrize("cloud", ["gaussian", "shell", "decaying", "low rank", "far away"])
@pytest.mark.parametrize("k", [1, 4, 16, 32])
def test_no_pair_is_longer_than_its_bound(cloud, k, rng, device):
    x = CLOUDS[cloud](rng, 120, 32)
    cloud = centre_rows(Rows(x, device))
    order = np.argsort(-cloud.radius)
    axes = np.linalg.qr(rng.normal(size=(32, k)))[0]
    bounds = PairBounds(cloud, order, axes)
    for length in np.quantile(pdist(x), [0.5, 0.9, 0.99]):
        i, j, crossed = bounds.beyond(bounds.left(slice(0, 120)), bounds.right(slice(0, 120)), length)
        left = set((product if crossed else zip)(i.tolist(), j.tolist()))
        long = np.linalg.norm(x[order][:, None] - x[order][None, :], axis=2) > length
        assert set(zip(*(w.tolist() for w in np.nonzero(long)), strict=True)) <= left


@pytest.mark.parametrize(("cloud", "least", "most"), [("decaying", 8, 40), ("shell", 150, 200)])
def test_few_axes_are_used_where_the_spectrum_decays_and_most_on_a_shell(cloud, least, most, rng):
    x = CLOUDS[cloud](rng, 9000, 200)
    rows = centre_rows(Rows(x))
    axes = choose_axes(rows, np.argsort(-rows.radius), diameter(x).value)
    assert least <= (200 if axes is None else axes.shape[1]) <= most


def test_one_row_and_equal_rows_have_diameter_zero():
    for x in (np.ones((1, 3)), np.ones((4, 3)), np.full((50_000, 3), 0.1)):
        assert diameter(x) == module.Diameter(0.0, True, 0.0, 0.0, (0, 0))


def test_tensors_integers_and_halves_are_measured_in_float64(rng):
    x = rng.integers(-100, 100, size=(200, 8))
    for same in (x, torch.from_numpy(x), x.astype(np.float16), torch.from_numpy(x).bfloat16().double()):
        assert_allclose(diameter(same).value, largest(np.asarray(same)), rtol=1e-14)


def test_memory_maps_are_read_where_they_are(rng, tmp_path):
    x = rng.normal(size=(500, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    assert diameter(np.load(tmp_path / "x.npy", mmap_mode="r")) == diameter(x)


@pytest.mark.parametrize("size", [1e160, 1e-160])
def test_values_whose_squares_leave_float64_are_refused(rng, size):
    with pytest.raises(InputError, match="too large or too small to be squared"):
        diameter(size * rng.normal(size=(10, 3)))


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_values_whose_squares_leave_float32_are_not(rng, size):
    x = (size * rng.normal(size=(300, 5))).astype(np.float32)
    check(diameter(x), x)


def test_the_benchmark_runs(tmp_path, monkeypatch):
    script = Path(__file__).parents[2] / "benchmarks" / "diameter.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--quick", "--out", str(tmp_path / "diameter.csv")])
    runpy.run_path(str(script), run_name="__main__")
    lines = [line for line in (tmp_path / "diameter.csv").read_text().splitlines() if not line.startswith("#")]
    table = list(csv.DictReader(lines))
    assert {row["data"] for row in table} >= {"heavy-tailed", "mixture", "mlp", "gaussian"}
    assert all(row["exact"] == "True" and float(row["relative_error"]) < 1e-12 for row in table)
