import re
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from anndata import AnnData
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from congruence import ICA, Aligner, Whitener, compare, component_stability, consensus, diameter, fit_map
from congruence.errors import InputError, InputWarning, PairedByPositionWarning, TableError
from congruence.files import describe_file
from congruence.ica import resolve
from congruence.tables import Table, as_paired, as_rows, as_table, gather, write_table

N = 40
X = np.random.default_rng(0).normal(size=(N, 3))
Y = np.random.default_rng(1).normal(size=(N, 3))
ORDER = np.random.default_rng(2).permutation(N)
NAMES = [f"cell{i}" for i in range(N)]
QUICK = {"groups": ["similarity"], "nulls": 2, "bootstrap": 10, "folds": 3}


def frame(values=X, **columns):
    return pd.DataFrame({**columns, **{f"emb_{j}": values[:, j] for j in range(values.shape[1])}})


def in_parts(folder):
    folder.mkdir()
    for i in range(2):
        frame(X[20 * i : 20 * i + 20]).to_parquet(folder / f"part{i}.parquet", index=False)
    return folder


def mapped(folder):
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


KINDS = {
    "numpy": lambda folder: X,
    "list": lambda folder: X.tolist(),
    "memory map": mapped,
    "tensor": lambda folder: torch.from_numpy(X),
    "dask": lambda folder: da.from_array(X, chunks=(16, 3)),
    "sparse": lambda folder: sparse.csr_matrix(X),
    "pandas": lambda folder: frame(),
    "pandas with a text column": lambda folder: frame(cell=NAMES),
    "pandas with vectors": lambda folder: pd.DataFrame({"v": list(X), "plate": ["p"] * N}),
    "polars": lambda folder: pl.from_pandas(frame()),
    "polars with vectors": lambda folder: pl.DataFrame({"k": NAMES, "v": pl.Series(X, dtype=pl.Array(pl.Float64, 3))}),
    "polars with lists": lambda folder: pl.DataFrame({"k": NAMES, "v": X.tolist()}),
    "pyarrow": lambda folder: pa.Table.from_pandas(frame(), preserve_index=False),
    "AnnData": lambda folder: AnnData(X, obs=pd.DataFrame(index=NAMES)),
    "Table": lambda folder: Table(X, "t"),
    "path": lambda folder: (np.save(folder / "p.npy", X), folder / "p.npy")[1],
    "pattern": lambda folder: f"{in_parts(folder / 'parts')}/*.parquet",
    "folder": lambda folder: in_parts(folder / "parts"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_gives_the_same_rows(kind, tmp_path):
    table = as_table(KINDS[kind](tmp_path))
    values = table.values.compute() if kind == "dask" else table.values
    assert_array_equal(np.asarray(values), X)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_can_be_compared_with_itself(kind, tmp_path):
    run = KINDS[kind](tmp_path)
    inputs = gather({"a": run, "b": run})
    assert_array_equal(np.asarray(inputs.values[1]), X)
    assert compare({"a": run, "b": run}, **QUICK).pairs[0].groups["similarity"].sup < 1e-6


def test_arrays_stay_where_they_are(tmp_path):
    tensor, lazy, on_disk = torch.from_numpy(X), da.from_array(X, chunks=(16, 3)), mapped(tmp_path)
    assert as_table(tensor).values is tensor
    assert as_table(lazy).values is lazy
    assert as_table(on_disk).values is on_disk
    inputs = gather([tensor, on_disk])
    assert inputs.values[0] is tensor
    assert inputs.values[1] is on_disk
    assert gather([lazy, X]).blocks[0] is not None


def test_runs_may_be_stacked():
    inputs = gather(np.stack([X, Y]))
    assert inputs.names == ["run0", "run1"]
    assert_array_equal(inputs.values[1], Y)
    assert gather(torch.from_numpy(np.stack([X, Y]))).names == ["run0", "run1"]


# Ids


def test_the_ids_of_a_frame_are_its_id_column_or_its_index():
    assert as_table(frame(cell=NAMES)).ids.tolist() == NAMES
    assert as_table(frame(cell=range(100, 100 + N)), id="cell").ids[0] == 100
    assert as_table(frame().set_axis(NAMES)).ids.tolist() == NAMES
    assert as_table(frame().iloc[ORDER]).ids.tolist() == ORDER.tolist()
    assert as_table(frame().iloc[10:]).ids.tolist() == list(range(10, N))
    assert as_table(frame()).ids is None
    assert as_table(frame().set_index(pd.date_range("2020-01-01", periods=N))).ids[0].startswith("2020-01-01")
    both = frame().set_index(pd.MultiIndex.from_product([["a", "b"], range(N // 2)]))
    assert as_table(both).ids[0] == "('a', 0)"


def test_an_index_saved_by_pandas_means_the_same_in_a_file(tmp_path):
    for name in ("x.csv", "x.parquet"):
        for shuffled in (frame().iloc[ORDER], frame().iloc[10:], frame()):
            getattr(shuffled, f"to_{name[2:]}")(tmp_path / name)
            ids, expected = as_table(tmp_path / name).ids, as_table(shuffled).ids
            assert (ids is None) == (expected is None)
            assert ids is None or ids.astype(int).tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_files_with_a_shuffled_index_are_joined(name, tmp_path):
    first, second = tmp_path / f"a{name}", tmp_path / f"b{name}"
    getattr(frame(), f"to_{name[2:]}")(first)
    getattr(frame().iloc[ORDER], f"to_{name[2:]}")(second)
    inputs = gather([first, second])
    assert inputs.by_id
    assert_array_equal(inputs.values[0], inputs.values[1])


def test_the_id_and_metadata_of_anndata(tmp_path):
    obs = pd.DataFrame({"plate": ["p", "q"] * (N // 2), "well": range(N)}, index=NAMES)
    data = AnnData(X, obs=obs, obsm={"pca": Y, "named": pd.DataFrame(Y, index=NAMES, columns=list("abc"))})
    assert as_table(data).ids.tolist() == NAMES
    assert list(as_table(data).metadata) == ["plate", "well"]
    assert_array_equal(as_table(data, key="pca").values, Y)
    assert as_table(data, key="named", features="a,c").features == ("a", "c")
    assert as_table(data, id="well").ids.tolist() == list(range(N))
    assert_array_equal(as_table(AnnData(sparse.csr_matrix(X), obs=obs)).values, X)
    data.write_h5ad(tmp_path / "d.h5ad")
    for key in ("X", "pca", "named"):
        assert_array_equal(as_table(tmp_path / "d.h5ad", key=key).values, as_table(data, key=key).values)


def test_a_table_can_be_given_another_id_and_fewer_features():
    table = Table(X, "t", metadata={"k": np.arange(N)}, features=("a", "b", "c"))
    assert as_table(table, id="k").ids.tolist() == list(range(N))
    assert not as_table(table, id="k").metadata
    assert_array_equal(as_table(table, features="a,c").values, X[:, [0, 2]])
    assert as_table(table, name="u").name == "u"


# Columns that could be ids


def test_a_column_named_like_an_id_is_the_id():
    for name in ("cell_id", "ID", "docId", "uuid", "sample", "Index", "image.id"):
        table = as_table(frame(**{name: ORDER + 1000}))
        assert (table.d, table.ids.tolist()) == (3, (ORDER + 1000).tolist())
        assert table.notes == (f"Column {name} is taken as the row id.",)


def test_a_column_of_distinct_integers_is_left_out_and_named():
    for serial in (ORDER + 1000, (ORDER + 1000).astype(float), [np.nan, *range(N - 1)]):
        table = as_table(frame(serial=serial))
        assert table.features == ("emb_0", "emb_1", "emb_2")
        assert "serial" in table.metadata
        assert table.ids is None
        assert "Left out of the embedding as possible row ids (columns of distinct integers): serial" in table.notes[0]
    assert as_table(frame(serial=ORDER), features="*").d == 4
    assert as_table(frame(serial=ORDER), features=["serial", "emb_0"]).notes == ()


def test_a_column_named_like_an_id_that_repeats_is_left_out_and_named():
    table = as_table(frame(plate_id=np.arange(N) % 4))
    assert (table.d, table.ids) == (3, None)
    assert table.notes[0].startswith("Left out of the embedding because they are named like an id: plate_id;")


def test_counts_are_kept():
    rng = np.random.default_rng(0)
    counts = rng.poisson(5, size=(N, 30))
    assert as_table(pd.DataFrame(counts).add_prefix("gene")).notes == ()
    counts[:, :10] = rng.permuted(np.tile(np.arange(N), (10, 1)), axis=1).T * 1000
    table = as_table(pd.DataFrame(counts).add_prefix("gene"))
    assert table.d == 30
    assert table.notes[0].startswith("Part of the embedding, although these columns of distinct integers could be row")
    one_id = as_table(pd.DataFrame(counts[:, 10:]).add_prefix("gene").assign(serial=ORDER))
    assert one_id.d == 20
    assert "serial" in one_id.notes[0]


def test_a_number_that_is_damaged_does_not_make_an_id(tmp_path):
    frame(name2=[*map(str, X[:-1, 0]), "oops"]).to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(TableError, match=r"not numbers: name2 \('oops' in row 39\)"):
        as_table(tmp_path / "x.csv")


def write_runs(folder, suffix, **ids):
    for name, values in (("a", X), ("b", Y)):
        run = frame(values, **{column: of[name] for column, of in ids.items()})
        if suffix == ".csv":
            run.to_csv(folder / f"{name}.csv", index=False)
        else:
            run.to_parquet(folder / f"{name}.parquet", index=False)
    return [folder / f"a{suffix}", folder / f"b{suffix}"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("name", ["cell_id", "serial"])
def test_unrelated_runs_with_an_integer_id_are_not_near(suffix, name, tmp_path):
    files = write_runs(tmp_path, suffix, **{name: {"a": ORDER + 10**6, "b": ORDER[::-1] + 10**6}})
    result = compare(files, **QUICK)
    assert result.runs[0].d == 3
    assert result.settings["paired"] == "by id"
    assert result.pairs[0].verdict.status != "holds"
    assert any(f"Column {name}" in note and "taken as the row id" in note for note in result.notes)
    back = np.argsort(ORDER[::-1])[ORDER]
    expected = compare({"a": X, "b": Y[back]}, **QUICK)
    assert_allclose(result.pairs[0].groups["similarity"].mean, expected.pairs[0].groups["similarity"].mean)


def test_integers_that_differ_between_runs_are_no_ids(tmp_path):
    files = write_runs(tmp_path, ".csv", serial={"a": ORDER, "b": ORDER + 7})
    inputs = gather(files)
    assert not inputs.by_id
    assert inputs.values[0].shape == (N, 3)


def test_runs_keep_the_same_columns():
    inputs = gather({"a": frame(X, serial=ORDER), "b": frame(Y, serial=[7] * N)})
    assert inputs.features == [("emb_0", "emb_1", "emb_2")] * 2
    assert "Left out of b, because they could be row ids in another run: serial." in inputs.notes


def test_columns_that_look_like_ids_in_arrays_are_named():
    rows = np.arange(N)[:, None]
    inputs = gather({"a": np.hstack([rows, X]), "b": np.hstack([rows, Y])})
    assert "Columns that are identical in all runs, as ids would be: 0." in inputs.notes
    assert "Column 0 of a has 98.3 % of the variance." not in inputs.notes
    wide = gather({"a": np.hstack([1000 * rows, X]), "b": Y})
    assert wide.notes == ["Column 0 of a has 100 % of the variance."]
    named = gather({"a": frame(X, same=X[:, 0] * 0.5), "b": frame(Y, same=X[:, 0] * 0.5)})
    assert named.notes == ["Columns that are identical in all runs, as ids would be: same."]
    assert gather([X, X]).notes == []
    assert gather([np.hstack([X, 0 * rows]), np.hstack([Y, 0 * rows])]).notes == []


# Joins


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_shuffled_frames_give_the_same_answer(library):
    first, second = frame(X, cell=NAMES), frame(Y, cell=NAMES).iloc[ORDER].reset_index(drop=True)
    convert = {"pandas": lambda x: x, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}[library]
    runs = {"a": convert(first), "b": convert(second)}
    assert_allclose(fit(*runs.values()), fit_map(X, Y).matrix)
    result = compare(runs, **QUICK)
    expected = compare({"a": X, "b": Y}, **QUICK).pairs[0]
    assert_allclose(result.pairs[0].groups["similarity"].held_out.mean, expected.groups["similarity"].held_out.mean)
    assert_allclose(consensus(runs, nulls=0, bootstrap=0).values, consensus([X, Y], nulls=0, bootstrap=0).values)


def fit(x, y):
    with pytest.warns(InputWarning, match="Column cell is taken as the row id"):
        return fit_map(x, y).matrix


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_join_pairs_the_rows_that_share_an_id(data):
    ids = st.lists(st.integers(-5, 30), min_size=1, max_size=20, unique=True)
    first, second = data.draw(ids), data.draw(ids)
    shared = [one for one in first if one in second]
    x, y = (np.column_stack([np.array(one) * 0.5 + 0.3, np.array(one) ** 2 + 0.25]) for one in (first, second))
    runs = {"a": pd.DataFrame(x, index=pd.Index(first)), "b": pd.DataFrame(y, index=pd.Index(second))}
    default = [list(one) == list(range(len(one))) for one in (first, second)]
    if all(default) and len(first) != len(second):
        with pytest.raises(TableError, match="numbers must agree"):
            gather(runs)
    elif not shared:
        with pytest.raises(TableError, match="no id is in all tables"):
            gather(runs)
    else:
        inputs = gather(runs)
        assert_array_equal(inputs.values[0], inputs.values[1])
        assert len(inputs.values[0]) == len(shared)
        assert inputs.by_id != all(default)


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(12)), st.permutations(range(12)))
def test_the_order_of_rows_does_not_matter(first, second):
    one = frame(X[:12], k=NAMES[:12]).iloc[list(first)].reset_index(drop=True)
    other = frame(Y[:12], k=NAMES[:12]).iloc[list(second)].reset_index(drop=True)
    inputs = gather([one, pl.from_pandas(other)])
    assert_array_equal(inputs.values[0], X[list(first)])
    assert_array_equal(inputs.values[1], Y[list(first)])


def test_frames_beside_arrays_are_paired_by_position_with_a_warning():
    shuffled = frame().iloc[ORDER]
    with pytest.warns(PairedByPositionWarning, match="because run1 has no ids"):
        inputs = gather([shuffled, Y])
    assert not inputs.by_id
    with pytest.raises(TableError, match="numbers must agree: run0 has 40, run1 has 39"):
        gather([shuffled, Y[1:]])
    with pytest.warns(PairedByPositionWarning):
        gather([frame().set_axis(NAMES), frame()])  # names say more than counting, but not to a frame without them


def test_rows_that_repeat_in_frames_with_the_same_index_are_paired():
    again = frame().iloc[[0, 0, 1, 2, 3]]
    assert_array_equal(as_paired(again, again)[0], X[[0, 0, 1, 2, 3]])
    with pytest.raises(TableError, match="x has 1 ids more than once: 0"):
        as_paired(again, again.iloc[::-1])


def test_clusters_and_labels_follow_the_rows_of_the_first_run():
    first, second = frame(X, k=NAMES).iloc[5:], frame(Y, k=NAMES).iloc[ORDER]
    plates = np.arange(N) % 4
    inputs = gather([second, first], cluster=plates[ORDER], labels=plates[ORDER])
    expected = [i % 4 for i in ORDER if i >= 5]
    assert inputs.cluster.tolist() == expected
    assert inputs.labels.tolist() == expected
    named = gather([second.assign(Metadata_plate=plates[ORDER]), first], cluster="plate")
    assert named.cluster.tolist() == expected
    assert "35 rows were paired by id; rows without a partner were left out: 5 of run0." in inputs.notes


def test_rows_are_dropped_only_where_asked():
    holed = X.copy()
    holed[3, 1] = np.nan
    with pytest.raises(TableError, match=r"NaN or infinite values: run0 in 1 row of 40 \(row 3\), all in emb_1"):
        gather([frame(holed), frame(Y)])
    inputs = gather([frame(holed), frame(Y)], drop_missing=True)
    assert inputs.notes == ["Rows with NaN or infinite values were left out: 1 of run0."]
    assert_array_equal(inputs.values[1], np.delete(Y, 3, axis=0))


# Functions that take rows


def test_an_aligner_joins_frames_by_id():
    x, y = frame(X), frame(Y)
    straight = Aligner().fit(X, Y)
    for other in (y, y.iloc[ORDER]):
        aligner = Aligner().fit(x, other)
        assert_allclose(aligner.map_.matrix, straight.map_.matrix)
        assert_allclose(aligner.score(x, other), straight.score(X, Y))
    assert list(aligner.feature_names_in_) == ["emb_0", "emb_1", "emb_2"]
    assert_allclose(aligner.transform(x), straight.transform(X))
    assert_allclose(Aligner().fit(x, y["emb_0"].iloc[ORDER]).map_.matrix, Aligner().fit(X, Y[:, 0]).map_.matrix)
    with pytest.raises(TableError, match="no id is in all tables"):
        Aligner().fit(x, y.set_axis(range(1000, 1000 + N)))


@pytest.mark.parametrize("estimator", [Whitener(), ICA(random_state=0)], ids=["Whitener", "ICA"])
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "AnnData"])
def test_estimators_leave_ids_out(estimator, library):
    z = np.random.default_rng(0).laplace(size=(400, 3))
    table = frame(z, serial=np.random.default_rng(1).permutation(400))
    convert = {
        "pandas": lambda x: x,
        "polars": pl.from_pandas,
        "pyarrow": pa.Table.from_pandas,
        "AnnData": lambda x: AnnData(z, obs=x[["serial"]].set_axis(map(str, range(400)))),
    }[library]
    expected = estimator.fit(z).transform(z)
    if library == "AnnData":
        estimator.fit(convert(table))
    else:
        with pytest.warns(InputWarning, match=r"columns of distinct integers\): serial"):
            estimator.fit(convert(table))
    assert_allclose(estimator.transform(convert(table)), expected)
    assert_allclose(estimator.transform(convert(table.head(2) if library != "AnnData" else table))[:2], expected[:2])


def test_small_functions_take_every_kind_of_input(tmp_path):
    path = tmp_path / "x.parquet"
    write_table(Table(X, "x", np.array(NAMES)), path)
    for rows in (X, path, frame(), pl.from_pandas(frame()), as_table(path)):
        assert diameter(rows).value == diameter(X).value
        assert_array_equal(as_rows(rows), X)
    with pytest.warns(InputWarning, match="serial"):
        assert diameter(frame(serial=ORDER)).value == diameter(X).value
    z = np.random.default_rng(0).laplace(size=(500, 2))
    found = component_stability(frame(z, serial=np.arange(500)), restarts=1, bootstrap=2)
    assert "serial" in found.notes[0]


def test_inputs_name_their_files(tmp_path):
    folder = in_parts(tmp_path / "parts")
    np.save(tmp_path / "x.npy", X)
    inputs = gather([folder, tmp_path / "x.npy", f"{folder}/*.parquet", X])
    assert inputs.names == ["parts", "x", "*", "run3"]
    paths = [folder, tmp_path / "x.npy", folder / "part0.parquet", folder / "part1.parquet"]
    assert inputs.files == tuple(describe_file(path) for path in paths)


def test_notes_of_some_runs_name_them(tmp_path):
    inputs = gather({"a": frame(serial=ORDER), "b": frame(Y), "c": frame(serial=ORDER)})
    assert inputs.notes[0].startswith("a, c: Left out of the embedding")


def test_options_reach_every_run_that_can_honour_them(tmp_path):
    np.savez(tmp_path / "x.npz", one=X, other=Y)
    data = AnnData(X, obsm={"other": Y})
    with pytest.warns(PairedByPositionWarning):
        inputs = gather([data, tmp_path / "x.npz"], key="other")
    assert_array_equal(inputs.values[0], inputs.values[1])


# Errors


@pytest.mark.parametrize(
    ("runs", "options", "message"),
    [
        (X, {}, "comparing takes at least 2 runs, but an array of shape (40, 3) was given; pass a list of runs, a map"),
        (frame(), {}, "comparing takes at least 2 runs, but an array of shape (40, 3) was given"),
        (3, {}, "comparing takes at least 2 runs, but one int was given"),
        ([X], {}, "comparing takes at least 2 runs, but 1 was given"),
        ({}, {}, "no runs given"),
        ([Table(X, "t"), Table(Y, "t")], {}, None),
        ({1: X, "1": Y}, {}, "runs must have different names, but are called 1, 1"),
        ([X, Y], {"id": "k"}, "run0 cannot be read with id (--id): an array has no named columns"),
        ([X, Y], {"features": "a"}, "features (--features) does not apply to ndarray"),
        ([X, Y], {"cluster": "plate"}, "cluster='plate' names a metadata column, but the runs have none"),
        ([X, Y], {"labels": "plate"}, "labels='plate' names a metadata column, but the runs have none"),
        ([X, Y], {"cluster": [1, 2]}, "cluster must have one label per row, shape (40,), but has shape (2,)"),
        ([X, Y], {"cluster": [None, *range(N - 1)]}, "cluster has missing labels (row 0)"),
        (
            [frame(plate=range(N)), Y],
            {"labels": "well"},
            "run0 has no metadata column 'well' to take labels from; it has",
        ),
        ([frame(), frame()], {"id": "k"}, "run0 has no column 'k' for id (--id); it has emb_0, emb_1, emb_2"),
        ([frame(), frame()], {"features": "pc_*"}, "no column of run0 matches features (--features) 'pc_*'"),
        ([frame(plate=["p", "q"] * 20), Y], {}, "run0 has a column that is not numbers: plate (string)"),
        (
            [frame().set_axis(NAMES), frame().set_axis([f"other{i}" for i in range(N)])],
            {},
            "no id is in all tables: run0 has cell0, cell1, cell2, ...; run1 has other0, other1, other2, ...",
        ),
    ],
)
def test_what_is_wrong_with_runs_is_said(runs, options, message):
    if message is None:
        assert gather(runs).names == ["t", "t#2"]
        return
    with pytest.raises(InputError, match=re.escape(message)):
        gather(runs, **options)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (X[:, 0], {}, "x must be a matrix (rows, dimensions), but has shape (40,)"),
        (
            X,
            {"features": "a", "key": "k"},
            "x cannot be read with features (--features) and key (--key): an array has no named columns",
        ),
        (pl.from_pandas(frame()).lazy(), {}, "x is a lazy frame; x.collect() returns its rows"),
        (pd.DataFrame({"a": [1, "x", None]}), {}, "x has columns that cannot be read"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), {}, "x has several columns of the same name: a"),
        (pd.DataFrame({"v": [[1.0, 2.0], [1.0]]}), {}, "x: column v is ragged"),
        (AnnData(X), {"key": "pca"}, "x has no matrix 'pca' (--key); it has X"),
        (AnnData(X), {"id": "well"}, "x has no obs column 'well' for id (--id); it has none"),
        (
            AnnData(X),
            {"metadata": "well"},
            "x cannot be read with metadata (--metadata): AnnData stores metadata separately",
        ),
        (AnnData(X, obsm={"pca": Y}), {"key": "pca", "features": "a"}, "the columns of obsm 'pca' have no names"),
        (Table(X, "t"), {"id": "well"}, "t has no metadata column 'well' for id (--id); it has none"),
        (Table(X, "t"), {"key": "a"}, "t cannot be read with key (--key): it is a table already"),
    ],
)
def test_what_cannot_be_a_table_is_said(x, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        as_table(x, **options)


def test_sparse_matrices_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setenv("CONGRUENCE_MAX_BYTES", "1000")
    with pytest.raises(TableError, match=r"the sparse matrix of shape \(1000, 50\) when dense would take"):
        as_table(sparse.eye(1000, 50))


def test_folders_without_tables_are_refused(tmp_path):
    with pytest.raises(TableError, match="is a folder without embedding files; known are .npy"):
        as_table(tmp_path)
    with pytest.raises(InputError, match="no file matches"):
        as_table(Path(tmp_path) / "*.parquet")


def test_paired_arrays_must_have_the_same_number_of_rows():
    with pytest.raises(InputError, match="x and y must have paired rows, but x has 40 and y has 39"):
        as_paired(X, Y[1:])


def test_parts_are_read_as_their_first_file_is(tmp_path):
    table = frame(serial=[*range(20), *([7] * 20)], week=[1] * N)
    for i in range(2):
        table.iloc[20 * i : 20 * i + 20].to_csv(tmp_path / f"part{i}.csv", index=False)
    parts = as_table(tmp_path)
    assert parts.features == ("week", "emb_0", "emb_1", "emb_2")
    assert parts.metadata["serial"].tolist() == table["serial"].tolist()
    assert (parts.name, parts.path) == (tmp_path.name, tmp_path)


def test_resolve_leaves_ids_out_of_a_frame_and_says_so():
    z = np.random.default_rng(0).laplace(size=(400, 3))
    result = resolve(frame(z, serial=np.random.default_rng(1).permutation(400)), seed=0)
    assert result.ica.n_features_in_ == 3
    assert any("serial" in str(note) for note in result.notes)
