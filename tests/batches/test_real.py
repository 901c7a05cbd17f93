import numpy as np
import pytest

from congruence import read_table
from congruence.batches import deconfound


@pytest.fixture(scope="module")
def outcome(data_folder):
    """Two injuries of U2OS cells against DMSO, plates held out; fewer rounds and components than in the docs."""
    path = data_folder / "cellpainting" / "cell_injury_u2os_wells.parquet"
    table = read_table(path, features=["Cells_*", "Cytoplasm_*", "Nuclei_*"])
    asked = {"positive": ["Miscellaneous", "Redox"], "conditions": ("ica",), "components": 32, "rounds": 10, "folds": 3}
    return deconfound(table, batch="plate", target="injury_type", control="Control", concentration=(), jobs=2, **asked)


def test_injuries_are_classified_on_held_out_plates(outcome):
    for name in ("Miscellaneous", "Redox"):
        assert 0.85 < outcome[name].scores["base"].mean < 0.99
        assert outcome[name].judged == 3
    assert outcome.retrieval["base"].mean > 1.5 * outcome.retrieval["base"].by_chance


def test_normalised_features_leave_no_batch_to_remove_and_nothing_to_gain(outcome):
    assert outcome.leakage["base"].mean == pytest.approx(outcome.leakage["base"].by_chance, abs=0.05)
    assert np.nanmax(outcome.profiles["base"].technical) < 0.05
    assert outcome.overall["ica"].status != "holds"
