import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from anndata import AnnData
from numpy.testing import assert_array_equal

from congruence import evaluate, fit_map, infomec
from congruence.errors import InputError, PairedByPositionWarning, TableError
from congruence.files import describe_file
from congruence.tables import Table, as_columns, pair

N = 60
RNG = np.random.default_rng(0)
FACTORS = pd.DataFrame({"hue": RNG.uniform(size=N), "shape": RNG.choice(["cube", "cone"], N)})
CODES = pd.DataFrame(np.column_stack([FACTORS["hue"], FACTORS["shape"] == "cube"]) + 0.01 * RNG.normal(size=(N, 2)))
ORDER = RNG.permutation(N)
NAMES = np.array([f"im{i}" for i in range(N)])


@pytest.mark.parametrize(
    "codes",
    [
        CODES,
        CODES.to_numpy(),
        pl.from_pandas(CODES.add_prefix("c")),
        Table(CODES.to_numpy(), "t"),
        AnnData(CODES.values),
    ],
    ids=["pandas", "numpy", "polars", "Table", "AnnData"],
)
@pytest.mark.filterwarnings("ignore::congruence.errors.PairedByPositionWarning")
def test_codes_of_every_kind_are_paired(codes):
    found = pair(codes, FACTORS)
    assert_array_equal(found.codes, CODES)
    assert list(found.factors) == ["hue", "shape"]
    assert_array_equal(found.factors["shape"], FACTORS["shape"])


@pytest.mark.parametrize(
    "factors",
    [
        FACTORS,
        pl.from_pandas(FACTORS),
        pa.Table.from_pandas(FACTORS),
        {name: FACTORS[name].to_numpy() for name in FACTORS},
        dict(FACTORS),
    ],
    ids=["pandas", "polars", "pyarrow", "mapping", "mapping of series"],
)
def test_factors_of_every_kind_are_paired(factors):
    found = pair(CODES.to_numpy(), factors)
    assert_array_equal(found.factors["hue"], FACTORS["hue"])
    assert_array_equal(found.factors["shape"], FACTORS["shape"])


def test_shuffled_factors_are_joined_by_the_index():
    for factors in (FACTORS.iloc[ORDER], dict(FACTORS.iloc[ORDER])):
        found = pair(CODES, factors)
        assert found.by_id
        assert_array_equal(found.codes, CODES)
        assert_array_equal(found.factors["hue"], FACTORS["hue"])


def test_shuffled_factors_are_joined_by_an_id_column():
    codes = CODES.add_prefix("c").assign(image=NAMES)
    factors = FACTORS.assign(image=NAMES).iloc[ORDER].reset_index(drop=True)
    found = pair(pl.from_pandas(codes), pl.from_pandas(factors))
    assert_array_equal(found.factors["hue"], FACTORS["hue"])
    assert found.code_names == ("c0", "c1")
    assert list(found.factors) == ["hue", "shape"]


def test_shuffled_factors_are_joined_by_distinct_integers():
    serial = np.arange(N) + 1000
    codes = CODES.add_prefix("c").assign(serial=serial)
    factors = FACTORS.assign(serial=serial).iloc[ORDER].reset_index(drop=True)
    found = pair(codes, factors)
    assert_array_equal(found.factors["hue"], FACTORS["hue"])
    assert list(found.factors) == ["hue", "shape"]
    assert "Column serial holds the same distinct integers in all runs and is taken as the row id." in found.notes


def test_a_factor_of_distinct_integers_stays_a_factor():
    assert list(pair(CODES.to_numpy(), {"angle": np.arange(N)}).factors) == ["angle"]
    assert list(pair(CODES, pd.DataFrame({"angle": ORDER})).factors) == ["angle"]


def test_metrics_do_not_depend_on_the_order_of_frames():
    shuffled = FACTORS.iloc[ORDER]
    assert infomec(CODES, shuffled).scores == infomec(CODES, FACTORS).scores
    options = {"metrics": ["mcc"], "resamples": 0, "nulls": 0}
    one, other = (evaluate(CODES, factors, **options) for factors in (FACTORS, shuffled))
    assert [score.value for score in one.scores] == [score.value for score in other.scores]
    assert_array_equal(fit_map(CODES, CODES.iloc[ORDER]).matrix.round(12), np.eye(2))


@pytest.mark.parametrize("work", [infomec, evaluate, pair])
def test_frames_without_a_common_id_are_refused(work):
    with pytest.raises(TableError, match="no id is in all tables: codes has 0, 1, 2, ...; factors has 500, 501, 502"):
        work(CODES, FACTORS.set_axis(range(500, 500 + N)))


def test_clusters_follow_the_codes():
    plates = np.arange(N) % 5
    shuffled = CODES.iloc[ORDER]
    assert_array_equal(pair(shuffled, FACTORS, cluster=plates[ORDER]).cluster, plates[ORDER])
    named = pair(shuffled, FACTORS.assign(plate=plates), cluster="plate")
    assert_array_equal(named.cluster, plates[ORDER])
    assert list(named.factors) == ["hue", "shape"]


def test_rows_without_a_partner_are_left_out_and_counted():
    found = pair(CODES, FACTORS.iloc[10:])
    assert len(found.codes) == N - 10
    assert "10 rows of codes have no partner and were left out." in found.notes


def test_labels_of_one_dimension_are_a_factor(tmp_path):
    labels = np.arange(N) % 3
    np.save(tmp_path / "codes.npy", CODES)
    for one in (labels, labels.astype(str), np.array(["a", "b"], dtype=object)[labels % 2]):
        assert list(pair(CODES.to_numpy(), one).factors) == ["factor0"]
    for one in (labels, labels.astype(str)):
        np.save(tmp_path / "labels.npy", one)
        found = pair(tmp_path / "codes.npy", tmp_path / "labels.npy")
        assert found.factors["factor0"].tolist() == one.tolist()
    assert found.files == (describe_file(tmp_path / "codes.npy"), describe_file(tmp_path / "labels.npy"))
    assert list(pair(CODES, pd.Series(labels, name="kind")).factors) == ["kind"]


def test_factors_may_be_columns_of_the_codes():
    both = pd.concat([CODES.add_prefix("c"), FACTORS], axis=1)
    found = pair(both, columns="hue,sh*")
    assert_array_equal(found.codes, CODES)
    assert (list(found.factors), found.code_names) == (["hue", "shape"], ("c0", "c1"))
    named = pair(Table(CODES.to_numpy(), "t", features=("a", "b")), columns=["b"])
    assert (list(named.factors), named.code_names) == (["b"], ("a",))


def test_rows_with_missing_factors_are_left_out_where_asked():
    holed = FACTORS.copy()
    holed.loc[4, "shape"] = None
    with pytest.raises(InputError, match=r"factor shape has missing values \(row 4\); leave .* with drop_missing=True"):
        pair(CODES, holed)
    found = pair(CODES, holed, drop_missing=True)
    assert len(found.codes) == N - 1
    assert f"Rows with missing values were left out; {N - 1} are left." in found.notes


def test_arrays_beside_frames_with_ids_are_paired_by_position_with_a_warning():
    with pytest.warns(PairedByPositionWarning):
        found = pair(CODES.to_numpy(), FACTORS.iloc[ORDER])
    assert_array_equal(found.factors["hue"], FACTORS["hue"].iloc[ORDER])


def test_the_columns_of_anndata_are_those_of_obs():
    data = AnnData(CODES.to_numpy(), obs=FACTORS.set_axis(NAMES))
    assert list(as_columns(data).columns) == ["hue", "shape"]
    assert as_columns(data).ids.tolist() == NAMES.tolist()


@pytest.mark.parametrize(
    ("factors", "options", "message"),
    [
        (
            None,
            {},
            "factors are needed: pass them, or name those columns of codes that are factors with factor_columns "
            "(--factor-columns)",
        ),
        (FACTORS, {"columns": "size"}, "no column of factors matches factor_columns 'size'; it has hue, shape"),
        (None, {"columns": "0,1"}, "codes has no feature columns besides its ids and metadata; it has 0, 1"),
        (np.zeros((N, 2, 2)), {}, f"factors must be a matrix (rows, factors), but has shape ({N}, 2, 2)"),
        ({}, {}, "factors is empty: it has no columns"),
        ({"a": np.zeros((N, 2))}, {}, f"factor a must be one column, but has shape ({N}, 2)"),
        ({"a": [1, 2], "b": [1]}, {}, "factors must all have as many rows, but have 1, 2"),
        (np.zeros((0, 2)), {}, "factors is empty: it has no rows"),
        (pd.DataFrame(index=range(N)), {}, "factors has no columns with rows besides its ids"),
        (np.zeros(N - 1), {}, f"numbers must agree: codes has {N}, factors has {N - 1}"),
        (
            {"a": np.zeros(N)},
            {"id": "k"},
            "factors cannot be read with id (--id): it has no named columns other than the factors",
        ),
    ],
)
def test_what_is_wrong_with_factors_is_said(factors, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        pair(CODES, factors, **options)


@pytest.mark.parametrize(
    ("other", "message"), [("a,c\n1,2\n", "it lacks b and has c"), ("a,b,c\n1,2,3\n", "has c in add")]
)
def test_parts_of_factors_with_other_columns_are_refused(tmp_path, other, message):
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text(other)
    with pytest.raises(TableError, match=f"2.csv does not have the columns of .*1.csv: .*{message}"):
        as_columns(tmp_path / "*.csv")


def test_the_ids_of_parts_are_those_of_the_first(tmp_path):
    (tmp_path / "1.csv").write_text("hue,cell_id\n0.5,7\n1.5,8\n")
    (tmp_path / "2.csv").write_text("hue,cell_id\n2.5,7\n3.5,7\n")  # repeated: alone it would be no id
    found = as_columns(tmp_path / "*.csv")
    assert (list(found.columns), found.ids.tolist()) == (["hue"], ["7", "8", "7", "7"])
    (tmp_path / "0.csv").write_text("cell_id,hue\n4,0.5\n4,1.5\n")
    found = as_columns(tmp_path / "*.csv")
    assert (sorted(found.columns), found.ids) == (["cell_id", "hue"], None)
    assert found.columns["cell_id"].tolist() == [4, 4, 7, 8, 7, 7]


def test_columns_that_are_not_asked_for_may_differ_between_parts(tmp_path):
    (tmp_path / "1.csv").write_text("hue,size\n0.5,1\n1.5,2\n")
    (tmp_path / "2.csv").write_text("hue,note\n2.5,3\n")
    found = as_columns(tmp_path / "*.csv", keep="h*")
    assert found.columns["hue"].tolist() == [0.5, 1.5, 2.5]
    with pytest.raises(TableError, match="it lacks size"):
        as_columns(tmp_path / "*.csv", keep="size")
