import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from congruence import load, translate
from congruence.arrays import on_sphere
from congruence.errors import InputError
from congruence.rows.engine import Rows
from congruence.translation._far import RATE, fit_region

MOLECULES = Path(os.environ.get("CONGRUENCE_DATA", "")) / "modelpairs"


def heavy(n, d, seed):
    """Rows of a few directions, with sizes of heavy tails, away from the origin."""
    rng = np.random.default_rng(seed)
    shape = np.random.default_rng(99).normal(size=(d, d)) * np.geomspace(1, 0.01, d)
    return 3 + rng.normal(size=(n, d)) @ shape.T * np.exp(0.5 * rng.normal(size=(n, 1)))


@pytest.mark.parametrize("n", [300, 1000, 8000])
def test_rows_of_the_same_population_are_hardly_ever_far(n):
    flagged, tested = 0, 0
    for seed in range(10):
        region = fit_region(Rows(heavy(n, 20, seed)), np.arange(n) % 5)
        other = heavy(5000, 20, 1000 + seed)
        flagged += int((region.exceedance(other) > 1).sum())
        tested += len(other)
    assert flagged / tested < 2 * RATE


@pytest.mark.skipif(not MOLECULES.is_dir(), reason="CONGRUENCE_DATA has no modelpairs")
@pytest.mark.parametrize("normalize", [None, "cosine"])
def test_digits_are_far_from_molecules(normalize):
    rng = np.random.default_rng(0)
    x = np.load(MOLECULES / "admet_cls_seed0.npy").astype(np.float64)[rng.permutation(2784)]
    fitted, others = x[:1500], x[1500:]
    digits = load_digits().data @ rng.normal(size=(64, 300))  # of the same mean and the same total variance
    digits = (digits - digits.mean(0)) / digits.std() * fitted.std(0).mean() + fitted.mean(0)
    region = fit_region(Rows(fitted, scale_rows=normalize is not None), np.arange(1500) % 5)
    place = on_sphere if normalize else np.asarray
    assert (region.exceedance(place(digits)) > 1).mean() >= 0.95
    assert (region.exceedance(place(others)) > 1).mean() <= 0.004  # 1284 rows: 5 at most


def test_translate_learns_what_is_far_and_keeps_it(tmp_path):
    new = heavy(600, 6, 0)
    result = translate(new @ np.linalg.qr(heavy(6, 6, 1))[0], new, nulls=0, bootstrap=0)
    result.save(tmp_path / "up.safetensors")
    back = load(tmp_path / "up.safetensors")
    x = np.concatenate([heavy(50, 6, 3), heavy(5, 6, 4) * 1e4, np.full((1, 6), np.nan), np.full((1, 6), np.inf)])
    expected = np.array([False] * 50 + [True] * 7)
    assert np.array_equal(back.far(x), expected)
    assert np.array_equal(back.far(x.astype(np.float32)), expected)
    assert np.array_equal(back.far(torch.tensor(x)).numpy(), expected)


def test_translators_of_older_files_do_not_know_it():
    old = load(Path(__file__).parents[1] / "saved_by_0_1_0" / "translator.safetensors")
    with pytest.raises(InputError, match="saved by version 0.1.0"):
        old.far(np.zeros((1, old.d_new)))


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((100, 3)),
        np.arange(30.0)[:, None] + np.zeros((30, 3)),
        np.random.default_rng(0).normal(size=(60, 200)),
        np.random.default_rng(0).normal(size=(100, 3)) * 1e20,
        np.repeat(np.eye(3), 40, axis=0),
        np.column_stack([np.random.default_rng(0).normal(size=100), np.zeros(100)]),
    ],
    ids=["constant", "few", "wide", "large", "copies", "a constant column"],
)
def test_degenerate_rows_have_no_region_or_a_finite_one(rows):
    region = fit_region(Rows(rows), np.arange(len(rows)) % 5)
    if region is not None:
        assert np.isfinite(region.factor).all()
        assert (region.exceedance(rows) > 1).mean() < 0.1
    else:
        assert len(rows) < 50 or np.ptp(rows) == 0
