import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

from congruence import compare
from congruence.errors import InputError
from congruence.tables import Table

QUICK = {"nulls": 2, "bootstrap": 0, "groups": ["similarity"]}


@pytest.fixture
def runs(rng):
    x = rng.laplace(size=(100, 3))
    given = {f"run{k}": x @ ortho_group.rvs(3, random_state=k) for k in range(3)}
    given["run1"][42] += 20
    return given


def test_the_row_that_moved_is_found_and_so_is_the_run(runs):
    moved = compare(runs, **QUICK).moved()
    assert moved.order[0] == 42
    assert max(moved.by_run, key=lambda name: moved.by_run[name][42]) == "run1"


def test_the_mean_over_rows_is_the_mean_of_the_pairs(runs):
    result = compare(runs, **QUICK)
    nears = [pair.groups["similarity"] for pair in result.pairs]
    assert_allclose(result.moved().disagreement.mean(), np.mean([near.of_chance.mean for near in nears]))
    assert_allclose(result.moved().of_diameter.mean(), np.mean([near.held_out.mean for near in nears]))
    assert_allclose(result.moved().null, np.mean([pair.groups["similarity"].null for pair in result.pairs]))


def test_ids_and_metadata_come_along(runs):
    ids = np.array([f"cell{i}" for i in range(100)])
    tables = [Table(x, name, ids, {"plate": np.arange(100) % 7}) for name, x in runs.items()]
    table = compare(tables, **QUICK).moved().to_table()
    assert table.ids[0] == "cell42"
    assert table.metadata["plate"][0] == 0
    assert table.metadata["Metadata_row"][0] == 42
    assert table.features == ("moved", "moved_run0", "moved_run1", "moved_run2", "moved_diameter")
    assert (np.diff(table.values[:, 0]) <= 0).all()


def test_rows_are_ranked_by_a_group_that_was_compared(runs):
    result = compare(runs, groups=["rigid", "linear"], nulls=0, bootstrap=0)
    assert result.moved().group == "linear"
    assert result.moved("rigid").group == "rigid"
    assert_allclose(result.moved().disagreement, result.moved().of_diameter)  # without a null
    with pytest.raises(InputError, match="group must be one of those compared \\(rigid, linear\\); got 'similarity'"):
        result.moved("similarity")


@pytest.mark.parametrize("name", ["row", "Metadata_row"])
def test_metadata_of_the_same_name_stays_beside_the_row_number(runs, name):
    plate = {name: np.arange(100) % 8}
    table = compare([Table(x, run, None, plate) for run, x in runs.items()], **QUICK).moved().to_table()
    assert table.metadata["Metadata_row_number"][0] == 42
    assert table.metadata[name][0] == 42 % 8


def test_a_run_named_diameter_keeps_its_column(runs):
    runs["diameter"] = runs.pop("run2")
    features = compare(runs, **QUICK).moved().to_table().features
    assert features[-2:] == ("moved_diameter", "moved_diameter_share")
