"""Tasks of a recipe in processes of their own, each of which keeps what it finds in parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from congruence.errors import InputError

Work = Callable[..., Any]


def do_all(work: Work, tasks: Sequence[tuple[Any, ...]], workers: int, tell: Callable[[int, int], None]) -> None:
    """Call `work` with each task, in processes where there are several workers; `tell` is told how many are done.

    Where one fails, or Ctrl-C is pressed, those under way come to their end or to a checkpoint, and the others are left
    undone.
    """
    workers = min(workers, len(tasks), os.cpu_count() or 1)
    tell(0, len(tasks))
    if workers < 2:
        for done, task in enumerate(tasks, start=1):
            work(*task)
            tell(done, len(tasks))
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        futures = [pool.submit(_do, work, task) for task in tasks]
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            tell(done, len(tasks))
    except BrokenProcessPool as error:
        raise InputError("a process of this recipe was ended from outside; the same command goes on") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _do(work: Work, task: tuple[Any, ...]) -> None:
    """What a process does; what was found need not travel, since it is in the parts."""
    work(*task)
