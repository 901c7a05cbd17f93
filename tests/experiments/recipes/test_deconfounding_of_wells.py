"""The claims about real plates follow the numbers, and the recipe reads wells with raw features."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from congruence.errors import InputError
from congruence.experiments.recipes import reproduce
from congruence.experiments.recipes.deconfounding.plates import FILE, TASKS, PlateExperiment, TaskScores, present
from congruence.experiments.recipes.deconfounding.screen import CONDITIONS
from congruence.experiments.recipes.result import as_numbers, from_numbers

TARGETS = ("Aurora kinase inhibitors", "Eg5 inhibitors", "Epithelial")


def measured(rng):
    """Scores of a task as the paper has them, but for a little noise; one target is missing in the first fold."""

    def around(values, shape):
        return {name: value + 0.002 * rng.normal(size=shape) for name, value in zip(CONDITIONS, values, strict=True)}

    auroc = around((0.7, 0.75, 0.8, 0.7), (3, 5))
    for values in auroc.values():
        values[0, 0] = np.nan
    return TaskScores(
        guides=TARGETS,
        auroc=auroc,
        sparsity=around((0.9, 0.2, 0.3, 0.2), (3, 5)),
        top=around((0.6, 0.7, 0.8, 0.6), (1, 3, 5)),
        rest=around((0.5, 0.55, 0.55, 0.55), (1, 3, 5)),
        wells=(10, 20, 30),
        variance=0.4,
        accuracy=around((0.8, 0.7, 0.7, 0.7), 5),
        chance=np.full(5, 0.2),
    )


@pytest.fixture
def found(rng):
    return PlateExperiment({task: measured(rng) for task in TASKS}, (0.25,))


def statuses(found, task=""):
    return {one.name: one.status for one in present(found).findings if one.name.startswith(task)}


def test_all_claims_hold_where_all_is_as_in_the_paper(found):
    known = statuses(found)
    assert set(known.values()) == {"holds"}
    assert len(known) == 1 + 5 * len(TASKS)
    assert "active: ica-increases-concentration-top-25" in known


@pytest.mark.parametrize(
    ("part", "condition", "fallen"),
    [
        ("auroc", "whitened", {"whitening-improves-auroc"}),
        ("auroc", "ica", {"ica-improves-auroc", "axes-matter"}),
        ("sparsity", "ica", {"ica-increases-sparsity"}),
        ("top", "ica", {"ica-increases-concentration-top-25"}),
    ],
)
def test_a_claim_falls_with_its_numbers_and_in_its_task_only(part, condition, fallen, found):
    task = found.tasks["weeks"]
    values = getattr(task, part)
    worse = dataclasses.replace(task, **{part: {**values, condition: values[condition] - 0.3}})
    other = dataclasses.replace(found, tasks={**found.tasks, "weeks": worse})
    failed = {name for name, status in statuses(other).items() if status == "fails"}
    assert failed == {f"weeks: {name}" for name in fallen}


def test_what_noise_could_have_made_is_ambiguous_and_few_folds_decide_nothing(found, rng):
    task = found.tasks["active"]
    noisy = dataclasses.replace(task, auroc={name: 0.6 + 0.1 * rng.normal(size=(3, 5)) for name in CONDITIONS})
    few = {name: np.where(np.arange(5) < 2, values, np.nan) for name, values in task.auroc.items()}
    for scores, status in ((noisy, "ambiguous"), (dataclasses.replace(task, auroc=few), "unknown")):
        known = statuses(
            dataclasses.replace(found, tasks={"plates": found.tasks["plates"], "weeks": task, "active": scores})
        )
        assert known["active: whitening-improves-auroc"] == status


def test_without_a_batch_effect_the_premise_fails(found):
    task = found.tasks["plates"]
    guessed = dataclasses.replace(task, accuracy={**task.accuracy, "base": task.accuracy["base"] - 0.65})
    known = statuses(dataclasses.replace(found, tasks={**found.tasks, "plates": guessed}))
    assert known["plates-have-a-batch-effect"] == "fails"


def test_only_what_was_not_known_before_is_not_post_hoc(found):
    marked = {one.name: one.post_hoc for one in present(found).findings}
    assert {name for name, post_hoc in marked.items() if not post_hoc} == {one for one in marked if "active: " in one}
    rules = {one.name: one.rule for one in present(found).findings}
    assert rules["weeks: axes-matter"] == "gain in AUROC, PCA + ICA − PCA + Rand, over held-out weeks is above 0."


def test_numbers_that_were_kept_make_the_same_claims_and_tables(found):
    again = from_numbers(PlateExperiment, json.loads(json.dumps(as_numbers(found)).replace("NaN", "null")))
    assert statuses(again) == statuses(found)
    gains, conditions, targets = present(again).tables
    assert [row[0] for row in gains.rows] == list(TASKS)
    assert conditions.rows[2][0] == "plates: PCA + ICA"
    assert targets.rows[0][:3] == ("plates: Aurora kinase inhibitors", 10, 4)


@pytest.fixture
def wells(tmp_path, monkeypatch):
    """A folder with generated wells of 6 weeks of three plates, in the layout of BBBC021."""
    rng = np.random.default_rng(0)
    rows = [
        {"plate": f"w{week}p{plate}", "week": week, "moa": moa, "is_control": moa == "DMSO"}
        for week in range(6)
        for plate in range(3)
        for moa in ["DMSO"] * 6 + ["Epithelial", "Eg5 inhibitors"] * 2
    ]
    table = pd.DataFrame(rows)
    x = rng.laplace(size=(len(table), 30)) + 3 * rng.normal(size=(6, 30))[table["week"]]
    x[:, 3] += 2 * (table["moa"] == "Epithelial")
    names = [f"{part}_{i}" for i in range(10) for part in ("Cells", "Cytoplasm", "Nuclei")]
    (tmp_path / "bbbc021").mkdir()
    pd.concat([table, pd.DataFrame(x, columns=names)], axis=1).to_parquet(tmp_path / "bbbc021" / FILE)
    monkeypatch.setenv("CONGRUENCE_DATA", str(tmp_path))
    return tmp_path


def test_the_recipe_scores_wells_on_held_out_plates_and_weeks(wells):
    done = reproduce("deconfounding", wells / "a", scale="smoke", data="bbbc021", device="cpu")
    assert {one.status for one in done.findings} == {"unknown"}  # the smoke scale judges nothing
    assert {task: one["guides"] for task, one in done.ours["tasks"].items()} == {
        "plates": ["Eg5 inhibitors", "Epithelial"],
        "weeks": ["Eg5 inhibitors", "Epithelial"],
        "active": ["treated"],
    }
    assert done.ours["tasks"]["active"]["wells"] == [72]
    assert "dial" not in done.settings
    assert "real" in done.notes[0]
    assert "dial" not in dict(done.terms)
    assert "--data=bbbc021" in done.settings["command"]
    assert (wells / "a" / "real-plates.svg").exists()
    assert reproduce("deconfounding", wells / "a", scale="smoke", data="bbbc021", device="cpu").reused


def test_absent_wells_and_other_data_are_refused(tmp_path, monkeypatch, call):
    monkeypatch.setenv("CONGRUENCE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = ("--data", "bbbc021", "--scale", "smoke", "--out", str(tmp_path / "a"))
    code, _, error = call("reproduce", "deconfounding", *options)
    assert code == 2
    assert "data set bbbc021 not found in" in error
    with pytest.raises(InputError, match="data must be one of 'simulated', 'bbbc021'; got 'rxrx3'"):
        reproduce("deconfounding", tmp_path / "b", scale="smoke", data="rxrx3")


def test_real_wells_are_scored_in_three_tasks(data_folder, tmp_path):
    if not (data_folder / "bbbc021" / FILE).exists():
        pytest.skip(f"{data_folder} has no bbbc021/{FILE}")
    tasks = reproduce("deconfounding", tmp_path, scale="smoke", data="bbbc021", device="cpu").ours["tasks"]
    assert {task: len(one["guides"]) for task, one in tasks.items()} == {"plates": 11, "weeks": 10, "active": 1}
    assert tasks["plates"]["variance"] == pytest.approx(0.446, abs=0.001)
    assert tasks["active"]["wells"] == [201]
