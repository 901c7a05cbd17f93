"""The one training loop: plain torch, early stopping, and checkpoints from which a training goes on exactly.

A model is a `torch.nn.Module` with a method `loss(*batch)`, which gives a number to be minimised, or a mapping of
named numbers of which "loss" is minimised and the others are logged. Where it has a method `after_step()`, that is
called after each step of the optimiser (to keep weights orthogonal, say). Whatever is random in a loss is to be drawn
from torch's own generator, whose state is kept in checkpoints.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.errors import InputError, NotConvergedWarning
from congruence.experiments.runs import Run
from congruence.experiments.training.checkpoints import (
    Checkpoint,
    capture,
    fingerprint,
    read_checkpoint,
    restore,
    write_checkpoint,
)
from congruence.experiments.training.interrupts import patient_interrupts
from congruence.experiments.training.settings import Trained, Training
from congruence.experiments.training.stepping import Stepper, loss_parts, training_engine
from congruence.rows.devices import GENERATORS, kernels, load_torch, training_device, training_precision

Progress = Callable[[int, int, float], None]
Measure = Callable[[], dict[str, float]]
COUNTS = ("step", "best", "stale", "loss", "ended", "line", "line_seconds", "seconds")  # that a checkpoint keeps
FREE = ("engine", "check_every", "checkpoint_every")  # settings that another part of the same training may change


def row_order(n: int, seed: int, epoch: int) -> Array:
    """The order in which an epoch visits n rows; it follows from the seed and the number of the epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(n)


def optimise(
    model: Any,
    data: Sequence[Any],
    how: Training,
    *,
    held_out: Sequence[Any] | None = None,
    run: Run | None = None,
    device: str = "auto",
    measure: Measure | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trained:
    """Train a model in place, on tensors or arrays whose first dimension is the rows.

    Parameters
    ----------
    model : torch.nn.Module
        With a method `loss(*batch)`; see above. It ends up on `device`.
    data : sequence of tensors
        All with the same number of rows; a batch holds the same rows of each. They stay on `device` as they are
        (images as bytes, say), and the model makes numbers of a batch.
    held_out : sequence of tensors, optional
        Rows whose loss, taken with each line of the log, decides about early stopping instead of the training loss.
    run : Run, optional
        A run folder: the means of each epoch, or of what `how.log_every` says, are logged there, and checkpoints
        written. Where it holds a checkpoint of the same training, that is taken up: on a CPU the outcome is bit for
        bit that of a training that was never interrupted, however it was (Ctrl-C, a crash, no power).
    device : str
        "auto" takes a GPU where torch sees one.
    measure : callable, optional
        Called with the model in evaluation mode at each line that `how.log_every` asks for; gives more numbers to log.
    progress : callable, optional
        Called as progress(step, steps, loss) each time that the loss is looked at, see `how.check_every`.
    stop : callable, optional
        Asked after each step; where it says True, the training ends as if by Ctrl-C: with a checkpoint, and a
        `KeyboardInterrupt`.

    Returns
    -------
    Trained
        Where the loss or its gradient became NaN or infinite, the model is that of the last checkpoint, and a
        `NotConvergedWarning` says so.
    """
    torch = load_torch()
    where = training_device(device)
    how = replace(how, precision=training_precision(how.precision, where))
    rows, beside = _tensors(data, where, "data"), _tensors(held_out, where, "held_out") if held_out else None
    devices = [torch.device(where)] if where != "cpu" else []
    with (
        GENERATORS,
        torch.random.fork_rng(devices=devices),
        kernels(where, deterministic=how.deterministic),
        patient_interrupts() as pressed,
    ):
        loop = _Loop(model.to(where), rows, beside, how, run, measure, progress)
        torch.manual_seed(how.seed)
        loop.take_up()
        return loop.go(_lasting(pressed, stop))


class _Loop:
    """What changes while training, and the steps that change it."""

    def __init__(
        self,
        model: Any,
        data: list[Any],
        held_out: list[Any] | None,
        how: Training,
        run: Run | None,
        measure: Measure | None,
        progress: Progress | None,
    ) -> None:
        self.model, self.data, self.held_out, self.how = model, data, held_out, how
        self.run, self.measure, self.progress = run, measure, progress
        self.n = len(data[0])
        self.per_epoch = math.ceil(self.n / how.batch)
        self.total = how.steps if how.steps is not None else (how.epochs or 0) * self.per_epoch
        self.stepper = Stepper(model, data, how, training_engine(how, str(data[0].device), self.total))
        self.step, self.best, self.stale, self.loss, self.ended = 0, math.inf, 0, math.nan, ""
        self.seconds = 0.0  # that all steps took
        self.line, self.line_seconds = 0, 0.0  # the step of the last line of the log, and the seconds up to it
        self.checked, self.begun = 0, False
        self.about = self._about()
        self.good: Checkpoint | None = None

    def take_up(self) -> None:
        """Go to where the checkpoint of the run folder says, if there is one."""
        found = read_checkpoint(self.run, self.about) if self.run is not None else None
        if found is None:
            self.good = self._capture()
            if self.run is not None and self.run.metrics():  # of a training that was killed before its first checkpoint
                self.run.rewind("step", self.step)
            return
        self.good = found
        self._go_back()
        if self.ended == "steps":  # there may be more of them now
            self.ended = ""
        assert self.run is not None
        self.run.rewind("step", self.step)

    def go(self, interrupted: Callable[[], bool]) -> Trained:
        self.model.train()
        self.since = time.perf_counter()
        while not self.ended:
            if self.step >= self.total:
                self.ended = "steps"
            elif not self._one_step() or not self._looks_sound(interrupted()):
                self._fall_back()
            elif self._ends_line():
                self._end_line()
            stopped = interrupted()
            if stopped and not self.ended and not self.stepper.is_sound(weights=True):  # it may have come since
                self._fall_back()
            if self.ended or self.step % self.how.checkpoint_every == 0 or stopped:
                self._keep()
            if stopped:
                raise KeyboardInterrupt
        return Trained(self.ended, self.step, self.step // self.per_epoch, self.loss, self.best)

    def _one_step(self) -> bool:
        """Make one step; False, and nothing is changed, if it was found that it cannot be made."""
        epoch, place = divmod(self.step, self.per_epoch)
        if place == 0 or not self.begun:
            self.stepper.begin(row_order(self.n, self.how.seed, epoch), place)
            self.begun = True
        rate = self.how.learning_rate * self.how.pace(self.step, self.total)
        if not self.stepper.step(place, rate):
            return False
        self.step += 1
        return True

    def _looks_sound(self, stopped: bool) -> bool:
        """Look at the losses where that is due, and at the weights where a checkpoint may be: none is unsound."""
        kept = self.step % self.how.checkpoint_every == 0 or self.step == self.total or stopped or self._ends_line()
        if not kept and self.step % self.how.check_every:
            return True
        if not self.stepper.is_sound(weights=kept):
            return False
        self.checked = self.step
        if self.progress is not None:
            self.progress(self.step, self.total, self.stepper.last)
        return True

    def _ends_line(self) -> bool:
        if self.how.log_every is None:
            return self.step % self.per_epoch == 0
        return self.how.is_logged(self.step, self.total)

    def _end_line(self) -> None:
        """Take the means since the last line, log them, and see whether there was an improvement."""
        self._clock()
        count = self._rows_since(self.line)
        speed = {"seconds": self.seconds, "images_per_second": count / (self.seconds - self.line_seconds)}
        means = {name: value / count for name, value in self.stepper.sums.items()}
        self.stepper.sums = {}
        self.line, self.line_seconds = self.step, self.seconds
        self.loss = means["loss"]
        if self.held_out is not None:
            self.loss = means["held_out"] = self._held_out_loss()
        if self.how.log_every is not None:
            means |= speed | self._measured()
        if self.run is not None:
            self.run.log(step=self.step, epoch=self.step // self.per_epoch, **means)
        better = self.loss < self.best - self.how.threshold
        self.stale = 0 if better else self.stale + 1
        self.best = self.loss if better else self.best
        if self.how.patience is not None and self.stale >= self.how.patience:
            self.ended = "patience"
        self.since = time.perf_counter()  # what was logged is not timed

    def _rows_since(self, step: int) -> int:
        """The rows that were seen since a step; the last batch of each epoch may have fewer than the others."""
        epochs = [divmod(one, self.per_epoch) for one in (step, self.step)]
        first, last = (epoch * self.n + place * self.how.batch for epoch, place in epochs)
        return last - first

    def _clock(self) -> None:
        """Add the time since it was last looked at."""
        now = time.perf_counter()
        self.seconds += now - self.since
        self.since = now

    def _measured(self) -> dict[str, float]:
        import torch

        if self.measure is None:
            return {}
        self.model.eval()
        with torch.no_grad():
            found = self.measure()
        self.model.train()
        return found

    def _held_out_loss(self) -> float:
        import torch

        assert self.held_out is not None
        self.model.eval()
        total = 0.0
        with torch.no_grad():
            for start in range(0, len(self.held_out[0]), self.how.batch):
                chunk = [tensor[start : start + self.how.batch] for tensor in self.held_out]
                total += len(chunk[0]) * float(loss_parts(self.model.loss(*chunk))["loss"])
        self.model.train()
        return total / len(self.held_out[0])

    def _fall_back(self) -> None:
        """Return to the last checkpoint, because a step cannot be made or was not sound."""
        if self.stepper.careful:
            when = f"at step {self.step + 1}"
        else:
            when = f"between steps {self.checked + 1} and {self.step}"
        self._go_back()
        self.ended = "diverged"
        warnings.warn(
            f"the loss or its gradient was NaN or infinite {when}, so training stopped; the model is "
            f"that of step {self.step}, the last checkpoint; a smaller learning_rate or a clip would do",
            NotConvergedWarning,
            stacklevel=4,
        )

    def _go_back(self) -> None:
        assert self.good is not None
        restore(self.good, self.model, self.stepper.optimiser)
        counts = dict(self.good.counts)
        self.stepper.sums = counts.pop("sums")
        for name, value in counts.items():
            setattr(self, name, value)
        self.checked = self.step

    def _keep(self) -> None:
        self._clock()
        self.good = self._capture()
        if self.run is not None:
            write_checkpoint(self.run, self.good)
        self.since = time.perf_counter()

    def _capture(self) -> Checkpoint:
        counts = {name: getattr(self, name) for name in COUNTS} | {"sums": self.stepper.sums}
        return capture(self.model, self.stepper.optimiser, counts, self.about)

    def _about(self) -> dict[str, Any]:
        """What a checkpoint has to agree with; how long to train only where the learning rate depends on it."""
        told = {name: value for name, value in asdict(self.how).items() if name not in FREE}
        if not self.how.cosine:
            told.pop("epochs"), told.pop("steps")
        return told | {"data": fingerprint(self.data)}


def _lasting(*questions: Callable[[], bool] | None) -> Callable[[], bool]:
    """Whether any of the questions has ever been answered with yes."""
    said = False

    def ask() -> bool:
        nonlocal said
        said = said or any(question() for question in questions if question is not None)
        return said

    return ask


def _tensors(data: Sequence[Any], device: str, name: str) -> list[Any]:
    import torch

    tensors = [torch.as_tensor(one).to(device) for one in data]
    sizes = [len(one) for one in tensors]
    if not sizes or min(sizes) < 1 or min(sizes) != max(sizes):
        raise InputError(f"{name} must be tensors with as many rows as each other, but they have {sizes}")
    return tensors
