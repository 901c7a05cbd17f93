import numpy as np
from numpy.testing import assert_array_equal

from congruence.stats.matching import match_columns


def test_each_row_gets_one_column_and_rows_that_are_left_over_get_none():
    assert_array_equal(match_columns([[0.9, 0.8, 0.0], [0.9, 0.1, 0.0]]), [1, 0])
    assert_array_equal(match_columns(np.array([[0.2], [np.nan], [0.7]])), [-1, -1, 0])
    assert_array_equal(match_columns(np.zeros((0, 3))), [])
