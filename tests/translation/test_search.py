import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from congruence.translation import _search as module
from congruence.translation._search import Block, Queries, draw_levels, search


def data(seed, n=60, m=20, d=3):
    rng = np.random.default_rng(seed)
    index, new = rng.normal(size=(n, d)), rng.normal(size=(n, d + 1))
    own = rng.permutation(n)[:m]
    old = index[own]
    vectors = [old, old + 0.3 * rng.normal(size=old.shape), rng.normal(size=old.shape), new[own]]
    return index, new, Queries(*vectors, other=vectors[1][::-1], own=own), rng


def blocks(index, new, rng, size):
    level = draw_levels(len(index), rng)
    for i in range(0, len(index), size):
        yield Block(i, index[i : i + size], level[i : i + size], new[i : i + size])


def plain(queries, index, new):
    """The same by sorting all distances."""

    def ranking(x, y):
        distances = np.linalg.norm(y[None] - x[:, None], axis=2)
        distances[np.arange(len(x)), queries.own] = np.inf
        return np.argsort(distances, axis=1)[:, : len(y) - 1]

    names = {"truth": queries.old, "guess": queries.translated, "raw": queries.raw, "null": queries.other}
    found = {name: ranking(x, index) for name, x in names.items()}
    return found | {"full": ranking(queries.new, new)}


def overlap(a, b):
    return np.array([len(set(x) & set(y)) / 10 for x, y in zip(a, b, strict=True)])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), size=st.sampled_from([1, 7, 60, 100]), device=st.sampled_from(["cpu", "cpu:0"]))
def test_blocks_of_any_size_find_what_sorting_finds(seed, size, device):
    """On "cpu:0" the search runs with torch, as it does on a GPU."""
    index, new, queries, rng = data(seed)
    found, expected = search(queries, blocks(index, new, rng, size), device), plain(queries, index, new)
    assert (found.size, found.k) == (60, 10)
    truth = expected["truth"][:, :10]
    for depth in (10, 20, 50):
        assert_allclose(found.contained(depth), overlap(truth, expected["guess"][:, :depth]))
    assert_allclose(found.before, overlap(truth, expected["raw"][:, :10]))
    assert_allclose(found.null, overlap(truth, expected["null"][:, :10]))
    assert_allclose(found.full, overlap(expected["full"][:, :10], expected["guess"][:, :10]))
    assert_allclose(found.full_old, overlap(expected["full"][:, :10], truth))
    assert_allclose(found.one, expected["guess"][:, 0] == truth[:, 0])
    assert (found.results["old"] == truth).all()
    assert (found.results["translated"] == expected["guess"][:, :10]).all()
    assert (found.results["new"] == expected["full"][:, :10]).all()
    reach = found.reaches(0.99)
    assert found.contained(reach).mean() >= 0.99 - 1e-9 > found.contained(reach - 1).mean()


def test_memory_is_that_of_a_block(monkeypatch):
    """No array of all queries times all rows is made."""
    index, new, queries, rng = data(0, n=4000, m=100)
    seen = []
    real = module._squared_distances
    monkeypatch.setattr(module, "_squared_distances", lambda x, y: seen.append((len(x), len(y))) or real(x, y))
    search(queries, blocks(index, new, rng, 50))
    assert max(seen) == (100, 50)


def test_subsets_of_the_index_are_random_halves(rng):
    levels = draw_levels(8000, rng)
    sizes = [(levels >= j).sum() for j in range(module.SUBSETS)]
    assert_allclose(sizes, [8000, 4000, 2000, 1000], rtol=0.1)


@pytest.mark.parametrize("stored", ["float64", "float32", "float16"])
def test_without_positions_equal_rows_are_left_out(stored):
    index, new, queries, _ = data(1)
    index = index.astype(stored).astype(float)
    apart = Queries(queries.old, queries.translated, queries.raw, queries.new, queries.other, own=None)
    found = search(apart, [Block(0, index, np.zeros(60, int), new)])
    known = search(queries, [Block(0, index, np.zeros(60, int), new)])
    assert (found.results["old"] == known.results["old"]).all()
    assert_allclose(found.contained(10), known.contained(10))


@pytest.mark.parametrize("n", [2, 5, 11])
def test_a_tiny_index_has_fewer_neighbours(n):
    index, new, queries, rng = data(2, n=n, m=2)
    found = search(queries, blocks(index, new, rng, 3))
    assert found.k == min(10, n - 1)
    assert_allclose(found.contained(10), 1)
