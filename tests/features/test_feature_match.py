"""The result: activations, rotations, page, table and JSON."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import save_file
from scipy.stats import ortho_group

from congruence import match_features
from congruence.features.feature_match import exact_interval, jackknife_pairs


def write_sae(folder, w):
    folder.mkdir()
    zeros = {"b_enc": np.full(len(w), -0.3, np.float32), "b_dec": np.zeros(w.shape[1], np.float32)}
    save_file({"W_dec": w, "W_enc": w.T.copy()} | zeros, folder / "sae_weights.safetensors")
    (folder / "cfg.json").write_text(json.dumps({"architecture": "standard"}))
    return folder


@pytest.fixture
def saes(tmp_path, rng):
    """Two autoencoders that share 24 of 30 features, in another order, and activations made of their features."""
    w = rng.normal(size=(36, 32))
    w = (w / np.linalg.norm(w, axis=1, keepdims=True)).astype(np.float32)
    a, b = w[:30], w[np.r_[6:36]][::-1].copy()
    active = rng.random((600, 36)) < np.geomspace(0.01, 0.3, 36)
    x = (active * rng.exponential(size=(600, 36))) @ w
    table = pd.DataFrame(x.astype(np.float32), columns=[f"x{i}" for i in range(32)])
    table.insert(0, "token", [f"token {i}" for i in range(600)])
    return write_sae(tmp_path / "a", a), write_sae(tmp_path / "b", b), table


def test_codes_of_matched_features_correlate_and_rows_are_shown(saes, tmp_path):
    a, b, table = saes
    result = match_features(a, b, activations=table, text="token")
    assert result.share == pytest.approx(0.8)
    assert result.rotation == {}  # one table means one space
    few = match_features(a, b, activations=table[:40])  # fewer rows than a rotation of 32 dimensions needs
    assert few.share == pytest.approx(0.8)
    codes = result.codes
    assert np.nanmin(codes.correlation[result.comes_back]) > 0.999
    assert np.isnan(codes.correlation[~result.comes_back]).all()
    assert (np.diff(codes.frequency) > 0).mean() > 0.5  # features were made more frequent one by one
    page = result.report(tmp_path / "page.html").read_text()
    assert "rows with the largest codes" in page
    assert "token " in page
    assert "Do frequent features come back more often?" in page


def test_spaces_that_differ_by_a_rotation_are_matched_after_it(saes, tmp_path, rng):
    a, b, table = saes
    x = table.filter(regex="^x").to_numpy()
    turn = ortho_group.rvs(32, random_state=0)
    from congruence.features import read_dictionary

    turned = write_sae(tmp_path / "turned", (read_dictionary(b).directions @ turn).astype(np.float32))
    blind = match_features(a, turned)
    assert blind.status == "unknown"
    result = match_features(a, turned, activations=(x, x @ turn))
    assert result.share == pytest.approx(0.8)
    assert result.rotation["turned"] > 0.999
    assert np.nanmin(result.codes.correlation[result.comes_back]) > 0.99
    assert match_features(a, turned, activations=(x, x @ turn), aligned=True).share < 0.1


def test_narrower_spaces_are_padded(rng):
    x = rng.normal(size=(400, 12))
    x[:, 8:] *= 1e-3
    turn = ortho_group.rvs(12, random_state=1)
    wide, narrow = rng.normal(size=(20, 12)), rng.normal(size=(20, 8))
    wide[:, 8:] = 0
    y = x @ turn
    narrow = wide[:, :8]
    result = match_features(wide @ turn, narrow, activations=(y, x[:, :8]), similarity=0.9)
    assert result.share == 1.0
    with pytest.raises(ValueError, match="8 and 12 dimensions"):
        match_features(wide, narrow)


def test_the_table_and_the_json_name_features_by_their_number_in_the_file(rng):
    a = rng.normal(size=(30, 16))
    a[0] = 0
    b = np.vstack([np.zeros((2, 16)), a[1:]])
    result = match_features(a, b, aligned=True)
    frame = result.to_frame()
    assert len(frame) == 29
    assert_allclose(frame["partner in dictionary#2"], frame["feature"] + 1)
    numbers = json.loads(result.to_json())["numbers"]
    assert numbers["features"][0] == 1
    assert numbers["pairs"][0]["partner"][0] == 2
    assert numbers["dictionaries"][1]["zero"] == 2


def test_a_page_is_written_for_one_feature_too(tmp_path, rng):
    result = match_features(rng.normal(size=(1, 8)), rng.normal(size=(3, 8)))
    assert result.report(tmp_path / "one.html").exists()
    assert "features" in str(result)
    result.plot()


def test_the_interval_over_features_covers():
    rng = np.random.default_rng(0)
    for share in (0.02, 0.3, 0.9):
        counts = rng.binomial(200, share, size=2000)
        covered = np.mean([low <= share <= high for low, high in (exact_interval(c, 200) for c in counts)])
        assert covered >= 0.945


@pytest.mark.parametrize("units", [3, 5])
def test_the_jackknife_covers_the_mean_over_seeds(units):
    """Each dictionary recovers some of the true features; a pair shares those that both recovered."""
    rng = np.random.default_rng(units)
    covered = 0
    for _ in range(400):
        quality = rng.beta(30, 10, size=units)
        pairs = [quality[i] * quality[j] for i in range(units) for j in range(i + 1, units)]
        low, high = jackknife_pairs(pairs, units)
        covered += low <= 0.75**2 <= high
    assert covered / 400 > 0.88
    assert np.isnan(jackknife_pairs([0.5], 2)).all()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"activations": np.ones((5, 3))}, "3 columns"),
        ({"activations": (np.ones((5, 8)),) * 3}, "one for each of 2"),
    ],
)
def test_activations_that_do_not_fit_are_refused(rng, more, message):
    with pytest.raises(ValueError, match=message):
        match_features(*rng.normal(size=(2, 20, 8)), **more)
    with pytest.raises(ValueError, match="two or more"):
        match_features(rng.normal(size=(20, 8)))


def test_a_text_column_may_be_named_without_the_prefix_of_metadata(saes):
    a, b, table = saes
    table = table.rename(columns={"token": "Metadata_token"})
    assert match_features(a, b, activations=table, text="token").labels[0].startswith("token ")


def test_a_text_column_that_is_missing_is_named(saes):
    a, b, table = saes
    with pytest.raises(ValueError, match="context"):
        match_features(a, b, activations=table, text="context")
