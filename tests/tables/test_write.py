import contextlib
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from congruence import memory
from congruence.errors import InputError, TableError
from congruence.tables import Table, _anndata, _hdf5, read_table, write, write_table

X = np.arange(12, dtype=np.float32).reshape(4, 3)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
# In a csv, text that looks like a number is read as one, unless it is an id.
PLAIN_WORDS = WORDS.map(lambda word: "w" + word)
FORMATS = [".npz", ".csv", ".csv.gz", ".parquet", ".arrow", ".feather", ".safetensors", ".zarr", ".h5ad"]


def column(n, entries):
    return st.lists(entries, min_size=n, max_size=n)


@st.composite
def tables(draw, *, finite=False):
    n, d = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    dtype, width = draw(st.sampled_from([(np.float32, 32), (np.float64, 64)]))
    numbers = st.floats(width=width, allow_nan=not finite, allow_infinity=not finite)
    values = draw(hnp.arrays(dtype, (n, d), elements=numbers))
    ids = draw(st.one_of(st.none(), column(n, WORDS), column(n, st.integers(-(2**63), 2**63 - 1))))
    metadata = {}
    if draw(st.booleans()):
        metadata["Metadata_word"] = draw(column(n, PLAIN_WORDS))
    if draw(st.booleans()):
        metadata["Metadata_count"] = np.array(draw(column(n, st.integers(-(2**53), 2**53))))
    if draw(st.booleans()):
        metadata["Metadata_dose"] = np.array(draw(column(n, st.floats(allow_nan=False))))
    features = [f"f{i}" for i in range(d)] if draw(st.booleans()) else None
    return Table(values, "run", ids, metadata, features)


@contextlib.contextmanager
def inspect_here(path, parts):
    """Inspect a file without a child process."""
    _hdf5.inspect(path, parts)
    yield


def round_trip(table, suffix, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"run{suffix}"
        write_table(table, path, **options)
        # A csv does not record its features, and whole numbers that do not repeat could be ids.
        back = read_table(path, features=table.feature_names if suffix.startswith(".csv") else None)
        return Table(np.array(back.values), back.name, back.ids, back.metadata, back.features, back.path)


@pytest.mark.parametrize("suffix", FORMATS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(table=tables(), spill_bytes=st.sampled_from([0, 2**28]))  # in memory, or spilled to a file
def test_what_is_written_is_read_back(suffix, table, spill_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "SPILL_BYTES", spill_bytes)
        patch.setattr(_anndata, "inspection", inspect_here)
        back = round_trip(table, suffix)
    is_csv = suffix.startswith(".csv")
    if not is_csv:  # a csv holds text alone
        assert back.values.dtype == table.values.dtype
    np.testing.assert_array_equal(back.values.astype(table.values.dtype), table.values)
    if table.ids is None:
        assert back.ids is None
    else:
        assert back.ids.tolist() == (table.ids.astype(str) if is_csv else table.ids).tolist()
    assert sorted(back.metadata) == sorted(table.metadata)
    for name, entries in table.metadata.items():
        assert back.metadata[name].tolist() == entries.tolist()
    has_names = suffix in (".npz", ".safetensors", ".zarr")
    assert back.features == (table.features if has_names else table.feature_names)
    assert back.name == "run"


@settings(max_examples=15, deadline=None)
@given(table=tables())
def test_npy_holds_bare_values(table):
    bare = Table(table.values, "run")
    back = round_trip(bare, ".npy")
    assert back.values.dtype == bare.values.dtype
    np.testing.assert_array_equal(back.values, bare.values)


@pytest.mark.parametrize("parts", [{"ids": [1, 2, 3, 4]}, {"metadata": {"p": X[:, 0]}}, {"features": ["x", "y", "z"]}])
def test_npy_refuses_what_it_would_lose(tmp_path, parts):
    with pytest.raises(TableError, match=r"x.npy .*: .npy would lose the (ids or metadata|feature names); use"):
        write_table(Table(X, "a", **parts), tmp_path / "x.npy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".feather"])
def test_columnar_files_keep_the_names_of_metadata_and_ids(tmp_path, suffix):
    names = {"plate": ["p", "p", "q", "q"], "x 1": [1, 2, 1, 2], "Metadata_x 1": [0.5, 1, 2, 3]}
    table = Table(X, "a", ["a", "b", "c", "d"], names, id_name="cell")
    write_table(table, tmp_path / f"x{suffix}")
    # A csv does not record which columns are metadata.
    back = read_table(tmp_path / f"x{suffix}", features="emb_*" if suffix == ".csv" else None)
    assert back.id_name == "cell"
    assert list(back.metadata) == list(names)
    assert [column.tolist() for column in back.metadata.values()] == list(names.values())
    assert back.ids.tolist() == ["a", "b", "c", "d"]
    assert back.features == ("emb_0", "emb_1", "emb_2")


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_the_id_column_may_have_any_name_and_is_found_again(suffix):
    back = round_trip(Table(X, "a", [4, 3, 2, 1]), suffix, id="cell")
    assert back.ids.tolist() == [4, 3, 2, 1]
    assert back.d == 3


def test_the_id_column_is_recorded_in_the_schema(tmp_path):
    write_table(Table(X, "a", [4, 3, 2, 1]), tmp_path / "x.parquet", id="cell")
    schema = pq.read_schema(tmp_path / "x.parquet")
    assert schema.names == ["cell", "emb_0", "emb_1", "emb_2"]
    assert schema.metadata[b"congruence.id"] == b"cell"


def test_parquet_keeps_missing_text_bools_and_times():
    metadata = {
        "Metadata_t": np.array(["a", None, "b", None], object),
        "Metadata_none": np.array([None] * 4, object),
        "Metadata_b": np.array([True, False, True, False]),
        "Metadata_m": np.array(["2020-01-01", "2020-01-02", "2021-01-01", "NaT"], "datetime64[us]"),
    }
    back = round_trip(Table(X, "a", metadata=metadata), ".parquet")
    for name, entries in metadata.items():
        assert back.metadata[name].dtype == entries.dtype
        np.testing.assert_array_equal(back.metadata[name], entries)


def test_half_precision_is_written_and_read_back():
    half = X.astype(np.float16)
    for suffix in FORMATS:
        values = round_trip(Table(half, "a"), suffix).values
        np.testing.assert_array_equal(values, half)


def test_text_ids_and_missing_text_survive_in_safetensors():
    table = Table(X, "a", ["a", "b", "c", "d"], {"p": np.array(["x", None, "y", "z"], object)})
    back = round_trip(table, ".safetensors")
    assert back.ids.tolist() == ["a", "b", "c", "d"]
    assert back.metadata["p"].tolist() == ["x", None, "y", "z"]


def test_arrays_that_are_not_contiguous_are_written_right():
    for suffix in FORMATS:
        np.testing.assert_array_equal(round_trip(Table(X.T[::-1], "a"), suffix).values, X.T[::-1])


def test_duplicated_ids_may_be_written():
    for suffix in FORMATS:
        assert round_trip(Table(X, "a", list("aabb")), suffix).ids.tolist() == list("aabb")


@pytest.mark.parametrize(
    ("table", "name", "message"),
    [
        (Table(X, "a"), "x.xlsx", "x.xlsx cannot be written: the suffix '.xlsx' is not one of .npy, .npz"),
        (Table(X, "a"), "x.pt", "x.pt cannot be written: the suffix '.pt' is not one of"),
        (Table(X, "a", features=["id", "y", "z"]), "x.csv", "features called id would be read as ids or metadata"),
        (
            Table(X, "a", features=["Metadata_x", "y", "z"]),
            "x.parquet",
            "features called Metadata_x would be read",
        ),
        (Table(X, "a", range(4), features=["id", "y", "z"]), "x.csv", "several columns would be called id"),
        (Table(X, "a", features=["x", "x", "z"]), "x.csv", "several columns would be called x"),
        (Table(X, "a", metadata={"emb_1": X[:, 0]}), "x.feather", "several columns would be called emb_1"),
        (Table(X, "a", features=["0", "1", "2"]), "x.csv", "a csv header of numbers alone would be read as a row"),
        (Table(X, "a", metadata={"ids": X[:, 0]}), "x.npz", "metadata cannot be called ids in this format"),
        (
            Table(X, "a", metadata={"t": np.zeros(4, "datetime64[D]")}),
            "x.safetensors",
            "it cannot hold times (t); use .parquet",
        ),
        (
            Table(X, "a", metadata={"t": ["a", None, "b", None]}),
            "x.npz",
            "'t' is missing or not text in 2 rows (row 1, 3), which this format cannot hold; use .parquet",
        ),
        (Table(X, "a", metadata={"a/b": X[:, 0]}), "x.zarr", "zarr takes the / in a/b for a folder"),
        (
            Table(X, "a", metadata={"t": np.array([1, "b", 2, 3], object)}),
            "x.parquet",
            "x.parquet could not be written",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_and_leaves_nothing_behind(tmp_path, table, name, message):
    with pytest.raises(TableError, match=re.escape(message)):
        write_table(table, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_only_columnar_files_have_an_id_column(tmp_path):
    with pytest.raises(TableError, match=r"x.npz has no columns, so the id column cannot be called 'cell'"):
        write_table(Table(X, "a", range(4)), tmp_path / "x.npz", id="cell")


def test_more_text_than_a_safetensors_header_takes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(write, "HEADER_LIMIT", 10)
    with pytest.raises(TableError, match=r"MB of text ids and metadata do not fit in the header of a .safetensors"):
        write_table(Table(X, "a", list("abcd")), tmp_path / "x.safetensors")


@pytest.mark.parametrize("suffix", [".npy", *FORMATS])
def test_an_existing_table_is_replaced(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    write_table(Table(X, "a"), path)
    write_table(Table(X + 1, "a"), path)
    np.testing.assert_array_equal(read_table(path).values, X + 1)
    assert os.listdir(tmp_path) == [path.name]


def test_a_failed_write_leaves_the_old_table(tmp_path):
    for name in ("x.parquet", "x.zarr"):
        write_table(Table(X, "a"), tmp_path / name)
        broken = Table(X, "a", metadata={"t": np.array([1, "b", 2, 3], object)})
        with pytest.raises(TableError):
            write_table(broken, tmp_path / name)
        np.testing.assert_array_equal(read_table(tmp_path / name).values, X)
    assert sorted(os.listdir(tmp_path)) == ["x.parquet", "x.zarr"]


def test_a_zarr_store_is_put_back_when_it_cannot_be_replaced(tmp_path, monkeypatch):
    write_table(Table(X, "a"), tmp_path / "x.zarr")
    move = os.replace

    def fail_on_the_new_store(source, target):
        if str(source).endswith(".part"):
            raise OSError("no space left")
        move(source, target)

    monkeypatch.setattr(write.os, "replace", fail_on_the_new_store)
    with pytest.raises(InputError, match=r"cannot write to .*x.zarr: no space left"):
        write_table(Table(X + 1, "a"), tmp_path / "x.zarr")
    np.testing.assert_array_equal(read_table(tmp_path / "x.zarr").values, X)
    assert os.listdir(tmp_path) == ["x.zarr"]


def test_a_folder_that_is_no_zarr_store_is_not_replaced(tmp_path):
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr" / "thesis.tex").write_text("...")
    with pytest.raises(TableError, match=r"x.zarr cannot be written: it is a folder, but not a zarr store"):
        write_table(Table(X, "a"), tmp_path / "x.zarr")
    assert (tmp_path / "x.zarr" / "thesis.tex").exists()


@pytest.mark.parametrize("suffix", [".npy", *FORMATS])
def test_a_folder_that_does_not_exist_is_named(tmp_path, suffix):
    with pytest.raises(InputError, match=r"the folder .* does not exist"):
        write_table(Table(X, "a"), tmp_path / "nowhere" / f"x{suffix}")
