"""Pairs of orthogonal autoencoders: how far a decoder is from an isometry, and how near the codes of two trainings are.

A pair is two trainings that differ in their seed alone. The local constant of a decoder at a code is max(s, 1 / s) over
the singular values s of its Jacobian J, which for a stack of LeakyReLU layers is known exactly; the paper looks at
|J v| for ten random directions v, which cannot find more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.training.ensemble import Ensemble, Member, train_ensemble
from congruence.maps._diameter import rows_diameter
from congruence.maps.groups import fit_group
from congruence.maps.nearness import Nearness, measure, protocol
from congruence.rows.devices import one_thread
from congruence.rows.engine import Rows
from congruence.rows.sums import pair_sums, run_sums

DIRECTIONS = 10  # random ones, in the estimate of the paper
Arrays = dict[str, Array]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two trainings with the same leak, and what was measured of them on images that neither was trained on."""

    leak: float
    seed: int
    digit: int | None  # None where all digits were trained on
    reconstruction: tuple[float, float]  # mean squared error of each, per pixel
    nearness: Nearness  # of the codes, up to a rigid motion
    exact: Float = field(repr=False)  # (2, n) the local constant of each decoder at each of its codes
    sampled: Float = field(repr=False)  # (2, n) likewise, from random directions: a lower estimate

    @property
    def error(self) -> float:
        """The held-out error after the best rigid motion, a share of the diameter."""
        return self.nearness.held_out.mean

    def constant(self, how: str) -> float:
        """The constant of the worse of both decoders: the "mean" over samples, or the "max" (a lower estimate)."""
        values = self.exact.mean(1) if how == "mean" else self.exact.max(1)
        return float(values.max())

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        return {
            "leak": self.leak,
            "seed": self.seed,
            "digit": self.digit,
            "reconstruction": list(self.reconstruction),
            "nearness": self.nearness.to_dict(),
            "constant": {
                "mean": self.constant("mean"),
                "max": self.constant("max"),
                "sampled_mean": float(self.sampled.mean(1).max()),
                "sampled_max": float(self.sampled.max()),
            },
        }


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be trained: on which images, for which digits (None: all of them), and with how many seeds."""

    x: Array  # (n, p) images to train on
    y: Array  # (m, p) images to measure on
    digits: tuple[int | None, ...]
    train_rows: tuple[Array, ...]  # for each digit
    test_rows: tuple[Array, ...]
    seeds: int

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """For each member, in order: the place of its digit, its seed, and which of the pair it is."""
        return [(d, s, side) for d in range(len(self.digits)) for s in range(self.seeds) for side in (0, 1)]


def train_and_measure(
    task: Task, leaks: Sequence[float], numbers: Sequence[int], seed: int, progress: Any, **options: Any
) -> Arrays:
    """Train all members of some leaks in one batch; `numbers` are those of the leaks, of which the seeds are made.

    Returns for each leak, numbered as in `numbers`, codes (members, m, latent), the constants (members, m) and the
    reconstruction errors, the epochs and the losses (members,).
    """
    members = [
        Member(leak, member_seed(seed, number, task.digits[d], s, side), task.train_rows[d])
        for number, leak in zip(numbers, leaks, strict=True)
        for d, s, side in task.places
    ]
    images = np.stack([task.y[task.test_rows[d]] for _ in leaks for d, _, _ in task.places])
    with one_thread():
        ensemble = train_ensemble(task.x, members, progress=progress, **options)
        codes = ensemble.encode(images)
        found = {"codes": codes, "error": ensemble.reconstruction_error(images), "epochs": ensemble.epochs}
        found |= {"loss": ensemble.losses} | measure_constants(ensemble, codes, seed)
    each = len(task.places)
    return {
        f"{name}-{number}": values[i * each : (i + 1) * each]
        for i, number in enumerate(numbers)
        for name, values in found.items()
    }


def member_seed(seed: int, leak: int, digit: int | None, number: int, side: int) -> int:
    """A seed of its own for every member."""
    key = [seed, leak, 10 if digit is None else digit, number, side]
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def measure_constants(ensemble: Ensemble, codes: Array, seed: int) -> Arrays:
    """The local constants of all decoders at their codes (members, n, latent), exact and sampled: (members, n) each."""
    rng = np.random.default_rng([seed, 17])
    exact, sampled = np.empty(codes.shape[:2]), np.empty(codes.shape[:2])
    for i in range(len(ensemble)):
        metric = ensemble.metric(i, codes[i])  # (n, latent, latent)
        exact[i], sampled[i] = local_constants(metric, rng)
    return {"exact": exact, "sampled": sampled}


def local_constants(metric: Float, rng: np.random.Generator) -> tuple[Float, Float]:
    """From J^T J (n, k, k): max(s, 1 / s) over singular values of J, and over |J v| for random unit v, (n,) each."""
    values = np.linalg.eigvalsh(metric)
    ways = rng.normal(size=(len(metric), metric.shape[1], DIRECTIONS))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    speeds = (ways * (metric @ ways)).sum(1)  # |J v|^2, (n, directions)
    return _largest(values), _largest(speeds)


def _largest(squares: Array) -> Float:
    with np.errstate(divide="ignore"):  # a decoder that loses a direction has an infinite constant
        found: Float = np.sqrt(np.maximum(squares.max(1), 1 / np.maximum(squares.min(1), 0)))
    return found


def measure_pairs(task: Task, leaks: Sequence[float], found: Arrays, seed: int, tell: Callable[[], None]) -> list[Pair]:
    """Compare the two codes of each pair; `tell` is called before each."""
    pairs = []
    for number, leak in enumerate(leaks):
        codes, errors = found[f"codes-{number}"], found[f"error-{number}"]
        for i in range(0, len(task.places), 2):
            tell()
            d, s, _ = task.places[i]
            pairs.append(
                Pair(
                    leak=leak,
                    seed=s,
                    digit=task.digits[d],
                    reconstruction=(float(errors[i]), float(errors[i + 1])),
                    nearness=nearness_up_to("rigid", codes[i], codes[i + 1], seed),
                    exact=found[f"exact-{number}"][i : i + 2],
                    sampled=found[f"sampled-{number}"][i : i + 2],
                )
            )
    return pairs


def nearness_up_to(group: str, x: Array, y: Array, seed: int) -> Nearness:
    """How near paired codes are up to a group: what `compare` says, without all else that it measures."""
    plan = protocol(len(x), nulls=5, bootstrap=100, seed=seed)
    target = Rows(y)
    sums = pair_sums(run_sums(Rows(x), plan.folds), run_sums(target, plan.folds))
    fits = {group: lambda paired, fold: fit_group(paired, group)}
    return measure(sums, fits, rows_diameter(target).value, plan)[0][group]


def keep_converged(pairs: Sequence[Pair], reference: float, quantile: float = 0.95) -> tuple[list[Pair], float]:
    """Drop the pairs of which either reconstruction error is above a quantile of those at the reference leak.

    Returns what is left, and the limit. Pairs of one digit are held against the pairs of that digit.
    """
    limits = {}
    for digit in {pair.digit for pair in pairs}:
        there = [pair.reconstruction for pair in pairs if pair.digit == digit and pair.leak == reference]
        limits[digit] = float(np.quantile(there, quantile))
    kept = [pair for pair in pairs if max(pair.reconstruction) <= limits[pair.digit]]
    return kept, max(limits.values())
