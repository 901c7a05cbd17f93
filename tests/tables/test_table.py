import re
import sys

import numpy as np
import pytest

from congruence.errors import InputError, MissingDependencyError, TableError
from congruence.tables import Table, as_table
from congruence.tables.table import as_column, as_labels, in_one_kind, missing_labels

X = np.arange(6.0).reshape(3, 2)


def test_a_table_knows_its_size():
    table = Table(X, "a")
    assert (table.n, table.d) == (3, 2)


def test_features_without_names_are_numbered():
    assert Table(X, "a").feature_names == ("emb_0", "emb_1")
    assert Table(X, "a", features=["x", "y"]).feature_names == ("x", "y")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": np.zeros(3)}, "a must be a matrix (rows, dimensions), but has shape (3,)"),
        ({"values": np.zeros((2, 3, 4))}, "a must be a matrix (rows, dimensions), but has shape (2, 3, 4)"),
        ({"values": np.zeros((0, 3))}, "a is empty: its shape is (0, 3)"),
        ({"values": X.astype(complex)}, "a must hold real numbers, but its dtype is complex128"),
        ({"values": X.astype(bool)}, "a must hold real numbers, but its dtype is bool"),
        ({"values": X.astype(object)}, "a must hold real numbers, but its dtype is object"),
        ({"ids": [1, 2]}, "a has 3 rows, but its ids has shape (2,); expected (3,)"),
        ({"ids": ["x", None, "z"]}, "a has no id in 1 row of 3 (row 1)"),
        ({"ids": ["x", "", ""]}, "a has no id in 2 rows of 3 (row 1, 2)"),
        ({"ids": [1.0, np.nan, 2.0]}, "a has no id in 1 row of 3 (row 1)"),
        (
            {"metadata": {"p": [1, 2]}},
            "a has 3 rows, but its metadata column 'p' has shape (2,); expected (3,)",
        ),
        ({"features": ["x"]}, "a has 1 feature names for 2 columns"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change, message):
    with pytest.raises(TableError, match=re.escape(message)):
        Table(**({"values": X, "name": "a"} | change))


def test_foreign_byte_order_is_made_native():
    table = Table(X.astype(">f4"), "a")
    assert table.values.dtype == np.dtype(np.float32)
    assert table.values.dtype.isnative
    assert np.array_equal(table.values, X)


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (np.array([1, 2], np.uint8), [1, 2]),
        (np.array([1.0, 2.0]), [1, 2]),
        (np.array([1, 2], object), [1, 2]),
        (np.array([1.5, 2.0]), ["1.5", "2.0"]),
        (np.array([2**63, 1], np.uint64), [str(2**63), "1"]),
        (np.array([b"x", b"y"]), ["x", "y"]),
        (np.array(["x", 1], object), ["x", "1"]),
        (np.array([True, False]), ["True", "False"]),
        (np.array(["2020-01-02"], "datetime64[D]"), ["2020-01-02"]),
    ],
)
def test_labels_are_integers_or_text(column, labels):
    result = as_labels(column)
    assert result.dtype.kind == ("i" if isinstance(labels[0], int) else "U")
    assert result.tolist() == labels


def test_missing_labels_are_null_nan_not_a_time_or_empty():
    assert missing_labels(np.array([1.0, np.nan])).tolist() == [False, True]
    assert missing_labels(np.array(["2020", "NaT"], "datetime64[D]")).tolist() == [False, True]
    assert missing_labels(np.array(["a", ""])).tolist() == [False, True]
    assert missing_labels(np.array(["a", None, float("nan"), ""], object)).tolist() == [False, True, True, True]
    assert missing_labels(np.array([0, 1])).tolist() == [False, False]


def test_integers_and_text_are_compared_as_text():
    left, right = in_one_kind([np.array([1, 12]), np.array(["1", "012"])])
    assert (left == right).tolist() == [True, False]


def test_metadata_text_is_python_text():
    for column in (np.array(["a", "b"]), np.array([b"a", b"b"])):
        assert as_column(column).dtype == object
        assert as_column(column).tolist() == ["a", "b"]


def test_a_table_shows_itself_in_one_line():
    table = Table(np.zeros((3, 2)), "run", ids=[1, 2, 3], metadata={"plate": ["a", "b", "c"]})
    assert repr(table) == "Table('run', 3 x 2, ids, 1 metadata column)"
    assert repr(Table(np.zeros((3, 2)), "run")) == "Table('run', 3 x 2, no ids, 0 metadata columns)"


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_a_table_becomes_a_frame_and_comes_back(backend):
    table = Table(np.eye(3) + 0.5, "run", ids=list("xyz"), metadata={"Metadata_plate": ["a", "b", "b"]})
    back = as_table(table.to_frame(backend))
    assert back.ids.tolist() == ["x", "y", "z"]
    assert back.features == ("emb_0", "emb_1", "emb_2")
    assert back.metadata["Metadata_plate"].tolist() == ["a", "b", "b"]
    np.testing.assert_array_equal(back.values, table.values)


def test_a_frame_that_cannot_be_made_is_named(monkeypatch):
    table = Table(np.eye(3), "run", ids=[1, 2, 3], features=("id", "a", "b"))
    with pytest.raises(TableError, match="run cannot become a data frame: several columns would be called id"):
        table.to_frame()
    with pytest.raises(InputError, match="backend must be one of 'pandas', 'polars', 'pyarrow'; got 'excel'"):
        Table(np.eye(3), "run").to_frame("excel")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingDependencyError, match="to_frame needs polars: pip install polars"):
        Table(np.eye(3), "run").to_frame("polars")
