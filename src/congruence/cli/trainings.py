"""Several trainings that differ in their seed: one after the other, in processes of their own, or on a dask cluster."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from congruence.errors import CongruenceError, CongruenceWarning, InputError

if TYPE_CHECKING:
    from congruence.models.training import Moment

Tell = Callable[[str, "Moment"], None]  # the name of a run, and where it is
Done = Callable[["Told"], None]
PATIENCE = 0.2  # seconds between looks at processes that say nothing
ASKED = 2.0  # seconds between a worker's looks at whether it is to stop


@dataclass(frozen=True)
class Plan:
    """All that one training is made from, as plain values that go to another process."""

    folder: Path
    model: dict[str, Any]  # the config of the model
    data: dict[str, Any]  # what `load_data` takes
    settings: dict[str, Any]  # what `train` takes
    threads: int | None = None  # of torch on a CPU; None leaves it alone

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return self.folder.name


@dataclass(frozen=True)
class Told:
    """How one training ended: "steps", "diverged", "interrupted", or with an error."""

    name: str
    ended: str
    folder: Path
    steps: int = 0
    loss: float = float("nan")
    psnr: float = float("nan")
    seconds: float = float("nan")  # that the steps took
    error: str = ""
    notes: tuple[str, ...] = field(default=())


def train_here(plans: Sequence[Plan], tell: Tell, done: Done, stop: Callable[[], bool] | None = None) -> None:
    """Train one after the other; data is read or drawn once. What comes out does not depend on the others."""
    from congruence.data.registry import load_data

    loaded: dict[str, Any] = {}
    for plan in plans:
        key = repr(plan.data)
        if key not in loaded:
            loaded = {key: load_data(**plan.data)}
        done(_one(plan, loaded[key], tell, stop))


def train_in_processes(plans: Sequence[Plan], tell: Tell, done: Done, jobs: int) -> None:
    """Train in `jobs` processes; Ctrl-C reaches them through this one, so that each keeps a checkpoint."""
    import multiprocessing

    spawn = multiprocessing.get_context("spawn")
    said, ending = spawn.Queue(), spawn.Event()
    shares = [plans[i::jobs] for i in range(min(jobs, len(plans)))]
    workers = [spawn.Process(target=_work, args=(share, said, ending), daemon=True) for share in shares]
    with _deaf_to_interrupts():
        for worker in workers:
            worker.start()
    try:
        _listen(workers, said, tell, done)
    except BaseException:
        ending.set()
        _listen(workers, said, lambda name, moment: None, lambda told: None)  # until each has kept its checkpoint
        raise
    finally:
        for worker in workers:
            worker.join()
    broken = [worker.exitcode for worker in workers if worker.exitcode]
    if broken:
        raise InputError(f"a process of --jobs died with exit code {broken[0]}; the same command goes on")


def _listen(workers: Sequence[Any], said: Any, tell: Tell, done: Done) -> None:
    """Pass on what the processes say until all have ended and nothing is left to hear."""
    while True:
        ended = all(worker.exitcode is not None for worker in workers)  # asked before the last look
        try:
            kind, *what = said.get(timeout=PATIENCE)
        except queue.Empty:
            if ended:
                return
            continue
        (tell if kind == "moment" else done)(*what)


def train_on_cluster(plans: Sequence[Plan], tell: Tell, done: Done) -> None:
    """Train on the workers of the dask client at hand; run folders are on a file system that they share with us."""
    import distributed

    client = distributed.get_client()
    ending = distributed.Event(f"congruence-{os.getpid()}-{time.time_ns()}")
    futures = [client.submit(_on_worker, plan, ending.name, key=f"{plan.name}-{ending.name}") for plan in plans]
    try:
        for future in distributed.as_completed(futures):
            done(future.result())
    except BaseException:
        ending.set()
        distributed.wait(futures)  # until each has kept its checkpoint
        raise


def _one(plan: Plan, data: Any, tell: Tell, stop: Callable[[], bool] | None) -> Told:
    from congruence.models.catalogue import build_model
    from congruence.models.training import train

    with warnings.catch_warnings(record=True) as caught, _threads(plan.threads):
        warnings.simplefilter("always", CongruenceWarning)
        run = train(
            build_model(plan.model),
            data,
            **plan.settings,
            out=plan.folder,
            progress=lambda moment: tell(plan.name, moment),
            stop=stop,
        )
    notes = tuple(dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, CongruenceWarning)))
    last = ([line for line in run.metrics() if line.get("seconds") is not None] or [{}])[-1]
    done, nan = run.outcome, float("nan")
    psnr, seconds = last.get("psnr", nan), last.get("seconds", nan)
    return Told(plan.name, done.ended, plan.folder, done.steps, done.loss, psnr, seconds, notes=notes)


def _work(plans: Sequence[Plan], said: Any, ending: Any) -> None:
    """What a process of `train_in_processes` does."""
    from multiprocessing import parent_process

    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C goes to the first process alone, which then says so here
    parent = parent_process()

    def stop() -> bool:
        return bool(ending.is_set()) or (parent is not None and not parent.is_alive())

    for plan in plans:
        said.put(("done", _guarded(plan, lambda name, moment: said.put(("moment", name, moment)), stop)))
    said.close()
    said.join_thread()


def _on_worker(plan: Plan, ending: str) -> Told:
    """One training in a thread of a dask worker, where no signal comes and an interrupt would end the worker."""
    import distributed

    event, looked = distributed.Event(ending), [time.monotonic(), False]

    def stop() -> bool:
        if time.monotonic() - looked[0] > ASKED:
            looked[:] = [time.monotonic(), event.is_set()]
        return bool(looked[1])

    return _guarded(plan, lambda name, moment: None, stop)


def _guarded(plan: Plan, tell: Tell, stop: Callable[[], bool]) -> Told:
    """One training elsewhere: how it ended is told, whatever it was that ended it."""
    found: list[Told] = []
    try:
        if stop():
            raise KeyboardInterrupt
        train_here([plan], tell, found.append, stop)
    except KeyboardInterrupt:
        return Told(plan.name, "interrupted", plan.folder)
    except CongruenceError as error:
        return Told(plan.name, "error", plan.folder, error=str(error))
    return found[0]


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let processes that are started here begin without an ear for Ctrl-C: importing takes them a second."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
