"""Sums over blocks of rows are those of the same rows in memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.maps.groups import fit_group
from congruence.maps.nearness import measure, protocol
from congruence.rows import blocks
from congruence.rows.blocks import align_partitions, fetch_rows
from congruence.rows.engine import Rows
from congruence.rows.sums import pair_sums, run_sums

da = pytest.importorskip("dask.array", reason="dask is not installed")

N = 400


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    """Blocks are kept as they are given, however small."""
    monkeypatch.setattr(blocks, "PARTITION", 1)


def pair(dtype="float64", widths=(5, 3), far=10.0):
    rng = np.random.default_rng(0)
    common = rng.laplace(size=(N, 5))
    return [(50 * (common @ rng.normal(size=(5, d)) + far + rng.normal(size=(N, d)))).astype(dtype) for d in widths]


def rows_of(matrices, chunks, **options):
    """The same rows twice: as they are, and beside their blocks."""
    lazy = align_partitions([da.from_array(x, chunks=size) for x, size in zip(matrices, chunks, strict=True)])
    here = [Rows(x, **options) for x in matrices]
    return here, [Rows(x, **options, blocks=there) for x, there in zip(matrices, lazy, strict=True)]


def assert_same_sums(there, here):
    for one, other in zip(there, here, strict=True):
        assert_allclose(one.rows.mean, other.rows.mean, rtol=1e-12)
        assert_allclose(one.rows.rounding, other.rows.rounding, rtol=1e-12)
        assert_allclose(one.totals, other.totals, atol=1e-11 * np.sqrt(N * other.products.max()))
        assert_allclose(one.products, other.products, atol=1e-12 * other.products.max())
    cross, expected = pair_sums(*there), pair_sums(*here)
    assert_allclose(cross.products, expected.products, atol=1e-12 * np.abs(expected.products).max())


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_sums_do_not_depend_on_the_blocks(data):
    cuts = [sorted(data.draw(st.lists(st.integers(0, N), max_size=5))) for _ in range(2)]
    chunks = [(tuple(np.diff([0, *cut, N]).tolist()), 2) for cut in cuts]
    dtype = data.draw(st.sampled_from(["float64", "float32", "int16", ">f8"]))
    folds = protocol(N, folds=data.draw(st.sampled_from([2, 5, 200])), nulls=0, seed=1).folds
    here, there = rows_of(pair(dtype), chunks, scale_rows=data.draw(st.booleans()))
    assert_same_sums([run_sums(x, folds) for x in there], [run_sums(x, folds) for x in here])


def test_errors_are_those_of_rows_in_memory(monkeypatch):
    plan = protocol(N, nulls=2, bootstrap=10, cluster=np.arange(N) // 7, seed=0)
    fits = {group: lambda paired, fold, group=group: fit_group(paired, group) for group in ("permutation", "linear")}
    found = []
    for kept in (0.4, 0.0):
        monkeypatch.setattr(blocks, "KEPT", kept)
        for rows in rows_of(pair(), [(90, 5), (170, 3)]):
            found.append(measure(pair_sums(*(run_sums(x, plan.folds) for x in rows)), fits, 100.0, plan)[0])
    for other in found[1:]:
        for group in fits:
            assert_allclose(other[group].errors, found[0][group].errors, rtol=1e-9)
            for name in ("mean", "rms", "q95", "sup", "null"):
                assert_allclose(getattr(other[group], name), getattr(found[0][group], name), rtol=1e-9)


def test_rows_in_another_order_have_no_blocks():
    _, (x, y) = rows_of(pair(), [100, 100])
    order = np.random.default_rng(0).permutation(N)
    shuffled = run_sums(y, [np.arange(N)]).shuffled(order, inside_folds=True)
    assert shuffled.rows.blocks is None
    products = pair_sums(run_sums(x, [np.arange(N)]), shuffled).products[0]
    assert_allclose(products, (x.data - x.mean).T @ (y.data - y.mean)[order], rtol=1e-9)


@pytest.mark.parametrize("factor", [1e200, 1e-200, [1e-160, 1.0, 1.0]])
def test_what_cannot_be_squared_is_refused(factor):
    _, (x, _) = rows_of([part * factor for part in pair(widths=(3, 3))], [100, 100])
    with pytest.raises(InputError, match="too large or too small to be squared"):
        _ = x.mean


def test_a_block_of_nearly_nothing_is_no_reason_to_refuse_the_rows():
    x = pair()[0]
    x[:100] *= 1e-200
    (here, _), (there, _) = rows_of([x, x], [100, 100])
    assert_allclose(there.mean, here.mean, rtol=1e-12)


def test_partitions_are_those_of_the_first_and_long_enough_for_the_widest(monkeypatch):
    monkeypatch.setattr(blocks, "PARTITION", 8 * 4 * 50)
    narrow, wide = da.ones((200, 1), chunks=20), da.ones((200, 4), chunks=(70, 4))
    found = align_partitions([narrow, wide])
    assert [rows.array.chunks for rows in found] == [((60, 60, 60, 20), (1,)), ((60, 60, 60, 20), (4,))]


def test_rows_are_kept_only_if_all_runs_fit(monkeypatch):
    x = da.ones((100, 4), chunks=50)
    monkeypatch.setattr(blocks, "_memory", lambda: 1.5 * x.nbytes / blocks.KEPT)
    assert [rows.kept for rows in align_partitions([x])] == [True]
    assert [rows.kept for rows in align_partitions([x, x + 1])] == [False, False]


def test_rows_brought_here_are_not_held_twice():
    x = pair()[0]
    ((here, there),) = fetch_rows({"x": da.from_array(x, chunks=(130, 2))}).values()
    assert_array_equal(here, x)
    found = blocks.compute(list(there.array.to_delayed().ravel()))
    assert [len(block) for block in found] == [130, 130, 130, 10]
    assert all(np.shares_memory(block, here) for block in found)
