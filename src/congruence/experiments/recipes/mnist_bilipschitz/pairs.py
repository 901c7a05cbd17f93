"""Pairs of orthogonal autoencoders: the local constants of their decoders, and the nearness of their codes.

A pair is two trainings that differ in their seed alone. The local constant of a decoder at a code is max(s, 1 / s) over
the singular values s of its Jacobian J, which is known exactly for a stack of LeakyReLU layers. The paper takes |J v|
for ten random directions v, which is a lower estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.recipes._isometry import measure_nearness
from congruence.experiments.training.ensemble import Member, train_ensemble
from congruence.maps.nearness import Nearness
from congruence.parts import Arrays
from congruence.rows.threads import one_thread

DIRECTIONS = 10  # random ones, in the estimate of the paper


@dataclass(frozen=True, eq=False)
class AutoencoderPair:
    """Two trainings with the same leak, measured on images that neither was trained on."""

    leak: float
    seed: int
    digit: int | None  # None if all digits were trained on
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
        sampled = {"sampled_mean": float(self.sampled.mean(1).max()), "sampled_max": float(self.sampled.max())}
        return {
            "leak": self.leak,
            "seed": self.seed,
            "digit": self.digit,
            "reconstruction": list(self.reconstruction),
            "nearness": self.nearness.to_dict(),
            "constant": {how: self.constant(how) for how in ("mean", "max")} | sampled,
        }


@dataclass(frozen=True, eq=False)
class PairTrainings:
    """The trainings of an experiment: their images, their digits (None: all of them), and the number of seeds."""

    x: Array  # (n, p) images to train on
    y: Array  # (m, p) images to measure on
    digits: tuple[int | None, ...]
    train_rows: tuple[Array, ...]  # for each digit
    test_rows: tuple[Array, ...]
    seeds: int

    @property
    def members(self) -> list[tuple[int, int, int]]:
        """For each training, in order: the index of its digit, its seed, and its place in the pair."""
        return [(d, s, place) for d in range(len(self.digits)) for s in range(self.seeds) for place in (0, 1)]


def train_and_measure(
    trainings: PairTrainings, leaks: Sequence[float], numbers: Sequence[int], seed: int, progress: Any, **options: Any
) -> Arrays:
    """Train all members of some leaks in one batch; `numbers` are those of the leaks, from which seeds are made.

    Returns for each leak, numbered as in `numbers`, codes (members, m, latent), the constants (members, m) and the
    reconstruction errors, the epochs and the losses (members,).
    """
    members = [
        Member(leak, member_seed(seed, number, trainings.digits[d], s, place), trainings.train_rows[d])
        for number, leak in zip(numbers, leaks, strict=True)
        for d, s, place in trainings.members
    ]
    images = np.stack([trainings.y[trainings.test_rows[d]] for _ in leaks for d, _, _ in trainings.members])
    with one_thread():
        ensemble = train_ensemble(trainings.x, members, progress=progress, **options)
        codes = ensemble.encode(images)
        measured = {"codes": codes, "error": ensemble.reconstruction_error(images), "epochs": ensemble.epochs}
        rng = np.random.default_rng([seed, 17])
        constants = [local_constants(ensemble.metric(i, codes[i]), rng) for i in range(len(ensemble))]
    exact, sampled = zip(*constants, strict=True)
    measured |= {"loss": ensemble.losses, "exact": np.array(exact), "sampled": np.array(sampled)}
    each = len(trainings.members)
    return {
        f"{name}-{number}": values[i * each : (i + 1) * each]
        for i, number in enumerate(numbers)
        for name, values in measured.items()
    }


def member_seed(seed: int, leak: int, digit: int | None, number: int, place: int) -> int:
    """A separate seed for every member."""
    key = [seed, leak, 10 if digit is None else digit, number, place]
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def local_constants(metric: Float, rng: np.random.Generator) -> tuple[Float, Float]:
    """From J^T J (n, k, k): max(s, 1 / s) over singular values of J, and over |J v| for random unit v, (n,) each."""
    directions = rng.normal(size=(len(metric), metric.shape[1], DIRECTIONS))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    speeds = (directions * (metric @ directions)).sum(1)  # |J v|^2, (n, directions)

    def largest(squares: Array) -> Float:
        with np.errstate(divide="ignore"):  # a decoder that loses a direction has an infinite constant
            constant: Float = np.sqrt(np.maximum(squares.max(1), 1 / np.maximum(squares.min(1), 0)))
        return constant

    return largest(np.linalg.eigvalsh(metric)), largest(speeds)


def measure_pairs(
    trainings: PairTrainings, leaks: Sequence[float], measured: Arrays, seed: int, progress: Callable[[int, int], None]
) -> list[AutoencoderPair]:
    """Compare the two codes of each pair."""
    members = trainings.members
    pairs: list[AutoencoderPair] = []
    for number, leak in enumerate(leaks):
        names = ("codes", "error", "exact", "sampled")
        codes, errors, exact, sampled = (measured[f"{name}-{number}"] for name in names)
        for i in range(0, len(members), 2):
            progress(len(pairs), len(leaks) * len(members) // 2)
            d, s, _ = members[i]
            pairs.append(
                AutoencoderPair(
                    leak=leak,
                    seed=s,
                    digit=trainings.digits[d],
                    reconstruction=(float(errors[i]), float(errors[i + 1])),
                    nearness=measure_nearness(codes[i], codes[i + 1], "rigid", seed=seed)["rigid"],
                    exact=exact[i : i + 2],
                    sampled=sampled[i : i + 2],
                )
            )
    return pairs


def keep_converged(
    pairs: Sequence[AutoencoderPair], reference: float, quantile: float = 0.95
) -> tuple[list[AutoencoderPair], float]:
    """Drop pairs with a reconstruction error above a quantile of those at the reference leak, for each digit.

    Returns the remaining pairs, and the largest limit over digits.
    """
    limits = {}
    for digit in {pair.digit for pair in pairs}:
        errors = [pair.reconstruction for pair in pairs if pair.digit == digit and pair.leak == reference]
        limits[digit] = float(np.quantile(errors, quantile))
    kept = [pair for pair in pairs if max(pair.reconstruction) <= limits[pair.digit]]
    return kept, max(limits.values())
