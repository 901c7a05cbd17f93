"""Rows that are a dask array give what the same rows give in memory, wherever their blocks are."""

import os
import pickle
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from congruence import ICA, Whitener, component_stability
from congruence.errors import CongruenceError, InputError, MissingDependencyError
from congruence.ica import _passes as passes
from congruence.ica import _unmixing
from congruence.ica._contrasts import CONTRASTS
from congruence.ica._passes import DaskPasses, Passes
from congruence.ica._point import random_rotation
from congruence.ica._whitening import METHODS
from congruence.ica.profiles import profile_components
from congruence.rows import blocks
from congruence.rows.blocks import DaskRows

da = pytest.importorskip("dask.array", reason="dask is not installed")
dask = pytest.importorskip("dask")


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch):
    """Blocks are kept as they are given, however small."""
    monkeypatch.setattr(blocks, "PARTITION", 1)


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    s = np.column_stack([draw(size=(14000, 2)) for draw in (rng.laplace, rng.uniform, rng.exponential)])
    return s @ rng.normal(size=(6, 6)).T + 3


def assert_same_fit(lazy, local, atol=1e-6):
    scale = np.abs(local.components_).max()
    assert_allclose(lazy.components_, local.components_, atol=atol * scale)
    assert_allclose(lazy.mixing_, local.mixing_, atol=atol * np.abs(local.mixing_).max())
    assert_allclose(lazy.mean_, local.mean_, atol=1e-9)
    assert_allclose(lazy.negentropy_, local.negentropy_, atol=1e-6)
    assert_array_equal(lazy.identified_, local.identified_)
    assert lazy.n_iter_ == local.n_iter_


@pytest.mark.parametrize("dtype", ["float64", "float32", "int16"])
@pytest.mark.parametrize(
    "options",
    [{}, {"contrast": "exp"}, {"rows": "auto"}, {"rows": 6000}, {"n_components": 3}, {"n_components": 0.9}],
    ids=str,
)
def test_components_are_those_of_the_local_engine(x, dtype, options):
    rows = (x * 100).astype(dtype)
    local = ICA(random_state=0, **options).fit(rows)
    lazy = ICA(random_state=0, **options).fit(da.from_array(rows, chunks=(3001, 4)))
    assert_same_fit(lazy, local)
    assert lazy.n_rows_ == local.n_rows_


@pytest.mark.parametrize("stretch", [1.0, 1.2], ids=["white", "not white"])
def test_rows_may_be_rotated_as_they_are(x, stretch):
    rows = stretch * Whitener().fit_transform(x)
    local, lazy = (ICA(whiten=False, random_state=0).fit(given) for given in (rows, da.from_array(rows, chunks=3001)))
    assert_same_fit(lazy, local)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_chunks_do_not_matter(x, data):
    rows = x[:4000]
    cuts = sorted(data.draw(st.lists(st.integers(0, 4000), max_size=6)))
    sizes = tuple(np.diff([0, *cuts, 4000]).tolist())
    width = data.draw(st.integers(1, 6))
    local = ICA(random_state=1, starts=1).fit(rows)
    assert_same_fit(ICA(random_state=1, starts=1).fit(da.from_array(rows, chunks=(sizes, width))), local)


def test_the_same_blocks_give_the_same_bits(x):
    lazy = da.from_array(x, chunks=(1000, 6))
    first, second = (ICA(random_state=3).fit(lazy) for _ in range(2))
    assert_array_equal(first.components_, second.components_)


def test_small_blocks_are_merged_and_empty_ones_dropped(monkeypatch):
    monkeypatch.setattr(blocks, "PARTITION", 8 * 2 * 10)
    array = da.ones((37, 2), chunks=((0, 4, 0, 7, 20, 3, 3, 0), 2))
    assert blocks.partition_sizes([array]) == (11, 20, 6)
    assert DaskRows(array).array.chunks == ((11, 20, 6), (2,))


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "read anew"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize(
    "index", [None, np.sort(np.random.default_rng(0).integers(0, 14000, 9000))], ids=["all", "some"]
)
def test_passes_are_those_of_the_local_engine(x, monkeypatch, keep, precision, index):
    monkeypatch.setattr(blocks, "KEPT", 0.4 if keep else 0.0)
    monkeypatch.setattr(passes, "precision_for", lambda n, k: precision)
    rows = x.astype(np.float32)
    white = np.linalg.inv(np.linalg.cholesky(np.cov(rows, rowvar=False)))
    local = Passes(rows, rows.mean(0), white, CONTRASTS["logcosh"], index=index, precision=precision)
    lazy = DaskPasses(
        DaskRows(da.from_array(rows, chunks=(5000, 6))), rows.mean(0), white, CONTRASTS["logcosh"], index=index
    )
    assert (lazy.n, lazy.k, lazy.d) == (local.n, local.k, local.d)
    tolerance = 1e-12 if precision == "float64" else 2e-4  # float32 sums over a chunk
    for seed in range(2):
        rotation = random_rotation(6, np.random.default_rng(seed))
        for name in ("cross", "slope", "power"):
            assert_allclose(
                getattr(lazy.averages(rotation), name), getattr(local.averages(rotation), name), atol=tolerance
            )
        assert_allclose(lazy.shape(rotation).kurtosis, local.shape(rotation).kurtosis, atol=100 * tolerance)
    assert lazy.count == 6


@pytest.mark.parametrize("method", METHODS)
def test_whitening_is_that_of_the_local_engine(x, method):
    rows = x.copy()
    rows[:, 1] = rows[:, 0] + 1e-6 * rows[:, 1]  # so far from round that the rows are read twice
    local, lazy = Whitener(method).fit(rows), Whitener(method).fit(da.from_array(rows, chunks=(5000, 2)))
    assert_allclose(lazy.whitening_, local.whitening_, atol=1e-6 * np.abs(local.whitening_).max())
    assert lazy.rank_ == local.rank_ == 6


def test_transforms_are_lazy_and_lead_back(x):
    ica, lazy = ICA(random_state=0).fit(x), da.from_array(x.astype(np.float32), chunks=(5000, 4))
    for estimator in (ica, Whitener().fit(x)):
        found = estimator.transform(lazy)
        assert isinstance(found, da.Array)
        assert found.shape == x.shape
        assert found.dtype == np.float32
        assert_array_equal(found.compute(), estimator.transform(x.astype(np.float32)))
        assert_allclose(estimator.inverse_transform(found).compute(), x, atol=1e-4)


def test_rows_need_not_be_counted(x):
    lazy = da.from_array(x, chunks=(5000, 4))
    known = lazy[lazy[:, 0] > 2]
    ica = ICA(random_state=0, starts=1).fit(known)
    assert_same_fit(ica, ICA(random_state=0, starts=1).fit(x[x[:, 0] > 2]))
    assert np.isnan(known.shape[0])  # what was given is left as it was
    assert_array_equal(ica.transform(known).compute(), ica.transform(x[x[:, 0] > 2]))


def test_nothing_but_a_few_rows_comes_to_the_caller(x, monkeypatch):
    taken = []
    monkeypatch.setattr(passes, "COARSE", 10)
    monkeypatch.setattr(passes, "LEAST", 100)
    monkeypatch.setattr(blocks, "compute", _watching(blocks.compute, taken))
    ICA(random_state=0).fit(da.from_array(x, chunks=(1000, 6)))
    assert 100 <= max(taken) <= 200


def _watching(compute, sizes):
    def watched(tasks):
        found = compute(tasks)
        sizes.append(sum(len(one) for one in found if isinstance(one, np.ndarray)))
        return found

    return watched


def test_many_chosen_rows_stay_where_they_are(x, monkeypatch):
    lazy = da.from_array(x, chunks=(3000, 6))
    here = ICA(random_state=0, rows=9000).fit(lazy)
    monkeypatch.setattr(_unmixing, "GATHERED", 0)
    monkeypatch.setattr(DaskRows, "take", None)
    assert_same_fit(ICA(random_state=0, rows=9000).fit(lazy), here)


def test_stability_and_profiles_are_those_of_the_local_engine(x):
    lazy, options = da.from_array(x, chunks=(3000, 6)), {"restarts": 1, "bootstrap": 2, "seed": 0}
    there, here = component_stability(lazy, **options), component_stability(x, **options)
    assert_allclose(there.agreement.median, here.agreement.median, atol=1e-6)
    one, other = profile_components(DaskRows(lazy), here.components.unmixing), here.profile
    for name in ("counts", "highest", "lowest"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    assert_allclose(one.highest_values, other.highest_values, rtol=1e-12)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda a: ICA().fit(a[:, 0]), r"must be a matrix \(rows, dimensions\)"),
        (lambda a: ICA().fit(a[:1]), "1 sample"),
        (lambda a: ICA().fit(a[:0]), "empty"),
        (lambda a: ICA().fit(a > 0), "real numbers"),
        (lambda a: ICA().fit(da.ones((50, 2), chunks=9)), "all rows are equal"),
        (lambda a: ICA().fit(a).transform(a[:, :2]), "2 features, but ICA is expecting 3"),
        (lambda a: ICA().fit(a).inverse_transform(a[:, :2]), "2 columns, but there are 3"),
        (lambda a: Whitener().partial_fit(a), "partial_fit takes chunks that are in memory"),
    ],
)
def test_what_cannot_be_fitted_is_refused(work, message):
    with pytest.raises(InputError, match=message):
        work(da.from_array(np.random.default_rng(0).laplace(size=(3000, 3)), chunks=(1000, 2)))


def test_the_first_row_with_nan_is_named(x):
    holed = x.copy()
    holed[[2345, 7000, 12000], 1] = np.nan
    lazy = da.from_array(holed, chunks=(1000, 4))
    for estimator in (ICA(), Whitener()):
        with pytest.raises(InputError, match=r"row 2345, and perhaps others"):
            estimator.fit(lazy)
    with pytest.raises(InputError, match=r"row 2345, and perhaps others"):
        ICA(random_state=0).fit(x).transform(lazy)[2000:3000].compute()


def test_a_graphics_card_is_refused_on_workers(x, monkeypatch):
    monkeypatch.setattr(_unmixing, "resolve_device", lambda device, *arrays: "cuda")
    with pytest.raises(InputError, match="cannot be used for a dask array"):
        ICA(device="cuda").fit(da.from_array(x, chunks=(5000, 6)))


def test_a_data_frame_is_told_from_an_array():
    frame = type("DataFrame", (), {"to_dask_array": None})()
    with pytest.raises(InputError, match=r"X.to_dask_array\(lengths=True\) returns its rows"):
        ICA().fit(frame)


def test_workers_without_congruence_are_told_of(monkeypatch):
    class Bare:
        def run(self, function):
            raise ModuleNotFoundError("No module named 'congruence'")

    monkeypatch.setattr(blocks, "connected", Bare)
    with pytest.raises(MissingDependencyError, match="the workers cannot load congruence .*install the same version"):
        DaskRows(da.ones((5, 2)))


def test_threads_can_be_asked_for_beside_a_cluster(x):
    import dask

    with dask.config.set(scheduler="synchronous"):
        assert blocks.connected() is None
        assert_same_fit(ICA(random_state=0).fit(da.from_array(x, chunks=(5000, 6))), ICA(random_state=0).fit(x))


@pytest.mark.parametrize("name", CONTRASTS)
def test_contrasts_can_be_sent(name):
    assert pickle.loads(pickle.dumps(CONTRASTS[name])) is CONTRASTS[name]


@pytest.fixture(scope="module")
def cluster(local_cluster):
    """Two workers in processes of their own."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "5s"}),  # to a worker that was killed; by default 30 s
        local_cluster(n_workers=2, threads_per_worker=1, memory_limit="1GiB") as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "read anew"])
def test_a_cluster_gives_the_components_of_the_local_engine(x, client, monkeypatch, keep):
    monkeypatch.setattr(blocks, "KEPT", 0.4 if keep else 0.0)
    lazy = da.from_array(x, chunks=(2000, 6))
    ica = ICA(random_state=0).fit(lazy)
    assert_same_fit(ica, ICA(random_state=0).fit(x))
    assert_allclose(ica.transform(lazy).compute(), ica.transform(x), atol=1e-12)


def test_a_large_rotation_is_sent_without_a_warning(client):
    rows = DaskRows(da.ones((40, 1200), chunks=(20, -1)))
    there = DaskPasses(rows, np.zeros(1200), np.eye(1200), CONTRASTS["cube"])
    assert_allclose(np.diag(there.averages(np.eye(1200)).cross), 1)


def test_a_cluster_names_the_first_row_with_nan(x, client):
    holed = x.copy()
    holed[[2345, 12000]] = np.inf
    with pytest.raises(InputError, match="row 2345"):
        ICA().fit(da.from_array(holed, chunks=(1000, 6)))


def test_a_worker_that_dies_costs_time_and_not_the_answer(x, client, monkeypatch):
    seen, killed = [], []
    averages = DaskPasses.averages

    def watched(self, rotation, **options):
        seen.append(self)
        if len(seen) == 2:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)
        return averages(self, rotation, **options)

    monkeypatch.setattr(DaskPasses, "averages", watched)
    found = ICA(random_state=0).fit(da.from_array(x, chunks=(2000, 6)))
    assert len(seen) > 2
    assert killed[0] not in client.run(os.getpid).values()
    monkeypatch.undo()
    assert_same_fit(found, ICA(random_state=0).fit(x))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("KilledWorker", "several dask workers died"),
        ("CancelledError", "the dask scheduler was lost"),
        ("CommClosedError", "the dask scheduler was lost"),
    ],
)
def test_failures_of_the_cluster_are_explained(name, message, monkeypatch):
    kind = type(name, (Exception,), {})

    def fail(*tasks):
        raise type("OfAnotherVersion", (kind,), {})

    monkeypatch.setattr("dask.compute", fail)
    with pytest.raises(CongruenceError, match=message):
        blocks.compute([])
    with pytest.raises(CongruenceError, match=message), blocks.cluster_failures():  # around a command
        raise kind
