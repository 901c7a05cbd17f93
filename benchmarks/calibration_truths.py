"""Simulated pairs of runs whose relation is known, for `calibration.py`.

Every function draws one sample from a random generator. Rows have variance 1 per dimension on average, whatever their
law and spectrum, so that levels of noise mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.signal import lfilter

Generator = np.random.Generator
SCALE = 1.7  # of every similarity: compare must not depend on it


@dataclass(frozen=True)
class Sample:
    """Two runs, and the options of `compare` that belong to them."""

    x: Any
    y: Any
    options: dict[str, Any] = field(default_factory=dict)
    fresh: Callable[[Generator, int], tuple[Any, Any]] | None = None  # more rows of the same population
    before: tuple[Any, Any] | None = None  # the runs before rows were made to lie far away


def rotation(rng: Generator, d: int) -> np.ndarray:
    q, r = np.linalg.qr(rng.normal(size=(d, d)))
    return q * np.sign(np.diag(r))


def spread(spectrum: str, d: int) -> np.ndarray:
    """Standard deviations of the principal directions; the variances are flat, 1/k or 1/k^2, with mean 1."""
    power = {"flat": 0, "1/k": 1, "1/k2": 2}[spectrum]
    variances = np.arange(1.0, d + 1) ** -power
    return np.sqrt(variances / variances.mean())


def radii(rng: Generator, n: int, law: str) -> np.ndarray:
    """The factor of every row, of mean square 1; it makes tails heavy without making directions differ."""
    if law == "gaussian":
        return np.ones((n, 1))
    if law == "lognormal":
        return np.exp(rng.normal(size=(n, 1)) - 1)
    degrees = int(law.removeprefix("t"))
    return np.sqrt((degrees - 2) / rng.chisquare(degrees, size=(n, 1)))


def unrelated(rng: Generator, n: int, d: int) -> Sample:
    return Sample(rng.normal(size=(n, d)), rng.normal(size=(n, d)))


def related(
    rng: Generator,
    n: int,
    d: int,
    *,
    r2: float = 1.0,
    noise_in: str = "y",
    spectrum: str = "flat",
    law: str = "gaussian",
    log_gains: Callable[[Generator, int], np.ndarray] | None = None,
    principal: bool = True,
) -> Sample:
    """Rotate, scale and shift the rows of one run, with isotropic noise in one or both runs.

    `r2` is the share of the variance a similarity explains in the population where there are no `log_gains`; these
    stretch the principal directions, or others if `principal` is False. Noise has the radii of its rows.
    """
    turn, back = rotation(rng, d), rotation(rng, d)
    axes = np.eye(d) if principal else rotation(rng, d)
    stretch = axes * np.exp(log_gains(rng, d) if log_gains else np.zeros(d)) @ axes.T
    shift = 3 * rng.normal(size=d)
    share = np.sqrt(r2) if noise_in == "both" else r2
    noise = np.sqrt(1 / share - 1)  # beside a signal of variance 1 in every dimension

    def draw(rng: Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        signal, in_x, in_y = rng.normal(size=(3, n, d))
        factor = radii(rng, n, law)
        signal = factor * signal * spread(spectrum, d)
        x = signal @ back + (noise * factor * in_x if noise_in in ("x", "both") else 0)
        y = signal @ stretch @ turn + (noise * factor * in_y if noise_in in ("y", "both") else 0)
        return x, SCALE * y + shift

    return Sample(*draw(rng, n), fresh=draw)


def log_normal_gains(sd: float) -> Callable[[Generator, int], np.ndarray]:
    """Log gains of mean 0 and exactly this standard deviation."""

    def gains(rng: Generator, d: int) -> np.ndarray:
        drawn = rng.normal(size=d)
        return sd * (drawn - drawn.mean()) / drawn.std()

    return gains


def one_gain(log_gain: float) -> Callable[[Generator, int], np.ndarray]:
    """One direction, chosen at random, is stretched."""
    return lambda rng, d: log_gain * (np.arange(d) == rng.integers(d))


def bounded_gains(most: float) -> Callable[[Generator, int], np.ndarray]:
    return lambda rng, d: rng.uniform(-most, most, size=d)


def nonlinear(rng: Generator, n: int, d: int) -> Sample:
    """Every dimension of a rotated run is saturated: related, smooth, and not linear."""
    x = rng.normal(size=(n, d))
    return Sample(x, np.tanh(x @ rotation(rng, d)) + 0.1 * rng.normal(size=(n, d)))


def classes(rng: Generator, n: int, d: int, r2: float, count: int = 10) -> Sample:
    """Independent rows of a mixture of classes, rotated, with noise: rows of a class are alike but independent."""
    x = rng.normal(size=(count, d))[rng.integers(count, size=n)] + 0.5 * rng.normal(size=(n, d))
    y = x @ rotation(rng, d)
    return Sample(x, y + np.sqrt((1 / r2 - 1) * y.var(0).mean()) * rng.normal(size=(n, d)))


def autoregressive(rng: Generator, n: int, d: int, correlation: float) -> np.ndarray:
    """A stationary process of order 1 in every dimension."""
    drawn = rng.normal(size=(n, d))
    drawn[1:] *= np.sqrt(1 - correlation**2)
    return lfilter([1], [1, -correlation], drawn, axis=0)


def series(rng: Generator, n: int, d: int, correlation: float, **options: Any) -> Sample:
    """Unrelated runs whose successive rows are alike."""
    return Sample(*(autoregressive(rng, n, d, correlation) for _ in range(2)), options)


def clusters(rng: Generator, n: int, count: int, order: str = "random", even: bool = True) -> np.ndarray:
    """The cluster of every row, shape (n,); uneven sizes have an exponential distribution."""
    if even:
        label = np.arange(n) * count // n
    else:
        sizes = rng.dirichlet(np.ones(count))
        label = np.sort(np.concatenate([np.arange(count), rng.choice(count, size=n - count, p=sizes)]))
    return label if order == "contiguous" else rng.permutation(label)


def clustered(rng: Generator, n: int, d: int, count: int, within: float, *, given: bool = False, **more: Any) -> Sample:
    """Unrelated runs of the same clusters: the centres of the two runs are independent."""
    label = clusters(rng, n, count, **more)
    x, y = (rng.normal(size=(count, d))[label] + within * rng.normal(size=(n, d)) for _ in range(2))
    return Sample(x, y, {"cluster": label} if given else {})


def repeated(rng: Generator, n: int, d: int, times: int, given: bool = False) -> Sample:
    """Unrelated runs in which every row occurs several times, in random order."""
    row = rng.permutation(np.arange(n) % (n // times))
    x, y = (rng.normal(size=(n // times, d))[row] for _ in range(2))
    return Sample(x, y, {"cluster": row} if given else {})


def with_duplicates(sample: Sample, rng: Generator, share: float = 0.01) -> Sample:
    """Replace a share of the rows by copies of other rows, in both runs."""
    n = len(sample.x)
    chosen = rng.permutation(n)[: 2 * round(share * n)]
    x, y = sample.x.copy(), sample.y.copy()
    copied, originals = chosen.reshape(2, -1)
    x[copied], y[copied] = x[originals], y[originals]
    return replace(sample, x=x, y=y)


def with_far_rows(sample: Sample, rng: Generator, count: int, distance: float) -> Sample:
    """Shift some rows of both runs far away, in one direction of each run, as first tokens in language models lie."""
    far = rng.permutation(len(sample.x))[:count]
    x, y = sample.x.copy(), sample.y.copy()
    for run in (x, y):
        direction = rng.normal(size=run.shape[1])
        run[far] += distance * direction / np.linalg.norm(direction)
    return replace(sample, x=x, y=y, before=(sample.x, sample.y))


def with_one_scaled_row(sample: Sample, rng: Generator, factor: float = 100.0) -> Sample:
    row = rng.integers(len(sample.x))
    x, y = sample.x.copy(), sample.y.copy()
    x[row] *= factor
    y[row] *= factor
    return replace(sample, x=x, y=y, before=(sample.x, sample.y))


def copy(rng: Generator, n: int, d: int, how: str, *, rotated: bool, spectrum: str = "flat") -> Sample:
    """One run, and a copy of it that was stored in another way, with or without a rotation before."""
    x = rng.normal(size=(n, d)) * spread(spectrum, d) @ rotation(rng, d)
    y = x @ rotation(rng, d) if rotated else x.copy()
    if how == "float16":
        y = y.astype(np.float16).astype(np.float32)
    elif how == "int8 per tensor":
        y = rounded_to_int8(y, None)
    elif how == "int8 per column":
        y = rounded_to_int8(y, 0)
    elif how == "re-ordered":
        from congruence import Table

        order, ids = rng.permutation(n), np.array([f"row{i}" for i in range(n)])
        return Sample(Table(x, "x", ids), Table(y[order], "y", ids[order]))
    elif how == "shifted":
        y = y + 3 * rng.normal(size=d)
    elif how == "permuted":
        y = y[:, rng.permutation(d)] * rng.choice([-1, 1], size=d)
    return Sample(x, y)


def rounded_to_int8(x: np.ndarray, axis: int | None) -> np.ndarray:
    """Symmetric quantisation with one scale for the tensor (axis None) or for each column (axis 0)."""
    scale = np.abs(x).max(axis, keepdims=True) / 127
    return np.round(x / scale) * scale


def replaced(rng: Generator, n: int, d: int, r2: float, share: float, *, swapped: bool = False, **more: Any) -> Sample:
    """A rotated run in which a share of the rows is not the same row: a fresh one, or that of another chosen row."""
    sample = related(rng, n, d, r2=r2, **more)
    chosen = rng.permutation(n)[: round(share * n)]
    y = sample.y.copy()
    y[chosen] = y[np.roll(chosen, 1)] if swapped else sample.fresh(rng, len(chosen))[1]
    return replace(sample, y=y)


def related_clusters(rng: Generator, n: int, d: int, r2: float, count: int, *, given: bool) -> Sample:
    """A rotated run with noise; half of the variance of signal and noise lies between clusters of equal size."""
    turn, size = SCALE * rotation(rng, d), n // count

    def draw(rng: Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        label = np.arange(n) // size
        x, noise = (
            np.sqrt(0.5) * (rng.normal(size=(label[-1] + 1, d))[label] + rng.normal(size=(n, d))) for _ in range(2)
        )
        return x, x @ turn + SCALE * np.sqrt(1 / r2 - 1) * noise

    return Sample(*draw(rng, n), {"cluster": np.arange(n) // size} if given else {}, draw)


def seeds(rng: Generator, n: int, d: int, count: int = 3, **options: Any) -> Sample:
    """Several seeds of two runs with one layer: each mixes the same latent variables in its own way, with noise."""
    z = rng.normal(size=(n, d)) * np.sqrt(np.arange(1, d + 1) ** -1.0)

    def layer() -> np.ndarray:
        return z @ (np.eye(d) + 0.5 * rng.normal(size=(d, d)) / np.sqrt(d)) + 0.2 * rng.normal(size=(n, d))

    a, b = ([{"layer": layer()} for _ in range(count)] for _ in range(2))
    return Sample(a, b, options)


def layers(
    rng: Generator, n: int, d: int, count: int, kind: str = "iid", given: bool = False, **options: Any
) -> Sample:
    """Two runs of several layers, all unrelated: independent rows, a series, or 20 clusters."""
    label = clusters(rng, n, 20, even=kind != "uneven clusters")

    def layer() -> np.ndarray:
        if kind == "series":
            return autoregressive(rng, n, d, 0.95)
        if kind == "iid":
            return rng.normal(size=(n, d))
        return rng.normal(size=(20, d))[label] + 0.3 * rng.normal(size=(n, d))

    a, b = ({f"layer{i}": layer() for i in range(count)} for _ in range(2))
    return Sample(a, b, options | ({"cluster": label} if given else {}))
