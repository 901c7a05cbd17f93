import gzip
import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from congruence.errors import TableError
from congruence.tables import read_table


@pytest.fixture
def csv(tmp_path):
    def write(text):
        path = tmp_path / "run.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_columns_of_numbers_are_the_values(csv):
    table = read_table(csv("x,y\n1,2.5\n3,-4e-3\n"))
    assert_array_equal(table.values, [[1, 2.5], [3, -4e-3]])
    assert table.values.dtype == np.float64
    assert table.features == ("x", "y")


def test_compressed_csv_is_read(tmp_path):
    path = tmp_path / "run.csv.gz"
    path.write_bytes(gzip.compress(b"x,y\n1,2\n"))
    table = read_table(path)
    assert table.name == "run"
    assert_array_equal(table.values, [[1, 2]])


def test_a_byte_order_mark_and_windows_lines_are_understood(csv):
    table = read_table(csv(b"\xef\xbb\xbfid,x\r\na,1\r\nb,2\r\n"))
    assert table.ids.tolist() == ["a", "b"]
    assert_array_equal(table.values, [[1], [2]])


def test_ids_keep_their_leading_zeros(csv):
    path = csv("cell,Metadata_row_id,x\n001,1,1\n010,2,2\n")
    assert read_table(path, id="cell").ids.tolist() == ["001", "010"]
    assert read_table(path, id="row_id", metadata="cell").ids.tolist() == ["1", "2"]
    assert read_table(csv("id,x\n001,1\n002,2\n")).ids.tolist() == ["001", "002"]


def test_metadata_become_numbers_only_where_nothing_is_lost(csv):
    text = "Metadata_n,Metadata_f,Metadata_zero,Metadata_t,Metadata_gap,Metadata_none,x\n1,0.5,01,A,7,,1\n2,1,10,,,,2\n"
    metadata = read_table(csv(text)).metadata
    assert metadata["Metadata_n"].tolist() == [1, 2]
    assert metadata["Metadata_f"].tolist() == [0.5, 1.0]
    assert metadata["Metadata_zero"].tolist() == ["01", "10"]
    assert metadata["Metadata_t"].tolist() == ["A", ""]
    assert_array_equal(metadata["Metadata_gap"], [7, np.nan])
    assert metadata["Metadata_none"].tolist() == ["", ""]


def test_missing_numbers_become_nan(csv):
    values = read_table(csv("x,y,z\n1,,NA\nnan,2,inf\nNaN,null,-inf\n")).values
    assert_array_equal(values, [[1, np.nan, np.nan], [np.nan, 2, np.inf], [np.nan, np.nan, -np.inf]])


def test_a_blank_line_in_a_single_column_is_a_missing_value(csv):
    assert_array_equal(read_table(csv("x\n1\n\n3\n")).values, [[1], [np.nan], [3]])


def test_text_may_hold_commas_quotes_and_line_breaks(csv):
    table = read_table(csv('id,x\n"a,b",1\n"c ""d""\ne",2\n'))
    assert table.ids.tolist() == ["a,b", 'c "d"\ne']


def test_an_index_written_by_pandas_is_no_feature(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    frame.to_csv(tmp_path / "plain.csv")
    plain = read_table(tmp_path / "plain.csv")
    assert_array_equal(plain.values, frame.to_numpy())
    assert plain.ids is None
    frame.set_axis(["a", "b"]).to_csv(tmp_path / "named.csv")
    assert read_table(tmp_path / "named.csv").ids.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,2\n3\n4,5\n", "run.csv is ragged: line 3 has 1 cells, but the header has 2"),
        ("x,y\n1,2\n3,4,5\n", "run.csv is ragged: line 3 has 3 cells, but the header has 2"),
        ("", "run.csv is empty: it has 0 bytes"),
        ("\n\n", "run.csv is empty: it has no header"),
        ("x,y\n", "run.csv is empty: it has a header, but no rows"),
        ("1,2.5\n3\n4,5\n", "run.csv is ragged: line 2 has 1 cells, but the first has 2"),
        ("x,y\n1,2\n3,oops\n", "has a column that is not numbers: y ('oops' in row 1); choose the columns"),
        ("x,y\n1,a\n3,b\n", "y ('a' in row 0)"),
        ("x,y\n1,true\n3,false\n", "y (bool)"),
        ("x,y\n1,2020-01-01\n", "y (date32[day])"),
        ("x,y\n1,\n3,\n", "y (empty)"),
        ("x,x\n1,2\n", "run.csv has several columns of the same name: x"),
        ("id,x\na,1\n,2\n", "run.csv has no id in 1 row of 2 (row 1)"),
        (
            b"id,x\n" + b"a,1\n" * 9999 + b"\xff,2\n",
            "run.csv could not be read as .csv, it may be damaged: In CSV column #0",
        ),
        (b"\xff\xfe\x00,x\n1,2\n", "run.csv could not be read as .csv, it may be damaged: 'utf-8' codec"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(csv, text, message):
    with pytest.raises(TableError, match=re.escape(message)) as caught:
        read_table(csv(text))
    assert "\n" not in str(caught.value)


def test_text_in_a_chosen_feature_is_named(csv):
    with pytest.raises(TableError, match=re.escape("x ('?' in row 2)")):
        read_table(csv("x,y\n1,2\nNA,3\n?,4\n"), features="x")


def test_a_csv_has_no_arrays_to_choose(csv):
    with pytest.raises(TableError, match=r"cannot be read with key \(--key\): a csv file holds no arrays inside"):
        read_table(csv("x\n1\n"), key="x")


def test_rows_wider_than_a_block_are_read(csv):
    width = 10_000
    header = ",".join(f"c{i}" for i in range(width))
    row = ",".join(["0." + "1" * 120] * width)
    assert read_table(csv(f"{header}\n{row}\n")).values.shape == (1, width)


def test_columns_that_pandas_only_counted_are_a_header(tmp_path):
    (tmp_path / "run.csv").write_text("0,1,2\n1.5,2.5,3.5\n4.5,5.5,6.5\n")
    assert read_table(tmp_path / "run.csv").values.tolist() == [[1.5, 2.5, 3.5], [4.5, 5.5, 6.5]]
