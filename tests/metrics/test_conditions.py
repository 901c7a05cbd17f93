"""Which properties of the data mislead a score, and that they are found."""

import math

import numpy as np
import pytest

from congruence import evaluate
from congruence.metrics._conditions import MISLED
from congruence.metrics._registry import METRICS, SCORES

QUICK = {"metrics": ["infomec", "mig", "mcc"], "resamples": 0, "nulls": 1, "structural": False}


@pytest.fixture
def s(rng):
    return rng.normal(size=(1200, 3))


def found(z, s):
    return {score.score: " ".join(score.conditions) for score in evaluate(z, s, **QUICK).scores}


def test_the_factors_themselves_mislead_nothing(s):
    assert set(found(s, s).values()) == {""}


def test_correlated_factors_are_named(s):
    s = s + 1.5 * s[:, :1]
    assert "correlated factors (factor" in found(s, s)["infom"]
    assert found(s, s)["infoe"] == ""


def test_copies_and_more_codes_than_factors_are_named(s, rng):
    copies = found(np.hstack([s, -s]), s)
    assert "codes copy others (3)" in copies["infoc"]
    assert copies["infom"] == ""
    more = found(np.hstack([s, rng.normal(size=(1200, 2))]), s)
    assert "more codes than factors (5 and 3)" in more["infom"]
    assert more["mcc"] == ""


def test_nonlinear_codes_are_named(s):
    curved = found(np.exp(1.5 * s), s)
    assert "nonlinear codes (code" in curved["mcc"]
    assert curved["mcc_spearman"] == ""


def test_informative_codes_that_infomec_leaves_out_are_named(s):
    assert "informative codes left out for their small range (2)" in found(s * [100.0, 1.0, 1.0], s)["infom"]


def test_few_rows_are_named(s):
    assert "few rows (150, 1000 are needed)" in found(s[:150], s[:150])["mig"]
    assert "few rows for 3 codes (60)" in found(s[:60], s[:60])["infoe"]


def test_every_name_is_that_of_a_score():
    known = {score for metric in METRICS.values() for score in metric.scores}
    assert set().union(*MISLED.values()) <= known == set(SCORES)


def test_corrected_infom_depends_less_on_the_number_of_rows():
    """One population with a code of noise, whose share of the published InfoM is chance."""
    values = []
    for n in (200, 5000):
        rng = np.random.default_rng(1)
        s = rng.integers(0, 4, size=(n, 3)).astype(float)
        z = s + 0.3 * np.roll(s, -1, axis=1) + 0.3 * rng.normal(size=s.shape)
        options = {"metrics": ["infomec"], "resamples": 0, "nulls": 5, "structural": False}
        values.append(evaluate(np.column_stack([z, rng.normal(size=n)]), s, **options)["infom"])
    assert abs(values[0].corrected - values[1].corrected) < 0.06
    assert all(math.isfinite(score.corrected) for score in values)
