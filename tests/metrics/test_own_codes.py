"""When a factor has a code of its own: given the other factors, not by information alone."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from congruence import evaluate
from congruence.metrics._own_codes import Conditional, measure_conditional
from congruence.metrics.factors import read_factors

QUICK = {"metrics": ["infomec"], "resamples": 0, "nulls": 3, "structural": False}


def correlated(rng, n, count, r, classes=0):
    """Standardised factors with the same correlation between any two, as numbers or as classes."""
    shared = math.sqrt(r) * rng.normal(size=(n, 1)) + math.sqrt(1 - r) * rng.normal(size=(n, count))
    s = np.floor(classes * norm.cdf(shared)) if classes else shared
    return (s - s.mean(0)) / s.std(0)


def turned(z, degrees):
    """Rotate the first two columns."""
    a = math.radians(degrees)
    plane = z[:, :2] @ np.array([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])
    return np.hstack([plane, z[:, 2:]])


def count_own(z, s, **options):
    return len(evaluate(z, s, **QUICK, **options).own_codes)


@pytest.mark.parametrize("classes", [0, 5])
@pytest.mark.parametrize("r", [0.5, 0.7, 0.9])
def test_codes_equal_to_correlated_factors_are_their_own(r, classes, rng):
    s = correlated(rng, 500, 3, r, classes)
    assert count_own(s[:, ::-1] * [1.0, -2.0, 3.0], s) == 3


@pytest.mark.parametrize("classes", [0, 5])
@pytest.mark.parametrize("r", [0.0, 0.7])
def test_a_rotation_by_20_degrees_leaves_no_own_code(r, classes, rng):
    s = correlated(rng, 500, 2, r, classes)
    assert count_own(turned(s, 20), s) == 0
    assert count_own(turned(s, 5), s) == 2


def test_a_factor_spread_over_two_codes_has_none_of_its_own(rng):
    s = correlated(rng, 2000, 3, 0.0)
    noise = rng.normal(size=(2000, 2)) * [1.3, 1.6]
    result = evaluate(np.column_stack([s[:, :1] + noise, s[:, 1:]]), s, **QUICK)
    row = result.per_factor[0]
    assert 0.3 < row.share < 0.45
    assert row.second < row.share
    assert set(result.own_codes) == {"factor1", "factor2"}


def test_a_copy_does_not_take_the_own_code_away(rng):
    s = correlated(rng, 500, 2, 0.5)
    assert count_own(np.hstack([s, -3 * s]), s) == 2


def test_an_increasing_function_of_a_factor_is_its_own_code(rng):
    s = correlated(rng, 500, 3, 0.9)
    assert count_own(np.exp(s), s) == 3


def test_a_code_that_another_factor_modulates_is_not_pure(rng):
    s = correlated(rng, 2000, 2, 0.0)
    z = np.column_stack([s[:, 0] * (1 + 0.7 * s[:, 1]), s[:, 1]])
    assert set(evaluate(z, s, **QUICK).own_codes) == {"factor1"}


@pytest.mark.parametrize("count", [3, 6])
@pytest.mark.parametrize("classes", [0, 4])
def test_a_code_that_two_other_factors_move_jointly_is_not_pure(count, classes, rng):
    s = correlated(rng, 500, count, 0.0, classes)
    z = s.copy()
    z[:, 0] += 0.5 * s[:, 1] * s[:, 2]
    assert set(evaluate(z, s, **QUICK).own_codes) == {f"factor{i}" for i in range(1, count)}


def test_classes_without_order_and_quantised_codes_have_own_codes(rng):
    shape = rng.choice(["ball", "cone", "cube", "ring"], 600)
    place = {"ball": 2.0, "cone": 0.0, "cube": 3.0, "ring": 1.0}
    factors = {"shape": shape, "size": rng.integers(0, 6, 600)}
    z = np.column_stack([[place[one] for one in shape], factors["size"]])
    assert count_own(z, factors) == 2
    assert count_own(z, factors, discrete_codes=True) == 2
    mixed = np.column_stack([z[:, 0] + 4 * (factors["size"] % 2), factors["size"] + 6 * (z[:, 0] > 1)])
    assert count_own(mixed, factors, discrete_codes=True) == 0


@pytest.mark.parametrize("seed", range(5))
def test_unrelated_codes_are_nobodys_own(seed):
    rng = np.random.default_rng(seed)
    assert count_own(rng.normal(size=(300, 5)), correlated(rng, 300, 4, 0.7)) == 0


def test_the_rule_by_hand():
    own = np.array([[0.5, 0.1, 0.0], [0.0, 0.3, 0.12]])
    leak = np.array([[0.04, 0.0, 0.0], [0.5, 0.02, 0.3]])
    rest = (own, np.zeros(2))
    found = Conditional(own, leak, np.array([0.6, 0.5, 0.4]), np.eye(3, dtype=bool), *rest)
    assert found.share[0, 0] == pytest.approx(0.5 / 0.9)
    assert found.leakage[0, 0] == pytest.approx(math.sqrt(0.08))
    everything = np.ones((2, 3), dtype=bool)
    assert found.own_codes(everything) == [0, -1]  # the third code has more than a third of what the second has
    copies = np.eye(3, dtype=bool) | np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0]], dtype=bool)
    assert Conditional(own, leak, found.explained, copies, *rest).own_codes(everything) == [0, 1]
    assert found.own_codes(~everything) == [-1, -1]


def test_constant_factors_and_few_rows_have_no_conditional_share(rng):
    s = read_factors({"a": rng.normal(size=30), "b": np.ones(30)})
    assert np.isnan(measure_conditional(rng.normal(size=(30, 2)), s).own[1]).all()
    few = measure_conditional(rng.normal(size=(6, 2)), read_factors(rng.normal(size=(6, 2))))
    assert few.own_codes(np.ones((2, 2), dtype=bool)) == [-1, -1]
