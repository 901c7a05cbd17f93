"""Tables whose values are dask arrays: workers read the part of the file that they need, and hold no more."""

import gc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from congruence.errors import TableError
from congruence.tables import lazy, read_table, write_table
from congruence.tables.parts import lazy_parts
from congruence.tables.table import Table

da = pytest.importorskip("dask.array", reason="dask is not installed")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lazy, "BLOCK_BYTES", 1)


def columns(n=50, dtype=np.float32):
    values = np.arange(3 * n).reshape(n, 3).astype(dtype)
    beside = {"doc": [f"d{i}" for i in range(n)], "Metadata_n": np.arange(n), "Metadata_t": ["é"] * n}
    return beside | {name: values[:, j] for j, name in enumerate("abc")}


def assert_same(found, whole):
    assert isinstance(found.values, da.Array)
    assert_array_equal(found.values.compute(), whole.values)
    assert found.values.dtype == whole.values.dtype
    assert (found.name, found.features, found.path) == (whole.name, whole.features, whole.path)
    assert_array_equal(found.ids, whole.ids)
    assert list(found.metadata) == list(whole.metadata)
    for name, column in whole.metadata.items():
        assert_array_equal(found.metadata[name], column)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (columns(), {"id": "doc"}),
        (columns(dtype=np.int64), {"id": "doc", "features": "a,c"}),
        (columns() | {"b": np.arange(50.0)}, {"metadata": "doc"}),
        ({"v": list(np.arange(100.0).reshape(50, 2)), "Metadata_n": np.arange(50)}, {}),
        ({name: columns()[name] for name in "abc"}, {"name": "other"}),
        ({name: columns()[name] for name in ("doc", "a")}, {"id": "doc"}),
    ],
    ids=["float32", "integers", "two dtypes", "lists", "values alone", "text beside"],
)
def test_row_groups_make_the_table_of_the_whole_file(given, options):
    pq.write_table(pa.table(given), "t.parquet", row_group_size=12)
    found = lazy_parts(["t.parquet"], **options)
    assert_same(found, read_table("t.parquet", **options))
    assert found.values.chunks[0] == (12, 12, 12, 12, 2)


def test_a_block_is_made_of_the_row_groups_it_needs(monkeypatch):
    pq.write_table(pa.table(columns()), "t.parquet", row_group_size=10)
    monkeypatch.setattr(lazy, "BLOCK_BYTES", 25 * 3 * 4)
    found = lazy_parts(["t.parquet"], id="doc").values
    assert found.chunks == ((20, 20, 10), (3,))
    asked = []
    read = lazy.GroupedRows._read
    monkeypatch.setattr(lazy.GroupedRows, "_read", lambda self, *given: asked.append(given) or read(self, *given))
    assert_array_equal(found[37:42, 1:].compute(scheduler="synchronous"), np.arange(150).reshape(50, 3)[37:42, 1:])
    assert sorted(asked, key=lambda given: given[1]) == [(range(3, 4), 30, 40), (range(4, 5), 40, 50)]


def test_lists_that_are_not_alike_are_named_by_their_block():
    rows = [[1.0, 2.0]] * 25
    rows[17] = [1.0]
    pq.write_table(pa.table({"v": rows}), "t.parquet", row_group_size=10)
    with pytest.raises(TableError, match=r"t.parquet \(from row 10 on\): column v is ragged.*row 7 has 1"):
        lazy_parts(["t.parquet"]).values.compute()
    rows[17] = [1.0, 2.0]
    rows[:10] = [[1.0, 2.0, 3.0]] * 10
    pq.write_table(pa.table({"v": rows}), "t.parquet", row_group_size=10)
    with pytest.raises(TableError, match="rows (10 to 20|20 to 25) are not 3 values each"):
        lazy_parts(["t.parquet"]).values.compute()


def test_a_file_that_workers_see_otherwise_is_refused():
    pq.write_table(pa.table(columns()), "t.parquet", row_group_size=10)
    found = lazy_parts(["t.parquet"], id="doc").values
    pq.write_table(pa.table(columns(40)), "t.parquet", row_group_size=10)
    with pytest.raises(TableError, match="is another file on a worker"):
        found.compute()
    Path("t.parquet").unlink()
    with pytest.raises(TableError, match="a worker does not find .*t.parquet"):
        found.compute()


def test_a_file_without_rows_is_refused():
    pq.write_table(pa.table(columns())[:0], "t.parquet")
    with pytest.raises(TableError, match="t.parquet has no rows"):
        lazy_parts(["t.parquet"], id="doc")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="not Linux")
@pytest.mark.parametrize("file", ["t.npy", "t.safetensors"])
def test_pages_of_a_mapped_file_are_given_back(file, monkeypatch):
    monkeypatch.setattr(lazy, "BLOCK_BYTES", 2**22)
    write_table(Table(np.ones((2**17, 64), np.float32), "t"), file)  # 32 MB
    blocks = lazy_parts([file]).values
    gc.collect()
    before = _mapped_bytes()
    assert sum(block.sum().compute(scheduler="synchronous") for block in blocks.blocks) == 2**23
    assert _mapped_bytes() - before < 2**23


def _mapped_bytes():
    return 1024 * int(Path("/proc/self/status").read_text().partition("RssFile:")[2].split()[0])
