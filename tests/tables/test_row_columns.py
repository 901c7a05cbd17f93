import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from congruence.errors import TableError
from congruence.tables import read_row_columns

COLUMNS = {"id": ["007", "08", "9"], "word": ["a", None, "b"], "number": [1.5, 2.0, 3.0], "count": [1, 2, 3]}


def written(folder, suffix):
    path = folder / f"facts{suffix}"
    if suffix == ".csv":
        path.write_text("id,word,number,count\n007,a,1.5,1\n08,,2.0,2\n9,b,3.0,3\n")
    elif suffix == ".parquet":
        pq.write_table(pa.table(COLUMNS), path)
    else:
        feather.write_feather(pa.table(COLUMNS), path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".feather"])
def test_every_column_is_read_words_and_numbers(suffix, tmp_path):
    found = read_row_columns(written(tmp_path, suffix))
    assert list(found.columns) == ["word", "number", "count"]
    assert list(found.ids) == ["007", "08", "9"]
    assert found.n == 3
    assert found.columns["word"][0] == "a"
    assert found.columns["word"][1] in (None, "")
    assert found.columns["number"].tolist() == [1.5, 2.0, 3.0]
    assert found.columns["count"].dtype.kind == "i"


def test_words_alone_will_do_and_lists_are_left_out(tmp_path):
    pq.write_table(pa.table({"word": ["a", "b"], "vector": [[1.0, 2.0], [3.0, 4.0]]}), tmp_path / "w.parquet")
    assert list(read_row_columns(tmp_path / "w.parquet").columns) == ["word"]


def test_the_index_of_a_frame_is_no_column(tmp_path):
    pd = pytest.importorskip("pandas")
    pd.DataFrame({"size": [1, 2]}, index=pd.Index(["x", "y"], name="cell")).to_parquet(tmp_path / "f.parquet")
    found = read_row_columns(tmp_path / "f.parquet")
    assert (list(found.columns), list(found.ids)) == (["size"], ["x", "y"])


def test_columns_of_a_matrix_are_numbered_or_named(tmp_path):
    np.save(tmp_path / "f.npy", np.eye(3))
    assert list(read_row_columns(tmp_path / "f.npy").columns) == ["0", "1", "2"]
    np.savez(tmp_path / "f.npz", values=np.eye(2), features=np.array(["hue", "size"]), plate=np.array(["p", "q"]))
    assert list(read_row_columns(tmp_path / "f.npz").columns) == ["hue", "size", "plate"]


def test_what_cannot_be_read_is_refused(tmp_path):
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "ids.parquet")
    with pytest.raises(TableError, match="no columns with rows besides its ids"):
        read_row_columns(tmp_path / "ids.parquet")
    with pytest.raises(TableError, match=r"no column 'image' for id \(--id\)"):
        read_row_columns(written(tmp_path, ".csv"), id="image")
    with pytest.raises(TableError, match="does not exist"):
        read_row_columns(tmp_path / "none.csv")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(TableError, match="may be damaged"):
        read_row_columns(tmp_path / "bad.parquet")
