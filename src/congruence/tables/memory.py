"""The one question before anything large is read: does it fit into memory?

A file says how large it is long before it proves it. A header of a hundred bytes can ask for terabytes, and a
compressed member can hold a thousand times what it weighs; both are refused here, before they are believed.
"""

from __future__ import annotations

import os
from pathlib import Path

from congruence.errors import InputError, TableError

VARIABLE = "CONGRUENCE_MAX_BYTES"
SHARE = 0.75  # of the machine's memory, or of the free disk; the rest is for the work on the table, and for others
UNKNOWN = 16 * 2**30  # where the system does not tell how much memory it has


def given_limit() -> int | None:
    """Return the bytes that one table may take, in memory or on disk, where `CONGRUENCE_MAX_BYTES` says it."""
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    if not given.isdecimal():
        raise InputError(f"{VARIABLE} must be a number of bytes, not {given!r}")
    return int(given)


def max_bytes() -> int:
    """Return how much memory one table may take: `CONGRUENCE_MAX_BYTES`, or three quarters of the machine's."""
    given = given_limit()
    if given is not None:
        return given
    try:
        return int(SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return UNKNOWN


def check_fits(path: Path | str, needed: int, what: str = "it", hint: str = "") -> None:
    """Refuse a file that needs more memory than there is, before any of it is taken."""
    limit = max_bytes()
    if needed > limit:
        raise TableError(
            f"{path} does not fit in memory: {what} would take {_gigabytes(needed)}, more than the "
            f"{_gigabytes(limit)} allowed{hint}; {VARIABLE} changes the limit"
        )


def _gigabytes(size: int) -> str:
    return f"{min(size, 10**30) / 2**30:.4g} GB"  # a damaged number may have more digits than a float
