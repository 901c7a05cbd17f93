"""Standard streams that tolerate a closed pipe or terminal: ``congruence ... | head`` ends quietly."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

from congruence.errors import InputError


class _Stream(io.FileIO):
    """A standard stream. Once writing has failed, all output is dropped; `error` says why, unless it is closed."""

    error: OSError | None = None
    terminal = False

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError as error:
            self.error = None if error.errno == (errno.EIO if self.terminal else errno.EPIPE) else error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


@contextlib.contextmanager
def lasting_streams() -> Iterator[None]:
    """Let a command finish and exit with its own code although its output pipe or terminal is closed.

    Any other failure to write, such as a full disk, is raised as an `InputError` at the end. Streams without a
    file descriptor, such as those of a notebook, are left unchanged.
    """
    before = sys.stdout, sys.stderr
    wrapped: list[_Stream] = []
    sys.stdout, sys.stderr = (_wrap(stream, wrapped) for stream in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and stream not in before:
                stream.flush()
        sys.stdout, sys.stderr = before
        for raw in wrapped:
            if raw.error is not None:
                raise InputError(f"cannot write the output: {raw.error.strerror}")


def _wrap(stream: Any, wrapped: list[_Stream]) -> Any:
    try:
        number = stream.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or without a file descriptor
        return stream
    if number not in (1, 2) or (os.name == "nt" and stream.isatty()):  # a console there is no file
        return stream
    stream.flush()
    wrapped.append(_Stream(number, "w", closefd=False))
    wrapped[-1].terminal = stream.isatty()  # later it may be closed
    return io.TextIOWrapper(
        io.BufferedWriter(wrapped[-1]),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
    )
