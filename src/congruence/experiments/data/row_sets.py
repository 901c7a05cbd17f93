"""Rows of numbers with known factors by name, as `--data` takes it: `pinwheel`, or `pinwheel:5` for five arms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from congruence.errors import InputError
from congruence.experiments.data.bent_shapes import CIRCLES, MOONS, circles, half_moons
from congruence.experiments.data.pinwheels import NOTE as PINWHEEL
from congruence.experiments.data.pinwheels import pinwheel
from congruence.experiments.data.relu_mixtures import NOTE as RELU
from congruence.experiments.data.relu_mixtures import random_relu_mixture
from congruence.experiments.data.rows import FactorRows

ROWS = 10_000  # that are drawn, unless another number is asked for


@dataclass(frozen=True)
class RowSet:
    """A data set of rows that are drawn here."""

    name: str
    sentence: str
    note: str
    clusters: int  # arms, components or classes
    observed: int  # numbers in a row
    latents: int  # numbers that a model needs to tell a row
    make: Callable[[int, int, int], FactorRows]  # rows, clusters, seed
    fixed: bool = False  # whether the number of clusters can be no other


def load_rows(name: str, n: int | None = None, *, seed: int = 0) -> FactorRows:
    """Draw rows by the name of their data set.

    Parameters
    ----------
    name : str
        pinwheel, random-relu, moons or circles; the first two take a number of clusters, as in "pinwheel:5".
    n : int, optional
        How many rows; 10,000 unless given.
    """
    chosen, clusters = find_row_set(name)
    return chosen.make(ROWS if n is None else n, clusters, seed)


def find_row_set(name: str) -> tuple[RowSet, int]:
    """The data set of a name such as "pinwheel" or "pinwheel:5", and its number of clusters."""
    plain, colon, number = name.partition(":")
    if plain not in ROW_SETS:
        raise InputError(f"there is no data set {name!r} of rows; there are {', '.join(ROW_SETS)}")
    chosen = ROW_SETS[plain]
    if not colon:
        return chosen, chosen.clusters
    if not number.isdecimal() or int(number) < 1:
        raise InputError(f"the number of clusters in {name!r} must be at least 1, as in {plain}:3")
    if chosen.fixed and int(number) != chosen.clusters:
        raise InputError(f"{plain} has {chosen.clusters} clusters and no other number; leave :{number} out")
    return chosen, int(number)


def is_row_set(name: str) -> bool:
    """Whether a name is one of rows, with or without a number of clusters."""
    return name.partition(":")[0] in ROW_SETS


ROW_SETS: dict[str, RowSet] = {
    one.name: one
    for one in (
        RowSet(
            "pinwheel", "points of the plane on curved arms, drawn here; pinwheel:5 has five", PINWHEEL, 3, 2, 2,
            lambda n, clusters, seed: pinwheel(n, arms=clusters, seed=seed),
        ),
        RowSet(
            "random-relu", "a random Gaussian mixture through a random ReLU layer, drawn here", RELU, 3, 10, 2,
            lambda n, clusters, seed: random_relu_mixture(clusters, seed=seed).draw(n, seed=seed),
        ),
        RowSet(
            "moons", "two half-moons in the plane, drawn here", MOONS, 2, 2, 2,
            lambda n, clusters, seed: half_moons(n, seed=seed), True,
        ),
        RowSet(
            "circles", "a circle in a circle, drawn here", CIRCLES, 2, 2, 2,
            lambda n, clusters, seed: circles(n, seed=seed), True,
        ),
    )
}  # fmt: skip
