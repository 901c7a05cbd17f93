"""Run tasks in worker processes that stop together: the process pool of trainings and recipes.

Ctrl-C does not reach the workers. The main process asks them to stop, and a training, which calls `stop_requested`
after each step, then writes a checkpoint. joblib would kill the workers instead.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from congruence.errors import InputError, Terminated

HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none
POLL = 0.2  # seconds between checks for messages
_stop: Any = None  # in a worker: the event that asks it to stop
_messages: Any = None  # in a worker: the queue of `send_message`
_busy = threading.Lock()  # in a worker: held while a task runs


def available_cores() -> int:
    """The number of cores that this process may use; no result depends on it."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def run_tasks(
    work: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    workers: int,
    report: Callable[[int, int], None] = lambda done, total: None,
    receive: Callable[[Any], None] = lambda message: None,
) -> list[Any]:
    """Call work(*task) for each task, in `workers` processes if there are several, and return the results in order.

    `work` can be pickled. `report` is called as report(done, total) at the start and after each task, `receive` with
    each message that a task passed to `send_message`. If a task fails, or Ctrl-C is pressed, no further task is started
    and running ones are asked to stop; the call returns when they have.
    """
    workers = min(workers, len(tasks))
    report(0, len(tasks))
    if workers < 2:
        results = []
        for task in tasks:
            results.append(work(*task))
            report(len(results), len(tasks))
        return results
    import multiprocessing
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool

    spawn = multiprocessing.get_context("spawn")
    stop, messages = spawn.Event(), spawn.Queue()
    with handling(signal.SIG_IGN, signal.SIGINT, HANGUP):  # processes ignore Ctrl-C and the end of the terminal, too
        pool = ProcessPoolExecutor(workers, spawn, _start_worker, (stop, messages))
        futures = [pool.submit(_run_task, work, task) for task in tasks]
    try:
        pending, done = set(futures), 0
        while pending:
            finished, pending = wait(pending, POLL, FIRST_COMPLETED)
            _drain(messages, receive)
            for future in finished:
                future.result()
                done += 1
                report(done, len(tasks))
    except BaseException as error:
        _close(pool, stop, messages, lambda message: None)
        if isinstance(error, BrokenProcessPool):
            guard = 'a script must make it inside `if __name__ == "__main__":`'
            raise InputError(f"a worker process was killed; the same call resumes ({guard})") from error
        raise
    _close(pool, stop, messages, receive)
    return [future.result() for future in futures]


def _close(pool: Any, stop: Any, messages: Any, receive: Callable[[Any], None]) -> None:
    """Stop the workers and wait for them; meanwhile read their messages, since they do not exit before."""
    stop.set()
    closing = threading.Thread(target=pool.shutdown, kwargs={"cancel_futures": True})
    closing.start()
    while closing.is_alive():
        closing.join(POLL / 10)
        _drain(messages, receive)
    _drain(messages, receive)


def _drain(messages: Any, receive: Callable[[Any], None]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            receive(messages.get_nowait())


def stop_requested() -> bool:
    """Whether the worker process that calls this was asked to stop; False in any other process."""
    return _stop is not None and bool(_stop.is_set())


def send_message(message: Any) -> None:
    """Send a message from a task to the `receive` of `run_tasks`; without effect outside of a worker."""
    if _messages is not None:
        _messages.put(message)


def _start_worker(stop: Any, messages: Any) -> None:
    global _stop, _messages
    _stop, _messages = stop, messages
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Stop if the main process was killed: first the running task, then this process."""
    from multiprocessing import parent_process

    parent = parent_process()
    assert parent is not None
    parent.join()
    _stop.set()
    with _busy:
        os._exit(1)


def _run_task(work: Callable[..., Any], task: tuple[Any, ...]) -> Any:
    if stop_requested():
        raise KeyboardInterrupt
    with _busy:
        return work(*task)


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM or SIGHUP inside the block, so that it can be left in order.

    Python ignores what is raised in a finaliser or while garbage is collected, where dask calls a function. A signal
    that is lost there, also Ctrl-C, is sent again.
    """
    report, lost = sys.unraisablehook, False

    def leave(number: int, frame: Any) -> None:
        if number == HANGUP:  # the system and the shell send it both
            signal.signal(number, signal.SIG_IGN)
        raise Terminated(number)

    def repeat(ignored: Any) -> None:
        nonlocal lost
        if isinstance(error := ignored.exc_value, KeyboardInterrupt | Terminated):
            lost = True
            number = getattr(error, "number", signal.SIGINT)
            if number == HANGUP:
                signal.signal(number, leave)
            threading.Timer(POLL, _thread.interrupt_main, (number,)).start()
        elif not lost:  # what the interruption caused
            report(ignored)

    sys.unraisablehook = repeat
    try:
        with handling(leave, signal.SIGTERM, HANGUP):
            yield
    finally:
        sys.unraisablehook = report


@contextlib.contextmanager
def handling(handler: Any, *numbers: int) -> Iterator[None]:
    """Handle signals inside the block, except those that are ignored (nohup); only the main thread can."""
    main = threading.current_thread() is threading.main_thread()
    before = {n: signal.getsignal(n) for n in numbers if main and signal.getsignal(n) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
