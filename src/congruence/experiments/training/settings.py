"""How to train, and how a training went."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from congruence.errors import InputError
from congruence.experiments.data.images import check_seed

OPTIMISERS = ("adam", "adamw", "sgd")
PRECISIONS = ("auto", "float32", "bfloat16")
ENGINES = ("eager", "compiled", "graph", "compiled graph", "auto")
COUNTS = {"epochs": 1, "steps": 1, "batch": 1, "patience": 1, "checkpoint_every": 1, "check_every": 1, "log_every": 1}
COUNTS |= {"warmup": 0}  # whole numbers, and the least that each may be
OPTIONAL = ("epochs", "steps", "patience", "log_every", "clip", "clip_value")  # which may be None
EARLY = 10  # times `log_every`: the steps up to which lines are logged that often, and ten times more rarely after


@dataclass(frozen=True)
class Training:
    """How to train. One of `epochs` and `steps` is given; the other follows from the rows and the batch."""

    epochs: int | None = None
    steps: int | None = None
    batch: int = 128  # rows; the last batch of an epoch may be smaller
    optimiser: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0  # of the model's decayed_parameters(), or of all weights where it has no such method
    clip: float | None = None  # the largest norm of the gradient of all weights together
    clip_value: float | None = None  # the largest element of the gradients of the weights that are decayed
    warmup: int = 0  # steps over which the learning rate grows to its full size
    cosine: bool = False  # whether it then falls to 0 along a cosine, or stays
    patience: int | None = None  # lines of the log (epochs, unless log_every is given) without improvement to stop at
    threshold: float = 0.0  # a smaller improvement of the loss counts as none
    log_every: int | None = None  # steps, see `is_logged`; None logs each epoch
    checkpoint_every: int = 500  # steps
    check_every: int = 1  # steps after which the loss is looked at; looking makes a GPU wait
    precision: str = "float32"  # of the products: float32, bfloat16 (autocast), or auto
    engine: str = "eager"  # see `congruence.experiments.training.stepping`
    deterministic: bool = False  # the same seed gives the same bits on the same device
    seed: int = 0  # of the order of the rows, and of what a loss draws

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise InputError(f"one of epochs and steps must be given, not {self.epochs} and {self.steps}")
        for name, least in COUNTS.items():
            self._settle(name, _whole(name, getattr(self, name), least))
        for name in ("learning_rate", "weight_decay", "clip", "clip_value", "threshold"):
            self._settle(name, _real(name, getattr(self, name)))
        if not math.isfinite(self.threshold):
            raise InputError(f"threshold must be a finite number, not {self.threshold}")
        check_seed(self.seed)
        self._settle("seed", int(self.seed))
        self._settle("cosine", bool(self.cosine))
        self._settle("deterministic", bool(self.deterministic))
        for name, known in (("optimiser", OPTIMISERS), ("precision", PRECISIONS), ("engine", ENGINES)):
            if getattr(self, name) not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning_rate must be above 0, not {self.learning_rate}")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(f"weight_decay must be at least 0, not {self.weight_decay}")
        for name in ("clip", "clip_value"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} must be above 0, or None, not {value}")

    def _settle(self, name: str, value: Any) -> None:
        """Keep a setting as a number of Python's own, which a config can hold; numpy's are taken, too."""
        object.__setattr__(self, name, value)

    def pace(self, step: int, total: int) -> float:
        """The share of the learning rate at a step, counted from 0."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        left = max(1, total - self.warmup)
        return 0.5 + 0.5 * math.cos(math.pi * (step - self.warmup) / left) if self.cosine else 1.0

    def is_logged(self, step: int, total: int) -> bool:
        """Whether `log_every` asks for a line after a step, counted from 1.

        That is so after the first and the last step, after every `log_every` steps up to ten times as many, and then
        ten times more rarely: with 500, the steps at which Hsu et al. (2023) evaluate.
        """
        if self.log_every is None:
            return False
        every = self.log_every if step <= EARLY * self.log_every else EARLY * self.log_every
        return step in (1, total) or step % every == 0


def _whole(name: str, value: Any, least: int) -> int | None:
    if value is None and name in OPTIONAL:
        return None
    if _is_number(value) and value < least:
        raise InputError(f"{name} must be at least {least}, not {value}")
    if not _is_number(value) or value % 1:
        raise InputError(f"{name} must be a whole number, not {value!r}")
    return int(value)


def _real(name: str, value: Any) -> float | None:
    if value is None and name in OPTIONAL:
        return None
    if not _is_number(value):
        raise InputError(f"{name} must be a number, not {value!r}")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass(frozen=True)
class Trained:
    """How a training went. `ended` is "steps" (all were done), "patience" (no improvement) or "diverged"."""

    ended: str
    steps: int
    epochs: int  # that were completed
    loss: float  # the mean of the last line of the log, on held-out rows where there are some; NaN if there was none
    best: float
