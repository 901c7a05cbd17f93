from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from congruence import arrays
from congruence.errors import TableError
from congruence.files import PART
from congruence.tables import Stream, Table, _arrow, read_table, slices, stream_table, write_stream, write_table
from congruence.tables._arrow import _blocks


@pytest.fixture
def table(rng):
    return Table(
        rng.normal(size=(1000, 6)).astype(np.float32),
        "t",
        np.array([f"row{i}" for i in range(1000)]),
        {"Metadata_plate": np.array([f"p{i % 7}" for i in range(1000)], dtype=object)},
    )


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 8 * 6 * 130)
    monkeypatch.setattr(_arrow, "BLOCK_BYTES", 8 * 6 * 300)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv", ".npz", ".safetensors"])
@pytest.mark.parametrize("out", [".parquet", ".feather", ".csv", ".npz", ".h5ad", ".zarr"])
def test_what_streams_in_streams_out(suffix, out, table, tmp_path):
    write_table(table, tmp_path / f"in{suffix}")
    stream = stream_table(tmp_path / f"in{suffix}")
    assert stream.n == 1000
    write_stream(stream, tmp_path / f"out{out}")
    again = read_table(tmp_path / f"out{out}")
    assert_array_equal(again.values.astype(np.float32), table.values)
    assert_array_equal(again.ids, table.ids)
    assert_array_equal(again.metadata["Metadata_plate"], table.metadata["Metadata_plate"])


def test_parquet_and_maps_come_in_several_chunks(table, tmp_path):
    write_table(table, tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", table.values)
    for name in ("t.parquet", "t.npy"):
        chunks = list(stream_table(tmp_path / name).chunks)
        assert len(chunks) > 3
        assert_array_equal(np.concatenate([chunk.values for chunk in chunks]), table.values)


def test_npy_is_written_as_the_chunks_come(table, tmp_path):
    np.save(tmp_path / "in.npy", table.values)
    write_stream(stream_table(tmp_path / "in.npy"), tmp_path / "out.npy")
    assert_array_equal(np.load(tmp_path / "out.npy"), table.values)
    write_table(table, tmp_path / "in.parquet")
    with pytest.raises(TableError, match=r".npy would lose the ids or metadata; use .parquet"):
        write_stream(stream_table(tmp_path / "in.parquet"), tmp_path / "lost.npy")
    assert not (tmp_path / "lost.npy").exists()


def test_zarr_is_written_as_the_chunks_come(table, tmp_path):
    table = replace(table, features=tuple("abcdef"), metadata={"plate": table.metadata["Metadata_plate"]})
    longest = []

    def chunks():
        for chunk in slices(table):
            yield chunk
            longest.append(len(list(next(tmp_path.glob(f".*{PART}")).rglob("values/*.0"))))

    write_stream(Stream(1000, chunks()), tmp_path / "t.zarr")
    assert longest[:3] == [1, 2, 3]
    again = read_table(tmp_path / "t.zarr")
    assert_array_equal(again.values, table.values)
    assert again.features == table.features
    assert_array_equal(again.ids, table.ids)
    assert_array_equal(again.metadata["plate"], table.metadata["plate"])


def test_a_failure_half_way_leaves_nothing(table, tmp_path):
    def chunks():
        yield table
        raise KeyboardInterrupt

    for name in ("out.parquet", "out.csv", "out.arrow"):
        with pytest.raises(KeyboardInterrupt):
            write_stream(Stream(2000, chunks()), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_the_schema_of_the_file_says_which_column_is_the_id(table, tmp_path):
    write_table(table, tmp_path / "in.parquet")
    write_stream(stream_table(tmp_path / "in.parquet"), tmp_path / "out.parquet")
    assert pq.read_schema(tmp_path / "out.parquet").metadata[b"congruence.id"] == b"id"


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".arrow"])
def test_whole_numbers_may_be_missing_in_later_chunks_only(suffix, tmp_path):
    age = pa.array([*range(2000), None], pa.int64())
    pq.write_table(pa.table({"emb_0": np.arange(2001.0), "Metadata_age": age}), tmp_path / "in.parquet")
    path = tmp_path / f"out{suffix}"
    write_stream(stream_table(tmp_path / "in.parquet"), path)
    assert_array_equal(read_table(path).metadata["Metadata_age"], [*range(2000), np.nan])


def test_the_schema_is_asked_for_once_however_many_columns_there_are(tmp_path):
    class Counting(pq.ParquetFile):
        asked = 0

        @property
        def schema_arrow(self):
            self.asked += 1
            return super().schema_arrow

    names = [f"emb_{i}" for i in range(30)]
    words = {f"Metadata_{i}": ["a", "b"] for i in range(5)}
    pq.write_table(pa.table({name: [1.0, 2.0] for name in names} | words), tmp_path / "in.parquet")
    with Counting(tmp_path / "in.parquet") as file:

        def read(names, rows, most):
            return file.iter_batches(rows, columns=names)

        (block,) = _blocks(tmp_path / "in.parquet", file.schema_arrow, read, [*names, *words], 10, None)
        assert (block.num_columns, file.asked) == (35, 1)
