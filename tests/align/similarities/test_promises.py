"""Every measure keeps what the registry says of it, and the registry leaves nothing out."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

import congruence.align.similarities as package
from congruence.align._run_statistics import sum_pair
from congruence.align.similarities import HIGHER, LOWER, MAPS, MEASURES

ALL = pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))
EVERY_MAP = pytest.mark.parametrize("kind", MAPS)
SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=8, deadline=None)


def runs(seed, n=40, d_x=4, d_y=3):
    """Two runs that share something: y is a linear map of x, and noise; widths differ, neither is centred."""
    rng = np.random.default_rng(seed)
    x = rng.laplace(size=(n, d_x)) * np.arange(1, d_x + 1) + 3
    return x, x @ rng.normal(size=(d_x, d_y)) + 2 * rng.normal(size=(n, d_y)) - 1


def moved(x, kind, seed):
    rng = np.random.default_rng(seed)
    d = x.shape[1]
    turn = ortho_group.rvs(d, random_state=seed) if d > 1 else np.array([[-1.0]])
    return {
        "permutation": lambda: (x * rng.choice([-1, 1], d))[:, rng.permutation(d)],
        "rotation": lambda: x @ turn,
        "linear": lambda: (x @ turn) * np.geomspace(1, 50, d) @ turn.T,
        "scale": lambda: x * 10 ** rng.uniform(0.5, 3) ** rng.choice([-1, 1]),
        "translation": lambda: x + rng.normal(size=d) * 30,
    }[kind]()


def values(measure, kind, seed):
    """What the measure says before, after x is moved, and after y is moved."""
    x, y = runs(seed)
    f = measure.function
    return f(x, y), f(moved(x, kind, seed), y), f(x, moved(y, kind, seed))


PROMISED = [(m, kind) for m in MEASURES.values() for kind in MAPS if kind in m.invariant_to]
REFUSED = [(m, kind) for m in MEASURES.values() for kind in MAPS if kind not in m.invariant_to]


@pytest.mark.parametrize(("measure", "kind"), PROMISED, ids=[f"{m.name}-{kind}" for m, kind in PROMISED])
@FEW
@given(seed=SEEDS)
def test_what_a_measure_ignores_does_not_change_it(measure, kind, seed):
    before, *after = values(measure, kind, seed)
    assert_allclose(after, before, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("measure", "kind"), REFUSED, ids=[f"{m.name}-{kind}" for m, kind in REFUSED])
def test_what_a_measure_does_not_ignore_changes_it(measure, kind):
    shifts = [
        np.abs(np.subtract(after, before)).max() for before, *after in (values(measure, kind, s) for s in range(5))
    ]
    assert max(shifts) > 0.02


def test_larger_sets_of_maps_contain_the_smaller_ones():
    for measure in MEASURES.values():
        assert measure.invariant_to <= set(MAPS)
        if "linear" in measure.invariant_to:
            assert measure.invariant_to >= {"rotation", "scale"}
        if "rotation" in measure.invariant_to:
            assert "permutation" in measure.invariant_to


@ALL
@FEW
@given(seed=SEEDS, n=st.integers(5, 30), d_x=st.integers(1, 8), d_y=st.integers(1, 8))
def test_values_lie_in_the_range(measure, seed, n, d_x, d_y):
    value = measure.function(*runs(seed, n, d_x, d_y))
    assert measure.range[0] <= value <= measure.range[1]
    assert type(value) is float


@ALL
@FEW
@given(seed=SEEDS, n=st.integers(5, 30), d=st.integers(1, 8))
def test_a_run_with_itself_has_the_value_that_means_closest(measure, seed, n, d):
    x, _ = runs(seed, n, d)
    assert_allclose(measure.function(x, x.copy()), measure.itself, atol=1e-10)
    assert measure.itself in measure.range


@ALL
@FEW
@given(seed=SEEDS)
def test_a_noisier_copy_is_further(measure, seed):
    x, _ = runs(seed, n=60)
    noise = np.random.default_rng(seed).normal(size=x.shape)
    near, far = (measure.function(x, x + amount * noise) for amount in (0.2, 6))
    assert measure.direction in (HIGHER, LOWER)
    assert near > far if measure.direction == HIGHER else near < far


@ALL
def test_symmetry_is_as_declared(measure):
    gaps = [measure.function(x, y) - measure.function(y, x) for x, y in map(runs, range(8))]
    if measure.symmetric:
        assert_allclose(gaps, 0, atol=1e-10)
    else:
        assert np.abs(gaps).max() > 0.01


@ALL
def test_prepared_sums_give_what_the_function_gives(measure):
    x, y = runs(0)
    assert measure.of(sum_pair(x, y)) == measure.function(x, y)


@ALL
def test_docstrings_say_shapes_range_direction_and_reference(measure):
    text = " ".join(inspect.getdoc(measure.function).split())
    assert measure.direction in text
    assert "x, y : (n, d_x) and (n, d_y)" in text
    assert re.search(r"From (0|-1) (to|up)", text)
    assert "NaN" in text
    assert measure.reference.split(",")[0] in text
    assert getattr(package, measure.name) is measure.function


def test_the_documentation_says_the_same():
    """The table of docs/similarities.md: name, what, a mark for each map, range, value for the same run, direction."""
    page = (Path(__file__).parents[3] / "docs" / "similarities.md").read_text()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:3] == "| `"]
    assert [row[0].strip("`") for row in table] == list(MEASURES)
    ends = {"−1": -1, "0": 0, "1": 1, "√2": np.sqrt(2), "π/2": np.pi / 2, "∞": np.inf}
    for row in table:
        measure = MEASURES[row[0].strip("`")]
        assert {kind for kind, mark in zip(MAPS, row[2:7], strict=True) if mark} == measure.invariant_to
        assert_allclose([ends[end] for end in row[7].split(" to ")], measure.range)
        assert ends[row[8]] == measure.itself
        assert f"{row[9]} is closer" == measure.direction
