"""Generated rows of numbers with known factors, and the names by which they are loaded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.checks import check_integer, check_integers, check_number
from congruence.errors import InputError
from congruence.experiments.data.factor_data import FactorRows

ROWS = 10_000  # drawn by default
MEAN_SPREAD = 2.0  # standard deviation of the means of the components of `random_relu_mixture`
DEVIATIONS = (0.3, 1.0)  # range of their standard deviations along random axes

# Notes are part of the config of a training: a run folder is resumed only if its note is the same.
PINWHEEL = "arms are bent Gaussians: no affine map makes them so again, and a mixture prior with one component each can"
RELU = "one ReLU layer with random weights, on a random Gaussian mixture; what the paper left open is our choice"
MOONS = "two half circles that reach into each other; scikit-learn draws them"
CIRCLES = "a circle in a circle; scikit-learn draws them. A Gaussian has no hole: the prior cannot be right"


def pinwheel(
    n: int = 10_000,
    *,
    arms: int = 3,
    radial: float = 0.3,
    tangential: float = 0.05,
    rate: float = 0.25,
    scale: float = 1.0,
    seed: int = 0,
) -> FactorRows:
    """Draw n points of the plane from arms that are equally likely.

    A point is scale * (r, t) rotated by the angle of its arm plus rate * exp(r), where r ~ N(1, radial^2) and
    t ~ N(0, tangential^2). Factors are the arm, r and t.

    Parameters
    ----------
    n : int
        Number of points.
    arms : int
        Number of arms.
    radial : float
        Standard deviation along an arm, at least 0.
    tangential : float
        Standard deviation across an arm, at least 0.
    rate : float
        How strongly arms are bent; at 0 they are straight, and the data is a Gaussian mixture.
    scale : float
        Of the points. Johnson et al. multiply by 10; here most points are within 2 of the origin.
    seed : int
        Of the draw.

    References
    ----------
    Johnson, Duvenaud, Wiltschko, Datta and Adams 2016 (the generator).
    """
    check_integers(1, n=n, arms=arms)
    for name, value in {"radial": radial, "tangential": tangential, "scale": scale}.items():
        check_number(name, value, 0)
    rng = np.random.default_rng(seed)
    arm = rng.integers(arms, size=n)
    along, across = 1 + radial * rng.normal(size=n), tangential * rng.normal(size=n)
    angle = 2 * math.pi * arm / arms + rate * np.exp(along)
    x = along * np.cos(angle) - across * np.sin(angle)
    y = along * np.sin(angle) + across * np.cos(angle)
    rows = (scale * np.column_stack([x, y])).astype(np.float32)
    kinds = ("categorical", "continuous", "continuous")
    factors = np.column_stack([arm, along, across])
    return FactorRows("pinwheel", rows, factors, ("arm", "along", "across"), kinds, (arms, None, None), PINWHEEL)


@dataclass(frozen=True, eq=False)
class ReLUMixture:
    """The model x = max(matrix z + shift, 0) + noise e, where z follows a Gaussian mixture and e ~ N(0, I)."""

    weights: Float  # (J,)
    means: Float  # (J, m)
    covariances: Float  # (J, m, m)
    matrix: Float  # (p, m)
    shift: Float  # (p,)
    noise: float = 0.0

    def decode(self, latents: Float) -> Float:
        """The observations of latents without noise, (n, m) -> (n, p)."""
        return np.maximum(latents @ self.matrix.T + self.shift, 0)

    def draw(self, n: int, *, seed: int = 0) -> FactorRows:
        """Draw n rows; factors are the component and the true latents, and `truth` is this model."""
        check_integer("n", n)
        rng = np.random.default_rng(seed)
        count, m = self.means.shape
        states = rng.choice(count, size=n, p=self.weights)
        roots = np.linalg.cholesky(self.covariances)  # (J, m, m)
        latents = self.means[states] + np.einsum("nab,nb->na", roots[states], rng.normal(size=(n, m)))
        rows = self.decode(latents)
        rows = rows + self.noise * rng.normal(size=rows.shape)
        names = ("component", *(f"z{i}" for i in range(m)))
        kinds, sizes = ("categorical", *["continuous"] * m), (count, *[None] * m)
        factors = np.column_stack([states, latents])
        return FactorRows("random-relu", rows.astype(np.float32), factors, names, kinds, sizes, RELU, self)


def random_relu_mixture(
    components: int = 3, *, latents: int = 2, observed: int = 10, noise: float = 0.05, seed: int = 0
) -> ReLUMixture:
    """Draw a Gaussian mixture and a ReLU layer through which it is observed.

    Weights of the layer are N(0, 1 / m), its biases N(0, 1). Means are N(0, 4 I); covariances have random axes and
    standard deviations uniform from 0.3 to 1; weights of components are uniform from 1 to 2, normalised. Kivva et al.
    draw such models with J = 2 or 3 without stating the distributions, so these are ours. The layer need not be
    injective: with few `observed` dimensions it often is not.

    Parameters
    ----------
    components : int
        J, the number of components.
    latents : int
        m, the number of latents.
    observed : int
        p, the number of observed dimensions.
    noise : float
        Standard deviation of the observation noise.
    seed : int
        Of the draw.

    References
    ----------
    Kivva, Rajendran, Ravikumar and Aragam 2022, section 4.
    """
    check_integers(1, components=components, latents=latents, observed=observed)
    check_number("noise", noise, 0)
    rng = np.random.default_rng(seed)
    weights = 1 + rng.random(components)
    means = MEAN_SPREAD * rng.normal(size=(components, latents))
    axes = np.linalg.qr(rng.normal(size=(components, latents, latents)))[0]
    stretched = axes * rng.uniform(*DEVIATIONS, size=(components, 1, latents))
    matrix = rng.normal(size=(observed, latents)) / np.sqrt(latents)
    covariances = stretched @ stretched.transpose(0, 2, 1)
    return ReLUMixture(weights / weights.sum(), means, covariances, matrix, rng.normal(size=observed), float(noise))


def half_moons(n: int = 10_000, *, noise: float = 0.1, seed: int = 0) -> FactorRows:
    """Draw n points from two half circles, with Gaussian noise of a standard deviation; the factor is the moon."""
    from sklearn.datasets import make_moons

    check_integer("n", n)
    check_number("noise", noise, 0)
    return _as_factor_rows("moons", make_moons(n, noise=noise, random_state=seed), "moon", MOONS)


def circles(n: int = 10_000, *, noise: float = 0.05, ratio: float = 0.5, seed: int = 0) -> FactorRows:
    """Draw n points from two circles around the origin, of radius 1 and `ratio` (below 1); the factor is the circle."""
    from sklearn.datasets import make_circles

    check_integer("n", n)
    check_number("noise", noise, 0)
    if not 0 <= ratio < 1:
        raise InputError(f"ratio must be at least 0 and below 1; got {ratio}")
    drawn = make_circles(n, noise=noise, factor=ratio, random_state=seed)
    return _as_factor_rows("circles", drawn, "circle", CIRCLES)


def _as_factor_rows(name: str, drawn: tuple[Any, Any], factor: str, note: str) -> FactorRows:
    points, labels = drawn
    factors = np.asarray(labels, dtype=np.float64)[:, None]
    return FactorRows(name, points.astype(np.float32), factors, (factor,), ("categorical",), (2,), note)


@dataclass(frozen=True)
class RowSet:
    """A generated data set of rows."""

    name: str
    sentence: str
    clusters: int  # arms, components or classes
    observed: int  # numbers in a row
    latents: int  # latents that a model of it needs
    make: Callable[[int, int, int], FactorRows]  # rows, clusters, seed
    fixed: bool = False  # whether `clusters` is the only choice


def load_rows(name: str, n: int | None = None, *, seed: int = 0) -> FactorRows:
    """Draw rows by the name of their data set.

    Parameters
    ----------
    name : str
        pinwheel, random-relu, moons or circles; the first two accept a number of clusters, as in "pinwheel:5".
    n : int, optional
        Number of rows; 10,000 by default.
    seed : int
        Of the draw.
    """
    chosen, clusters = find_row_set(name)
    return chosen.make(ROWS if n is None else n, clusters, seed)


def find_row_set(name: str) -> tuple[RowSet, int]:
    """The data set with a name such as "pinwheel" or "pinwheel:5", and its number of clusters."""
    plain, colon, number = name.partition(":")
    if plain not in ROW_SETS:
        raise InputError(f"name must be one of {', '.join(ROW_SETS)}; got {name!r}")
    chosen = ROW_SETS[plain]
    if not colon:
        return chosen, chosen.clusters
    if not number.isdecimal() or int(number) < 1:
        raise InputError(f"the number of clusters must be an integer of at least 1, as in {plain}:3; got {name!r}")
    if chosen.fixed and int(number) != chosen.clusters:
        raise InputError(f"{plain} always has {chosen.clusters} clusters; got {name!r}")
    return chosen, int(number)


def is_row_set(name: str) -> bool:
    """Whether a name is that of rows, with or without a number of clusters."""
    return name.partition(":")[0] in ROW_SETS


_ALL = (
    RowSet(
        "pinwheel", "points of the plane on curved arms, generated; pinwheel:5 has five", 3, 2, 2,
        lambda n, clusters, seed: pinwheel(n, arms=clusters, seed=seed),
    ),
    RowSet(
        "random-relu", "a random Gaussian mixture through a random ReLU layer, generated", 3, 10, 2,
        lambda n, clusters, seed: random_relu_mixture(clusters, seed=seed).draw(n, seed=seed),
    ),
    RowSet("moons", "half-moons in the plane, generated", 2, 2, 2, lambda n, _, seed: half_moons(n, seed=seed), True),
    RowSet("circles", "two circles in the plane, generated", 2, 2, 2, lambda n, _, seed: circles(n, seed=seed), True),
)  # fmt: skip
ROW_SETS: dict[str, RowSet] = {one.name: one for one in _ALL}
