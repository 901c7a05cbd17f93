"""Tasks of a recipe in separate processes, each of which stores its results in parts."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from congruence.errors import InputError

Work = Callable[..., Any]
PATIENCE = 0.2  # seconds between looks at processes that say nothing
_ending: Any = None  # in a process of `do_all`: set when it is to come to an end


def cores() -> int:
    """How many things to do at a time; no result depends on it."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def do_all(work: Work, tasks: Sequence[tuple[Any, ...]], workers: int, tell: Callable[[int, int], None]) -> None:
    """Call `work` with each task, in processes where there are several workers; `tell` is told how many are done.

    Where one fails, or Ctrl-C is pressed, no further task is begun, and those under way are asked to end: a training,
    which asks `stopping`, does so with a checkpoint.
    """
    workers = min(workers, len(tasks), os.cpu_count() or 1)
    tell(0, len(tasks))
    if workers < 2:
        for done, task in enumerate(tasks, start=1):
            work(*task)
            tell(done, len(tasks))
        return
    import multiprocessing

    spawn = multiprocessing.get_context("spawn")
    said, ending, following = spawn.Queue(), spawn.Event(), spawn.Value("i", 0)
    given = (work, list(tasks), following, said, ending)
    crew = [spawn.Process(target=_serve, args=given, daemon=True) for _ in range(workers)]
    with _deaf_to_interrupts():
        for one in crew:
            one.start()
    try:
        for done in range(1, len(tasks) + 1):
            _hear(crew, said)
            tell(done, len(tasks))
    except BaseException:
        ending.set()
        raise
    finally:
        for one in crew:
            one.join()


def stopping() -> bool:
    """Whether the process that this is called in was asked to end, or has nobody left to work for."""
    if _ending is None:
        return False
    from multiprocessing import parent_process

    parent = parent_process()
    return bool(_ending.is_set()) or (parent is not None and not parent.is_alive())


def _hear(crew: Sequence[Any], said: Any) -> None:
    """Wait until a task is done; raise what it raised, or say that its process died."""
    while True:
        over = all(one.exitcode is not None for one in crew) or any(one.exitcode for one in crew)
        try:
            error = said.get(timeout=PATIENCE)
        except queue.Empty:
            if over:
                raise InputError("a process of this recipe was killed; the same command resumes") from None
            continue
        if error is not None:
            raise error
        return


def _serve(work: Work, tasks: list[tuple[Any, ...]], following: Any, said: Any, ending: Any) -> None:
    """What a process does: one task after the other, as long as there are some. What is found is in parts."""
    global _ending
    _ending = ending
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C goes to the first process alone, which then says so here
    while not stopping():
        with following.get_lock():
            number = following.value
            following.value += 1
        if number >= len(tasks):
            break
        try:
            work(*tasks[number])
        except KeyboardInterrupt:
            break
        except Exception as error:
            said.put(error)
            break
        said.put(None)
    said.close()
    said.join_thread()


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let processes that are started here begin without an ear for Ctrl-C; signals are the main thread's matter."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
