"""Work on many rows in parts that fit the cache of a CPU or the memory of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from congruence.experiments.data.images import import_torch


def in_parts(work: Callable[[slice], None], n: int, step: int, device: str) -> None:
    """Call `work` on slices of at most `step` of n rows; on a CPU in as many threads as torch may take.

    Each thread does its part alone: many small operations that every thread has a share in would wait for the slowest
    one each time, which on a busy machine was up to 50 times slower.
    """
    torch = import_torch("drawing images")
    parts = [slice(start, min(n, start + step)) for start in range(0, n, step)]
    if device != "cpu":
        for part in parts:
            work(part)
        return
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(work, parts))
    finally:
        torch.set_num_threads(threads)
