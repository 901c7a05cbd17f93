import json

import numpy as np
import pytest

from congruence.experiments.recipes import dictionary_stability as method
from congruence.experiments.recipes import reproduce


def shares(kind, true_of_back, back_of_true):
    one = (0.5, 0.5, 0.5)
    return method.Shares(method.Setting(kind, 32, 3, 32), one, one, one, true_of_back, back_of_true, one)


def statuses(true_of_back, back_of_true):
    found = method.judge([shares(kind, true_of_back, back_of_true) for kind in method.METHODS])
    return {finding.name.split("-", 1)[1]: finding.status for finding in found}


def test_claims_follow_the_numbers():
    assert statuses((0.99, 0.98, 0.99), (1.0, 1.0, 1.0)) == {"is-true": "holds", "returns": "holds"}
    assert statuses((0.4, 0.5, 0.45), (0.6, 0.95, 0.99)) == {"is-true": "fails", "returns": "ambiguous"}
    none = (float("nan"),) * 3
    assert statuses(none, none) == {"is-true": "unknown", "returns": "unknown"}


def test_the_worst_setting_decides():
    good, bad = shares("topk", (1.0,) * 3, (1.0,) * 3), shares("topk", (0.2, 0.21, 0.19), (1.0,) * 3)
    assert method.judge([good, bad])[0].status == "fails"


def test_features_that_are_the_truth_are_measured_as_true():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(20, 32))
    own = rng.normal(size=(2, 20, 32))
    runs = [{"W_dec": np.vstack([truth[:15], own[i][:5]]), "unexplained": np.asarray(0.1)} for i in range(2)]
    found = method.measure(method.Setting("topk", 20, 3, 20), truth, runs)
    assert found.true == pytest.approx((0.75, 0.75))
    assert found.comes_back == pytest.approx((0.75, 0.75))
    assert found.true_of_back == found.back_of_true == pytest.approx((1.0, 1.0))
    copies = [{"W_dec": np.vstack([truth[:10], truth[:10]]), "unexplained": np.asarray(0.1)}] * 2
    doubled = method.measure(method.Setting("topk", 20, 3, 20), truth, copies)
    assert doubled.true == pytest.approx((1.0, 1.0))
    assert doubled.found == pytest.approx((0.5, 0.5))
    shared = np.vstack([truth[:5], own[0][:15]])  # found twice, but not true
    wrong = [{"W_dec": shared, "unexplained": np.asarray(0.1)}] * 2
    assert method.measure(method.Setting("topk", 20, 3, 20), truth, wrong).true_of_back == pytest.approx((0.25, 0.25))


def test_the_recipe_runs(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    tiny = {"d": 8, "true": [6], "active": [1], "widths": [1.0], "runs": 2, "rows": 400, "steps": 20}
    monkeypatch.setattr(method, "PARAMETERS", {"smoke": tiny})
    done = reproduce("dictionary-stability", tmp_path / "a", scale="smoke", device="cpu")
    written = json.loads((tmp_path / "a" / "result.json").read_text())
    assert len(written["numbers"]["ours"]["shares"]) == 3
    assert len(done.findings) == 6
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
