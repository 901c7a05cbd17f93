from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError
from congruence.experiments.data.patches import DIRECTIONS, draw_factors, draw_shown, expected_given_two, patches


def test_pictures_are_an_isometry_of_the_factors(rng):
    factors, step = draw_factors(50, rng), 1e-6 * rng.normal(size=(50, 3))
    moved = (patches(factors + step) - patches(factors)).reshape(50, -1)
    assert_allclose(np.linalg.norm(moved, axis=1), np.linalg.norm(step, axis=1), rtol=1e-4)


def test_any_three_patches_tell_the_factors():
    volumes = [abs(np.linalg.det(DIRECTIONS[list(three)])) for three in combinations(range(6), 3)]
    assert min(volumes) > 0.4


def test_so_many_patches_are_shown_and_all_as_often(rng):
    shown = draw_shown(3000, 2, rng)
    assert set(shown.sum(1)) == {2}
    assert_allclose(shown.mean(0), 1 / 3, atol=0.05)
    with pytest.raises(InputError, match="visible must be an integer from 1 to 6; got 7"):
        draw_shown(3, 7, rng)


@pytest.mark.parametrize("pair", [(0, 1), (0, 3), (2, 5)])
def test_what_two_patches_tell_is_the_mean_of_rows_that_look_alike(pair, rng):
    many, rows = draw_factors(400_000, rng), draw_factors(4, rng) * 0.8
    shown = np.zeros((4, 6))
    shown[:, pair] = 1
    factors, pictures = expected_given_two(rows, shown)
    seen = many @ DIRECTIONS.T
    for row, factor, picture in zip(rows, factors, pictures, strict=True):
        alike = np.abs(seen - row @ DIRECTIONS.T)[:, pair].max(1) < 0.03
        error = 4 / np.sqrt(alike.sum())  # four standard errors of something that varies by at most 1
        assert_allclose(many[alike].mean(0), factor, atol=error)
        assert_allclose(patches(many[alike]).mean(0), picture, atol=error)
        assert_allclose(picture[list(pair)], patches(row[None])[0, list(pair)], atol=1e-12)


def test_other_numbers_of_patches_are_refused(rng):
    with pytest.raises(InputError, match="exactly two visible patches in each row"):
        expected_given_two(draw_factors(3, rng), draw_shown(3, 3, rng))
