import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from congruence.batches import apply_condition, deconfound
from congruence.batches._inputs import read_rows
from congruence.batches._options import DeconfoundOptions
from congruence.errors import InputError
from congruence.tables import Table, read_table

QUICK = {"rounds": 5, "concentration": "none", "profiles": False, "leakage": False, "retrieval": False}
COLUMNS = {"batch": "plate", "target": "gene", "control": "gene=none"}


def read(x, **options):
    return read_rows(x, DeconfoundOptions(**options))


@pytest.fixture(scope="module")
def path(wells, tmp_path_factory):
    columns = {f"emb_{i}": wells.x[:, i] for i in range(6)} | {"gene": wells.gene, "plate": wells.plate}
    path = tmp_path_factory.mktemp("wells") / "wells.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def expected(wells):
    labels = {"batch": wells.plate, "target": wells.gene, "control": "none"}
    return deconfound(wells.x, **labels, conditions=("whitened",), **QUICK)


def test_a_path_a_table_and_arrays_give_the_same(wells, path, expected):
    table = read_table(path, metadata="gene,plate")
    for x in (path, str(path), [path], str(path.with_name("*.parquet")), table):
        result = deconfound(x, **COLUMNS, conditions=("whitened",), **QUICK)
        assert result.numbers() == expected.numbers() | {"name": result.name}
    assert (expected.name, result.name) == ("embedding", "wells")
    assert expected.settings["target"] == "labels"
    assert result.settings["target"] == "gene"


def test_controls_are_a_value_of_target_or_of_any_column(wells, path):
    is_control = wells.gene == "none"
    table = Table(wells.x, "wells", metadata={"gene": wells.gene, "plate": wells.plate, "untreated": is_control})
    for control in ("none", "gene=none", "untreated=True", "untreated = true"):
        rows = read(table, batch="plate", target="gene", control=control)
        np.testing.assert_array_equal(rows.target == rows.control, is_control)
    dose = np.where(is_control, 0.0, 0.5)
    for control in (0, 0.0, "0", "0.0"):
        rows = read(wells.x, batch=wells.plate, target=dose, control=control)
        np.testing.assert_array_equal(rows.target == rows.control, is_control)
    equals = np.where(is_control, "a=b", "c")
    assert set(read(wells.x, batch=wells.plate, target=equals, control="a=b").target[is_control]) == {"a=b"}


def test_without_target_all_other_rows_are_treated(wells):
    table = Table(wells.x, "wells", metadata={"gene": wells.gene, "plate": wells.plate})
    rows = read(table, batch="plate", control="gene=none")
    assert set(rows.target) == {"control", "treated"}


def test_positive_alone_makes_all_other_rows_controls(wells):
    rows = read(wells.x, batch=wells.plate, target=wells.gene, positive="MTOR")
    np.testing.assert_array_equal(rows.target == "MTOR", wells.gene == "MTOR")
    assert set(rows.target) == {"control", "MTOR"}


def test_a_target_that_is_called_like_the_controls_is_kept_apart(wells):
    gene = np.where(wells.gene == "MTOR", "control", wells.gene)
    table = Table(wells.x, "wells", metadata={"gene": gene, "plate": wells.plate, "c": wells.gene == "none"})
    rows = read(table, batch="plate", target="gene", control="c=True")
    assert set(rows.target) == {"control", "control (not control)", "PLK1"}


def test_a_label_among_the_features_of_a_table_is_no_dimension(wells):
    number = np.unique(wells.plate, return_inverse=True)[1].astype(float)
    features = (*(f"emb_{i}" for i in range(6)), "plate")
    table = Table(np.column_stack([wells.x, number]), "wells", metadata={"gene": wells.gene}, features=features)
    rows = read(table, **COLUMNS)
    assert rows.values.shape == (600, 6)
    np.testing.assert_array_equal(rows.batch, number)


def test_rows_with_missing_labels_or_values_are_refused_or_left_out(wells):
    plate, x = wells.plate.astype(object), wells.x.copy()
    plate[3], x[5, 0] = None, np.nan
    labels = {"batch": plate, "target": wells.gene, "control": "none"}
    with pytest.raises(
        InputError, match=r"batch is missing in 1 of 600 rows \(row 3\); drop_missing leaves these rows out"
    ):
        read(x, **labels)
    found = apply_condition(x, "whitened", **labels, drop_missing=True)
    assert found.table.n == 598
    assert list(np.flatnonzero(np.isnan(found.aligned()[:, 0]))) == [3, 5]
    result = deconfound(x, **labels, drop_missing=True, conditions=(), embedding="base", **QUICK)
    assert result.notes[0] == "2 of 600 rows have missing labels or values and were left out."
    np.testing.assert_array_equal(result.embedding.aligned()[10], x[10])


def test_controls_need_no_target_guide_or_cluster(wells):
    blank = np.where(wells.gene == "none", None, "a")
    given = {"batch": wells.plate, "guide": blank, "cluster": blank}
    table = Table(wells.x, "wells", metadata={"c": wells.gene == "none", "gene": blank, **given})
    rows = read(table, target="gene", control="c=True", batch="batch", guide="guide", cluster="cluster")
    assert len(rows.target) == 600
    with pytest.raises(InputError, match="image is missing in"):
        read(table, target="gene", control="c=True", batch="batch", image="guide")


def test_a_series_with_another_index_is_refused(wells):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(wells.x, columns=[f"emb_{i}" for i in range(6)])
    gene = pd.Series(wells.gene).sample(frac=1, random_state=0)
    with pytest.raises(InputError, match="the index of target differs from that of x: reindex it like x"):
        read(frame, batch=wells.plate, target=gene, control="none")
    assert len(read(frame, batch=wells.plate, target=gene.sort_index(), control="none").target) == 600


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": None}, "batch is missing: name the column with the batch"),
        ({"batch": "plate"}, "batch='plate' names a column, but x is an array without columns; pass the labels"),
        ({"control": None}, "controls are unknown: give control, as COLUMN=VALUE or as a value of target"),
        ({"target": None}, "control must be COLUMN=VALUE such as gene=none, or a value of target, not 'none'"),
        ({"target": None, "control": "=x"}, "control must be COLUMN=VALUE such as gene=none"),
        ({"target": None, "positive": "MTOR"}, "positive names values of target, which is not given"),
        ({"control": "DMSO"}, r"no row has target = DMSO \(control\), so there are no controls; it has MTOR, PLK1, no"),
        ({"control": None, "positive": ["x"]}, "no row has positive 'x'; target has MTOR, PLK1, none"),
        ({"target": np.array(["none"] * 600)}, r"all rows have target = none \(control\), so there is nothing to comp"),
        ({"batch": np.array([None] * 600), "drop_missing": True}, "no rows are left once those with missing labels"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(wells, options, message):
    given = {"batch": wells.plate, "target": wells.gene, "control": "none"} | options
    with pytest.raises(InputError, match=message):
        read(wells.x, **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "genes"}, "wells.parquet has no column 'genes' for target; it has gene, plate"),
        ({"key": "emb", "features": "emb_*"}, "no column of lists of numbers called 'emb'"),
    ],
)
def test_columns_that_a_file_lacks_are_named(path, options, message):
    with pytest.raises(InputError, match=message):
        read(path, **(COLUMNS | options))


@pytest.fixture(params=["pandas", "polars", "anndata", "folder"])
def wells_of_any_kind(request, wells, path, tmp_path):
    """The wells as a data frame, AnnData or a folder of parts."""
    columns = {f"emb_{i}": wells.x[:, i] for i in range(6)} | {"gene": wells.gene, "plate": wells.plate}
    if request.param == "folder":
        for i, rows in enumerate((slice(0, 200), slice(200, None))):
            pq.write_table(
                pa.table({name: column[rows] for name, column in columns.items()}), tmp_path / f"{i}.parquet"
            )
        return tmp_path
    library = pytest.importorskip(request.param)
    if request.param != "anndata":
        return library.DataFrame(columns)
    obs = pytest.importorskip("pandas").DataFrame({"gene": wells.gene, "plate": wells.plate})
    obs.index = [f"w{i}" for i in range(600)]
    return library.AnnData(wells.x, obs=obs)


def test_frames_anndata_and_folders_give_the_same(wells_of_any_kind, expected):
    result = deconfound(wells_of_any_kind, **COLUMNS, conditions=("whitened",), **QUICK)
    assert result.numbers() == expected.numbers() | {"name": result.name}


def test_settings_name_the_files_that_were_read(wells, path):
    (file,) = deconfound(path, **COLUMNS, conditions=(), **QUICK).settings["inputs"]
    assert (file["path"], file["bytes"], len(file["sha256"])) == (str(path), path.stat().st_size, 64)
    labels = {"batch": wells.plate, "target": wells.gene, "control": "none"}
    assert "inputs" not in deconfound(wells.x, **labels, conditions=(), **QUICK).settings


def test_integers_that_number_the_rows_are_no_dimension(wells):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({f"emb_{i}": wells.x[:, i] for i in range(6)} | {"gene": wells.gene, "plate": wells.plate})
    frame["well"] = np.random.default_rng(0).permutation(600)
    frame["dose"] = 1.0
    rows = read(frame, **COLUMNS)
    assert rows.table.features == (*(f"emb_{i}" for i in range(6)), "dose")
    assert any("well" in note and "dose" not in note for note in rows.notes)
    assert any("and also dose; if that is wrong, set these aside with metadata" in note for note in rows.notes)
    assert "well" in read(frame, **COLUMNS, features="emb_*,well").table.features


def test_an_option_that_the_input_cannot_use_is_refused(wells, tmp_path):
    np.save(tmp_path / "x.npy", wells.x)
    labels = {"batch": wells.plate, "target": wells.gene, "control": "none"}
    with pytest.raises(InputError, match="does not apply to files like"):
        read(tmp_path / "x.npy", **labels, features="emb_*")
    with pytest.raises(InputError, match=r"key \(--key\) does not apply to ndarray"):
        read(wells.x, **labels, key="emb")
