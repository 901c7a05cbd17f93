import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from congruence.errors import TableError
from congruence.tables import _arrow, read_table

X = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
COLUMNS = {f"emb_{i}": X[:, i] for i in range(3)}


def save(path, columns):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.fixture(params=[".parquet", ".feather", ".arrow"])
def path(request, tmp_path):
    return tmp_path / f"run{request.param}"


def test_float32_columns_become_a_contiguous_float32_matrix(path):
    table = read_table(save(path, COLUMNS))
    assert table.values.dtype == np.float32
    assert table.values.flags.c_contiguous
    assert_array_equal(table.values, X)
    assert table.features == ("emb_0", "emb_1", "emb_2")
    assert table.ids is None


def test_rows_keep_their_order_across_blocks(path, monkeypatch):
    monkeypatch.setattr(_arrow, "BLOCK_BYTES", 1)
    x = np.arange(3000.0).reshape(1000, 3)
    columns = {f"x{i}": x[:, i] for i in range(3)} | {"id": np.arange(1000)}
    table = read_table(save(path, columns))
    assert_array_equal(table.values, x)
    assert_array_equal(table.ids, np.arange(1000))


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["float16", "float16"], np.float16),
        (["float16", "float32"], np.float32),
        (["float32", "float64"], np.float64),
        (["float32", "int8"], np.float64),
        (["int64", "uint8"], np.float64),
    ],
)
def test_the_widest_column_decides_the_dtype(path, types, expected):
    columns = {str(i): np.array([1, 2, 3]).astype(dtype) for i, dtype in enumerate(types)}
    values = read_table(save(path, columns)).values
    assert values.dtype == expected
    assert_array_equal(values, [[1, 1], [2, 2], [3, 3]])


def test_decimals_are_numbers(path):
    columns = {"x": pa.array([1, 2], pa.decimal128(5, 2)), "y": [1.0, 2.0]}
    assert_array_equal(read_table(save(path, columns)).values, [[1, 1], [2, 2]])


def test_nulls_become_nan(path):
    columns = {"x": pa.array([1.0, None, 3.0], pa.float32()), "y": pa.array([1, 2, None], pa.int64())}
    assert_array_equal(read_table(save(path, columns)).values, [[1, 1], [np.nan, 2], [3, np.nan]])


def test_ids_and_metadata_come_along(path):
    columns = {
        "Metadata_plate": ["p", None, "q", "q"],
        "Metadata_dose": pa.array([1, None, 3, 4]),
        "Metadata_ok": [True, False, True, True],
        "Metadata_kind": pa.array(["u", "v", "u", "v"]).dictionary_encode(),
        "Metadata_day": pa.array([0, 1, 2, 3], pa.timestamp("us")),
        "Metadata_cell": ["007", "a", "b", "c"],
        **COLUMNS,
    }
    table = read_table(save(path, columns), id="cell")
    assert table.ids.tolist() == ["007", "a", "b", "c"]
    assert table.metadata["Metadata_plate"].tolist() == ["p", None, "q", "q"]
    assert_array_equal(table.metadata["Metadata_dose"], [1, np.nan, 3, 4])
    assert table.metadata["Metadata_ok"].dtype == bool
    assert table.metadata["Metadata_kind"].tolist() == ["u", "v", "u", "v"]
    assert table.metadata["Metadata_day"].dtype.kind == "M"
    assert "Metadata_cell" not in table.metadata


def test_features_are_chosen_by_pattern(path):
    table = read_table(save(path, {"species": ["a"] * 4, "area": [1, 2, 3, 4], **COLUMNS}), features="emb_*")
    assert_array_equal(table.values, X)
    assert list(table.metadata) == ["species", "area"]


def test_columns_that_are_not_numbers_are_named(path):
    columns = {"species": ["a"] * 4, "ok": [True] * 4, "empty": pa.nulls(4), **COLUMNS}
    with pytest.raises(
        TableError, match=re.escape("columns that are not numbers: species (string), ok (bool), empty (empty);")
    ):
        read_table(save(path, columns))


def test_null_ids_are_named_by_row(path):
    columns = {"id": ["a", None, "c", None], **COLUMNS}
    with pytest.raises(TableError, match=r"has no id in 2 rows of 4 \(row 1, 3\)"):
        read_table(save(path, columns))


@pytest.mark.parametrize("type", [pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 3)])
def test_a_column_of_lists_is_a_matrix(path, type):
    columns = {"id": [5, 6, 7, 8], "text": ["a", "b", "c", "d"], "vec": pa.array(X.tolist(), type)}
    table = read_table(save(path, columns))
    assert table.values.dtype == np.float32
    assert_array_equal(table.values, X)
    assert table.features == ("vec_0", "vec_1", "vec_2")
    assert table.ids.tolist() == [5, 6, 7, 8]
    assert table.metadata["text"].tolist() == ["a", "b", "c", "d"]


def test_a_column_of_lists_in_several_pieces_is_put_together(path):
    piece = pa.table({"vec": pa.array(X.tolist(), pa.list_(pa.float32()))})
    sliced = piece.slice(1, 2)  # starts inside its buffer
    assert_array_equal(read_table(save(path, pa.concat_tables([piece, sliced]))).values, np.vstack([X, X[1:3]]))


def test_lists_of_integers_become_float64_and_missing_entries_nan(path):
    table = read_table(save(path, {"vec": pa.array([[1, 2], [3, None]], pa.list_(pa.int64()))}))
    assert_array_equal(table.values, [[1, 2], [3, np.nan]])
    whole = read_table(save(path, {"vec": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64()))}))
    assert whole.values.dtype == np.float64


def test_an_uncompressed_column_of_lists_is_used_where_it_lies(tmp_path):
    columns = pa.table({"vec": pa.array(X.tolist(), pa.list_(pa.float32(), 3))})
    path = tmp_path / "run.feather"
    pyarrow.feather.write_feather(columns, path, compression="uncompressed")
    assert not read_table(path).values.flags.owndata
    assert not read_table(path).values.flags.writeable


def test_a_key_chooses_the_column_of_lists(path):
    vectors = pa.array(X.tolist(), pa.list_(pa.float32()))
    columns = {"a": vectors, "b": pa.array((X + 1).tolist(), pa.list_(pa.float32()))}
    assert_array_equal(read_table(save(path, columns), key="b").values, X + 1)
    with pytest.raises(TableError, match=r"possible \(a, b\); name it with key \(--key\)"):
        read_table(path)


def test_ragged_lists_are_named_by_row_and_length(path):
    columns = {"vec": pa.array([[1.0, 2.0], [1.0], [3.0, 4.0], [1.0, 2.0, 3.0]])}
    with pytest.raises(TableError, match="column vec is ragged: most rows have 2 values, but row 1 has 1, row 3 has 3"):
        read_table(save(path, columns))


def test_null_lists_are_named_by_row(path):
    columns = {"vec": pa.array([[1.0, 2.0], None, [3.0, 4.0]])}
    with pytest.raises(TableError, match=r"column vec has no vector in 1 rows \(row 1\)"):
        read_table(save(path, columns))


def test_lists_of_text_are_not_an_embedding(path):
    table = read_table(save(path, {"tags": [["a"], ["b"], [], ["c"]], **COLUMNS}), features="emb_*")
    assert_array_equal(table.values, X)
    assert table.metadata == {}


def test_empty_tables_are_refused(path):
    with pytest.raises(TableError, match=re.escape("is empty: its shape is (0, 1)")):
        read_table(save(path, {"x": pa.array([], pa.float32())}))
    with pytest.raises(TableError, match=re.escape("is empty: its shape is (0, 0)")):
        read_table(save(path, {"vec": pa.array([], pa.list_(pa.float32()))}))


def test_columns_of_the_same_name_are_refused(path):
    doubled = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["x", "x"])
    with pytest.raises(TableError, match="has several columns of the same name: x"):
        read_table(save(path, doubled))


def test_a_dot_in_a_column_name_is_no_path(path):
    assert_array_equal(read_table(save(path, {"a.b": [1.0, 2.0], "a": [3.0, 4.0]})).values, [[1, 3], [2, 4]])


@pytest.mark.parametrize("name", [None, "sample"])
def test_an_integer_index_of_pandas_serves_as_ids(tmp_path, name):
    frame = pd.DataFrame(COLUMNS, index=pd.Index([4, 3, 2, 1], name=name))
    frame.to_parquet(tmp_path / "run.parquet")
    table = read_table(tmp_path / "run.parquet")
    assert_array_equal(table.values, X)
    assert table.ids.tolist() == [4, 3, 2, 1]
    assert not table.metadata


@pytest.mark.parametrize("name", [None, "sample"])
def test_a_pandas_index_of_names_serves_as_ids(tmp_path, name):
    pd.DataFrame(COLUMNS, index=pd.Index(list("wxyz"), name=name)).to_parquet(tmp_path / "run.parquet")
    table = read_table(tmp_path / "run.parquet")
    assert table.ids.tolist() == ["w", "x", "y", "z"]
    assert_array_equal(table.values, X)


def test_a_plain_pandas_frame_has_no_ids(tmp_path):
    pd.DataFrame(COLUMNS).to_parquet(tmp_path / "run.parquet")
    table = read_table(tmp_path / "run.parquet")
    assert (table.ids, table.metadata) == (None, {})


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_files_of_polars_with_categories_are_read(tmp_path, compression):
    words = pl.Series(["a", None, "b", "a"], dtype=pl.Categorical)
    frame = pl.DataFrame({"id": list("wxyz"), "Metadata_word": words, "x": [1.0, 2.0, 3.0, 4.0]})
    pl.concat([frame, frame], rechunk=False).write_ipc(tmp_path / "run.arrow", compression=compression)
    table = read_table(tmp_path / "run.arrow")
    assert table.metadata["Metadata_word"].tolist() == 2 * ["a", None, "b", "a"]
    assert_array_equal(table.values[:, 0], 2 * [1.0, 2.0, 3.0, 4.0])


def test_a_file_with_fewer_rows_than_it_says_is_refused(tmp_path, monkeypatch):
    save(tmp_path / "run.parquet", COLUMNS)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *args, **kwargs: iter([]))
    with pytest.raises(TableError, match="could not be read completely, it may be damaged: 0 of 4 rows"):
        read_table(tmp_path / "run.parquet")


def test_offsets_that_point_outside_the_file_are_refused(tmp_path):
    path = save(tmp_path / "run.arrow", {"id": ["a", "bc", "def", "g"], **COLUMNS})
    offsets = np.array([0, 1, 3, 6, 7], np.int32)
    data = path.read_bytes()
    assert data.count(offsets.tobytes()) == 1
    path.write_bytes(data.replace(offsets.tobytes(), (offsets * 10**6).tobytes()))
    with pytest.raises(TableError, match=r"run.arrow could not be read as .arrow, it may be damaged"):
        read_table(path)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "run.parquet"
    pq.write_table(
        pa.table({"id": ["qqqq", "bc", "def", "g"], **COLUMNS}), path, compression="none", use_dictionary=False
    )
    path.write_bytes(path.read_bytes().replace(b"qqqq", b"\xff\xff\xff\xff"))
    with pytest.raises(TableError, match=r"run.parquet could not be read as .parquet, it may be damaged"):
        read_table(path)


@pytest.mark.parametrize("given", [None, "id"])
def test_an_id_column_of_several_values_is_refused(tmp_path, given):
    pq.write_table(pa.table({"id": [[1, 2], [3, 4]], "x": [0.5, 1.5]}), tmp_path / "x.parquet")
    with pytest.raises(
        TableError, match="the column 'id' holds several values in each row, which cannot be an id"
    ) as told:
        read_table(tmp_path / "x.parquet", id=given)
    assert ("name another with id (--id)" in str(told.value)) == (given is None)


def test_large_ids_stay_exact_where_a_fraction_follows_in_another_field(tmp_path):
    ids = [2**53 + 1 + i for i in range(1001)]
    lines = [f'{{"id": {id}, "x": {i % 7}}}\n' for i, id in enumerate(ids)]
    (tmp_path / "x.jsonl").write_text("".join(lines) + '{"id": 5, "x": 1.5}\n')
    table = read_table(tmp_path / "x.jsonl")
    assert table.ids.tolist() == [*ids, 5]
    assert table.values[-1].tolist() == [1.5]


def test_ids_of_numbers_and_text_are_refused(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"id": 1, "x": 0.5}\n{"id": "a", "x": 1.5}\n')
    with pytest.raises(TableError, match="the field 'id' holds int and str; write all ids as text"):
        read_table(tmp_path / "x.jsonl")


def test_large_ids_stay_exact_where_another_integer_is_written_as_a_fraction(tmp_path):
    ids = [2**60 + i for i in range(1001)]
    lines = [f'{{"id": {id}, "x": 1, "y": 2}}\n' for id in ids]
    (tmp_path / "x.jsonl").write_text("".join(lines) + f'{{"id": {2**60 - 1}, "x": 1.5, "y": 3.0}}\n')
    table = read_table(tmp_path / "x.jsonl")
    assert table.ids.tolist() == [*ids, 2**60 - 1]
    assert table.values[-1].tolist() == [1.5, 3]


def test_fields_of_numbers_and_text_are_no_obstacle_where_another_is_the_id(tmp_path):
    lines = ['{"id": "a", "row_id": 1, "n": 3, "x": 0.5}', '{"id": "b", "row_id": "c", "n": 4, "x": 1.5}']
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    assert read_table(tmp_path / "x.jsonl").ids.tolist() == ["a", "b"]
    assert read_table(tmp_path / "x.jsonl", features="x", id="n").ids.tolist() == [3, 4]
    with pytest.raises(TableError, match="the field 'row_id' holds int and str"):
        read_table(tmp_path / "x.jsonl", id="row_id")


def test_texts_with_braces_do_not_count_as_objects(tmp_path, monkeypatch):
    fields = {f"x{i}": 0.5 for i in range(200)}
    rows = [json.dumps(fields | {"text": r"\frac{a}{b}" * 20}) for _ in range(20)]
    (tmp_path / "x.jsonl").write_text("\n".join(rows))
    monkeypatch.setenv("CONGRUENCE_MAX_BYTES", str(2**18))
    assert read_table(tmp_path / "x.jsonl", features="x*").d == 200


def test_few_long_lines_are_enough_to_know_the_fields(tmp_path, monkeypatch):
    monkeypatch.setattr("congruence.tables._csv.HEADER_LIMIT", 2000)
    (tmp_path / "x.jsonl").write_text("".join(f'{{"id": {i}, "v": {[0.25] * 100}}}\n' for i in range(20)))
    assert read_table(tmp_path / "x.jsonl").values.shape == (20, 100)
    (tmp_path / "x.jsonl").write_text(f'{{"v": {[0.25] * 1000}}}')
    with pytest.raises(TableError, match="its first line is longer"):
        read_table(tmp_path / "x.jsonl")


def test_vectors_that_are_called_id_can_be_read_by_key(tmp_path):
    pq.write_table(pa.table({"id": [[1.0, 2.0], [3.0, 4.0]], "name": ["a", "b"]}), tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet", key="id").values.tolist() == [[1, 2], [3, 4]]
