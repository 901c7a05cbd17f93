"""The choices, intervals and claims of `disentanglement` follow the numbers, and the recipe runs and goes on."""

import dataclasses
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("torch")

from congruence.errors import InputError
from congruence.experiments.recipes import reproduce, verify
from congruence.experiments.recipes.claims import over_seeds
from congruence.experiments.recipes.disentanglement import run as method
from congruence.experiments.recipes.disentanglement import trainings
from congruence.experiments.recipes.disentanglement.claims import headlines, judge, make_tables
from congruence.experiments.recipes.disentanglement.figures import matched_order, sheet
from congruence.experiments.recipes.disentanglement.scores import (
    OTHER_SCORES,
    SCORES,
    Candidate,
    ScoreRow,
    choose,
    choose_by_agreement,
    choose_by_isometry,
    difference,
    keep_reconstructing,
    mean_modularity,
    mean_over_data,
    summarise_spectrum,
)
from congruence.experiments.recipes.disentanglement.trainings import ModelVariant
from congruence.parts import Parts


def candidate(decay=0.1, snapshot=0, *, raw=0.4, ica=0.6, psnr=30.0, model="ae", seeds=3, agreement=0.8, defect=0.5):
    spread = np.linspace(-0.01, 0.01, seeds)
    ways = [raw, ica, raw, ica] if model == "ae" else [raw]
    scores = np.stack([np.column_stack([np.array(ways) + one, [0.8] * len(ways), [0.3] * len(ways)]) for one in spread])
    return Candidate(
        variant=ModelVariant(model, decay, seeds),
        snapshot=snapshot,
        step=100 * (snapshot + 1),
        psnr=psnr,
        scores=scores,
        agreement=np.full(4, agreement if seeds > 1 else np.nan),
        nearness=np.array([0.2, 0.1, 0.05, 0.4]),
        defects=np.linspace(defect, defect + 0.1, seeds),
        active=3.0,
        spectra=np.tile([1.0, 0.7, 0.5, 0.01], (seeds, 1)),
        before_sigmoid=np.array([3.0, 0.2]),
        readouts=np.full(seeds, 0.75),
    )


def row(name, one, way="raw"):
    judged = {score: one.values(way, score) for score in SCORES}
    return ScoreRow(name, one, way, judged | {score: np.full(one.variant.seeds, np.nan) for score in OTHER_SCORES})


def findings(*, raw=0.4, ica=0.7, other=0.5, quantised=0.6, other_seeds=2, **changes):
    grid = [
        candidate(decay, raw=raw, ica=ica - 0.1 * i, defect=0.3 + 0.2 * i) for i, decay in enumerate((0.3, 0.1, 0.0))
    ]
    rows = {"AE": row("AE", grid[0]), "AE + ICA": row("AE + ICA", grid[0], "ica")}
    rows |= {name: row(name, grid[0], way) for name, way in (("AE + ICA, not centred", "asis"),)}
    rows |= {"AE + ICA, whitened": row("AE + ICA, whitened", grid[0], "white")}
    for name, model in (("β-VAE", "vae"), ("β-TCVAE", "tcvae"), ("BioAE", "bioae")):
        rows[name] = row(name, candidate(0.0, raw=other, model=model, seeds=other_seeds))
    for name, model in (("VQ-VAE", "vqvae"), ("VQ-VAE with weight decay", "vqvae"), ("QLAE", "qlae")):
        rows[name] = row(name, candidate(0.0, raw=quantised, model=model, seeds=1))
    found = method.DisentanglementScores(
        data="rooms",
        note="a twin",
        factors=("a", "b"),
        rows=rows,
        grid=tuple(grid),
        without_labels={"agreement": grid[0], "isometry": grid[2]},
        nmi={"before": np.ones((2, 4)), "after": np.eye(2, 4)},
    )
    return dataclasses.replace(found, **changes)


def test_the_filter_keeps_what_is_at_most_twice_as_wrong_and_labels_choose_among_it():
    sharp, blurred, fair = candidate(0.0, psnr=30, ica=0.5), candidate(3.0, psnr=26.9, ica=0.9), candidate(psnr=27.1)
    assert keep_reconstructing([sharp, blurred, fair]) == [sharp, fair]
    assert choose([sharp, blurred, fair], "ica") is fair
    assert choose([sharp, fair, candidate(ica=np.nan)], "ica") is fair
    late = candidate(0.0, snapshot=1, raw=0.45, ica=0.4)
    assert choose([sharp, late], "raw") is late
    assert choose([sharp, late], "ica") is sharp


def test_without_labels_seeds_that_agree_or_an_isometry_choose():
    alike, isometric = candidate(agreement=0.9, ica=0.1), candidate(agreement=0.5, defect=0.1, ica=0.2)
    hidden = candidate(agreement=0.99, defect=0.01, psnr=20.0)
    assert choose_by_agreement([isometric, alike, hidden]) is alike
    assert choose_by_isometry([alike, isometric, hidden]) is isometric
    assert choose_by_agreement([candidate(seeds=1)]) is None


def test_intervals_are_those_of_student():
    from scipy.stats import ttest_ind, ttest_rel

    rng = np.random.default_rng(0)
    a, b = rng.normal(0.6, 0.1, 5), rng.normal(0.4, 0.2, 4)
    mean, low, high = over_seeds(a)
    assert mean == pytest.approx(a.mean())
    assert high - mean == pytest.approx(mean - low)
    assert np.isnan(over_seeds(a[:1])[1])

    def of(values, snapshot):
        one = candidate(seeds=len(values), snapshot=snapshot)
        return ScoreRow("x", one, "raw", {"infom": values})

    welch = ttest_ind(a, b, equal_var=False).confidence_interval()
    assert_allclose(difference(of(a, 0), of(b, 1))[1:], [welch.low, welch.high])
    paired = ttest_rel(a[:4], b).confidence_interval()
    assert_allclose(difference(of(a[:4], 0), of(b, 0))[1:], [paired.low, paired.high])
    assert np.isnan(difference(of(a, 0), of(b[:1], 1))[1])  # how one seed varies is not known


def test_over_data_sets_only_seeds_make_the_interval():
    mean, low, high = mean_over_data([np.array([0.1, 0.2]), np.array([0.8, 0.9])])
    assert mean == pytest.approx(0.5)
    assert high - low < 0.35  # although the data sets differ by 0.7
    assert np.isnan(mean_over_data([np.array([0.1]), np.array([0.2, 0.3])])[1])


def test_the_spectrum_says_which_latents_are_active_and_how_far_from_an_isometry():
    sizes, active, defect = summarise_spectrum(np.tile([2.0, 2.0, 0.01], (5, 1)))
    assert_allclose(sizes, [2, 2, 0.01])
    assert (active, defect) == (2, 0)
    assert summarise_spectrum(np.tile([2.0, 2 / np.e], (4, 1)))[2] == pytest.approx(0.5)
    assert summarise_spectrum(np.zeros((3, 2)))[1] == 1


def test_a_code_that_tells_nothing_is_skipped():
    assert mean_modularity(np.array([1.0, np.nan, 0.5]), 2) == pytest.approx(0.5)
    assert np.isnan(mean_modularity(np.full(2, np.nan), 2))


def test_all_claims_can_hold():
    found = findings()
    assert [claim.status for claim in judge(found, 0)] == ["holds"] * 6
    assert len(make_tables([found, dataclasses.replace(found, data="sprites")])) == 8


@pytest.mark.parametrize(
    ("changes", "fallen"),
    [
        ({"ica": 0.5, "other": 0.3, "quantised": 0.3}, [0, 1]),
        ({"other": 0.9}, [2]),
    ],
)
def test_a_claim_falls_with_its_numbers(changes, fallen):
    found = judge(findings(**changes), 0)
    assert [i for i, claim in enumerate(found) if claim.status == "fails"] == fallen


def test_whoever_wins_is_named_and_one_seed_decides_nothing():
    assert judge(findings(other=0.1, other_seeds=1), 0)[2].status == "unknown"
    claim = judge(findings(other=0.68, quantised=0.2), 0)[2]
    assert claim.status == "ambiguous"
    assert "AE + ICA is better here." in claim.evidence
    lost = judge(findings(other=0.95), 0)[2]
    assert "β-VAE is better here." in lost.evidence
    assert "β-VAE has the highest InfoM" in headlines([findings(other=0.95)])[0]
    assert "with quantised latents VQ-VAE 0.89" in headlines([findings(quantised=0.9)])[0]


def test_other_claims_fall_too():
    flat = dataclasses.replace(candidate(0.3), spectra=np.tile(np.linspace(1, 0.5, 4), (3, 1)))
    rows = findings().rows
    assert judge(findings(rows=rows | {"AE + ICA": row("AE + ICA", flat, "ica")}), 0)[3].status == "fails"
    mean = dataclasses.replace(flat, spectra=flat.spectra[:1])  # kept numbers before edition 4: how seeds vary is lost
    assert judge(findings(rows=rows | {"AE + ICA": row("AE + ICA", mean, "ica")}), 0)[3].status == "unknown"
    grid = tuple(candidate(d, ica=0.4 + 0.1 * i, defect=0.3 + 0.2 * i) for i, d in enumerate((0.3, 0.1, 0.0)))
    assert judge(findings(grid=grid), 0)[4].status == "fails"
    assert judge(findings(without_labels={"agreement": candidate(ica=0.5)}), 0)[5].status == "fails"


@pytest.mark.parametrize(("rounded", "status"), [(0.85, "holds"), (0.5, "fails")])
def test_rounding_is_judged_by_the_same_trainings_with_and_without_it(rounded, status):
    rows = findings(ica=0.7).rows
    rows |= {"AE + ICA, ten values": row("AE + ICA, ten values", candidate(0.3, ica=rounded), "ica")}
    rows |= {"QLAE, not rounded": row("QLAE, not rounded", candidate(0.0, raw=0.99, model="qlae", seeds=1))}
    found = findings(rows=rows)
    claim = judge(found, 0)[6]
    assert (claim.name, claim.status) == ("rooms: rounding-raises-infom", status)
    assert found.best_quantised.name == "VQ-VAE"  # codes that are not rounded are no quantised ones


def test_codes_are_put_in_the_order_of_their_factors():
    shares = np.array([[0.1, 0.2, 0.9, 0.3], [0.8, 0.7, 0.1, 0.2]])
    assert matched_order(shares) == [2, 0, 1, 3]
    pictures = np.zeros((2, 3, 1, 4, 4), np.uint8)
    assert sheet(pictures).shape == (10, 16, 4)


def test_the_recipe_runs_and_goes_on_from_what_was_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(method, "PARAMETERS", {"smoke": method.PARAMETERS["smoke"] | {"evaluated": 120, "looks": 1}})
    told, said = [], []
    options = {"scale": "smoke", "device": "cpu", "progress": lambda *now: told.append(now), "announce": said.append}
    done = reproduce("disentanglement", tmp_path / "a", **options)
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert said[0].startswith("plan: 10 trainings of 8 steps; about 1 min for the rest")
    assert {what for what, _, _ in told} >= {"sprites: trainings", "sprites: scores"}
    assert set(done.ours["sprites"]["rows"]) == {
        "AE", "β-VAE", "β-TCVAE", "BioAE", "AE + ICA", "AE + ICA, not centred", "AE + ICA, whitened",
        "VQ-VAE", "VQ-VAE with weight decay", "QLAE", "QLAE, not rounded", "AE + ICA, ten values",
    }  # fmt: skip
    assert len(result["findings"]) == 7
    assert verify(tmp_path / "a") == []
    assert len(result["numbers"]["figures"]) == 4
    assert sum((tmp_path / "a" / one["file"]).stat().st_size for one in result["numbers"]["figures"]) < 300_000
    assert "data:image/png" in (tmp_path / "a" / "traversals-sprites.svg").read_text()
    assert len(list((tmp_path / "a" / "parts" / "runs").iterdir())) == 10

    parts = tmp_path / "a" / "parts"
    parts = Parts(parts, json.loads((parts / "settings.json").read_text()))
    study = trainings.ImageStudy("sprites", method.PARAMETERS["smoke"], 0, "cpu", parts)
    vae = ModelVariant("vae", 0.0, 1)
    before = trainings.load_snapshots(study, vae, 0)
    (tmp_path / "a" / "parts" / "sprites-vae-wd0-0-step8.safetensors").unlink()
    assert method.plan(method.PARAMETERS["smoke"], "cpu", parts).startswith("plan: 10 trainings of 8 steps, 9 of them")
    trained, real = [], trainings.train_model
    again = lambda *given, **how: trained.append(given[0].name) or real(*given, **how)  # noqa: E731
    monkeypatch.setattr(trainings, "train_model", again)
    again = [trainings.load_snapshots(study, *one) for one in study.trainings if one[0].model != "ae"]
    assert trained == ["vae"]  # only the training whose snapshot was lost
    assert_array_equal(again[0][-1]["codes"], before[-1]["codes"])
    with pytest.raises(InputError, match="holds disentanglement with other settings"):
        reproduce("disentanglement", tmp_path / "a", scale="smoke", data="rooms", device="cpu")


def test_data_sets_may_be_given_together_and_the_plan_knows_them(tmp_path):
    with pytest.raises(InputError, match="data must be one of 'rooms', 'sprites', .*; got 'cats'"):
        reproduce("disentanglement", tmp_path / "b", scale="smoke", data="rooms,cats", device="cpu")
    parts = Parts(tmp_path, {})
    paper = dict(method.PARAMETERS["paper"])
    assert method.plan(paper, "cuda", parts).startswith("plan: 42 trainings of 12000 steps")
    assert method.plan(paper | {"data": "rooms"}, "cuda", parts).startswith("plan: 21 trainings")
