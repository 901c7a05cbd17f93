"""Settings of a training, and its outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from congruence.arrays import Array
from congruence.checks import check_choice, check_integer, check_number
from congruence.errors import InputError
from congruence.experiments.data.factor_data import LARGEST_SEED

_COUNTS = {"epochs": 1, "steps": 1, "batch": 1, "checkpoint_every": 1, "check_every": 1, "log_every": 1, "warmup": 0}
_NUMBERS = {"learning_rate": True, "weight_decay": False, "clip": True, "clip_value": True, "checkpoint_seconds": False}
_CHOICES = {"optimiser": ("adam", "adamw"), "precision": ("auto", "float32", "bfloat16")}
_CHOICES |= {"engine": ("eager", "compiled", "graph", "compiled graph", "auto")}
_OPTIONAL = ("epochs", "steps", "log_every", "clip", "clip_value")  # may be None
# Above: integers with the least value of each, and numbers of at least 0, with whether 0 is excluded.
_EARLY = 10  # times `log_every`: the steps up to which lines are logged that often, and ten times less often after


def row_order(n: int, seed: int, epoch: int) -> Array:
    """The order of n rows in an epoch; it depends on the seed and the number of the epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(n)


@dataclass(frozen=True)
class Training:
    """Settings of a training. Either `epochs` or `steps` is given. Subclasses may override `pace` and `row_order`."""

    fused: ClassVar[bool] = False  # whether Adam is fused on a CPU, which is faster for small models

    epochs: int | None = None
    steps: int | None = None
    batch: int = 128  # rows; the last batch of an epoch may be smaller
    optimiser: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0  # of the model's decayed_parameters(), or of all weights if it has no such method
    clip: float | None = None  # the largest norm of the gradient of all weights together
    clip_value: float | None = None  # the largest element of the gradients of decayed weights
    warmup: int = 0  # steps over which the learning rate grows linearly
    cosine: bool = False  # whether the learning rate then falls to 0 along a cosine
    log_every: int | None = None  # steps, see `is_logged`; None logs each epoch
    checkpoint_every: int = 500  # steps between copies in memory, to the last of which a diverging training returns
    checkpoint_seconds: float = 60.0  # between checkpoints in the run folder
    check_every: int = 1  # steps between checks of the loss; a check waits for the GPU
    precision: str = "float32"  # of matrix products: float32, bfloat16 (autocast), or auto
    engine: str = "eager"  # see `choose_engine`
    deterministic: bool = False  # the same seed gives the same bits on the same device
    seed: int = 0  # of the order of rows, and of random numbers in the loss

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise InputError(f"give either epochs or steps; got {self.epochs} and {self.steps}")
        checked: dict[str, object] = {"cosine": bool(self.cosine), "deterministic": bool(self.deterministic)}
        checked["seed"] = check_integer("seed", self.seed, 0, LARGEST_SEED)
        given = {name: value for name, value in vars(self).items() if value is not None or name not in _OPTIONAL}
        for name, least in _COUNTS.items():
            if name in given:
                value = given[name]
                whole = isinstance(value, float) and value.is_integer()
                checked[name] = check_integer(name, int(value) if whole else value, least)
        for name, excluded in _NUMBERS.items():
            if name in given:
                checked[name] = check_number(name, given[name], 0.0, open_low=excluded)
        for name, known in _CHOICES.items():
            check_choice(name, given[name], known)
        for name, value in checked.items():  # as Python's own numbers, which a config can store
            object.__setattr__(self, name, value)

    def pace(self, step: int, total: int) -> float:
        """The factor of the learning rate at a step, counted from 0."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        left = max(1, total - self.warmup)
        return 0.5 + 0.5 * math.cos(math.pi * (step - self.warmup) / left) if self.cosine else 1.0

    def row_order(self, n: int, epoch: int) -> Array:
        """The order of n rows in an epoch, counted from 0."""
        return row_order(n, self.seed, epoch)

    def is_logged(self, step: int, total: int) -> bool:
        """Whether `log_every` asks for a line after a step, counted from 1.

        Lines are logged after the first and the last step, after every `log_every` steps up to ten times as many, and
        then ten times less often: with 500, the steps at which Hsu et al. (2023) evaluate.
        """
        if self.log_every is None:
            return False
        every = self.log_every if step <= _EARLY * self.log_every else _EARLY * self.log_every
        return step in (1, total) or step % every == 0


@dataclass(frozen=True)
class Trained:
    """The outcome of a training. `ended` is "steps" (all were done) or "diverged"."""

    ended: str
    steps: int
    epochs: int  # that were completed
    loss: float  # the mean of the last line of the log; NaN without a line
