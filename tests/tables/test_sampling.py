import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from congruence import compare
from congruence.align import compare_layers
from congruence.errors import InputError
from congruence.tables import Table, gather
from congruence.tables._sampling import hash_labels, sample_by_hash

N = 300
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, N, 3))
IDS = np.array([f"cell{i}" for i in range(N)])
QUICK = {"groups": ["similarity"], "nulls": 2, "bootstrap": 10, "folds": 3}


def table(values, ids=IDS, order=slice(None), name="x", **metadata):
    columns = {key: np.asarray(column)[order] for key, column in metadata.items()}
    return Table(values[order], name, None if ids is None else ids[order], columns)


def sampled(*tables, **options):
    return gather(dict(zip("abc", tables, strict=False)), **options)


def test_the_hash_is_that_of_the_text_on_every_machine():
    assert hash_labels(np.array([1, 2]), 0).tolist() == hash_labels(np.array(["1", "2"]), 0).tolist()
    assert hash_labels(np.array(["cell0", "é"]), 7).tolist() == [14440808896494993293, 1565675971341347887]


def test_the_same_rows_are_sampled_in_any_order():
    first = sampled(table(X), table(Y), rows=50)
    again = sampled(table(X, order=RNG.permutation(N)), table(Y, order=RNG.permutation(N)), rows=50)
    assert len(first.ids) == 50
    assert set(first.ids) == set(again.ids)
    at = [int(one.removeprefix("cell")) for one in again.ids]
    assert_array_equal(again.values[0], X[at])
    assert_array_equal(again.values[1], Y[at])
    assert "50 of 300 rows were sampled by a hash of their id (seed 0)." in first.notes


@given(st.integers(4, 299), st.integers(0, 2**32 - 1), st.randoms(use_true_random=False))
def test_a_row_in_the_sample_is_in_the_sample_of_any_part_that_holds_it(rows, seed, random):
    part = np.sort(random.sample(range(N), random.randint(rows, N)))
    whole = set(sample_by_hash(N, rows, seed, ids=IDS).rows.tolist())
    found = sample_by_hash(len(part), rows, seed, ids=IDS[part])
    of_part = set(part.tolist()) if found is None else set(part[found.rows].tolist())
    assert whole & set(part.tolist()) <= of_part


def test_integers_and_their_text_are_the_same_ids_in_join_and_sample():
    numbers = np.arange(N) + 10**6
    both = sampled(table(X, numbers), table(Y, numbers.astype(str)), rows=40)
    alone = sampled(table(X, numbers), table(Y, numbers), rows=40)
    assert_array_equal(both.ids, alone.ids)


def test_rows_without_ids_are_sampled_by_position():
    one, other = sampled(X, Y, rows=50), sampled(Y, X, rows=50)
    assert_array_equal(one.values[0], other.values[1])
    assert one.notes == ["50 of 300 rows were sampled by a hash of their position (seed 0)."]
    assert not np.array_equal(sampled(X, Y, rows=50, seed=1).values[0], one.values[0])


@pytest.mark.parametrize("given_as", ["column", "array"])
def test_clusters_are_sampled_whole(given_as):
    plate = np.repeat([f"p{i}" for i in range(30)], 10)
    tables = [table(X, plate=plate), table(Y, plate=plate)]
    found = sampled(*tables, rows=45, cluster="plate" if given_as == "column" else plate)
    names, counts = np.unique(found.cluster, return_counts=True)
    assert len(names) == 5
    assert set(counts) == {10}
    assert "50 of 300 rows were sampled: 5 of 30 clusters, by a hash of their label (seed 0)." in found.notes


def test_a_sample_has_at_least_two_clusters():
    cluster = np.repeat([0, 1, 2], 100)
    assert len(np.unique(sampled(X, Y, rows=10, cluster=cluster).cluster)) == 2
    two = np.repeat([0, 1], 150)
    assert len(sampled(X, Y, rows=10, cluster=two).values[0]) == N


@pytest.mark.parametrize("rows", [N, N + 1])
def test_all_rows_are_taken_where_there_are_no_more(rows):
    found = sampled(X, Y, rows=rows)
    assert found.values[0] is X
    assert found.notes == []


def test_the_sample_is_drawn_from_the_paired_rows():
    found = sampled(table(X), table(Y, order=slice(100, None)), rows=50)
    assert len(found.ids) == 50
    assert "200 rows were paired by id; rows without a partner were left out: 100 of a." in found.notes
    assert "50 of 200 rows were sampled by a hash of their id (seed 0)." in found.notes


def test_values_of_other_rows_are_not_read(tmp_path):
    kept = sample_by_hash(N, 50, 0).rows
    holes = np.full_like(X, np.nan)
    holes[kept] = X[kept]
    np.save(tmp_path / "x.npy", holes)
    found = sampled(tmp_path / "x.npy", Y, rows=50)
    assert_array_equal(found.values[0], X[kept])


def test_missing_values_in_the_sample_are_refused_by_their_row_in_the_file():
    kept = sample_by_hash(N, 50, 0).rows
    holes = X.copy()
    holes[kept[3]] = np.nan
    with pytest.raises(InputError, match=rf"a in 1 row of 300 \(row {kept[3]}\)"):
        sampled(holes, Y, rows=50)
    found = sampled(holes, Y, rows=50, drop_missing=True)
    assert len(found.values[0]) == 49


def test_dask_arrays_are_sampled_like_arrays():
    lazy = [da.from_array(one, chunks=(100, 3)) for one in (X, Y)]
    ours, theirs = sampled(X, Y, rows=50), sampled(*lazy, rows=50)
    assert_array_equal(ours.values[0], theirs.values[0])
    assert compare(*lazy, rows=50, **QUICK).pairs[0].n == 50


@pytest.mark.parametrize("rows", [3, 0, -1, 2.5, "many", True])
def test_a_wrong_number_of_rows_is_refused(rows):
    with pytest.raises(InputError, match="rows must be an integer of at least 4"):
        compare(X, Y, rows=rows, **QUICK)


def test_results_say_which_rows_were_sampled():
    result = compare(X, Y, rows=100, seed=3, **QUICK)
    assert result.settings["rows"] == 100
    assert "100 of 300 rows were sampled by a hash of their position (seed 3)." in result.notes
    assert [run.n for run in result.runs] == [N, N]
    layers = compare_layers({"one": X}, {"one": Y}, rows=100, nulls=1)
    assert layers.n == 100
    assert layers.settings["rows"] == 100
    assert compare(X, Y, **QUICK).settings["rows"] is None


def test_a_sample_is_compared_as_its_rows_alone():
    frames = [pd.DataFrame(values, index=IDS) for values in (X, Y)]
    result = compare(*frames, rows=60, **QUICK)
    alone = compare(*(frame.loc[result.ids] for frame in frames), **QUICK)
    found, expected = (one.pairs[0].groups["similarity"] for one in (result, alone))
    assert_allclose(found.errors, expected.errors)
    assert_allclose(found.null, expected.null)
