"""Every metric keeps the promises of its declaration."""

import math

import numpy as np
import pytest
from scipy.stats import ortho_group

from congruence.errors import InputError
from congruence.metrics._registry import HIGHER, LOWER, METRICS, select_metrics
from congruence.metrics._scoring import Pairing, score_by
from congruence.metrics.factors import read_factors

EXACT = 1e-9
# What the docstrings say of estimates with random tie-breaking, of trained models and of solvers that stop early.
WITHIN = {"infomec": 1e-6, "dci": 0.02, "explicitness": 1e-3, "beta_vae": 0.01, "regression": 2e-3}
QUICK = {
    "beta_vae": {"points": 400, "judged": 400, "batch": 32},
    "factor_vae": {"points": 400, "judged": 400, "batch": 32},
    "regression": {"folds": 2},
    "structural_nearness": {"nulls": 0, "bootstrap": 0},
}
KINDS_HERE = ("continuous", "continuous", "categorical", "categorical")


def true_factors(rng, n=160):
    return np.column_stack([rng.uniform(size=(n, 2)), rng.integers(0, 3, size=n), rng.integers(0, 2, size=n)])


@pytest.fixture(scope="module")
def rows():
    """Codes that mix the factors a little, and the factors."""
    rng = np.random.default_rng(0)
    s = true_factors(rng)
    z = (s - s.mean(0)) / s.std(0) @ (np.eye(4) + 0.2 * rng.normal(size=(4, 4))) + 0.2 * rng.normal(size=s.shape)
    return z, s


def scores_of(name, z, s, kinds=KINDS_HERE):
    return METRICS[name].function(z, s, kinds=list(kinds), seed=0, **QUICK.get(name, {})).scores


@pytest.fixture(scope="module")
def plain(rows):
    """The scores of the codes as they are, by metric; computed once."""
    known = {}

    def of(name):
        if name not in known:
            known[name] = scores_of(name, *rows)
        return known[name]

    return of


def relabelled(s):
    s = s.copy()
    s[:, 2] = np.array([1.0, 2.0, 0.0])[s[:, 2].astype(int)]
    return s


ORDER = [2, 0, 3, 1]
CHANGED = {
    "permutation": lambda z, s: (z[:, ORDER], s, KINDS_HERE),
    "sign": lambda z, s: (z * [1, -1, -1, 1], s, KINDS_HERE),
    "scale": lambda z, s: (3.7 * z, s, KINDS_HERE),
    "scales": lambda z, s: (z * [0.5, 3.0, 1.0, 20.0], s, KINDS_HERE),
    "shift": lambda z, s: (z + np.array([5.0, -1.0, 0.25, 2.0]), s, KINDS_HERE),
    "monotone": lambda z, s: (np.exp(z), s, KINDS_HERE),
    "rotation": lambda z, s: (z @ ortho_group.rvs(4, random_state=0), s, KINDS_HERE),
    "linear": lambda z, s: (z @ (np.eye(4) + 0.5 * ortho_group.rvs(4, random_state=0)), s, KINDS_HERE),
    "factor order": lambda z, s: (z, s[:, ORDER], tuple(KINDS_HERE[k] for k in ORDER)),
    "relabelling": lambda z, s: (z, relabelled(s), KINDS_HERE),
}
DECLARED = [(name, change) for name, metric in METRICS.items() for change in sorted(metric.invariant_to)]


@pytest.mark.parametrize(("name", "change"), DECLARED)
def test_scores_do_not_change_with_what_they_are_declared_to_ignore(name, change, rows, plain):
    found = scores_of(name, *CHANGED[change](*rows))
    for score, value in plain(name).items():
        assert math.isfinite(value), score
        assert found[score] == pytest.approx(value, abs=WITHIN.get(name, EXACT)), score


def test_the_checks_have_teeth(rows, plain):
    """What is not declared does change a score, by more than any tolerance."""
    seen = {"mig": "rotation", "mcc": "linear", "irs": "scales", "unsupervised": "scales", "infomec": "rotation"}
    for name, change in seen.items():
        assert change not in METRICS[name].invariant_to
        found = scores_of(name, *CHANGED[change](*rows))
        assert max(abs(found[score] - value) for score, value in plain(name).items()) > 0.02, name


@pytest.mark.parametrize("name", METRICS)
def test_declarations_are_complete(name, plain):
    metric = METRICS[name]
    assert tuple(plain(name)) == metric.scores
    assert metric.invariant_to <= set(CHANGED)
    assert metric.direction in (HIGHER, LOWER)
    assert metric.cost in ("fast", "minutes")
    assert metric.reference
    low, high = metric.range
    assert all(low - 1e-9 <= value <= high + 1e-9 for value in plain(name).values())


@pytest.mark.parametrize("name", METRICS)
def test_the_factors_themselves_score_best(name):
    """No worse than mixtures of them or noise, and far from noise where factors are looked at."""
    rng = np.random.default_rng(1)
    s = true_factors(rng)
    s[:, 2] = s[:, 2] > 0  # of two classes a single number can tell all
    metric, scaled = METRICS[name], (s - s.mean(0)) / s.std(0)
    sign = 1 if metric.direction == HIGHER else -1
    best = scores_of(name, scaled, s)
    for other in (scaled @ ortho_group.rvs(4, random_state=3), rng.normal(size=s.shape)):
        found = scores_of(name, other, s)
        ahead = {score: sign * (best[score] - found[score]) for score in metric.scores}
        # Codes that tell nothing have no InfoM, and what little they seem to tell may well be about one factor.
        assert all(gap > -0.06 or math.isnan(found[score]) for score, gap in ahead.items()), (best, found)
    far = [score for score in metric.scores if metric.supervised and score not in ("infom", "infoc")]
    assert all(ahead[score] > 0.15 for score in far), (best, found)


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.supervised])
def test_noise_scores_at_chance(name):
    rng = np.random.default_rng(2)
    pairing = Pairing(rng.normal(size=(160, 4)), read_factors(true_factors(rng), list(KINDS_HERE)))
    measured = score_by(METRICS[name], pairing, QUICK.get(name, {}), resamples=0, nulls=2, seed=0)
    for score in measured.scores:
        assert score.value == pytest.approx(score.chance, abs=0.15), score


def test_names_are_chosen_from_the_known_ones():
    assert select_metrics("all") == select_metrics(["all"]) == tuple(METRICS)
    assert set(select_metrics("fast")) == {name for name, metric in METRICS.items() if metric.cost == "fast"}
    assert select_metrics(["mcc", "mig"]) == ("mcc", "mig")
    for wrong, words in (
        ("mig", "a list of names from"),
        (["migg"], "got 'migg'"),
        ([], r"got \[\]"),
        (["mig", "mig"], "must not repeat"),
    ):
        with pytest.raises(InputError, match=words):
            select_metrics(wrong)


def test_score_names_are_unique():
    names = [score for metric in METRICS.values() for score in metric.scores]
    assert len(set(names)) == len(names)
