"""What is summed over the true pairs of a comparison is summed where dask has the rows."""

import os
import signal
from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence import compare
from congruence.errors import InputError
from congruence.maps import nearness
from congruence.rows import blocks, engine, sums
from congruence.rows.blocks import DaskRows
from congruence.tables import Table, gather

da = pytest.importorskip("dask.array", reason="dask is not installed")

N = 900
QUICK = {"nulls": 2, "bootstrap": 20, "seed": 1}
UNEVEN = ((1, 400, 0, 99, 400), 2)


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    """Blocks are kept as they are given, however small."""
    monkeypatch.setattr(blocks, "PARTITION", 1)


@pytest.fixture(scope="module")
def runs():
    """Two runs, the second of them narrower."""
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(N, 4)) @ rng.normal(size=(4, 4)) + 5
    return x, (x @ np.linalg.qr(rng.normal(size=(4, 3)))[0] + 0.1 * rng.normal(size=(N, 3))).astype(np.float32)


def lazily(runs):
    return [da.from_array(x, chunks=size) for x, size in zip(runs, (UNEVEN, (250, 3)), strict=True)]


def assert_same(there, here):
    assert there.verdict == here.verdict
    for one, other in zip(there.pairs, here.pairs, strict=True):
        assert_allclose(one.diameter, other.diameter, rtol=1e-9)
        for name in ("cka", "neighbour_overlap"):
            score, expected = getattr(one, name), getattr(other, name)
            assert_allclose(score.value, expected.value, rtol=1e-9)
            assert_allclose(score.null, expected.null, rtol=1e-9, atol=1e-12)
        assert_allclose([one.mcc.strong, one.mcc.weak], [other.mcc.strong, other.mcc.weak], rtol=1e-9)
        for group, near in other.groups.items():
            found = one.groups[group]
            assert_allclose(found.errors, near.errors, rtol=1e-9, atol=1e-12)
            numbers = [(n.mean, n.rms, n.q95, n.sup, n.null, n.held_out.low, n.held_out.high) for n in (found, near)]
            assert_allclose(*numbers, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [{}, {"normalize": "cosine"}, {"cluster": np.arange(N) // 5}, {"directions": "both", "groups": ["linear"]}],
    ids=["plain", "cosine", "cluster", "both ways"],
)
def test_numbers_are_those_of_the_same_rows_in_memory(runs, options):
    there, here = (compare(list(given), **QUICK, **options) for given in (lazily(runs), runs))
    assert_same(there, here)


def test_the_same_blocks_give_the_same_bits(runs):
    first, second = (compare(lazily(runs), **QUICK, groups=["linear"]) for _ in range(2))
    assert first.to_json() == second.to_json()
    assert_array_equal(first.pairs[0].groups["linear"].errors, second.pairs[0].groups["linear"].errors)


def watched(monkeypatch):
    """How many tasks there were of each kind."""
    tasks, each = Counter(), DaskRows.each

    def watching(self, work, *shared, **options):
        made = each(self, work, *shared, **options)
        tasks[getattr(work, "args", [work])[0].__name__] += len(made)
        return made

    monkeypatch.setattr(DaskRows, "each", watching)
    return tasks


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "read anew"])
def test_every_sum_is_a_task_per_block(runs, monkeypatch, keep):
    tasks = watched(monkeypatch)
    if not keep:
        monkeypatch.setattr(DaskRows, "__init__", _never_kept(DaskRows.__init__))
    compare(lazily(runs), groups=["rigid", "ica"], **QUICK)
    expected = {"_powers": 2 * 4, "_sum_block": 2 * 4 + 4}
    if keep:
        expected["_block_errors"] = 4 + sum(4 - (not fold) for fold in _folds_of_the_first_row())
    assert tasks == expected


def _never_kept(make):
    return lambda self, array, *, kept=None: make(self, array, kept=False)


def _folds_of_the_first_row():
    """For each fold whether it has row 0, which is a block of its own."""
    return [0 in fold for fold in nearness.protocol(N, seed=1, nulls=0).folds]


def test_rows_that_were_moved_or_left_out_are_summed_here(runs):
    holed = runs[1].copy()
    holed[17] = np.nan
    assert gather(lazily([runs[0], holed]), drop_missing=True).blocks == [None, None]
    ids = np.array([f"r{i}" for i in range(N)])
    order = np.random.default_rng(0).permutation(N)
    x, y = lazily(runs)
    inputs = gather([Table(x, "a", ids), Table(y, "b", ids[order])])
    assert isinstance(inputs.blocks[0], DaskRows)
    assert inputs.blocks[1] is None
    assert gather([x, runs[1]]).blocks[1] is None


def test_a_graphics_card_sums_rows_here(runs):
    inputs = gather(lazily(runs))
    assert all(isinstance(rows.blocks, DaskRows) for rows in inputs.rows("cpu", None))
    assert [rows.blocks for rows in inputs.rows("cuda", None)] == [None, None]


def test_what_cannot_be_squared_is_named(runs):
    with pytest.raises(InputError, match="run1: the values are too large"):
        compare([lazily(runs)[1], lazily(runs)[0] * 1e200])


@pytest.fixture(scope="module")
def cluster(local_cluster):
    """Two workers in processes of their own."""
    with local_cluster(n_workers=2, threads_per_worker=1, memory_limit="1GiB") as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "read anew"])
def test_a_cluster_gives_the_numbers_of_rows_in_memory(runs, client, monkeypatch, keep):
    monkeypatch.setattr(blocks, "KEPT", 0.4 if keep else 0.0)
    options = {"groups": ["permutation", "similarity"], **QUICK}
    assert_same(compare(lazily(runs), **options), compare(list(runs), **options))


def test_nothing_is_summed_here(runs, client, monkeypatch):
    def refuse(*given):
        raise AssertionError("summed here")

    options = {"groups": ["linear"], "nulls": 0, "normalize": "cosine"}
    here = compare(list(runs), **options)
    reduce_rows = engine.reduce_rows
    on_workers = lambda data, *given: (reduce_rows if isinstance(data, DaskRows) else refuse)(data, *given)  # noqa: E731
    monkeypatch.setattr(engine, "reduce_rows", on_workers)
    monkeypatch.setattr(sums, "_fold_sums", refuse)
    monkeypatch.setattr(sums, "_fold_products", refuse)
    monkeypatch.setattr(nearness, "row_errors", refuse)
    there = compare(lazily(runs), **options)
    assert_allclose(there.pairs[0].groups["linear"].errors, here.pairs[0].groups["linear"].errors, rtol=1e-9)


def test_a_cluster_names_the_rows_with_nan(runs, client):
    holed = runs[1].copy()
    holed[[17, 600], 2] = np.nan
    with pytest.raises(InputError, match=r"NaN or infinite values: run1 in 2 rows of 900 \(row 17, 600\)"):
        compare(lazily([runs[0], holed]))


def test_a_worker_that_dies_costs_time_and_not_the_answer(runs, client, monkeypatch):
    killed, reduce_rows = [], sums.reduce_rows

    def killing(data, work, merge, folds, runs, **options):
        if len(runs) == 2:  # the cross products
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)
        return reduce_rows(data, work, merge, folds, runs, **options)

    monkeypatch.setattr(sums, "reduce_rows", killing)
    options = {"groups": ["rigid"], **QUICK}
    there = compare(lazily(runs), **options)
    assert len(killed) == 1
    assert killed[0] not in client.run(os.getpid).values()
    monkeypatch.undo()
    assert_same(there, compare(list(runs), **options))
