"""The training loop: plain torch, and checkpoints from which a training resumes exactly.

A model is a `torch.nn.Module` with a method `loss(*batch)`, which returns a number to minimise, or a mapping of named
numbers of which "loss" is minimised and the others are logged. If it has a method `after_step()`, that is called after
each step of the optimiser (to keep weights orthogonal, for example). Random numbers of a loss must come from torch's
generator, whose state is stored in checkpoints.
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from congruence.checks import require
from congruence.errors import InputError, NotConvergedWarning, Terminated, warn_caller
from congruence.experiments.processes import HANGUP, handling
from congruence.experiments.runs import CHECKPOINT, Run
from congruence.experiments.training._checkpoints import (
    COUNTS,
    Checkpoint,
    capture,
    fingerprint,
    read_checkpoint,
    restore,
    write_checkpoint,
)
from congruence.experiments.training._step import Stepper, choose_engine
from congruence.experiments.training.settings import Trained, Training
from congruence.guards import reading
from congruence.rows.devices import GENERATORS, kernels, training_device, training_precision

_TICK = 1e-9  # seconds
Progress = Callable[[int, int, float], None]
Measure = Callable[[], dict[str, float]]
FREE = ("engine", "check_every", "checkpoint_every", "checkpoint_seconds")  # may differ when resumed


def optimise(
    model: Any,
    data: Sequence[Any] | Callable[[int], Sequence[Any]],
    how: Training,
    *,
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
        With a method `loss(*batch)`; see the module. It ends up on `device`.
    data : sequence of tensors, or callable
        Tensors with the same number of rows; a batch has the same rows of each. They are stored on `device` as they are
        (images as bytes, for example), and the model converts a batch. A callable returns the tensors of the batch of
        a step, counted from 0, always of the same shapes; it is called once for each step, in order.
    how : Training
        All settings.
    run : Run, optional
        A run folder for checkpoints and the log: the means of each epoch, or as `how.log_every` says. A checkpoint is
        written every `how.checkpoint_seconds`, at the end, and on Ctrl-C, SIGTERM and SIGHUP. One of the same training
        in the folder is resumed: on a CPU the outcome is bit for bit that of an uninterrupted training.
    device : str
        "auto" takes a GPU if torch finds one.
    measure : callable, optional
        Called with the model in evaluation mode for each line that `how.log_every` asks for; returns numbers to log.
    progress : callable, optional
        Called as progress(step, steps, loss) after each check of the loss, see `how.check_every`.
    stop : callable, optional
        Called after each step; if it returns True, the training ends as with Ctrl-C: with a checkpoint, and a
        `KeyboardInterrupt`. After SIGTERM or SIGHUP it is a `Terminated`.

    Returns
    -------
    Trained
        If the loss or its gradient became NaN or infinite, the model is that of the last checkpoint, and a
        `NotConvergedWarning` is given.
    """
    torch = require("torch", "training", "torch")
    where = training_device(device)
    how = replace(how, precision=training_precision(how.precision, where))
    draw = data if callable(data) else None
    rows = _as_tensors(data(0) if callable(data) else data, where)
    if draw is not None:
        rows = [one.clone() for one in rows]  # the buffer of the next batches
    with (
        GENERATORS,
        torch.random.fork_rng(devices=[torch.device(where)] if where != "cpu" else []),
        kernels(where, deterministic=how.deterministic),
        torch.autocast(torch.device(where).type, enabled=False),  # of the caller
        _hold_signals() as held,
    ):
        loop = _Loop(model.to(where), rows, draw, how, run, measure, progress)

        def asked() -> bool:
            if not held and stop is not None and stop():
                held.append(signal.SIGINT)
            return bool(held)

        torch.manual_seed(how.seed)
        loop.resume()
        try:
            return loop.run_steps(asked)
        except KeyboardInterrupt:
            for number in held:
                if number != signal.SIGINT:
                    raise Terminated(number) from None
            raise


class _Loop:
    """The state of a training, and the steps that change it."""

    def __init__(
        self,
        model: Any,
        data: list[Any],
        draw: Callable[[int], Sequence[Any]] | None,
        how: Training,
        run: Run | None,
        measure: Measure | None,
        progress: Progress | None,
    ) -> None:
        self.model, self.data, self.draw, self.how = model, data, draw, how
        self.folder, self.measure, self.progress = run, measure, progress
        self.n = len(data[0])
        self.per_epoch = math.ceil(self.n / how.batch)
        self.total = how.steps if how.steps is not None else (how.epochs or 0) * self.per_epoch
        if draw is not None:  # all drawn batches are one epoch
            self.n, self.per_epoch = self.total * how.batch, self.total
        engine = choose_engine(how, str(data[0].device), self.total)
        self.stepper = Stepper(model, data, how, engine, drawn=draw is not None)
        self.step, self.loss, self.ended = 0, math.nan, ""
        self.seconds = 0.0  # of all steps
        self.line, self.line_seconds = 0, 0.0  # the step of the last line of the log, and the seconds up to it
        self.checked, self.begun = 0, False
        self.about = self._describe()
        self.good: Checkpoint | None = None

    def resume(self) -> None:
        """Restore the checkpoint of the run folder, if there is one."""
        checkpoint = read_checkpoint(self.folder, self.about) if self.folder is not None else None
        self.good = checkpoint or self._capture()
        if checkpoint is not None and self.folder is not None:
            with reading(self.folder.folder / CHECKPOINT, "a checkpoint"):
                self._restore()
                if not self.stepper.are_weights_finite():
                    raise InputError("its weights are NaN or infinite")
            if self.ended == "steps":  # there may be more of them now
                self.ended = ""
        if self.folder is not None and (checkpoint is not None or self.folder.metrics()):
            self.folder.rewind("step", self.step)  # lines after the checkpoint are logged again

    def run_steps(self, interrupted: Callable[[], bool]) -> Trained:
        self.model.train()
        self.since = self.stored = time.perf_counter()
        while not self.ended:
            due = time.perf_counter() - self.stored >= self.how.checkpoint_seconds and self.folder is not None
            if self.step >= self.total:
                self.ended = "steps"
            elif not self._make_step() or not self._check(due or interrupted()):
                self._fall_back()
            elif self._ends_line():
                self._end_line()
            stopped = interrupted()
            if stopped and not self.ended and not self.stepper.is_sound(weights=True):  # interrupted since
                self._fall_back()
            if self.ended or due or stopped or self.step % self.how.checkpoint_every == 0:
                self._keep(store=bool(self.ended) or due or stopped)
            if stopped:
                raise KeyboardInterrupt
        return Trained(self.ended, self.step, self.step // self.per_epoch, self.loss)

    def _make_step(self) -> bool:
        """Make one step; False, with nothing changed, if a careful step was not finite."""
        import torch

        epoch, place = divmod(self.step, self.per_epoch)
        if self.draw is not None:
            if self.step:  # the first batch was drawn at the start
                for tensor, new in zip(self.data, self.draw(self.step), strict=True):
                    tensor.copy_(torch.as_tensor(new))
        elif place == 0 or not self.begun:
            self.stepper.begin(self.how.row_order(self.n, epoch), place)
            self.begun = True
        if not self.stepper.step(place, self.how.learning_rate * self.how.pace(self.step, self.total)):
            return False
        self.step += 1
        return True

    def _check(self, stored: bool) -> bool:
        """Check the losses if that is due, and the weights if a checkpoint may follow; False if not all are finite."""
        kept = self.step % self.how.checkpoint_every == 0 or self.step == self.total or stored or self._ends_line()
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
        """Compute the means since the last line, and log them."""
        self._clock()
        count = self._rows_until(self.step) - self._rows_until(self.line)
        speed = {"seconds": self.seconds, "images_per_second": count / max(self.seconds - self.line_seconds, _TICK)}
        means = {name: value / count for name, value in self.stepper.sums.items()}
        self.stepper.sums = {}
        self.line, self.line_seconds = self.step, self.seconds
        self.loss = means["loss"]
        if self.how.log_every is not None:
            means |= speed
            if self.measure is not None:
                with self._evaluating():
                    means |= self.measure()
        if self.folder is not None:
            self.folder.log(step=self.step, epoch=self.step // self.per_epoch, **means)
        self.since = time.perf_counter()  # logging is not timed

    def _rows_until(self, step: int) -> int:
        """The rows seen up to a step; the last batch of each epoch may be smaller."""
        epoch, place = divmod(step, self.per_epoch)
        return epoch * self.n + place * self.how.batch

    def _clock(self) -> None:
        now = time.perf_counter()
        self.seconds += now - self.since
        self.since = now

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Evaluation mode; random numbers that are drawn inside do not change those of later steps."""
        import torch

        device = self.data[0].device
        self.model.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
        self.model.train()

    def _fall_back(self) -> None:
        """Return to the last checkpoint, because a step was not finite."""
        if self.stepper.careful:
            when = f"at step {self.step + 1}"
        else:
            when = f"between steps {self.checked + 1} and {self.step}"
        self._restore()
        self.ended = "diverged"
        warn_caller(
            f"the loss or its gradient was NaN or infinite {when}, so training stopped; the model is that of step "
            f"{self.step}, the last checkpoint; use a smaller learning_rate, or clip",
            NotConvergedWarning,
        )

    def _restore(self) -> None:
        assert self.good is not None
        restore(self.good, self.model, self.stepper.optimiser)
        counts = dict(self.good.counts)
        self.stepper.sums = counts.pop("sums")
        for name, value in counts.items():
            setattr(self, name, value)
        self.checked = self.step

    def _keep(self, *, store: bool) -> None:
        """Copy the state and, if requested, write it to the run folder."""
        self._clock()
        self.good = self._capture()
        if store and self.folder is not None:
            write_checkpoint(self.folder, self.good)
            self.stored = time.perf_counter()
        self.since = time.perf_counter()

    def _capture(self) -> Checkpoint:
        counts = {name: getattr(self, name) for name in COUNTS} | {"sums": self.stepper.sums}
        return capture(self.model, self.stepper.optimiser, counts, self.about)

    def _describe(self) -> dict[str, Any]:
        """The settings that a checkpoint must agree with; the length only if the learning rate depends on it."""
        settings = {name: value for name, value in asdict(self.how).items() if name not in FREE}
        if not self.how.cosine:
            settings.pop("epochs"), settings.pop("steps")
        return settings | {"data": fingerprint(self.data)}


@contextlib.contextmanager
def _hold_signals() -> Iterator[list[int]]:
    """Hold back the first Ctrl-C, SIGTERM or SIGHUP, and yield a list of those that came.

    A second one interrupts at once, except SIGHUP, which the system and the shell send both.
    """
    held: list[int] = []

    def note(number: int, frame: Any) -> None:
        held.append(number)
        if len(held) > 1 and number != HANGUP:
            raise KeyboardInterrupt

    with handling(note, signal.SIGINT, signal.SIGTERM, HANGUP):
        yield held


def _as_tensors(data: Sequence[Any], device: str) -> list[Any]:
    import torch

    tensors = [torch.as_tensor(one).to(device) for one in data]
    sizes = [len(one) for one in tensors]
    if not sizes or min(sizes) < 1 or min(sizes) != max(sizes):
        raise InputError(f"data must be tensors with the same number of rows; got {sizes}")
    return tensors
