"""Files that are either written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from congruence.errors import InputError


def check_writable(path: str | Path) -> Path:
    """Refuse, before any work is done, an output path that cannot be written to."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"cannot write to {path}: it is a folder; give a file name")
    if not path.parent.is_dir():
        raise InputError(f"cannot write to {path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise InputError(f"cannot write to {path}: permission denied")
    return path


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that takes its place when the block succeeds, and vanishes when not.

    The temporary file lives in the same folder, so that the final rename is atomic; whatever interrupts the
    block (an exception, Ctrl-C, a full disk) leaves `path` as it was.
    """
    path = check_writable(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes private files; a report is to be shared
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
