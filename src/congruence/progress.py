"""Progress of long computations: counted in steps, reported to a callback, and shown with the time that remains."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from congruence.errors import printable

Progress = Callable[[str, int, int], None]  # last step, steps done, total steps
WAIT = 2.0  # seconds before anything is shown
FEWEST = 3  # durations measured before a time is shown, two of them of one kind
RECENT = 64  # latest durations from which the cost of a kind of step is estimated


def no_progress(what: str, done: int, total: int) -> None:
    """Report nothing; unlike a lambda it can go to another process."""


class Steps:
    """Counts steps and passes them to the caller's progress function, if any; workers may call it too.

    `total` is a number, or the number of steps of each kind by the text with which they begin. With kinds, the
    remaining time allows for their different costs (`RemainingTime.expect`).
    """

    def __init__(self, progress: Progress | None, total: int | Mapping[str, int]) -> None:
        plan = total if isinstance(total, Mapping) else {}
        self.progress, self.done = progress, 0
        self.total = sum(plan.values()) if isinstance(total, Mapping) else total
        expect = getattr(progress, "expect", None)
        if expect is not None:
            expect(plan, self.total)

    def __call__(self, what: str, by: int = 1) -> None:
        """Report `by` more steps as done, and what they were."""
        self.done += by
        if self.progress is not None:
            self.progress(what, min(self.done, self.total), self.total)


class RemainingTime:
    """Estimates the time that remains from the measured durations of steps; itself a progress function.

    A step costs the mean of the recent durations of its kind, the longest of them counted as the second longest, so
    that one stall does not matter. Kinds are the expected ones, otherwise the names of steps without their numbers.
    Where no kinds are expected, the remaining steps are taken to be of the kinds of the recent ones.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.lock = clock, threading.RLock()  # the display reads while workers report
        self.expect({}, 0)

    def expect(self, plan: Mapping[str, int], total: int) -> None:
        """Begin a new count now, with so many steps of each kind; a kind is the text with which its steps begin."""
        with self.lock:
            self.plan, self.done, self.total, self.at = dict(plan), 0, total, self.clock()
            self.counted: Counter[str] = Counter()
            self.durations: dict[str, deque[tuple[float, int]]] = defaultdict(lambda: deque(maxlen=RECENT))
            self.recent: deque[tuple[str, int]] = deque(maxlen=RECENT)

    def __call__(self, what: str, done: int, total: int) -> None:
        """Record that `done` of `total` steps are done, the last of which is `what`."""
        with self.lock:
            kind, by, now = self._kind(what), done - self.done, self.clock()
            if by < 0 or total != self.total:  # an unexpected count; what is done already took an unknown time
                self.expect({}, total)
                self.done = done
            elif by:
                self.durations[kind].append(((now - self.at) / by, by))
                self.recent.append((kind, by))
                self.counted[kind] += by
                self.done, self.at = done, now

    def _kind(self, what: str) -> str:
        expected = [kind for kind in self.plan if what.startswith(kind)]
        return max(expected, key=len) if expected else re.sub(r"\d[\d.]*", "#", what)

    def _cost(self, kind: str) -> float:
        """Seconds for a step of this kind."""
        durations = sorted(self.durations[kind])
        if len(durations) > 1:
            durations[-1] = (durations[-2][0], durations[-1][1])
        return sum(seconds * by for seconds, by in durations) / sum(by for _, by in durations)

    def estimate(self) -> tuple[float, float, bool] | None:
        """Seconds per step, seconds that remain, and whether only more can be: some kinds were not measured yet.

        None before enough was measured.
        """
        with self.lock:
            if len(self.recent) < FEWEST or all(len(durations) < 2 for durations in self.durations.values()):
                return None
            left = self._left()
            known = {kind: n for kind, n in left.items() if self.durations[kind]}
            if not known:
                return None
            seconds, steps = sum(n * self._cost(kind) for kind, n in known.items()), sum(known.values())
            cost = seconds / steps if steps else self._cost(self.recent[-1][0])
            begun = min(self.clock() - self.at, cost)  # a step that takes longer than expected shortens no other
            return cost, max(seconds - begun, 0.0), len(known) < len(left)

    def _left(self) -> dict[str, float]:
        """The number of steps of each kind that remain."""
        if self.plan:
            return {kind: n - self.counted[kind] for kind, n in self.plan.items() if n > self.counted[kind]}
        share = (self.total - self.done) / sum(by for _, by in self.recent)
        return {kind: share * sum(by for one, by in self.recent if one == kind) for kind, _ in self.recent}

    def __str__(self) -> str:
        """The rate and the time that remains, such as "2.5 steps/s, 0:00:40 left"; empty where neither is known."""
        estimated = self.estimate()
        if estimated is None or self.done >= self.total:
            return ""
        cost, left, more = estimated
        rate = f"{cost:.1f} s/step" if cost >= 1 else f"{1 / max(cost, 1e-9):,.{1 if cost > 0.02 else 0}f} steps/s"
        if more and left < 1:
            return rate
        return f"{rate}, {'more than ' * more}{timedelta(seconds=round(left))} left"


@contextlib.contextmanager
def show_progress(quiet: bool = False) -> Iterator[Progress]:
    """Yield progress(what, done, total), drawn on a terminal as a bar with the rate and the time that remains.

    Nothing is drawn in the first two seconds, if `quiet`, or if stderr is neither a terminal nor that of a notebook
    with ipywidgets. At the end, also after Ctrl-C, the bar is removed.

    >>> import numpy as np
    >>> from congruence import compare
    >>> x = np.random.default_rng(0).laplace(size=(100, 2))
    >>> with show_progress() as progress:
    ...     result = compare(x, x[:, ::-1], progress=progress)

    Parameters
    ----------
    quiet : bool
        Draw nothing.
    """
    if quiet or not (_is_terminal() or _has_widgets()):
        yield lambda what, done, total: None
        return
    shown = _Bar()
    late = threading.Timer(WAIT, shown.bar.start)
    late.daemon = True
    late.start()
    try:
        yield shown
    finally:
        late.cancel()
        late.join()
        if shown.bar.live.is_started:  # otherwise rich prints an empty line
            shown.bar.stop()


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _has_widgets() -> bool:
    """Whether this is a notebook in which rich can draw."""
    return "ipykernel" in sys.modules and find_spec("ipywidgets") is not None


class _Bar:
    """A progress function that updates a bar of one line."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.text import Text

        remaining = self.remaining = RemainingTime()

        class Times(ProgressColumn):  # rich stops the time when all steps are done, though more may follow
            def render(self, task: Any) -> Text:
                return Text(f"{timedelta(seconds=int(task.elapsed or 0))} {remaining}")

        names = TextColumn("{task.description}", markup=False)  # a file name may hold brackets
        self.bar = RichProgress(
            names, BarColumn(), MofNCompleteColumn(), Times(), console=Console(stderr=True), transient=True
        )
        self.task = self.bar.add_task("reading", total=None)
        self.expect = self.remaining.expect

    def __call__(self, what: str, done: int, total: int) -> None:
        self.remaining(what, done, total)
        self.bar.update(self.task, description=printable(what), completed=done, total=total)
