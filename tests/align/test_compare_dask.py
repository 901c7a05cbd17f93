"""Dask arrays are compared as the same rows are in memory."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence import compare, consensus, memory
from congruence.errors import InputError
from congruence.rows import blocks
from congruence.tables import Table, gather

da = pytest.importorskip("dask.array", reason="dask is not installed")

N, D = 900, 4
QUICK = {"nulls": 3, "bootstrap": 20, "seed": 1}


@pytest.fixture(scope="module")
def runs():
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(N, D)) @ rng.normal(size=(D, D)) + 5
    return x, x @ np.linalg.qr(rng.normal(size=(D, D)))[0] + 0.1 * rng.normal(size=(N, D))


def numbers(found):
    """All numbers of a comparison in one row."""
    flat = []

    def walk(node):
        if isinstance(node, dict):
            node = list(node.values())
        if isinstance(node, list):
            for one in node:
                walk(one)
        elif isinstance(node, float | int):
            flat.append(float(node))

    walk(found.numbers()["pairs"])
    return np.array(flat + [error for pair in found.pairs for near in pair.groups.values() for error in near.errors])


@pytest.mark.parametrize(
    "options", [{}, {"normalize": "cosine", "directions": "both"}, {"similarities": "all"}], ids=str
)
def test_numbers_are_those_of_the_same_rows_in_memory(runs, options):
    lazy = [da.from_array(runs[0], chunks=(250, 3)), da.from_array(runs[1], chunks=(901, 4))]
    there, here = (compare(given, **QUICK, **options) for given in (lazy, list(runs)))
    assert len(numbers(here)) > 6 * N
    assert_allclose(numbers(there), numbers(here), rtol=1e-9, atol=1e-12)
    assert there.verdict == here.verdict


def test_an_array_may_be_compared_with_a_dask_array_and_rows_need_not_be_counted(runs):
    lazy = da.from_array(runs[1], chunks=200)
    options = {"groups": ["rigid"], **QUICK}
    keep = runs[1][:, 0] > -4
    there = compare({"a": runs[0][keep], "b": lazy[lazy[:, 0] > -4]}, **options)
    assert_allclose(numbers(there), numbers(compare({"a": runs[0][keep], "b": runs[1][keep]}, **options)), rtol=1e-9)


def test_tables_of_dask_arrays_are_joined_by_id(runs):
    ids = np.array([f"r{i}" for i in range(N)])
    order = np.random.default_rng(0).permutation(N)
    tables = [Table(runs[0], "a", ids), Table(runs[1][order], "b", ids[order])]
    lazy = [Table(da.from_array(t.values, chunks=(300, 4)), t.name, t.ids) for t in tables]
    there, here = (compare(given, groups=["similarity"], **QUICK) for given in (lazy, tables))
    assert_allclose(numbers(there), numbers(here), rtol=1e-9)
    assert there.settings["paired"] == "by id"


def test_consensus_takes_them_too(runs):
    lazy = [da.from_array(x, chunks=(400, 2)) for x in runs]
    assert consensus(lazy).held_out == consensus(list(runs)).held_out


def test_many_rows_go_to_a_file_a_few_blocks_at_a_time(runs, monkeypatch):
    alive = []
    monkeypatch.setattr(memory, "SPILL_BYTES", 0)
    monkeypatch.setattr(blocks.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(blocks, "compute", _watching(blocks.compute, alive))
    inputs = gather([da.from_array(x, chunks=(100, D)) for x in runs])
    assert all(isinstance(values, np.memmap) for values in inputs.values)
    assert max(alive) == 2
    assert sum(alive) == 18


def _watching(compute, counts):
    def watched(tasks):
        counts.append(len(tasks))
        return compute(tasks)

    return watched


def test_missing_rows_are_named_or_left_out(runs):
    holed = runs[1].copy()
    holed[[17, 600], 2] = np.nan
    lazy = [da.from_array(x, chunks=(200, D)) for x in (runs[0], holed)]
    with pytest.raises(InputError, match=r"NaN or infinite values: run1 in 2 rows of 900 \(row 17, 600\)"):
        compare(lazy)
    found = compare(lazy, drop_missing=True, groups=["rigid"], **QUICK)
    assert found.pairs[0].n == N - 2


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda a: [a, a[:50]], "numbers must agree: run0 has 900, run1 has 50"),
        (lambda a: [a, a[:, 0]], r"run1 must be a matrix \(rows, dimensions\), but has shape \(900,\)"),
        (lambda a: [a, a > 0], "run1 must hold real numbers"),
        (lambda a: [a, a[:0]], "run1 is empty"),
    ],
)
def test_what_cannot_be_compared_is_refused(runs, work, message):
    with warnings.catch_warnings(), pytest.raises(InputError, match=message):
        compare(work(da.from_array(runs[0], chunks=(200, D))))
