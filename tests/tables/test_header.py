import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from congruence.errors import TableError
from congruence.tables.read import column_names


def test_names_of_columns_are_known_without_rows(tmp_path):
    table = pa.table({"plate": ["a"], "emb_0": [1.0]})
    pq.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, str(tmp_path / "t.feather"))
    (tmp_path / "t.csv").write_text("plate,emb_0\na,1\n")
    for name in ("t.parquet", "t.feather", "t.csv"):
        assert column_names(tmp_path / name) == ("plate", "emb_0")


def test_formats_that_keep_metadata_apart_have_no_header(tmp_path):
    np.save(tmp_path / "t.npy", np.ones((2, 2)))
    assert column_names(tmp_path / "t.npy") is None


def test_a_file_that_is_not_there_or_is_none_is_refused(tmp_path):
    with pytest.raises(TableError, match="does not exist"):
        column_names(tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_bytes(b"not parquet")
    with pytest.raises(TableError, match=r"t\.parquet"):
        column_names(tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("a,a\n1,2\n")
    with pytest.raises(TableError, match="several columns of the same name: a"):
        column_names(tmp_path / "t.csv")
