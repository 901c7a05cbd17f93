"""Progress of long computations, reported to a callback."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # what was done last, steps done, steps in all


class Steps:
    """Counts steps and passes them to the caller's progress function, if there is one; workers may call it, too."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.done, self.total = progress, 0, total

    def __call__(self, what: str, by: int = 1) -> None:
        """Tell that so many steps more are done, and what they were."""
        self.done += by
        if self.progress is not None:
            self.progress(what, min(self.done, self.total), self.total)
