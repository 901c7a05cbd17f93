import json

import numpy as np
import pytest
from scipy.stats import t

from congruence.batches import _scoring as scoring
from congruence.batches import apply_condition, deconfound
from congruence.batches.deconfounding import Score, Target, compare_folds
from congruence.errors import InputError
from congruence.parts import Parts

QUICK = {
    "rounds": 15,
    "components": "all",
    "concentration": (),
    "profiles": False,
    "leakage": False,
    "retrieval": False,
}


def run(wells, **options):
    return deconfound(wells.x, target=wells.gene, batch=wells.plate, control="none", **(QUICK | options))


@pytest.fixture(scope="module")
def outcome(wells):
    return deconfound(
        wells.x,
        target=wells.gene,
        batch=wells.plate,
        control="none",
        rounds=15,
        concentration=(0.2, 0.5),
        conditions=("ica", "rotated"),
    )


def test_ica_finds_the_axis_that_biology_has_to_itself(outcome):
    base, ica, rotated = (outcome["MTOR"].scores[name] for name in ("base", "ica", "rotated"))
    assert ica.mean > max(base.mean, rotated.mean)
    assert ica.mean > 0.8
    assert outcome.against("ica", "rotated").difference > 0
    assert np.nanmean(ica.sparsity) > np.nanmean(rotated.sparsity)
    assert np.nanmean(ica.concentration[0].difference) > np.nanmean(rotated.concentration[0].difference)
    clean = {name: found.entangled.mean() for name, found in outcome.profiles.items()}
    assert clean["ica"] < min(clean["base"], clean["rotated"])


def test_scores_have_a_value_for_each_fold_and_rotations_their_spread(outcome):
    score = outcome["MTOR"].scores["rotated"]
    assert score.auroc.shape == score.within.shape == score.sparsity.shape == (5,)
    assert score.draws.shape == (3,)
    assert score.draws.std() > 0
    assert score.mean == pytest.approx(score.draws.mean())
    assert score.units.shape == (5, 10)
    np.testing.assert_allclose(np.nansum(score.units, axis=1), score.auroc)
    assert score.error > 1.2 * score.auroc.std(ddof=1) / np.sqrt(5)  # folds share training rows
    assert outcome.conditions == ("base", "ica", "rotated")


def test_no_rotation_changes_what_a_line_can_tell_of_the_batch_or_a_cosine_of_replicates(outcome):
    for levels in (outcome.leakage, outcome.retrieval):
        assert levels["ica"].mean == pytest.approx(levels["rotated"].mean, abs=1e-6)
    assert outcome.leakage["base"].mean > outcome.leakage["base"].by_chance
    assert outcome.retrieval["base"].mean > outcome.retrieval["base"].by_chance


def test_results_become_rows_and_json(outcome):
    rows = list(outcome.rows())
    assert [(row["target"], row["condition"]) for row in rows[:3]] == [
        ("MTOR", "base"),
        ("MTOR", "ica"),
        ("MTOR", "rotated"),
    ]
    assert {"concentration20_difference", "concentration20_ratio"} <= set(rows[0])
    read = json.loads(outcome.to_json())["numbers"]
    assert read["overall"]["ica"]["difference"] == pytest.approx(outcome.overall["ica"].difference)
    assert read["targets"][0]["scores"]["ica"]["auroc"] == pytest.approx(outcome["MTOR"].scores["ica"].auroc.tolist())
    with pytest.raises(KeyError, match="no 'x' in this Deconfounding; the keys are 'MTOR', 'PLK1'"):
        outcome["x"]
    with pytest.raises(InputError, match="no condition 'tvn'; there are base, ica, rotated"):
        outcome.against("tvn")


def test_the_same_seed_gives_the_same_for_any_number_of_jobs(wells):
    one, two = (run(wells, jobs=jobs, leakage=True).to_json() for jobs in (1, 2))
    assert one == two
    assert run(wells, seed=1, conditions=()).to_json() != run(wells, conditions=()).to_json()


def test_a_signal_of_plates_alone_leaves_held_out_batches_at_chance(rng):
    """Plates differ a lot and in how many positives they have, so that plates known from training tell the label."""
    plate = np.repeat(np.arange(20), 60)
    gene = np.where(rng.uniform(size=1200) < rng.uniform(0.1, 0.9, 20)[plate], "gene", "none")
    x = 5 * rng.normal(size=(20, 6))[plate] + rng.normal(size=(1200, 6))
    conditions = ("whitened", "ica", "rotated", "standardised", "tvn")
    held = deconfound(x, target=gene, batch=plate, control="none", conditions=conditions, **QUICK)
    for name, score in held["gene"].scores.items():
        assert abs(np.nanmean(score.within) - 0.5) < 0.05, name
        assert abs(score.mean - 0.5) < 0.15, name  # plates held out are few, and each is right or wrong as a whole
    known = deconfound(x, target=gene, batch=rng.integers(0, 5, 1200), control="none", conditions=(), **QUICK)
    assert known["gene"].scores["base"].mean > 0.7


def test_controls_that_a_batch_is_aligned_on_would_give_themselves_away(rng, monkeypatch):
    """The perturbation does nothing. Judged by its own reference, TVN tells controls all the same; set apart, not."""
    plate = np.repeat(np.arange(12), 60)
    gene = np.where(np.arange(720) % 3 == 0, "none", "nothing")
    x = rng.normal(size=(720, 20)) + rng.normal(size=(12, 20))[plate]
    options = {"target": gene, "batch": plate, "control": "none", "conditions": ("tvn",), **QUICK}
    held = deconfound(x, **options)
    assert abs(held["nothing"].scores["tvn"].mean - 0.5) < 0.06
    assert "120 of 240 controls are set apart" in held.notes[0]
    monkeypatch.setattr("congruence.batches._deconfound.BY_BATCH", ())
    assert deconfound(x, **options)["nothing"].scores["tvn"].mean > 0.6


@pytest.mark.parametrize(("fit_on", "seen"), [("training", "training rows"), ("all", "all rows")])
def test_which_rows_a_condition_is_fitted_on(wells, monkeypatch, fit_on, seen):
    fitted = []
    whole = scoring.embed

    def spy(screen, condition, rows):
        fitted.append(set(screen.batch[rows]))
        return whole(screen, condition, rows)

    monkeypatch.setattr(scoring, "embed", spy)
    outcome = run(wells, conditions=("whitened",), fit_on=fit_on)
    assert outcome.settings["folds"] == 5
    if seen == "all rows":
        assert len(fitted) == 5 + 1  # base learns nothing; the other is fitted once
        assert set(range(10)) in fitted
    else:
        assert [len(batches) for batches in fitted] == [8] * 10


def test_both_modes_side_by_side(wells):
    outcome = run(wells, conditions=("whitened",), fit_on="both")
    assert outcome.conditions == ("base", "whitened", "whitened, fitted on all")
    alone = run(wells, conditions=("whitened",), fit_on="all")
    expected = alone["PLK1"].scores["whitened"].auroc
    np.testing.assert_array_equal(outcome["PLK1"].scores["whitened, fitted on all"].auroc, expected)
    assert outcome.against("whitened, fitted on all", "whitened").folds == 5


def test_guides_are_experiments_of_their_own(wells):
    guides = np.where(
        wells.gene == "none", "", np.char.add(wells.gene.astype(str), np.where(wells.x[:, 0] > 0, "-1", "-2"))
    )
    outcome = run(wells, guide=guides, conditions=(), positive=["PLK1"])
    target = outcome["PLK1"]
    assert target.guides == ("PLK1-1", "PLK1-2")
    assert target.scores["base"].auroc.shape == (10,)
    assert target.experiments[5] == ("PLK1-2", 0)
    whole = run(wells, guide=guides, conditions=("whitened",), positive=["PLK1"])
    difference = whole["PLK1"].scores["whitened"].auroc - whole["PLK1"].scores["base"].auroc
    assert whole["PLK1"].paired["whitened"].difference == pytest.approx(difference.reshape(2, 5).mean(0).mean())


def test_one_model_per_batch(wells):
    few = np.isin(wells.plate, ["p0", "p1", "p2", "p3"])
    outcome = deconfound(
        wells.x[few],
        target=wells.gene[few],
        batch=wells.plate[few],
        control="none",
        protocol="batch",
        conditions=("whitened",),
        **QUICK,
    )
    assert outcome.settings["folds"] == 4
    assert outcome["MTOR"].scores["base"].auroc.shape == (4,)


def test_models_that_could_not_split_are_named(wells):
    """A leaf takes 30 rows; a plate of 40 cannot be split."""
    rows = np.concatenate([np.flatnonzero(wells.plate == name)[:40] for name in ("p0", "p1", "p2", "p3")])
    labels = {"target": wells.gene[rows], "batch": wells.plate[rows], "control": "none", "positive": "MTOR"}
    outcome = deconfound(wells.x[rows], protocol="batch", conditions=(), **labels, **QUICK)
    assert (outcome["MTOR"].scores["base"].auroc == 0.5).all()
    assert "MTOR: 4 of 4 models made no split and have AUROC 0.5" in outcome.notes[-1]


def test_patches_are_fitted_one_by_one_and_scored_by_image(wells, rng):
    """Four noisy patches of each well: their mean tells more than any of them."""
    patches = np.repeat(wells.x, 4, axis=0) + 3 * rng.normal(size=(2400, 6))
    labels = {"target": np.repeat(wells.gene, 4), "batch": np.repeat(wells.plate, 4)}
    image = np.repeat(np.arange(600), 4)
    whole = deconfound(patches, **labels, control="none", image=image, conditions=(), **QUICK)
    labels = {name: column[::4] for name, column in labels.items()}
    single = deconfound(patches[::4], **labels, control="none", conditions=(), **QUICK)
    assert whole["MTOR"].scores["base"].mean > single["MTOR"].scores["base"].mean + 0.03
    assert "Models are fitted on one random row of each of 600 images" in whole.notes[-1]


def test_an_interrupted_run_goes_on(wells, tmp_path, monkeypatch):
    keeper = Parts(tmp_path, {"a": 1})
    whole = run(wells, conditions=("whitened",), profiles=True)
    fits = []

    def counted(*arguments, original=scoring.score_variant):
        if len(fits) == 4:
            raise KeyboardInterrupt
        fits.append(1)
        return original(*arguments)

    monkeypatch.setattr("congruence.batches._deconfound.score_variant", counted)
    with pytest.raises(KeyboardInterrupt):
        run(wells, conditions=("whitened",), profiles=True, parts=keeper)
    monkeypatch.undo()
    steps = []
    again = run(wells, conditions=("whitened",), profiles=True, parts=keeper, progress=lambda *s: steps.append(s))
    assert again.to_json() == whole.to_json()
    assert steps[-1][1] == steps[-1][2] == 22
    assert len(list(tmp_path.glob("*.safetensors"))) == 12


def test_targets_that_cannot_be_judged_are_named_with_the_reason(wells):
    gene = wells.gene.astype(object)
    gene[:3] = "few"
    plate = wells.plate.copy()
    plate[:3] = ["p0", "p1", "p2"]
    gene[np.flatnonzero(plate == "p4")[:8]] = "alone"
    outcome = deconfound(wells.x, target=gene, batch=plate, control="none", conditions=(), **QUICK)
    assert outcome.skipped == {"alone": "all its 8 rows are on one batch (p4)", "few": "it has 3 rows, fewer than 5"}
    assert [one.name for one in outcome.targets] == ["MTOR", "PLK1"]


def test_batches_with_positives_and_no_controls_are_noted(wells):
    gene = np.where((wells.plate == "p3") & (wells.gene == "none"), "MTOR", wells.gene)
    found = deconfound(wells.x, target=gene, batch=wells.plate, control="none", conditions="whitened", **QUICK)
    (said,) = [note for note in found.notes if "have no controls" in note and note.startswith("MTOR")]
    assert "MTOR: 1 of 10 batches with positives have no controls (p3), so its AUROC compares batches there" in said
    assert not any("have no controls" in note for note in run(wells, conditions="whitened").notes)


def test_an_experiment_without_held_out_positives_is_not_judged(wells):
    gene = wells.gene.astype(object)
    two = np.isin(wells.plate, ["p0", "p1"])
    gene[two & (gene == "PLK1")] = "rare"
    outcome = deconfound(
        wells.x, target=gene, batch=wells.plate, control="none", positive=["rare"], conditions=("whitened",), **QUICK
    )
    target = outcome["rare"]
    assert (target.judged, target.batches, target.left_out) == (2, 2, 8)
    assert np.isfinite(target.scores["base"].auroc).sum() == 2
    assert np.isnan(target.paired["whitened"].low)
    assert target.paired["whitened"].status == "unknown"
    assert "rare: 3 of 5 folds were not scored (no positives held out)." in outcome.notes


def test_the_paired_interval_is_that_of_nadeau_and_bengio():
    base, other = np.array([0.7, 0.6, 0.8, 0.7, 0.65]), np.array([0.75, 0.66, 0.84, 0.75, 0.72])
    blank = np.full(5, np.nan)
    scores = {name: Score(name, values, blank, blank, (), values) for name, values in (("base", base), ("x", other))}
    target = Target("t", (), 9, tuple(("", i) for i in range(5)), ("",) * 5, 5, 0, scores, {})
    difference = other - base
    half = t.ppf(0.975, 4) * np.sqrt((1 / 5 + 1 / 4) * difference.var(ddof=1))
    found = compare_folds((target,), "x", "base", "folds")
    assert (found.difference, found.high - found.difference) == pytest.approx((difference.mean(), half))
    assert found.status == "holds"
    assert compare_folds((target,), "base", "x", "folds").status == "fails"
    narrow = compare_folds((target,), "x", "base", "batch")
    assert narrow.high - narrow.difference == pytest.approx(half * np.sqrt(0.2 / 0.45))


def test_intervals_cover_no_difference_about_as_often_as_they_say():
    """Two embeddings of the same rows by noise of the same size: neither is better; 19 of 20 intervals hold 0."""
    held = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        plate, gene = np.repeat(np.arange(10), 30), np.where(np.arange(300) % 2 == 0, "none", "gene")
        signal = (gene == "gene")[:, None] * np.ones(3) + 0.5 * rng.normal(size=(10, 3))[plate]
        labels = {"target": gene, "batch": plate}
        outcomes = [
            deconfound(signal + 2 * rng.normal(size=(300, 3)), **labels, control="none", conditions=(), **QUICK)
            for _ in range(2)
        ]
        one, other = (outcome["gene"].scores["base"] for outcome in outcomes)
        target = outcomes[0]["gene"]
        both = Target(**(vars(target) | {"scores": {"base": one, "other": other}}))
        held += compare_folds((both,), "other", "base", "folds").status == "ambiguous"
    assert held >= 10


def test_the_embedding_to_go_on_with(wells):
    labels = {"target": wells.gene, "batch": wells.plate, "control": "none"}
    z = apply_condition(wells.x, "whitened", components=3, **labels).table.values
    np.testing.assert_allclose(np.cov(z, rowvar=False, bias=True), np.eye(3), atol=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit_on": "yes"}, "fit_on must be one of 'training', 'all', 'both'; got 'yes'"),
        ({"protocol": "plates"}, "protocol must be one of 'folds', 'batch'; got 'plates'"),
        ({"rounds": 0}, "rounds must be an integer of at least 1; got 0"),
        ({"jobs": 1.5}, "jobs must be an integer of at least 1; got 1.5"),
        ({"concentration": [2]}, "concentration must hold shares between 0 and 1"),
        ({"concentration": 25}, "concentration must hold shares between 0 and 1, such as 0.25, or be 'none'; got 25"),
        ({"conditions": 3}, "conditions must be some of base, .*, not 3"),
        ({"positive": []}, "positive must name at least one value of target; there are MTOR, PLK1"),
        ({"guide": ["a"]}, r"guide must have one label for each of 600 rows, but has shape \(1,\)"),
    ],
)
def test_options_are_checked_before_any_work(wells, options, message):
    with pytest.raises(InputError, match=message):
        run(wells, **options)


def test_harmony_cannot_be_strict(wells, monkeypatch):
    monkeypatch.setattr("congruence.batches.conditions._harmonypy", lambda: None)
    with pytest.raises(
        InputError, match="'harmony' moves all rows at once, so it cannot be fitted on training batches only"
    ):
        run(wells, conditions=("harmony",))
