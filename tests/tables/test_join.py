import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from congruence.errors import PairedByPositionWarning, TableError
from congruence.tables import Table, join_tables, read_table

X = np.arange(12.0).reshape(4, 3)
Y = -np.arange(8.0).reshape(4, 2)


def table(name, ids=None, values=None, **metadata):
    values = X if values is None else values
    return Table(values, name, ids, metadata)


def test_rows_are_matched_by_id_in_the_order_of_the_first_table():
    joined = join_tables([table("a", list("dbca")), table("b", list("abxd"), Y)])
    assert joined.ids.tolist() == ["d", "b", "a"]
    assert_array_equal(joined.values[0], X[[0, 1, 3]])
    assert_array_equal(joined.values[1], Y[[3, 1, 0]])
    assert joined.unmatched == {"a": 1, "b": 1}
    assert joined.dropped == {"a": 0, "b": 0}
    assert joined.names == ("a", "b")
    assert not joined.by_position
    assert joined.n == 3


def test_an_id_has_to_be_in_every_table():
    joined = join_tables([table("a", [1, 2, 3, 4]), table("b", [4, 3, 2, 9]), table("c", [3, 4, 8, 1])])
    assert joined.ids.tolist() == [3, 4]
    assert joined.unmatched == {"a": 2, "b": 2, "c": 2}


def test_integer_and_text_ids_are_compared_as_text():
    joined = join_tables([table("a", [1, 2, 3, 10]), table("b", ["10", "02", "3", "1"])])
    assert joined.ids.tolist() == [1, 3, 10]
    assert_array_equal(joined.values[1], X[[3, 2, 0]])


@settings(deadline=None)
@given(data=st.data())
def test_shuffling_one_table_changes_nothing(data):
    ids = data.draw(st.lists(st.text(max_size=4).map(lambda s: "k" + s.replace("\0", "")), unique=True, min_size=2))
    others = data.draw(st.lists(st.sampled_from(ids), unique=True, min_size=1))
    n, m = len(ids), len(others)
    shuffle = np.array(data.draw(st.permutations(range(m))))
    x, y = np.arange(2.0 * n).reshape(n, 2), np.arange(3.0 * m).reshape(m, 3)
    first, second = table("a", ids, x), table("b", others, y)
    plain = join_tables([first, second])
    shuffled = join_tables([first, table("b", np.array(others)[shuffle], y[shuffle])])
    assert plain.ids.tolist() == shuffled.ids.tolist() == [i for i in ids if i in set(others)]
    for left, right in zip(plain.values, shuffled.values, strict=True):
        assert_array_equal(left, right)
    assert_array_equal(plain.values[1], [y[others.index(i)] for i in plain.ids])


@pytest.mark.parametrize("ids", [None, [4, 3, 2, 1]])
def test_rows_kept_in_order_are_not_copied(tmp_path, ids):
    np.save(tmp_path / "x.npy", X)
    mapped = read_table(tmp_path / "x.npy").values
    joined = join_tables([table("a", ids, mapped), table("b", ids, Y)])
    assert joined.values[0] is mapped
    assert joined.values[1] is Y


def test_tables_without_ids_are_paired_by_position():
    joined = join_tables([table("a"), table("b", values=Y)])
    assert joined.by_position
    assert joined.ids is None
    assert joined.unmatched == {"a": 0, "b": 0}


def test_a_table_without_ids_among_others_brings_a_warning():
    with pytest.warns(
        PairedByPositionWarning, match=r"paired by position, because b has no ids; name the id column with id \(--id\)"
    ):
        joined = join_tables([table("a", [4, 3, 2, 1]), table("b", values=Y)])
    assert joined.by_position
    assert joined.ids.tolist() == [4, 3, 2, 1]


def test_ids_that_agree_by_position_are_no_obstacle_to_a_table_without():
    with pytest.warns(PairedByPositionWarning):
        joined = join_tables([table("a", [4, 3, 2, 1]), table("b", list("4321")), table("c")])
    assert joined.n == 4


def test_one_table_alone_is_joined_with_itself():
    assert join_tables([table("a", [1, 2, 3, 4])]).n == 4


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([], "tables must hold at least one table"),
        ([table("a"), table("a")], "several tables have the same name (a); names must be distinct"),
        (
            [table("a"), table("b", values=np.ones((5, 2)))],
            "rows without ids are paired by position, so their numbers must agree: a has 4, b has 5",
        ),
        ([table("a", [1, 2, 3, 4]), table("b", values=np.ones((5, 2)))], "a has 4, b has 5"),
        (
            [table("a", [1, 2, 3, 4]), table("b", [1, 2, 4, 3]), table("c")],
            "rows cannot be paired by position: a and b have different ids in 2 rows (row 2, 3), and not every",
        ),
        ([table("a", [1, 2, 2, 1]), table("b", [1, 2, 3, 4])], "a has 2 ids more than once: 1, 2"),
        ([table("a", [1, 2, 3, 4]), table("b", list("xyxx"))], "b has 1 ids more than once: x"),
        (
            [table("a", [1, 2, 3, 4]), table("b", list("wxyz"))],
            "no id is in all tables: a has 1, 2, 3, ...; b has w, x, y, ...",
        ),
    ],
)
def test_tables_that_cannot_be_joined_are_named(tables, message):
    with pytest.raises(TableError, match=re.escape(message)):
        join_tables(tables)


def test_at_most_five_duplicated_ids_are_shown():
    ids = np.repeat(np.arange(7), 2)
    with pytest.raises(TableError, match=r"a has 7 ids more than once: 0, 1, 2, 3, 4, \.\.\."):
        join_tables([table("a", ids, np.ones((14, 1)))])


def with_gaps(values, *rows):
    values = values.copy()
    values[list(rows), 0] = np.nan
    values[rows[0], 1] = np.inf
    return values


def test_missing_values_are_refused_by_name_and_row():
    message = (
        "NaN or infinite values: a in 1 row of 4 (row 2); b in 2 rows of 4 (row 0, 1); leave these rows out with "
        "drop_missing=True (--drop-missing)"
    )
    with pytest.raises(TableError, match=re.escape(message)):
        join_tables([table("a", [1, 2, 3, 4], with_gaps(X, 2)), table("b", [4, 3, 2, 1], with_gaps(Y, 0, 1))])


def test_missing_values_are_dropped_from_every_table():
    joined = join_tables(
        [table("a", [1, 2, 3, 4], with_gaps(X, 2)), table("b", [4, 3, 2, 1], with_gaps(Y, 0, 1))],
        drop_missing=True,
    )
    assert joined.ids.tolist() == [1, 2]
    assert joined.dropped == {"a": 1, "b": 2}
    assert_array_equal(joined.values[0], X[:2])
    assert_array_equal(joined.values[1], Y[[3, 2]])


def test_missing_values_in_rows_without_partner_do_not_matter():
    joined = join_tables([table("a", [1, 2, 3, 4], with_gaps(X, 2)), table("b", [1, 2, 4, 5], Y)])
    assert joined.ids.tolist() == [1, 2, 4]
    assert joined.dropped == {"a": 0, "b": 0}


def test_nothing_left_after_dropping_is_refused():
    with pytest.raises(TableError, match="no rows are left without NaN or infinite values: a in 4 rows of 4"):
        join_tables([table("a", values=with_gaps(X, 0, 1, 2, 3)), table("b")], drop_missing=True)


def test_metadata_of_the_first_table_follow_the_rows():
    joined = join_tables([table("a", [1, 2, 3, 4], plate=list("pqrs")), table("b", [4, 2, 9, 8], well=list("abcd"))])
    assert {name: column.tolist() for name, column in joined.metadata.items()} == {"plate": ["q", "s"]}


def test_the_cluster_comes_from_the_first_table_that_has_it():
    joined = join_tables(
        [table("a", [1, 2, 3, 4]), table("b", [4, 2, 1, 9], Metadata_plate=["p", "q", "p", None])], cluster="plate"
    )
    assert joined.cluster.tolist() == ["p", "q", "p"]


def test_clusters_that_agree_as_text_agree():
    joined = join_tables([table("a", plate=[1.0, 1.0, 2.0, 2.0]), table("b", plate=list("1122"))], cluster="plate")
    assert joined.cluster.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            [table("a", list("wxyz"), plate=list("ppqq")), table("b", list("wxyz"), plate=list("prqr"))],
            "a and b disagree on 'plate' in 2 joined rows; for id x the values are p and r",
        ),
        ([table("a", plate=list("ppqq")), table("b", plate=list("ppqp"))], "for row 3 the values are q and p"),
        (
            [table("a", well=list("ppqq")), table("b", dose=X[:, 0])],
            "no table has a metadata column 'plate'; they have well, dose",
        ),
        ([table("a"), table("b")], "no table has a metadata column 'plate'; they have none"),
        ([table("a", plate=["p", None, "q", ""]), table("b")], "a has no 'plate' in 2 of its joined rows (row 1, 3)"),
    ],
)
def test_clusters_that_cannot_be_used_are_refused(tables, message):
    with pytest.raises(TableError, match=re.escape(message)):
        join_tables(tables, cluster="plate")


def test_many_text_ids_are_joined_quickly():
    n = 100_000
    ids = np.char.add("cell_", np.arange(n).astype(str))
    values = np.zeros((n, 1))
    start = time.perf_counter()
    joined = join_tables([Table(values, "a", ids), Table(values, "b", ids[::-1])])
    assert time.perf_counter() - start < 5  # a sixth of a second on a quiet machine
    assert joined.n == n


def test_ids_of_bytes_that_differ_are_different():
    a, b = (np.array([first, b"a", b"b", b"c"], dtype=object) for first in (b"\xff", b"\xfe"))
    joined = join_tables([table("a", a), table("b", b)])
    assert joined.ids.tolist() == ["a", "b", "c"]
    assert joined.unmatched == {"a": 1, "b": 1}
