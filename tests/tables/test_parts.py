"""Several files with the same columns are one table, however it is read."""

import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from congruence import memory
from congruence.errors import InputError, TableError
from congruence.tables import Table, read_parts, read_table, stream_parts, write_stream, write_table
from congruence.tables.parts import expanded, lazy_parts


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def whole(n=60, dtype=np.float32):
    ids = np.array([f"r{i}" for i in range(n)])
    return Table(np.arange(3 * n).reshape(n, 3).astype(dtype), "t", ids, {"Metadata_n": np.arange(n)}, tuple("abc"))


def write_split(table, name="part-{}.parquet", cuts=(25, 40)):
    edges = [0, *cuts, table.n]
    for i, (a, b) in enumerate(pairwise(edges)):
        ids = None if table.ids is None else table.ids[a:b]
        beside = {name: column[a:b] for name, column in table.metadata.items()}
        write_table(Table(table.values[a:b], "part", ids, beside, table.features), name.format(i))
    return [name.format(i) for i in range(len(edges) - 1)]


def lazily(paths, **wishes):
    pytest.importorskip("dask.array", reason="dask is not installed")
    table = lazy_parts(paths, **wishes)
    return Table(table.values.compute(), table.name, table.ids, table.metadata, table.features)


def streamed(paths, **wishes):
    write_stream(stream_parts(paths, **wishes), "all.parquet")
    return read_table("all.parquet", name="streamed")


def test_many_parts_are_read_with_the_memory_of_one(monkeypatch):
    monkeypatch.setattr(memory, "SPILL_BYTES", 2**23)
    part = np.random.default_rng(0).normal(size=(2**13, 16))  # 1 MB
    paths = [f"p{i:02d}.parquet" for i in range(24)]
    write_table(Table(part, "part"), paths[0])
    for path in paths[1:]:
        Path(path).write_bytes(Path(paths[0]).read_bytes())
    read_parts(paths[:1])  # loads the libraries
    tracemalloc.start()
    try:
        table = read_parts(paths)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(table.values, np.memmap)
    assert_array_equal(table.values, np.concatenate([part] * len(paths)))
    assert peak < 4 * part.nbytes


READERS = pytest.mark.parametrize("read", [read_parts, streamed, lazily])


@READERS
@pytest.mark.parametrize("name", ["part-{}.parquet", "part-{}.csv", "part-{}.npz"])
def test_parts_make_the_table_they_were_cut_from(read, name):
    table = whole(dtype=np.float64)
    found = read(write_split(table, name))
    assert_array_equal(found.values, table.values)
    assert_array_equal(found.ids, table.ids)
    assert_array_equal(found.metadata["Metadata_n"], table.metadata["Metadata_n"])
    assert found.features == table.features


@READERS
def test_the_first_part_decides_the_dtype(read):
    for i, dtype in enumerate((np.float64, np.float32)):
        write_table(Table(np.ones((4, 2), dtype), "t", features=("a", "b")), f"{i}.parquet")
    assert read(["0.parquet", "1.parquet"]).values.dtype == np.float64
    with pytest.raises(
        TableError, match=r"0.parquet does not have the columns of .*1.parquet: it holds float64 instead"
    ):
        read(["1.parquet", "0.parquet"])


@READERS
def test_a_part_may_have_no_rows(read):
    paths = write_split(whole())
    pq.write_table(pq.read_table(paths[0])[:0], "part-9.parquet")
    assert read([paths[0], "part-9.parquet", paths[1]]).n == 40


def test_many_rows_go_to_a_file(monkeypatch):
    monkeypatch.setattr(memory, "SPILL_BYTES", 0)
    found = read_parts(write_split(whole()))
    assert isinstance(found.values, np.memmap)
    assert (found.name, found.n) == ("part-0 and 2 more", 60)


def test_one_file_is_itself():
    (path,) = write_split(whole(), cuts=())
    assert read_parts([path]).name == "part-0"
    assert stream_parts([path]).n == 60
    assert lazily([path]).name == "part-0"


def test_patterns_stand_for_their_files_in_order():
    paths = write_split(whole())
    write_table(whole(), "odd[1].parquet")
    assert expanded(["part-*.parquet", Path("other.npy"), "odd[1].parquet"]) == [*paths, "other.npy", "odd[1].parquet"]
    with pytest.raises(InputError, match=r"no file matches nothing-\*.parquet"):
        expanded(["nothing-*.parquet"])


COLUMNS = {"id": ["x", "y"], "a": [1.0, 2.0], "b": [3.0, 4.0], "Metadata_n": [5, 6]}


@READERS
@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({name: COLUMNS[name] for name in ("id", "a", "Metadata_n")}, "it lacks b"),
        (COLUMNS | {"c": [1.0, 1.0]}, "it has c in addition"),
        ({"id": ["x", "y"], "a": [1.0, 2.0], "d": [1.0, 2.0]}, "it lacks b, Metadata_n and has d in addition"),
        ({name: COLUMNS[name] for name in ("id", "b", "a", "Metadata_n")}, "it has them in another order"),
        ({name: COLUMNS[name] for name in ("a", "b", "Metadata_n")}, "it has no ids instead of ids that are text"),
        (COLUMNS | {"id": [1, 2]}, "it has ids that are numbers instead of ids that are text"),
    ],
)
def test_files_with_other_columns_are_refused(read, other, message):
    pq.write_table(pa.table(COLUMNS), "0.parquet")
    pq.write_table(pa.table(other), "1.parquet")
    with pytest.raises(TableError, match=rf"1.parquet does not have the columns of .*0.parquet: {message}$"):
        read(["0.parquet", "1.parquet"])


@READERS
def test_matrices_of_other_widths_are_refused(read):
    np.save("0.npy", np.ones((5, 3)))
    np.save("1.npy", np.ones((5, 2)))
    with pytest.raises(TableError, match=r"1.npy does not have the columns of .*0.npy: it has 2 columns instead of 3"):
        read(["0.npy", "1.npy"])


@READERS
def test_files_that_cannot_be_parts_are_refused(read):
    paths = write_split(whole())
    np.save("x.npy", np.ones((5, 3)))
    with pytest.raises(TableError, match="must be of one format, but part-0.parquet and x.npy differ"):
        read([paths[0], "x.npy"])
    with pytest.raises(TableError, match="must be distinct; got more than one part-0.parquet"):
        read([paths[0], paths[1], f"./{paths[0]}"])
    with pytest.raises(InputError, match="paths must name at least one file"):
        read([])
    pq.write_table(pq.read_table(paths[0])[:0], "0.parquet")
    pq.write_table(pq.read_table(paths[0])[:0], "1.parquet")
    with pytest.raises(TableError, match="0 and 1 more: none of the files has rows"):
        read(["0.parquet", "1.parquet"])
