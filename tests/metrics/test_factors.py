import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.metrics.factors import read_factors, read_pair


def test_words_are_classes_in_sorted_order():
    factor = read_factors({"shape": np.array(["disc", "box", "disc"], dtype=object)})[0]
    assert factor.kind == "categorical"
    assert factor.levels == ("box", "disc")
    assert_array_equal(factor.labels(), [1, 0, 1])


def test_auto_takes_numbers_with_few_levels_for_classes_and_says_so(rng):
    few, many = rng.integers(0, 4, 1000) / 4, rng.normal(size=1000)
    factors = read_factors(np.column_stack([few, many]))
    assert factors.kinds == ("categorical", "continuous")
    assert factors.names == ("factor0", "factor1")
    assert "factor0: 4 distinct values" in factors.notes[0]


def test_every_number_distinct_is_continuous_even_of_integers():
    assert read_factors(np.arange(30)[:, None]).kinds == ("continuous",)


def test_a_data_frame_gives_names_and_kinds_go_by_name(rng):
    import pandas as pd

    frame = pd.DataFrame({"hue": rng.uniform(0, 1, 500), "shape": rng.integers(0, 3, 500)})
    factors = read_factors(frame, {"hue": "circular"})
    assert factors.names == ("hue", "shape")
    assert factors.kinds == ("circular", "categorical")


@pytest.mark.parametrize(
    ("values", "kind", "period"),
    [
        (np.arange(10) / 10, "circular", 1.0),
        (np.linspace(0, 2 * math.pi, 50), "circular", 2 * math.pi),
        (np.linspace(-180, 180, 50, endpoint=False), "circular", 360.0),
        (np.repeat(np.arange(40), 10), "circular", 40.0),
        (np.arange(5.0), "circular:24", 24.0),
    ],
)
def test_the_period_of_a_circular_factor(values, kind, period):
    factor = read_factors({"a": values}, {"a": kind})[0]
    assert factor.period == pytest.approx(period)
    # Points half a period apart are opposite on the circle, a whole one the same.
    points = factor.coordinates()
    assert_allclose(np.square(points).sum(1), 1)


def test_coordinates_of_classes_are_columns_of_zeros_and_ones():
    factor = read_factors({"a": np.array([2, 0, 1, 2])}, "categorical")[0]
    assert_array_equal(factor.coordinates(), [[0, 1], [0, 0], [1, 0], [0, 1]])


def test_continuous_factors_are_binned_when_classes_are_needed(rng):
    values = rng.uniform(size=1000)
    labels = read_factors(values).labels(bins=10)[:, 0]
    assert labels.min() == 0
    assert labels.max() == 9
    order = np.argsort(values)
    assert (np.diff(labels[order]) >= 0).all()


def test_taking_rows_keeps_names_and_kinds(rng):
    factors = read_factors({"a": rng.normal(size=100), "b": np.repeat(["x", "y"], 50)})
    part = factors.take(np.arange(0, 100, 2))
    assert (part.n, part.names, part.kinds) == (50, factors.names, factors.kinds)


def test_kinds_are_named_as_the_factor_or_as_its_column():
    digits = {"digit": np.arange(40.0) % 4}
    for name in ("digit", "Metadata_digit"):
        assert read_factors(digits, {name: "categorical"}).kinds == ("categorical",)
        assert read_factors(digits, f"{name}=categorical").kinds == ("categorical",)


@pytest.mark.parametrize(
    ("factors", "kinds", "says"),
    [
        ({"a": [1.0, np.nan]}, "auto", "factor a has NaN or infinite values (row 1)"),
        ({"a": np.array(["x", None], dtype=object)}, "auto", "factor a has missing values (row 1)"),
        ({"a": np.array(["x", "y"])}, "continuous", "is made of words, so it is categorical"),
        ({"a": [1.0, 2.0], "b": [1.0]}, "auto", "must all have as many rows"),
        ({}, "auto", "has no columns"),
        (np.zeros((0, 2)), "auto", "has no rows"),
        (np.zeros((2, 2, 2)), "auto", "must be a matrix"),
        ({"a": np.zeros((2, 2))}, "auto", "factor a must be one column"),
        ({"a": [1.0, 2.0]}, "nominal", "kinds must be 'auto' or some of categorical"),
        ({"a": [1.0, 2.0]}, {"b": "ordinal"}, "kinds names b, but the factors are a"),
        ({"a": [1.0, 2.0]}, ["ordinal", "ordinal"], "one entry for each of 1 factors, but has 2"),
        ({"a": [1.0, 2.0, 4.0]}, "circular", "cannot be guessed; give it, as in circular:360"),
        ({"a": [1.0, 2.0, 4.0]}, "circular:-1", "must be a number above 0"),
        ({"a": [1.0, 2.0, 4.0]}, "circular:day", "must be a number above 0, as in circular:360; got 'day'"),
    ],
)
def test_what_cannot_be_used_is_refused(factors, kinds, says):
    with pytest.raises(InputError) as caught:
        read_factors(factors, kinds)
    assert says in str(caught.value)


def test_rows_must_be_paired():
    with pytest.raises(InputError, match="codes has 3, factors has 2"):
        read_pair(np.zeros((3, 2)), np.zeros((2, 2)))
    factors = read_factors(np.zeros((2, 2)))
    assert read_factors(factors) is factors
    with pytest.raises(InputError, match="codes has 3 and factors has 2"):
        read_pair(np.zeros((3, 2)), factors)
