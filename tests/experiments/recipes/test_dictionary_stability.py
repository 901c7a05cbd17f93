import numpy as np
import pytest

from congruence.experiments.recipes import dictionary_stability as method
from congruence.experiments.recipes import reproduce, verify
from congruence.experiments.recipes._files import read_numbers
from congruence.experiments.recipes.claims import Estimate


def estimate(value, *interval):
    return Estimate(value, *(interval or (value, value)))


def shares(kind, true_of_back, back_of_true, true=32):
    one = estimate(0.5)
    return method.Shares(method.Setting(kind, true, 3, 32), one, 0.0, one, one, one, true_of_back, back_of_true)


def statuses(true_of_back, back_of_true):
    found = method.judge([shares(kind, true_of_back, back_of_true) for kind in method.METHODS])
    return {finding.name.split("-", 1)[1]: finding.status for finding in found}


def test_claims_follow_the_numbers():
    found = statuses(estimate(0.99, 0.98, 1.0), estimate(1.0, np.nan, np.nan))
    assert found == {"is-true": "holds", "returns": "unknown", "language": "unknown"}
    found = statuses(estimate(0.45, 0.4, 0.5), estimate(0.92, 0.6, 0.99))
    assert found == {"is-true": "fails", "returns": "ambiguous", "language": "unknown"}
    none = estimate(np.nan)
    assert set(statuses(none, none).values()) == {"unknown"}


def test_the_worst_setting_decides():
    good, bad = shares("topk", estimate(1.0), estimate(1.0)), shares("topk", estimate(0.2), estimate(1.0))
    assert method.judge([good, bad])[0].status == "fails"
    unknown = method.measure(method.Setting("topk", 0, 3, 32), None, trainings([np.eye(32, 40)] * 3))
    language = {finding.name: finding for finding in method.judge([good, bad, unknown])}["topk-language"]
    assert (language.status, language.number, language.interval) == ("holds", 1.0, (1.0, 1.0))


def trainings(features):
    return [{"W_dec": one, "unexplained": np.asarray(0.1)} for one in features]


def test_features_that_are_the_truth_are_measured_as_true():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(20, 32))
    own = rng.normal(size=(2, 20, 32))
    setting = method.Setting("topk", 20, 3, 20)
    found = method.measure(setting, truth, trainings([np.vstack([truth[:15], one[:5]]) for one in own]))
    assert found.true.value == found.comes_back.value == pytest.approx(0.75)
    assert found.true_of_back.value == found.back_of_true.value == pytest.approx(1.0)
    doubled = method.measure(setting, truth, trainings([np.vstack([truth[:10], truth[:10]])] * 2))
    assert (doubled.true.value, doubled.found.value) == pytest.approx((1.0, 0.5))
    wrong = trainings([np.vstack([truth[:5], own[0][:15]])] * 2)  # found twice, but not true
    assert method.measure(setting, truth, wrong).true_of_back.value == pytest.approx(0.25)


def test_intervals_are_over_trainings_not_over_their_pairs():
    """One training that has nothing in common with two equal ones: one of three pairs agrees."""
    rng = np.random.default_rng(0)
    same, other = rng.normal(size=(2, 20, 32))
    found = method.measure(method.Setting("topk", 0, 3, 20), None, trainings([same, same, other]))
    assert found.comes_back.value == pytest.approx(1 / 3)
    assert found.comes_back[1:] == (0.0, 1.0)
    assert found.true is None


def test_the_recipe_runs(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    tiny = {"d": 8, "true": [6], "active": [1], "widths": [1.0], "runs": 2, "rows": 400, "steps": 20}
    tiny |= {name: method.PARAMETERS["smoke"][name] for name in ("language", "language_active", "text")}
    tiny |= {"language_widths": [0.5], "runs": 3}
    monkeypatch.setattr(method, "PARAMETERS", {"smoke": tiny})
    done = reproduce("dictionary-stability", tmp_path / "a", scale="smoke", device="cpu")
    kept = read_numbers(tmp_path / "a")["ours"]["shares"]
    assert [one["setting"]["method"] for one in kept] == ["topk", "l1", "ica"] * 2
    assert [one["true"] is None for one in kept] == [False] * 3 + [True] * 3
    assert verify(tmp_path / "a") == []
    assert len(done.findings) == 9
    assert (tmp_path / "a" / "shares.svg").is_file()


@pytest.mark.parametrize("kind", ["topk", "l1"])
def test_a_sparse_autoencoder_finds_well_separated_features(kind):
    pytest.importorskip("torch")
    from congruence.experiments.training.sparse_autoencoders import train_sparse_autoencoder

    rng = np.random.default_rng(0)
    truth = np.linalg.qr(rng.normal(size=(12, 12)))[0][:6]
    codes = rng.exponential(size=(3000, 6)) * (rng.random((3000, 6)) < 0.2)
    found = train_sparse_autoencoder(codes @ truth, 6, kind, active=2, penalty=0.05, steps=1500, seed=0)
    assert np.abs(found["W_dec"] @ truth.T).max(0).mean() > 0.95
    assert np.linalg.norm(found["W_dec"], axis=1) == pytest.approx(np.ones(6), abs=1e-5)
    assert float(found["unexplained"]) < 0.2
