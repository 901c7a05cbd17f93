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


FEATURES = ["Cells_*", "Cytoplasm_*", "Nuclei_*"]


def judge_moa(path, **more):
    """Mechanisms of action of raw MCF7 wells on 37 plates of 10 weeks; fewer rounds than by default."""
    asked = {"target": "moa", "control": "DMSO", "conditions": ("ica",), "rounds": 15, "concentration": ()}
    return deconfound(read_table(path, features=FEATURES), batch="plate", **asked, **more)


@pytest.fixture(scope="module")
def raw_wells(data_folder):
    path = data_folder / "bbbc021" / "mcf7_well_means.parquet"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return path


def test_raw_plates_have_a_batch_effect_nested_in_weeks_and_a_ceiling(raw_wells):
    result = judge_moa(raw_wells)
    said = " ".join(result.headlines)
    assert result.variance["base"] == pytest.approx(0.446, abs=0.001)
    assert "Batches explain 45 % of the variance of controls" in said
    assert (result.nesting.column, result.nesting.groups) == ("week", 10)
    assert "nested in 10 groups (week)" in said
    assert "--cluster week" in said
    assert "Mean AUROC over 11 of 12 targets" in said
    assert "too few batches or rows for Kinase inhibitors" in said
    assert "of 11 targets have an AUROC of at least 0.97" in said
    assert result["Eg5 inhibitors"].precision["base"].adjusted < 0.05


def test_weeks_held_out_leave_fewer_targets_and_no_interval_for_some(raw_wells):
    result = judge_moa(raw_wells, cluster="week", profiles=False)
    assert result.nesting is None
    assert result["Cholesterol-lowering"].missing == ["all its batches are in one group, which is held out whole"]
    assert len(result.scored) == 10
    assert "Mean AUROC over 10 of 12 targets" in result.verdict
    assert "6 targets scored on fewer than 3 groups of batches have no interval" in " ".join(result.headlines)
    assert result.overall["ica"].difference == pytest.approx(result.mean("ica") - result.mean("base"))
    assert result.overall["ica"].units == 10
