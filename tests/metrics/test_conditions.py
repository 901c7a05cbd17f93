"""Which properties of the data mislead a score, and that they are found."""

import math
from pathlib import Path

import numpy as np
import pytest

from congruence import evaluate
from congruence.experiments.recipes._files import read_numbers
from congruence.experiments.recipes.metric_validity import Grid
from congruence.experiments.recipes.result import from_numbers
from congruence.metrics._conditions import MISLED
from congruence.metrics._registry import METRICS, SCORES

QUICK = {"metrics": ["infomec", "mig", "mcc"], "resamples": 0, "nulls": 1, "structural": False}


@pytest.fixture
def s(rng):
    return rng.normal(size=(1200, 3))


def found(z, s):
    """The names of what misleads each score, and what was measured."""
    result = evaluate(z, s, **QUICK)
    return {score.score: score.conditions for score in result.scores}, result.conditions


def test_the_factors_themselves_mislead_nothing(s):
    names, measured = found(s, s)
    assert set(names.values()) == {()}
    assert measured == {}


def test_correlated_factors_are_named(s):
    s = s + 1.5 * s[:, :1]
    names, measured = found(s, s)
    assert names["infom"] == ("correlated factors",)
    assert names["infoe"] == ("correlated factors",)  # the others tell of a factor that is missing
    assert not MISLED["correlated factors"] & {"beta_vae", "factor_vae", "modularity", "structural_linear"}
    assert "of the variance of factor" in measured["correlated factors"]


def test_copies_and_more_codes_than_factors_are_named(s, rng):
    names, measured = found(np.hstack([s, -s]), s)
    assert names["infoc"] == ("copied codes",)
    assert names["infom"] == ()
    assert measured == {"copied codes": "3 codes with the ranks of another code"}
    names, measured = found(np.hstack([s, rng.normal(size=(1200, 2))]), s)
    assert names["infom"] == ("more codes than factors",)
    assert names["mcc"] == ()
    assert measured == {"more codes than factors": "5 codes, 3 factors"}


def test_nonlinear_codes_are_named(s):
    names, measured = found(np.exp(1.5 * s), s)
    assert "nonlinear codes" in names["mcc"]
    assert "nonlinear codes" not in names["mcc_spearman"]
    assert "than a line" in measured["nonlinear codes"]


def test_informative_codes_that_infomec_leaves_out_are_named(s):
    names, measured = found(s * [100.0, 1.0, 1.0], s)
    assert names["infom"] == ("inactive codes",)
    assert "leaves out 2 informative codes" in measured["inactive codes"]


def test_few_rows_are_named(s):
    assert found(s[:150], s[:150])[0]["mig"] == ("few rows",)
    assert found(s[:60], s[:60])[0]["infoe"] == ("few rows per code",)


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


def test_the_conditions_agree_with_the_grid_of_metric_validity():
    """Entries are shown by an error in a cell with the property; scores misled by correlated factors alone have one."""
    ours = read_numbers(Path(__file__).parents[2] / "docs" / "results" / "metric-validity-small")["ours"]
    errors = from_numbers(Grid, ours).errors != 0  # (generators, encoders, scores)
    correlated = np.array([name.startswith("correlated") for name in ours["generators"]])
    among = {name: errors[:, ours["encoders"].index(name)].any(0) for name in ("copies", "noise codes", "monotone")}
    shown = {
        "correlated factors": errors[correlated].any((0, 1)),
        "copied codes": among["copies"],
        "more codes than factors": among["noise codes"],
        "nonlinear codes": among["monotone"],
    }
    from_elsewhere = {("nonlinear codes", "mcc"), ("more codes than factors", "infom")}
    for name, errs in shown.items():
        erring = {score for score, one in zip(ours["scores"], errs, strict=True) if one}
        unshown = {(name, score) for score in MISLED[name] & set(ours["scores"]) - erring}
        assert unshown <= from_elsewhere
    missing = errors[:, ours["encoders"].index("half missing")]
    only_correlated = missing[correlated].any(0) & ~missing[~correlated].any(0)
    named = {score for score, one in zip(ours["scores"], only_correlated, strict=True) if one}
    assert named == {"infoe", "dci_informativeness", "explicitness", "r2_linear", "r2_nonlinear"}
    assert named <= MISLED["correlated factors"]
