"""Error rates of the findings on P1 to P3, on a few simulations; `benchmarks/calibration.py --only mixture` has more.

A rate fails only if so many simulations are wrong that this has a probability below `CHANCE` at its limit.
"""

from pathlib import Path

import pytest
from scipy.stats import binom

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CHANCE = 1e-4
CELLS = [
    ("draws of a known prior", 200, 2),
    ("exact posterior means, not declared", 1000, 2),
    ("draws with t5 noise within components", 1000, 2),
    ("full fit, no correlation", 200, 2),
    ("diag fit, correlation 0.6", 1000, 2),
    ("frame that was found", 0, 3),
    ("nested neighbourhoods", 0, 2),
]
SIMULATIONS = 6


@pytest.fixture(scope="module")
def cells():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        from calibration_mixture import mixture
    return {(cell.name, cell.n, cell.d): cell for cell in mixture()}


@pytest.mark.parametrize("key", CELLS, ids=lambda key: f"{key[0]}, n = {key[1]}")
def test_error_rates_are_within_wide_limits(cells, key):
    columns = zip(*(cells[key].simulate(seed) for seed in range(SIMULATIONS)), strict=True)
    for quantity, values in zip(cells[key].quantities, columns, strict=True):
        if not quantity.limit:
            continue
        assert None not in values, f"{quantity.name} is not reported"
        count = sum(values)
        if quantity.most is not None:
            assert binom.sf(count - 1, SIMULATIONS, quantity.most) >= CHANCE, (quantity.name, count)
        if quantity.least is not None:
            assert binom.cdf(count, SIMULATIONS, quantity.least) >= CHANCE, (quantity.name, count)
