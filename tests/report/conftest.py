"""Comparisons made by hand: tests of the report should not need the maths."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from congruence.align.comparison import MCC, Comparison, Pair, PairVerdict, Plane, Run
from congruence.maps.nearness import HeldOut, Nearness
from congruence.report import render

ERRORS = {
    "identity": 0.31,
    "permutation": 0.24,
    "rigid": 0.021,
    "similarity": 0.0183,
    "linear": 0.0171,
    "ica": 0.03,
}


def nearness_by_hand(group, held_out, null=0.25, rows=400, seed=0):
    rng = np.random.default_rng(seed)
    errors = held_out * rng.gamma(8.0, 1 / 8, size=rows)
    return Nearness(
        group=group,
        mean=0.93 * held_out,
        rms=1.02 * held_out,
        q95=1.7 * held_out,
        sup=2.6 * held_out,
        held_out=HeldOut(held_out, 0.96 * held_out, 1.04 * held_out),
        null=null,
        errors=errors,
    )


def plane_by_hand(seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(300, 2)) * [3.0, 1.5]
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    return Plane(target, 0.8 * target @ turn + shift, target + rng.normal(size=(300, 2)) * 0.1, 0.62)


def pair_by_hand(source="old", target="new", scale=1.0, status="holds", seed=0, **changes):
    groups = {name: nearness_by_hand(name, scale * error, seed=seed) for name, error in ERRORS.items()}
    headlines = {
        "holds": "The difference is only a rotation and a scale.",
        "fails": "The difference is more than a rotation and a scale.",
        "ambiguous": "The runs are related, but no map tried here explains their difference.",
        "unknown": "There are too few rows to tell.",
    }
    detail = "Up to rotation and scale the runs agree to 1.8 % of the diameter; unrelated runs would give 25 %."
    fields = {
        "source": source,
        "target": target,
        "n": 400,
        "diameter": 12.345678,
        "diameter_exact": True,
        "groups": groups,
        "mcc": MCC(0.41, 0.97),
        "cka": 0.98,
        "neighbour_overlap": 0.76,
        "verdict": PairVerdict(status, "similarity", headlines[status], detail),
        "maps": {},
        "plane": plane_by_hand(seed),
        "components": nearness_by_hand("ica", 0.05),
    }
    return Pair(**(fields | changes))


def comparison_by_hand(names=("old", "new"), pairs=None, advice=(), verdict=None):
    if pairs is None:
        pairs = [
            pair_by_hand(a, b, 1 + i / 20, ("holds", "fails", "ambiguous", "unknown")[i % 4], seed=i)
            for i, (a, b) in enumerate(itertools.combinations(names, 2))
        ]
    return Comparison(
        runs=[Run(name, 400, 16 + i) for i, name in enumerate(names)],
        pairs=pairs,
        verdict=verdict or f"{pairs[0].verdict.headline} {pairs[0].verdict.detail}",
        advice=list(advice),
        settings={"groups": list(ERRORS), "directions": "forward", "normalize": None, "folds": 5, "seed": 0},
    )


@pytest.fixture(scope="session")
def make_nearness():
    return nearness_by_hand


@pytest.fixture(scope="session")
def make_plane():
    return plane_by_hand


@pytest.fixture(scope="session")
def make_pair():
    return pair_by_hand


@pytest.fixture(scope="session")
def make_comparison():
    return comparison_by_hand


@pytest.fixture(scope="session")
def pair():
    return pair_by_hand()


@pytest.fixture
def comparison():
    return comparison_by_hand()


@pytest.fixture(scope="session")
def three():
    return comparison_by_hand(("seed 1", "seed 2", "seed 10"))


@pytest.fixture(scope="session")
def twenty_page():
    """The report of 20 runs, 190 pairs; made once, for it takes seconds."""
    return render(comparison_by_hand([f"run {i}" for i in range(20)]))


@pytest.fixture
def undefined():
    """A comparison without null, interval or errors of rows."""
    nan = math.nan
    bare = Nearness("similarity", 0.1, 0.1, 0.1, 0.1, HeldOut(0.1, nan, nan), nan, np.full(4, nan))
    changes = {"groups": {"similarity": bare}, "mcc": MCC(0.1, nan), "components": None}
    return comparison_by_hand(pairs=[pair_by_hand(status="unknown", **changes)])
