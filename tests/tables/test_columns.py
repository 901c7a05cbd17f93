import re
from pathlib import Path

import pytest

from congruence.errors import TableError
from congruence.tables.columns import Selection, Source, choose_columns, patterns

PATH = Path("f.parquet")
CELLS = {"cell_id": "string", "Metadata_plate": "string", "area": "number", "emb_0": "number", "emb_1": "number"}


def choose(kinds, index=(), recorded_id=None, **wishes):
    for name in ("features", "metadata"):
        if name in wishes:
            wishes[name] = patterns(wishes[name])
    return choose_columns(Source(PATH, kinds, index, recorded_id), Selection(**wishes))


def test_numbers_are_features_and_prefixed_columns_are_metadata():
    columns = choose({"Metadata_a": "string", "x": "number", "Metadata_b": "number", "y": "number"})
    assert columns.values == ("x", "y")
    assert columns.metadata == ("Metadata_a", "Metadata_b")
    assert columns.id is None


def test_chosen_features_leave_the_rest_as_metadata():
    columns = choose(CELLS, features="emb_*", id="cell_id")
    assert columns.values == ("emb_0", "emb_1")
    assert columns.metadata == ("Metadata_plate", "area")
    assert columns.id == "cell_id"


def test_patterns_are_comma_separated_or_listed():
    assert choose(CELLS, features="emb_0, area").values == ("area", "emb_0")
    assert choose(CELLS, features=["emb_1", "emb_0"]).values == ("emb_0", "emb_1")  # the order of the file


def test_a_name_with_brackets_is_matched_literally():
    assert choose({"x[0]": "number", "y": "number"}, features="x[0]").values == ("x[0]",)


def test_the_id_wins_over_features():
    assert choose({"id": "number", "x": "number"}, features="*").values == ("x",)
    assert choose({"k": "number", "x": "number"}, features="*", id="k").values == ("x",)


def test_metadata_wins_over_features():
    columns = choose({"k": "number", "x": "number", "Metadata_y": "number"}, features="*", metadata="k")
    assert columns.values == ("x",)
    assert columns.metadata == ("k", "Metadata_y")


def test_a_prefixed_column_is_a_feature_only_when_asked_for_by_its_prefix():
    kinds = {"Metadata_area": "number", "x": "number"}
    assert choose(kinds, features="Metadata_area").values == ("Metadata_area",)
    assert choose(kinds, features="*").values == ("x",)


@pytest.mark.parametrize("name", ["id", "row_id", "Metadata_id"])
def test_usual_id_columns_are_found(name):
    assert choose({name: "string", "x": "number"}).id == name


def test_the_recorded_id_comes_before_the_usual_ones():
    assert choose({"id": "number", "k": "string", "x": "number"}, recorded_id="k").id == "k"


def test_an_id_is_also_found_with_the_metadata_prefix():
    assert choose({"Metadata_cell": "string", "x": "number"}, id="cell").id == "Metadata_cell"
    assert choose({"Metadata_cell": "string", "cell": "number", "x": "number"}, id="cell").id == "cell"


@pytest.mark.parametrize("name", ["__index_level_0__", "", "Unnamed: 0", "sample"])
def test_a_pandas_index_is_never_a_feature(name):
    numbered = choose({name: "number", "x": "number"}, index=["sample"])
    assert (numbered.values, numbered.id, numbered.metadata) == (("x",), None, (name,))
    named = choose({name: "string", "x": "number"}, index=["sample"])
    assert (named.values, named.id, named.metadata) == (("x",), name, ())


def test_one_column_of_lists_is_the_embedding():
    columns = choose({"text": "string", "label": "number", "vec": "list", "tags": "nested"})
    assert columns.lists
    assert columns.values == ("vec",)
    assert columns.metadata == ("text", "label")


def test_a_key_or_features_choose_among_columns_of_lists():
    kinds = {"a": "list", "b": "list", "n": "number"}
    assert choose(kinds, key="b").values == ("b",)
    assert choose(kinds, features="a").values == ("a",)
    assert choose(kinds, features="a").metadata == ("n",)  # other lists are left out


@pytest.mark.parametrize(
    ("kinds", "wishes", "message"),
    [
        (CELLS, {"id": "cell"}, "f.parquet has no column 'cell' for id (--id); it has cell_id, Metadata_plate, area"),
        (
            CELLS,
            {"features": "pc_*"},
            "no column of f.parquet matches features (--features) 'pc_*'; it has cell_id, Meta",
        ),
        (CELLS, {"metadata": "b*"}, "no column of f.parquet matches metadata (--metadata) 'b*'; it has cell_id, Meta"),
        (CELLS, {"metadata": "b*"}, "; with features (--features), all other columns are metadata"),
        (CELLS, {"features": ""}, "no column of f.parquet matches features (--features) ''"),
        (
            CELLS,
            {},
            "f.parquet has a column that is not numbers: cell_id (string); choose the columns to use with "
            "features (--features), name others with metadata (--metadata) or give them the prefix Metadata_",
        ),
        ({"a": "string", "b": "bool", "x": "number"}, {}, "has columns that are not numbers: a (string), b (bool);"),
        ({"a": "nested", "x": "number"}, {}, "has a column that is not numbers: a (nested)"),
        ({"id": "string"}, {}, "f.parquet has no feature columns besides its ids and metadata; it has id"),
        ({"a": "list", "b": "list"}, {}, "several columns are possible (a, b); name it with key (--key)"),
        ({"a": "list", "b": "number"}, {"features": "*"}, "several columns are possible (a, b)"),
        (
            {"a": "list", "b": "list", "x": "number"},
            {"key": "x"},
            "f.parquet has no column of lists of numbers called 'x' (--key); it has a, b",
        ),
        ({"x": "number"}, {"key": "y"}, "called 'y' (--key); it has none; use features (--features) for plain columns"),
    ],
)
def test_what_cannot_be_chosen_is_said(kinds, wishes, message):
    with pytest.raises(TableError, match=re.escape(message)):
        choose(kinds, **wishes)
