"""Schedule trainings that differ in their seed: one after another, in processes, or on a dask cluster."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from congruence.errors import CongruenceError, CongruenceWarning, InputError

if TYPE_CHECKING:
    from congruence.experiments.training.training import Moment

Tell = Callable[[str, "Moment"], None]  # receives the name of a run, and its state
Done = Callable[["Ended"], None]
PATIENCE = 0.2  # seconds between checks of silent processes
ASKED = 2.0  # seconds between a worker's checks whether to stop


@dataclass(frozen=True)
class Plan:
    """Everything that defines one training, as plain values that can be sent to another process."""

    folder: Path
    model: dict[str, Any]  # the config of the model
    data: dict[str, Any]  # what `load_data` takes
    settings: dict[str, Any]  # what `train_model` takes
    threads: int | None = None  # of torch on a CPU; None leaves them unchanged

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return self.folder.name


@dataclass(frozen=True)
class Ended:
    """One training that ended: whether it was interrupted or refused, and its warnings."""

    name: str
    interrupted: bool = False
    error: str = ""
    warned: tuple[tuple[type[Warning], str], ...] = ()


def train_here(plans: Sequence[Plan], tell: Tell, done: Done, stop: Callable[[], bool] | None = None) -> None:
    """Train one after another; data is loaded once. The result of a training does not depend on the others."""
    from congruence.experiments.data.registry import load_data

    loaded: dict[str, Any] = {}
    for plan in plans:
        key = repr(plan.data)
        if key not in loaded:
            loaded = {key: load_data(**plan.data)}
        done(_one(plan, loaded[key], tell, stop))


def train_in_processes(plans: Sequence[Plan], tell: Tell, done: Done, jobs: int) -> None:
    """Train in `jobs` processes; Ctrl-C reaches them through this one, so that each writes a checkpoint."""
    import multiprocessing

    spawn = multiprocessing.get_context("spawn")
    said, ending = spawn.Queue(), spawn.Event()
    shares = [plans[i::jobs] for i in range(min(jobs, len(plans)))]
    workers = [spawn.Process(target=_work, args=(share, said, ending), daemon=True) for share in shares]
    with _ignoring_interrupts():
        for worker in workers:
            worker.start()
    try:
        _listen(workers, said, tell, done)
    except BaseException:
        ending.set()
        _listen(workers, said, lambda name, moment: None, lambda ended: None)  # until each has its checkpoint
        raise
    finally:
        for worker in workers:
            worker.join()
    broken = [worker.exitcode for worker in workers if worker.exitcode]
    if broken:
        raise InputError(f"a process that trains died with exit code {broken[0]}; the same call resumes")


def _listen(workers: Sequence[Any], said: Any, tell: Tell, done: Done) -> None:
    """Forward the messages of the processes until all have ended and none is left."""
    while True:
        ended = all(worker.exitcode is not None for worker in workers)  # asked before the last look
        try:
            kind, *what = said.get(timeout=PATIENCE)
        except queue.Empty:
            if ended:
                return
            continue
        (tell if kind == "moment" else done)(*what)


def train_on_cluster(plans: Sequence[Plan], done: Done, client: Any) -> None:
    """Train on the workers of a dask client; run folders are on a shared file system."""
    import distributed

    ending = distributed.Event(f"congruence-{os.getpid()}-{time.time_ns()}", client=client)
    futures = [client.submit(_on_worker, plan, ending.name, key=f"{plan.name}-{ending.name}") for plan in plans]
    try:
        for future in distributed.as_completed(futures):
            done(future.result())
    except BaseException:
        ending.set()
        distributed.wait(futures)  # until each has its checkpoint
        raise


def _one(plan: Plan, data: Any, tell: Tell, stop: Callable[[], bool] | None) -> Ended:
    from congruence.experiments.models.catalogue import build_model
    from congruence.experiments.training.training import train_model

    with warnings.catch_warnings(record=True) as caught, _threads(plan.threads):
        warnings.simplefilter("always", CongruenceWarning)
        train_model(
            build_model(plan.model),
            data,
            **plan.settings,
            out=plan.folder,
            progress=lambda moment: tell(plan.name, moment),
            stop=stop,
        )
    warned = [(one.category, str(one.message)) for one in caught if issubclass(one.category, CongruenceWarning)]
    return Ended(plan.name, warned=tuple(dict.fromkeys(warned)))


def _work(plans: Sequence[Plan], said: Any, ending: Any) -> None:
    """The main function of a process of `train_in_processes`."""
    from multiprocessing import parent_process

    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C goes to the parent process alone, which sets `ending`
    parent = parent_process()

    def stop() -> bool:
        return bool(ending.is_set()) or (parent is not None and not parent.is_alive())

    for plan in plans:
        said.put(("done", _guarded(plan, lambda name, moment: said.put(("moment", name, moment)), stop)))
    said.close()
    said.join_thread()


def _on_worker(plan: Plan, ending: str) -> Ended:
    """One training in a thread of a dask worker, which receives no signal and must not be interrupted itself."""
    import distributed

    event, looked = distributed.Event(ending), [time.monotonic(), False]

    def stop() -> bool:
        if time.monotonic() - looked[0] > ASKED:
            looked[:] = [time.monotonic(), event.is_set()]
        return bool(looked[1])

    return _guarded(plan, lambda name, moment: None, stop)


def _guarded(plan: Plan, tell: Tell, stop: Callable[[], bool]) -> Ended:
    """One training elsewhere: interruption and refusal become values."""
    found: list[Ended] = []
    try:
        if stop():
            raise KeyboardInterrupt
        train_here([plan], tell, found.append, stop)
    except KeyboardInterrupt:
        return Ended(plan.name, interrupted=True)
    except CongruenceError as error:
        return Ended(plan.name, error=str(error))
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
def _ignoring_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C while they import; signals belong to the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
