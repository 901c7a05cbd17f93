"""The one training loop: plain torch, early stopping, and checkpoints from which a training goes on exactly.

A model is a `torch.nn.Module` with a method `loss(*batch)`, which gives a number to be minimised, or a mapping of
named numbers of which "loss" is minimised and the others are logged. Where it has a method `after_step()`, that is
called after each step of the optimiser (to keep weights orthogonal, say). Whatever is random in a loss is to be drawn
from torch's own generator, whose state is kept in checkpoints.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, resolve_device
from congruence.errors import InputError, MissingDependencyError, NotConvergedWarning
from congruence.models.checkpoints import Checkpoint, capture, fingerprint, read_checkpoint, restore, write_checkpoint
from congruence.models.interrupts import patient_interrupts
from congruence.runs import Run

OPTIMISERS = ("adam", "adamw", "sgd")
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Training:
    """How to train. One of `epochs` and `steps` is given; the other follows from the rows and the batch."""

    epochs: int | None = None
    steps: int | None = None
    batch: int = 128  # rows; the last batch of an epoch may be smaller
    optimiser: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    clip: float | None = None  # the largest norm of the gradient of all weights together
    warmup: int = 0  # steps over which the learning rate grows to its full size
    cosine: bool = False  # whether it then falls to 0 along a cosine, or stays
    patience: int | None = None  # epochs without improvement after which training stops
    threshold: float = 0.0  # a smaller improvement of the loss counts as none
    checkpoint_every: int = 500  # steps
    seed: int = 0  # of the order of the rows, and of what a loss draws

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise InputError(f"one of epochs and steps must be given, not {self.epochs} and {self.steps}")
        for name in ("epochs", "steps", "batch", "patience", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}")
        if self.optimiser not in OPTIMISERS:
            raise InputError(f"optimiser must be one of {', '.join(OPTIMISERS)}, not {self.optimiser!r}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning_rate must be above 0, not {self.learning_rate}")
        if self.clip is not None and not self.clip > 0:
            raise InputError(f"clip must be above 0, or None, not {self.clip}")

    def pace(self, step: int, total: int) -> float:
        """The share of the learning rate at a step, counted from 0."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        left = max(1, total - self.warmup)
        return 0.5 + 0.5 * math.cos(math.pi * (step - self.warmup) / left) if self.cosine else 1.0


@dataclass(frozen=True)
class Trained:
    """How a training went. `ended` is "steps" (all were done), "patience" (no improvement) or "diverged"."""

    ended: str
    steps: int
    epochs: int  # that were completed
    loss: float  # the mean of the last complete epoch, on held-out rows where there are some; NaN if there was none
    best: float


def row_order(n: int, seed: int, epoch: int) -> Array:
    """The order in which an epoch visits n rows; it follows from the seed and the number of the epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(n)


def train(
    model: Any,
    data: Sequence[Any],
    how: Training,
    *,
    held_out: Sequence[Any] | None = None,
    run: Run | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Trained:
    """Train a model in place, on tensors or arrays whose first dimension is the rows.

    Parameters
    ----------
    model : torch.nn.Module
        With a method `loss(*batch)`; see above. It ends up on `device`.
    data : sequence of tensors
        All with the same number of rows; a batch holds the same rows of each.
    held_out : sequence of tensors, optional
        Rows whose loss, taken after each epoch, decides about early stopping instead of the training loss.
    run : Run, optional
        A run folder: the means of each epoch are logged there, and checkpoints written. Where it holds a checkpoint of
        the same training, that is taken up: on a CPU the outcome is bit for bit that of a training that was never
        interrupted, however it was (Ctrl-C, a crash, no power).
    device : str
        "auto" takes a GPU where torch sees one.
    progress : callable, optional
        Called as progress(step, steps, loss) after each step.

    Returns
    -------
    Trained
        Where the loss or its gradient became NaN or infinite, the model is that of the last checkpoint, and a
        `NotConvergedWarning` says so.
    """
    torch = load_torch()
    where = training_device(device)
    rows, beside = _tensors(data, where, "data"), _tensors(held_out, where, "held_out") if held_out else None
    loop = _Loop(model.to(where), rows, beside, how, run, progress)
    devices = [torch.device(where)] if where != "cpu" else []
    with torch.random.fork_rng(devices=devices), patient_interrupts() as interrupted:
        torch.manual_seed(how.seed)
        loop.take_up()
        return loop.go(interrupted)


class _Loop:
    """What changes while training, and the steps that change it."""

    def __init__(
        self, model: Any, data: list[Any], held_out: list[Any] | None, how: Training, run: Run | None, progress: Any
    ) -> None:
        self.model, self.data, self.held_out, self.how, self.run, self.progress = (
            model, data, held_out, how, run, progress,
        )  # fmt: skip
        self.optimiser = _optimiser(model, how)
        self.n = len(data[0])
        self.per_epoch = math.ceil(self.n / how.batch)
        self.total = how.steps if how.steps is not None else (how.epochs or 0) * self.per_epoch
        self.step, self.best, self.stale, self.loss, self.ended = 0, math.inf, 0, math.nan, ""
        self.sums: dict[str, float] = {}  # of this epoch so far
        self.good: Checkpoint | None = None

    def take_up(self) -> None:
        """Go to where the checkpoint of the run folder says, if there is one."""
        found = read_checkpoint(self.run, self._about()) if self.run is not None else None
        if found is None:
            self.good = self._capture()
            return
        self.good = found
        self._go_back()
        if self.ended == "steps":  # there may be more of them now
            self.ended = ""
        assert self.run is not None
        self.run.rewind("step", self.step)

    def go(self, interrupted: Callable[[], bool]) -> Trained:
        while not self.ended:
            if self.step >= self.total:
                self.ended = "steps"
            elif not self._one_step():
                self._fall_back()
            elif self.step % self.per_epoch == 0:
                self._end_epoch()
            if self.ended or self.step % self.how.checkpoint_every == 0 or interrupted():
                self._keep()
            if interrupted():
                raise KeyboardInterrupt
        return Trained(self.ended, self.step, self.step // self.per_epoch, self.loss, self.best)

    def _one_step(self) -> bool:
        """Make one step; False, and nothing is changed, if the loss or its gradient is not finite."""
        import torch

        epoch, place = divmod(self.step, self.per_epoch)
        if place == 0 or not hasattr(self, "order"):
            self.order = torch.from_numpy(row_order(self.n, self.how.seed, epoch)).to(self.data[0].device)
        rows = self.order[place * self.how.batch : (place + 1) * self.how.batch]
        for group in self.optimiser.param_groups:
            group["lr"] = self.how.learning_rate * self.how.pace(self.step, self.total)
        self.model.train()
        self.optimiser.zero_grad()
        parts = _parts(self.model.loss(*(tensor[rows] for tensor in self.data)))
        parts["loss"].backward()
        limit = math.inf if self.how.clip is None else self.how.clip
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        loss = float(parts["loss"].detach())
        if not (math.isfinite(loss) and math.isfinite(float(norm))):
            return False
        self.optimiser.step()
        if hasattr(self.model, "after_step"):
            with torch.no_grad():
                self.model.after_step()
        for name, value in parts.items():
            self.sums[name] = self.sums.get(name, 0.0) + len(rows) * float(value.detach())
        self.step += 1
        if self.progress is not None:
            self.progress(self.step, self.total, loss)
        return True

    def _end_epoch(self) -> None:
        """Take the means, log them, and see whether there was an improvement."""
        means = {name: value / self.n for name, value in self.sums.items()}
        self.sums = {}
        self.loss = means["loss"]
        if self.held_out is not None:
            self.loss = means["held_out"] = self._held_out_loss()
        if self.run is not None:
            self.run.log(step=self.step, epoch=self.step // self.per_epoch, **means)
        better = self.loss < self.best - self.how.threshold
        self.stale = 0 if better else self.stale + 1
        self.best = self.loss if better else self.best
        if self.how.patience is not None and self.stale >= self.how.patience:
            self.ended = "patience"

    def _held_out_loss(self) -> float:
        import torch

        assert self.held_out is not None
        self.model.eval()
        total = 0.0
        with torch.no_grad():
            for start in range(0, len(self.held_out[0]), self.how.batch):
                chunk = [tensor[start : start + self.how.batch] for tensor in self.held_out]
                total += len(chunk[0]) * float(_parts(self.model.loss(*chunk))["loss"])
        return total / len(self.held_out[0])

    def _fall_back(self) -> None:
        """Return to the last checkpoint, because the next step cannot be made."""
        failed = self.step
        self._go_back()
        self.ended = "diverged"
        warnings.warn(
            f"the loss or its gradient was NaN or infinite at step {failed + 1}, so training stopped; the model is "
            f"that of step {self.step}, the last checkpoint; a smaller learning_rate or a clip would do",
            NotConvergedWarning,
            stacklevel=4,
        )

    def _go_back(self) -> None:
        assert self.good is not None
        restore(self.good, self.model, self.optimiser)
        for name, value in self.good.counts.items():
            setattr(self, name, value)
        self.sums = dict(self.sums)

    def _keep(self) -> None:
        self.good = self._capture()
        if self.run is not None:
            write_checkpoint(self.run, self.good)

    def _capture(self) -> Checkpoint:
        counts = {name: getattr(self, name) for name in ("step", "best", "stale", "loss", "ended", "sums")}
        return capture(self.model, self.optimiser, counts | {"sums": dict(self.sums)}, self._about())

    def _about(self) -> dict[str, Any]:
        """What a checkpoint has to agree with; how long to train only where the learning rate depends on it."""
        told = asdict(self.how)
        if not self.how.cosine:
            told.pop("epochs"), told.pop("steps")
        return told | {"data": fingerprint(self.data)}


def load_torch() -> Any:
    """Import torch, or say how to get it."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("training needs torch: pip install 'congruence[torch]'") from error
    return torch


def training_device(device: str) -> str:
    """Turn "auto" into a GPU where torch sees one, and refuse what cannot be had."""
    if device == "auto":
        return "cuda" if load_torch().cuda.is_available() else "cpu"
    return resolve_device(device)


def _optimiser(model: Any, how: Training) -> Any:
    import torch

    weights = [weight for weight in model.parameters() if weight.requires_grad]
    options = {"lr": how.learning_rate, "weight_decay": how.weight_decay}
    if how.optimiser == "sgd":
        return torch.optim.SGD(weights, momentum=0.9, **options)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[how.optimiser](weights, **options)


def _tensors(data: Sequence[Any], device: str, name: str) -> list[Any]:
    import torch

    tensors = [torch.as_tensor(one).to(device) for one in data]
    sizes = [len(one) for one in tensors]
    if not sizes or min(sizes) < 1 or min(sizes) != max(sizes):
        raise InputError(f"{name} must be tensors with as many rows as each other, but they have {sizes}")
    return tensors


def _parts(loss: Any) -> dict[str, Any]:
    if not isinstance(loss, Mapping):
        return {"loss": loss}
    if "loss" not in loss:
        raise InputError(f"a loss of several parts must name the one to minimise 'loss', but has {', '.join(loss)}")
    return dict(loss)
