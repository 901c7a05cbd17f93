"""The error rates of the verdicts, on a few simulations with wide limits; `benchmarks/calibration.py` has them all.

A rate fails only if so many simulations are wrong that this has a probability below `CHANCE` where the true rate is at
its limit. Of 10 simulations with a limit of 5 %, that is 5 or more (probability 6e-5); a true rate of 80 % is noticed
with probability 0.994. Means with a limit fail by a t test of the same level. There are about 60 such numbers, so the
whole file fails by chance with a probability below 0.006 when results change; as seeds are fixed, never otherwise.
"""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, t

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CHANCE = 1e-4
SIMULATIONS = {"coverage": 40, "layers": 40, "evaluate_coverage": 40}  # 10 elsewhere
CELLS = [
    ("dependence", "unrelated, independent", 80),
    ("dependence", "unrelated, 20 clusters, sd 0.3, random, given", 1000),
    ("noise", "R2 0.7, noise in y, spectrum flat", 160),
    ("distortion", "one direction by exp(0.3), R2 0.9", 1000),
    ("copies", "re-ordered, rotated", 160),
    ("copies", "float16, rotated", 160),
    ("copies", "int8 per tensor, rotated, spectrum flat", 160),
    ("layers", "4 x 4, cka", 60),
    ("mechanism", "leak 1e-05, float32", 50),
    ("mechanism", "overlap, one block 1e-07 as strong, global", 50),
    ("mechanism", "model with entangled codes", 20),
    ("mechanism", "disjoint, and 0.03 of a dense one", 20),
    ("headline", "unrelated, 1 % of rows at 3000", 1000),
    ("headline", "related, one row times 100", 1000),
    ("dependence", "unrelated, AR 0.98", 1000),
    ("dependence", "unrelated, AR 0.9, blocks of 50 given", 1000),
    ("dependence", "unrelated, 20 clusters, sd 0.3, random", 1000),
    ("dependence", "unrelated, rows 2x", 1000),
    ("dependence", "related, R2 0.9, 1 % duplicates", 1000),
    ("dependence", "3 x 3 layers, cka, clusters, given", 400),
    ("noise", "R2 0.7, noise in both, spectrum 1/k2", 1000),
    ("distortion", "log gains of sd 0.08, spectrum flat", 1000),
    ("copies", "shifted", 160),
    ("moved", "R2 0.95, fresh rows, spectrum flat", 1000),
    ("coverage", "gaussian, n/d = 5", 80),
    ("deconfound", "no effect, 15 plates", 360),
    ("deconfound", "plates shift all features, 20 plates", 480),
    ("deconfound", "noise features, shift 0.7, 12 plates", 288),
    ("own_codes", "codes equal, numbers, correlation 0.9", 500),
    ("own_codes", "codes equal, classes, correlation 0.7", 500),
    ("own_codes", "rotated by 20 degrees, numbers, correlation 0", 500),
    ("own_codes", "rotated by 20 degrees, classes, correlation 0", 500),
    ("own_codes", "first factor split, numbers, correlation 0", 500),
    ("own_codes", "unrelated, numbers, correlation 0.7", 500),
    ("evaluate_rows", "unrelated, AR 0.98", 1000),
    ("evaluate_rows", "unrelated, clusters 20, given", 1000),
    ("evaluate_rows", "unrelated, copies 2", 1000),
    ("evaluate_rows", "independent, increasing functions, classes", 500),
    ("evaluate_coverage", "mixed codes, classes", 200),
]


@pytest.fixture(scope="module")
def cells():
    """All cells of the benchmark by section, name and number of rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        from calibration_cells import SECTIONS
    return {(cell.section, cell.name, cell.n): cell for make in SECTIONS.values() for cell in make()}


def has_improbable_rate(quantity, values):
    """Whether there are more errors than a rate at the limit would give."""
    count, simulations = sum(values), len(values)
    too_often = quantity.most is not None and binom.sf(count - 1, simulations, quantity.most) < CHANCE
    too_rarely = quantity.least is not None and binom.cdf(count, simulations, quantity.least) < CHANCE
    return too_often or too_rarely


def has_improbable_mean(quantity, values):
    """Whether the mean is farther beyond its limit than its standard error allows."""
    error, freedom = np.std(values, ddof=1) / np.sqrt(len(values)), len(values) - 1
    beyond = [
        sign * (np.mean(values) - end) / error
        for sign, end in ((1, quantity.most), (-1, quantity.least))
        if end is not None
    ]
    return t.sf(max(beyond), freedom) < CHANCE


def test_five_errors_of_ten_are_improbable_at_a_limit_of_five_per_cent():
    assert binom.sf(4, 10, 0.05) < CHANCE < binom.sf(3, 10, 0.05)
    assert binom.sf(4, 10, 0.8) > 0.99


@pytest.mark.parametrize("key", CELLS, ids=lambda key: f"{key[0]}: {key[1]}, n = {key[2]}")
def test_error_rates_are_within_wide_limits(cells, key):
    if needed := {"deconfound": "lightgbm", "mechanism": "torch"}.get(key[0]):
        pytest.importorskip(needed)
    cell = cells[key]
    columns = zip(*(cell.simulate(seed) for seed in range(SIMULATIONS.get(cell.section, 10))), strict=True)
    wrong = {}
    for quantity, values in zip(cell.quantities, columns, strict=True):
        if not quantity.limit:
            continue
        assert None not in values, f"{quantity.name} is not reported"
        if (has_improbable_rate if quantity.is_rate else has_improbable_mean)(quantity, values):
            wrong[quantity.name] = f"{np.mean(values):.3g} in {len(values)} simulations, limit {quantity.limit}"
    assert not wrong
