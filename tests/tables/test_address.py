"""Files at an address, and standard input, are read as local files are, through `pyarrow.fs`."""

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.fs
import pytest
from numpy.testing import assert_array_equal

from congruence import compare
from congruence.errors import InputError, TableError
from congruence.tables import Table, address, expanded, read_parts, read_table, stream_parts, write_table
from congruence.tables.address import STDIN, Address, as_path
from congruence.tables.factors import as_columns

X = np.random.default_rng(0).normal(size=(40, 3))
TABLE = Table(X, "x", np.array([f"r{i}" for i in range(40)]))


@pytest.fixture(autouse=True)
def bucket(tmp_path, monkeypatch):
    """Make s3://bucket a folder on this disk, reached through pyarrow.fs; nothing was fetched yet."""
    root = tmp_path / "remote"
    (root / "bucket").mkdir(parents=True)
    inside = pyarrow.fs.SubTreeFileSystem(str(root), pyarrow.fs.LocalFileSystem())
    from_uri = pyarrow.fs.FileSystem.from_uri

    def find(uri):
        if not uri.startswith(("s3:", "gs:")):
            return from_uri(uri)
        path, _, query = uri.partition("://")[2].partition("?")
        assert query == ("retry_limit_seconds=30" if uri.startswith("gs:") else "")  # the default is 15 minutes
        return inside, path

    monkeypatch.setattr(pyarrow.fs, "FileSystem", SimpleNamespace(from_uri=find))
    monkeypatch.setattr(address, "_copies", {})
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return root / "bucket"


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz", ".safetensors", ".h5ad", ".arrow"])
def test_a_file_of_any_format_is_read_at_its_address(bucket, suffix):
    write_table(TABLE, bucket / f"x{suffix}")
    table = read_table(f"s3://bucket/x{suffix}")
    assert_array_equal(table.values, X)
    assert table.ids.tolist() == TABLE.ids.tolist()
    assert table.name == "x"
    assert str(table.path) == f"s3://bucket/x{suffix}"


@pytest.mark.parametrize("given", ["gs://bucket/a/*.parquet", "s3://bucket/a", Path("s3://bucket/a")])
def test_folders_and_patterns_at_an_address_are_parts_of_one_table(bucket, given):
    (bucket / "a").mkdir()
    for i in range(4):
        write_table(Table(X[10 * i : 10 * i + 10], "x"), bucket / "a" / f"part{i}.parquet")
    (bucket / "a" / "_SUCCESS").touch()
    assert_array_equal(read_table(given).values, X)
    assert_array_equal(np.concatenate([chunk.values for chunk in stream_parts([given]).chunks]), X)
    assert len(expanded(["s3://bucket/a/part[12].parquet"])) == 2


def test_verbs_take_addresses(bucket):
    write_table(TABLE, bucket / "x.parquet")
    result = compare("s3://bucket/x.parquet", Table(X[:, ::-1], "y", TABLE.ids), nulls=1, bootstrap=0)
    assert result.status == "holds"
    assert as_columns("s3://bucket/x.parquet").n == 40


def test_a_local_address_is_read(tmp_path):
    write_table(TABLE, "x.parquet")
    assert_array_equal(read_table(f"file://{tmp_path}/here/x.parquet").values, X)


def test_copies_are_kept_up_to_a_limit(bucket, monkeypatch):
    monkeypatch.setattr(address, "KEPT_BYTES", 3000)
    for i in range(8):
        np.save(bucket / f"{i}.npy", X)
    table = read_parts([f"s3://bucket/{i}.npy" for i in range(8)])
    assert_array_equal(table.values, np.concatenate([X] * 8))
    assert sum(os.path.getsize(copy) for copy in address._copies.values()) <= 3000 + X.nbytes + 200


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("s3://bucket/none.parquet", "s3://bucket/none.parquet does not exist"),
        ("s3://bucket/none", "s3://bucket/none"),
        ("s3://bucket/*.npy", r"no file matches s3://bucket/\*.npy"),
        ("s3://bucket/noise.parquet", "s3://bucket/noise.parquet could not be read as .parquet, it may be damaged"),
        ("s3://bucket/x.zarr", "s3://bucket/x.zarr"),
    ],
)
def test_what_is_not_there_is_said_with_its_address(bucket, given, message):
    (bucket / "noise.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises((TableError, InputError), match=message) as caught:
        read_table(given)
    assert str(caught.value).isprintable()


def test_a_file_that_is_too_large_is_not_fetched_to_its_end(bucket, small_memory):
    (bucket / "x.npy").write_bytes(bytes(2**23))
    with pytest.raises(TableError, match="s3://bucket/x.npy does not fit in memory"):
        read_table("s3://bucket/x.npy")


def test_names_with_a_colon_are_paths(tmp_path):
    np.save("run:1.npy", X)
    assert_array_equal(read_table("run:1.npy").values, X)
    assert not isinstance(as_path("c:/x.npy"), Address)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".arrow"])
def test_standard_input_is_read(suffix, monkeypatch):
    write_table(TABLE, f"x{suffix}")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(Path(f"x{suffix}").read_bytes())))
    table = read_table("-")
    assert_array_equal(table.values, X)
    assert table.name == "stdin"
    assert_array_equal(read_table("-").values, X)  # it can be read again
    assert str(table.path) == STDIN


def test_nothing_on_standard_input_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    with pytest.raises(TableError, match="<stdin> is empty: it has 0 bytes"):
        read_table("-")


@pytest.mark.parametrize("given", ["pipe.csv", "?.csv"])
def test_pipes_and_odd_names_at_a_local_address_are_refused(tmp_path, given):
    os.mkfifo(tmp_path / "pipe.csv")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")).write_text("a,b\n1.5,2.5\n")
    with pytest.raises(TableError, match="not a regular file, but a pipe or a device|cannot be read"):
        read_table(f"file://{tmp_path}/{given}")


def test_an_address_without_a_name_is_not_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    for given in ("s3://", "gs://", "file:///"):
        assert str(as_path(given)) == given
        with pytest.raises(TableError, match="it names no file|is a folder"):
            read_table(given)
