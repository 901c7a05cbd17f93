"""Hostile .csv, .parquet and .arrow files: absurd sizes, bombs, and names that are not only names."""

import gzip
import json
import pickle
import struct

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from congruence.tables import read_table

ABSURD = 10**12  # rows


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("text", [b"x,y\n" + b"1,2\n" * 2**19, b"x,y\n" + b'1,"' + b"a" * 2**21 + b'"\n'])
def test_a_gzip_bomb_is_refused_before_it_goes_off(tmp_path, refused, text):
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(text))
    refused(tmp_path / "x.csv.gz", "does not fit in memory")


def test_a_csv_whose_first_line_never_ends_is_refused(tmp_path, refused, monkeypatch):
    monkeypatch.setattr("congruence.tables._csv.HEADER_LIMIT", 1000)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"," * 2**20))
    refused(tmp_path / "x.csv.gz", "has no header: its first line is longer than 1000 characters")


@pytest.mark.usefixtures("small_memory")
def test_a_parquet_bomb_of_numbers_is_refused(tmp_path, refused):
    pq.write_table(pa.table({"x": np.zeros(2**18), "y": np.zeros(2**18)}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 10_000
    refused(tmp_path / "x.parquet", "does not fit in memory")


def thrift(number):
    """An integer as the footer of a parquet file holds it: zigzag, seven bits to a byte."""
    number, data = 2 * number, b""
    while number > 127:
        data, number = data + bytes([number & 127 | 128]), number >> 7
    return data + bytes([number])


def test_a_parquet_of_absurd_length_is_refused(tmp_path, refused):
    column = b"\x15\x08\x25\x00\x18\x01x\x00"  # a float, required, called x
    schema = b"\x15\x02\x19\x2c\x48\x01s\x15\x02\x00" + column
    footer = schema + b"\x16" + thrift(ABSURD) + b"\x19\x0c\x00"  # no row groups
    (tmp_path / "x.parquet").write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")
    refused(tmp_path / "x.parquet", "does not fit in memory: it would take 3725 GB")


def test_an_arrow_file_of_absurd_length_is_refused(tmp_path, refused):
    length, nothing = 123456789, pa.array([], pa.float32())
    lists = pa.Array.from_buffers(pa.list_(pa.float32(), 0), length, [None], children=[nothing])
    with pa.ipc.new_file(tmp_path / "x.arrow", pa.schema([("x", lists.type)])) as writer:
        writer.write_table(pa.table({"x": lists}))
    data = (tmp_path / "x.arrow").read_bytes()
    assert data.count(struct.pack("<q", length)) == 2
    data = data.replace(struct.pack("<q", length), struct.pack("<q", ABSURD))
    (tmp_path / "x.arrow").write_bytes(data)
    refused(tmp_path / "x.arrow", "does not fit in memory: it would take 7451 GB")


@pytest.mark.parametrize("is_file", [True, False])
def test_a_compressed_buffer_that_claims_terabytes_is_refused(tmp_path, refused, is_file):
    table = pa.table({"x": np.arange(1000.0), "y": pa.array(["a"] * 1000).dictionary_encode()})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    writer = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with writer(tmp_path / "x.arrow", table.schema, options=options) as sink:
        sink.write_table(table)
    data = (tmp_path / "x.arrow").read_bytes()
    assert data.count(struct.pack("<q", 8000)) == 1
    (tmp_path / "x.arrow").write_bytes(data.replace(struct.pack("<q", 8000), struct.pack("<q", 8 * ABSURD)))
    refused(tmp_path / "x.arrow", "does not fit in memory: it would take 7451 GB")


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_column_of_lists_counts_with_its_values(tmp_path, refused, suffix):
    table = pa.table({"x": pa.array(np.zeros((100, 2**12)).tolist())})
    if suffix == ".parquet":
        pq.write_table(table, tmp_path / "x.parquet")
    else:
        pyarrow.feather.write_feather(table, tmp_path / "x.feather", compression="zstd")
    assert (tmp_path / f"x{suffix}").stat().st_size < 50_000
    refused(tmp_path / f"x{suffix}", "does not fit in memory")


@pytest.mark.usefixtures("small_memory")
def test_a_long_text_a_thousand_times_is_refused(tmp_path, refused):
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), pa.array(["x" * 10_000]))
    schema = pa.schema([("Metadata_t", pa.string()), ("x", pa.float32())])
    table = pa.table({"Metadata_t": words.cast(pa.string()), "x": np.zeros(1000, np.float32)}, schema)
    pq.write_table(table, tmp_path / "x.parquet", store_schema=False)
    assert (tmp_path / "x.parquet").stat().st_size < 10_000
    refused(tmp_path / "x.parquet", "does not fit in memory: its text would take")


@pytest.mark.usefixtures("small_memory")
def test_a_word_used_a_thousand_times_exists_once(tmp_path):
    words = pa.DictionaryArray.from_arrays(pa.array([0, None] * 500, pa.int32()), pa.array(["x" * 10_000]))
    pyarrow.feather.write_feather(pa.table({"Metadata_t": words, "x": np.zeros(1000)}), tmp_path / "x.feather")
    column = read_table(tmp_path / "x.feather").metadata["Metadata_t"]
    assert column[0] is column[2]
    pq.write_table(pa.table({"Metadata_t": words, "x": np.zeros(1000)}), tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet").metadata["Metadata_t"].tolist() == column.tolist()
    assert column[1] is None


@pytest.mark.usefixtures("small_memory")
def test_views_of_one_long_text_are_refused(tmp_path, refused):
    view = struct.pack("<i4sii", 10_000, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(view * 1000), pa.py_buffer(b"x" * 10_000)]
    table = pa.table({"Metadata_t": pa.Array.from_buffers(pa.string_view(), 1000, buffers), "x": np.zeros(1000)})
    pyarrow.feather.write_feather(table, tmp_path / "x.arrow", compression="uncompressed")
    refused(tmp_path / "x.arrow", "does not fit in memory: its text would take")
    table = pa.table({"Metadata_t": pa.array(["a", None], pa.string_view()), "x": np.zeros(2)})
    pyarrow.feather.write_feather(table, tmp_path / "y.arrow", compression="uncompressed")
    assert read_table(tmp_path / "y.arrow").metadata["Metadata_t"].tolist() == ["a", None]


@pytest.mark.usefixtures("small_memory")
def test_ids_as_long_as_the_longest_are_refused(tmp_path, refused):
    ids = ["short"] * 999 + ["x" * 10_000]
    pq.write_table(pa.table({"id": ids, "x": np.zeros(1000)}), tmp_path / "x.parquet")
    refused(tmp_path / "x.parquet", "does not fit in memory: its ids would take")


def test_names_in_a_message_cannot_break_its_line(tmp_path, refused):
    (tmp_path / "x.csv").write_text('x,"evil\n\x1b[2J name"\n1,text\n')
    refused(tmp_path / "x.csv", r"has a column that is not numbers: evil\n\x1b[2J name")
    (tmp_path / "y.csv").write_text(f"x,{'long ' * 10_000}\n1,text\n")
    assert len(refused(tmp_path / "y.csv")) <= 1500


def test_notes_of_pandas_that_are_no_json_are_refused(tmp_path, refused):
    for note in (b"{", b"[]", b"\xff"):
        table = pa.table({"x": np.zeros(3)}).replace_schema_metadata({b"pandas": note})
        pq.write_table(table, tmp_path / "x.parquet")
        refused(tmp_path / "x.parquet", "could not be read as .parquet, it may be damaged")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_pickles_in_columns_and_types_are_not_run(tmp_path, payload, suffix):
    """Types that Arrow once unpickled by itself (CVE-2023-47248), and bytes that are a pickle."""
    pickled = pickle.dumps(payload)
    note = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": pickled}
    schema = pa.schema([pa.field("x", pa.float64(), metadata=note), ("Metadata_p", pa.binary())])
    table = pa.table({"x": np.zeros(3), "Metadata_p": [pickled] * 3}, schema)
    if suffix == ".parquet":
        pq.write_table(table, tmp_path / "x.parquet")
    else:
        pyarrow.feather.write_feather(table, tmp_path / "x.arrow")
    assert read_table(tmp_path / f"x{suffix}").metadata["Metadata_p"].tolist() == [pickled] * 3


def test_a_csv_of_blank_lines_is_refused_early(tmp_path, refused):
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"\n" * 2**26))
    refused(tmp_path / "x.csv.gz", "has no header")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_more_columns_than_can_be_read_are_refused(tmp_path, refused, suffix):
    names = [f"c{i}" for i in range(100_001)]
    text = (
        ",".join(names) + "\n" + "1.5," * 100_000 + "1.5\n" if suffix == ".csv" else json.dumps(dict.fromkeys(names, 1))
    )
    (tmp_path / f"x{suffix}").write_text(text + "\n")
    refused(tmp_path / f"x{suffix}", "has 100001 columns; at most 100000 are read")


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("between", ["\n", "", " "])
def test_json_lines_without_their_fields_take_memory_for_them(tmp_path, refused, between):
    first = json.dumps({f"c{i}": 1.5 for i in range(10)}) + "\n"
    (tmp_path / "x.jsonl").write_text(1000 * first + between.join(["{}"] * 10_000) + "\n")
    refused(tmp_path / "x.jsonl", "does not fit in memory")


@pytest.mark.parametrize("column", [pa.array([bytes(2**20)] * 200, pa.binary(2**20)), pa.array([[0.0] * 2**17] * 200)])
def test_wide_values_of_parquet_are_read_a_few_rows_at_a_time(tmp_path, monkeypatch, column):
    pq.write_table(pa.table({"a": np.zeros(200), "Metadata_x": column}), tmp_path / "x.parquet")
    rows, whole = [], pq.ParquetFile.iter_batches

    def iter_batches(self, *args, **options):
        for batch in whole(self, *args, **options):
            rows.append(batch.num_rows if "Metadata_x" in batch.schema.names else 0)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    key = "Metadata_x" if pa.types.is_list(column.type) else None
    assert read_table(tmp_path / "x.parquet", key=key).n == 200
    assert max(rows) <= 64
