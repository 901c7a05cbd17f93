"""Large matrices go to a temporary file: the same numbers, no memory, and nothing left behind."""

import errno
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from congruence import compare, memory
from congruence.errors import InputError, TableError
from congruence.memory import load_matrix, room_for, spill_chunks, take_rows
from congruence.tables import Table, join_tables, read_table, write_table

X = np.arange(30_000, dtype=np.float32).reshape(10_000, 3)


@pytest.fixture
def spilling(monkeypatch, tmp_path):
    """Every matrix goes to a file, in a folder of its own, which is always empty."""
    folder = tmp_path / "spilled"
    folder.mkdir()
    monkeypatch.setattr(memory, "SPILL_BYTES", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert os.listdir(folder) == []


@pytest.fixture
def no_memory(monkeypatch):
    """Nothing fits in memory."""
    monkeypatch.setattr(memory, "max_bytes", lambda: 0)


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def in_file(values):
    return isinstance(values, np.memmap)


def test_small_matrices_stay_in_memory(monkeypatch):
    monkeypatch.setattr(memory, "SPILL_BYTES", 48)
    assert not in_file(room_for((3, 4), np.float32, "x"))
    assert in_file(room_for((3, 4), np.float64, "x"))


def test_a_large_matrix_is_a_file_without_a_name(spilling):
    values = room_for((3, 4), np.float32, "x")
    assert in_file(values)
    assert values.shape == (3, 4)
    assert values.dtype == np.float32
    values[:] = 7
    assert os.listdir(spilling) == []
    assert (values == 7).all()


def test_a_process_that_is_killed_leaves_nothing_behind(tmp_path):
    code = (
        "import os; from congruence import memory; memory.SPILL_BYTES = 0\n"
        "x = memory.room_for((1000, 10), 'f4', 'x'); x[:] = 1\n"
        "print(type(x).__name__, flush=True); os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == -9
    assert done.stdout.strip() == "memmap"
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("spilling")
def test_what_has_no_room_on_disk_goes_to_memory(monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    assert not in_file(room_for((3, 4), np.float32, "x"))


@pytest.mark.usefixtures("no_memory")
def test_what_has_room_nowhere_is_refused(monkeypatch, spilling):
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    sentence = f"and {spilling} has no room for it either (set TMPDIR to another folder)"
    with pytest.raises(TableError, match=re.escape(sentence)):
        room_for((3, 4), np.float32, "x.parquet")


def test_an_absurd_matrix_is_refused_before_disk_is_taken(monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: pytest.fail("it was tried"), raising=False)
    with pytest.raises(
        TableError, match=r"x.parquet does not fit in memory: it would take .* has no room for it either"
    ):
        room_for((10**12, 100), np.float32, "x.parquet")


@pytest.mark.usefixtures("no_memory", "spilling")
def test_a_missing_temporary_folder_is_said(monkeypatch):
    def nowhere():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(TableError, match=r"and the temporary folder has no room for it either \(set TMPDIR to"):
        room_for((3, 4), np.float32, "x")


@pytest.mark.usefixtures("spilling")
def test_the_limit_of_the_user_holds_for_files_as_well(monkeypatch):
    monkeypatch.setenv("CONGRUENCE_MAX_BYTES", "50")
    assert in_file(room_for((3, 4), np.float32, "x"))
    with pytest.raises(TableError, match=r"x does not fit in memory.*; CONGRUENCE_MAX_BYTES changes the limit"):
        room_for((3, 5), np.float32, "x")


@pytest.mark.usefixtures("spilling")
def test_systems_that_cannot_reserve_are_served(monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    values = room_for((3, 4), np.float32, "x")
    assert in_file(values)
    assert (values == 0).all()


@pytest.mark.parametrize("limit", [0, 2**28])
@settings(max_examples=30, deadline=None)
@given(
    values=hnp.arrays(st.sampled_from([np.float16, np.float32, np.float64]), hnp.array_shapes(min_dims=2, max_dims=2)),
    cuts=st.lists(st.integers(0, 10), max_size=5).map(sorted),
)
def test_chunks_are_stacked_as_concatenate_does(limit, values, cuts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "SPILL_BYTES", limit)
        stacked = spill_chunks(iter(np.split(values, cuts)))
    assert in_file(stacked) == (limit == 0)
    assert stacked.dtype == values.dtype
    assert stacked.flags.writeable
    assert_array_equal(stacked, values)


@pytest.mark.usefixtures("spilling")
def test_chunks_of_integers_other_byte_orders_and_strides_become_plain_floats():
    x = np.arange(12).reshape(4, 3)
    for chunk in (x, x.astype(">f4"), np.asfortranarray(x), x.astype(float)[::-1][::-1]):
        stacked = spill_chunks([chunk, chunk[1:]])
        assert stacked.dtype.kind == "f"
        assert stacked.dtype.isnative
        assert_array_equal(stacked, np.vstack([chunk, chunk[1:]]))


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([], "runs is empty: it has no chunk with rows"),
        ([X[:0]], "runs is empty: it has no chunk with rows"),
        ([X, X[:, :2]], "chunk 1 of runs has 2 columns, but the chunks before it have 3"),
        ([X, X.astype(float)], "chunk 1 of runs is float64, which the float32 of the first chunk cannot hold"),
        ([np.array([["a"]])], "chunk 0 of runs must hold real numbers, but its dtype is <U1"),
        ([X[0]], "chunk 0 of runs must be a matrix (rows, dimensions), but has shape (3,)"),
    ],
)
def test_chunks_that_do_not_make_a_matrix_are_refused(chunks, message):
    with pytest.raises(InputError, match=re.escape(message)):
        spill_chunks(chunks, "runs")


SMALL_DISK = """
import resource
import numpy as np
from congruence.errors import TableError
from congruence import memory

resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))
memory.SPILL_BYTES = 0
for rows, count in [(10_000, 1), (100, 1000), (8180, 2), (7, 3000)]:
    try:
        memory.spill_chunks([np.ones((rows, 1))] * count)
    except TableError as error:
        print(error)
"""


def test_chunks_that_fill_the_disk_are_refused(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SMALL_DISK], env=environment, capture_output=True, text=True, check=True
    )
    sentence = "x could not be stored on disk: File too large; set TMPDIR to another folder"
    assert done.stdout.splitlines() == [sentence] * 4
    assert os.listdir(tmp_path) == []


def test_what_goes_wrong_in_the_chunks_themselves_is_handed_on():
    with pytest.raises(FileNotFoundError):
        spill_chunks(np.load(name) for name in ["nowhere.npy"])


@given(index=st.lists(st.integers(0, 9), min_size=1))
def test_rows_are_taken_as_numpy_takes_them(index):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "SPILL_BYTES", 0)
        patch.setattr("congruence.arrays.CHUNK_BYTES", 100)  # a few rows at a time
        taken = take_rows(X[:10], np.array(index), "x")
    assert in_file(taken)
    assert_array_equal(taken, X[index])


@settings(max_examples=30, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    chunks=st.one_of(st.none(), st.tuples(st.integers(1, 20), st.integers(1, 20))),
    block=st.integers(1, 2000),
)
def test_blocks_of_any_size_cover_the_array(shape, chunks, block):
    x = np.random.default_rng(0).normal(size=shape)
    with h5py.File("x", "w", driver="core", backing_store=False) as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "BLOCK_BYTES", block)
        chunks = None if chunks is None else tuple(min(c, n) for c, n in zip(chunks, shape, strict=True))
        assert_array_equal(load_matrix(file.create_dataset("x", data=x, chunks=chunks), "x"), x)


@pytest.mark.usefixtures("spilling")
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".feather", ".zarr"])
def test_large_tables_are_read_into_files(tmp_path, suffix):
    write_table(Table(X, "a", np.arange(len(X))[::-1]), tmp_path / f"x{suffix}")
    table = read_table(tmp_path / f"x{suffix}")
    assert in_file(table.values)
    assert_array_equal(table.values, X)
    assert table.ids.astype(int).tolist() == list(range(len(X)))[::-1]


@pytest.mark.usefixtures("spilling")
def test_tables_larger_than_memory_are_read(tmp_path, monkeypatch):
    write_table(Table(X, "a"), tmp_path / "x.parquet")
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=X.shape, dtype="f4", chunks=(1000, 3))
    array[...] = X
    monkeypatch.setattr(memory, "max_bytes", lambda: X.nbytes // 2)
    for name in ("x.parquet", "x.zarr"):
        assert_array_equal(read_table(tmp_path / name).values, X)


@pytest.mark.usefixtures("spilling")
def test_a_large_h5ad_is_read_into_a_file(tmp_path, monkeypatch):
    write_table(Table(X, "a"), tmp_path / "x.h5ad")
    reserved = []
    monkeypatch.setattr(
        os, "posix_fallocate", lambda handle, start, size: reserved.append(size) or os.truncate(handle, size)
    )
    assert_array_equal(read_table(tmp_path / "x.h5ad").values, X)
    assert reserved == [X.nbytes]


@pytest.mark.usefixtures("spilling")
def test_sharded_zarr_is_read_shard_by_shard(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "BLOCK_BYTES", 1)
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=X.shape, dtype="f4", chunks=(500, 2), shards=(2000, 4))
    array[...] = X
    assert_array_equal(read_table(tmp_path / "x.zarr").values, X)


LISTS = [pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 3), pa.list_(pa.int64())]


@pytest.mark.usefixtures("spilling")
@pytest.mark.parametrize("type", LISTS, ids=str)
def test_large_columns_of_lists_are_read_into_files(tmp_path, type):
    rows = X.astype(np.int64).tolist() if pa.types.is_integer(type.value_type) else X.tolist()
    pq.write_table(pa.table({"id": [str(i) for i in range(len(X))], "v": pa.array(rows, type)}), tmp_path / "x.parquet")
    table = read_table(tmp_path / "x.parquet")
    assert in_file(table.values)
    assert_array_equal(table.values, X)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1.0], "column v is ragged: most rows have 3 values, but row 9000 has 1"),
        (None, r"no vector in 1 rows \(row 9000\)"),
    ],
)
def test_one_odd_list_far_down_is_found(tmp_path, row, message):
    rows = X.tolist()
    rows[9000] = row
    pq.write_table(pa.table({"v": pa.array(rows)}), tmp_path / "x.parquet")
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / "x.parquet")


@pytest.mark.usefixtures("spilling")
def test_rows_in_order_are_not_copied_and_others_go_to_a_file(rng):
    order = rng.permutation(len(X))[:7000]
    whole, part = Table(X, "a", np.arange(len(X))), Table(X[order] + 1, "b", order)
    same = join_tables([whole, Table(X, "c", np.arange(len(X)))])
    assert same.values[0] is whole.values
    joined = join_tables([whole, part])
    assert all(in_file(values) for values in joined.values)
    assert_array_equal(joined.values[0], X[np.sort(order)])
    assert_array_equal(joined.values[1], joined.values[0] + 1)


@pytest.mark.usefixtures("spilling")
def test_dropping_rows_gives_what_it_gives_in_memory(rng, monkeypatch):
    x, y = rng.normal(size=(2, 50, 3))
    x[7, 1] = np.nan
    spilled = compare([x, y], drop_missing=True, groups=["rigid"], nulls=2).to_json()
    monkeypatch.setattr(memory, "SPILL_BYTES", 2**28)
    assert spilled == compare([x, y], drop_missing=True, groups=["rigid"], nulls=2).to_json()


MEASURED = """
import sys
import numpy as np
import pyarrow.parquet
from congruence import memory
from congruence.tables import _arrow, join_tables, read_table

def private():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) * 1024

memory.SPILL_BYTES, _arrow.BLOCK_BYTES = int(sys.argv[1]), 2**22
read_table(sys.argv[2], features="x0")  # loads the libraries
before = private()
tables = [read_table(path) for path in sys.argv[2:]]
joined = join_tables(tables)
print(private() - before, sum(v.nbytes for v in joined.values))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="private memory is counted by Linux alone")
def test_reading_and_joining_takes_little_memory(tmp_path):
    n, d = 60_000, 128
    for name, ids in {"a": np.arange(n), "b": np.arange(n)[::-1]}.items():
        columns = {f"x{j}": np.full(n, j, np.float32) for j in range(d)}
        pq.write_table(pa.table({"id": ids, **columns}), tmp_path / f"{name}.parquet", row_group_size=20_000)

    def measured(limit):
        command = [sys.executable, "-c", MEASURED, str(limit), str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [int(word) for word in done.stdout.split()]

    in_memory, size = measured(2**40)
    spilled, _ = measured(2**20)
    assert spilled < size / 2
    assert in_memory > spilled + size / 3  # what was free before the matrix came is not counted
