import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import NotInvertibleError
from congruence.experiments.recipes.statistical_versus_structural import regression
from congruence.experiments.recipes.statistical_versus_structural.regression import GRID, NEAREST


def test_the_nearest_line_is_that_of_least_squares_without_noise():
    x = np.linspace(-1, 1, 200_001)
    slope, intercept = np.polyfit(x, regression.truth(x), 1)
    assert_allclose(NEAREST, (intercept, slope), rtol=1e-4)
    assert_allclose(regression.distances_to_truth(np.array([NEAREST])), np.exp(2) - sum(NEAREST))


def test_distances_are_the_largest_over_inputs(rng):
    lines, right = rng.normal(size=(6, 2)), rng.normal(size=(6, 2))
    drawn = lines[:, :1] + lines[:, 1:] * GRID
    assert_allclose(regression.distances_between(lines), np.abs(drawn[::2] - drawn[1::2]).max(1))
    assert_allclose(regression.distances_to_truth(lines), np.abs(drawn - regression.truth(GRID)).max(1))
    curves = right[:, :1] + right[:, 1:] * regression.truth(GRID)
    assert_allclose(regression.distances_of_right_model(right), np.abs(curves - regression.truth(GRID)).max(1))


def test_fits_are_those_of_least_squares():
    fits = regression.fit_draws(50, 3, np.random.default_rng(0))
    rng = np.random.default_rng(0)
    for line, right in zip(fits["lines"], fits["right"], strict=True):
        x, y = regression.draw_rows(50, rng)
        assert_allclose(line, np.polyfit(x, y, 1)[::-1])
        assert_allclose(right, np.polyfit(np.exp(2 * x), y, 1)[::-1])


def test_gradient_descent_finds_the_least_squares_solution_from_everywhere(rng):
    columns, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    found = regression.descend(columns, y, 10 * rng.normal(size=(5, 3)))
    assert_allclose(found, np.tile(np.linalg.lstsq(columns, y, rcond=None)[0], (5, 1)), atol=1e-10)


def test_descent_that_does_not_converge_says_so(rng, monkeypatch):
    monkeypatch.setattr(regression, "STEPS", 2)
    with pytest.raises(NotInvertibleError, match="did not converge in 2 steps"):
        regression.descend(rng.normal(size=(40, 3)), rng.normal(size=40), np.ones((2, 3)))


def test_the_exponent_of_a_power_law_is_found():
    fits = [regression.fit_draws(n, 40, np.random.default_rng(n)) for n in (50, 500, 5000)]
    found = regression.measure_regression([50, 500, 5000], fits, 0)
    power, low, high = found.exponents["between"]
    assert -0.6 < low < power < high < -0.4
    assert abs(found.exponents["to_truth"][0]) < 0.02
    assert found.starts < 1e-10 < 0.1 < found.doubled
    assert found.doubled_fit < 1e-10
