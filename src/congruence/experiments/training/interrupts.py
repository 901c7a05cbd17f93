"""Ctrl-C that waits until a step is over."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def patient_interrupts() -> Iterator[Callable[[], bool]]:
    """Hold the first Ctrl-C back and yield a function that tells whether it came; a second one interrupts at once.

    Python delivers signals to the main thread alone; in another one, nothing is held back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    came = False

    def note(number: int, frame: Any) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, before)
