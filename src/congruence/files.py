"""Atomic writes, locks of folders, and checksums of input files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from congruence.errors import CongruenceError, InputError

LOCK = "in-use.lock"  # in a folder while a process writes to it
HASHED = 10**9  # bytes up to which the contents of an input are hashed


def check_writable(path: str | Path) -> Path:
    """Refuse, before any work is done, an output path that cannot be written to.

    A symbolic link is refused as well, because it is unclear whether to change its target or to replace it. Parent
    folders may be links.
    """
    path = Path(path)
    try:
        problem = _problem(path)
    except (OSError, ValueError) as error:  # a folder that may not be searched, a name too long, a NUL in it
        problem = system_reason(error) or str(error)
    if problem:
        raise InputError(f"cannot write to {path}: {problem}")
    return path


def _problem(path: Path) -> str:
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = None
    if mode is not None and stat.S_ISLNK(mode):
        return f"it is a symbolic link to {os.readlink(path)}; give the name of the file itself"
    if mode is not None and stat.S_ISDIR(mode):
        return "it is a folder; give a file name"
    if mode is not None and not stat.S_ISREG(mode):  # a device would be replaced by a file
        return "it is a device or a pipe, not a file"
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist"
    if not os.access(path.parent, os.W_OK | os.X_OK) or (mode is not None and not os.access(path, os.W_OK)):
        return "permission denied"
    return ""


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path next to `path` that replaces it when the block succeeds, and is removed otherwise.

    The temporary file is in the same folder, so that the final rename is atomic. An interruption of the block (an
    exception, Ctrl-C, a full disk) leaves `path` unchanged. The rename never follows a link, so one that was created
    in the meantime is replaced, and nothing is written to its target.
    """
    path = check_writable(path)
    temporary = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".part", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes private files, but outputs are shared
        with temporary.open("rb") as written:
            os.fsync(written.fileno())  # some disks report only now that they are full
        os.replace(temporary, path)
    except Exception as error:  # libraries have errors of their own for a full disk
        reason = "" if isinstance(error, CongruenceError) else system_reason(error)
        if not reason and not isinstance(error, OSError):
            raise
        raise InputError(f"cannot write to {path}: {reason or error}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


@contextlib.contextmanager
def alone_in(folder: str | Path) -> Iterator[bool]:
    """Lock a folder for the block; refuse it if another process or thread has locked it.

    The system releases the lock when the process ends. If no lock can be obtained (on some network disks,
    or in a folder that is read-only), the block runs without one; it yields whether the folder is locked.
    """
    from filelock import FileLock, Timeout

    folder = Path(folder)
    lock = FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InputError(
            f"another process is using {folder}; wait until it has finished, or give another folder"
        ) from error
    except (OSError, NotImplementedError):
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):  # Windows cannot remove an open file; there, filelock removes it
            (folder / LOCK).unlink()
        lock.release()


def remove_parts(folder: str | Path, pattern: str = ".*.part") -> None:
    """Remove temporary files and stores that were left in a folder because their process was killed."""
    for part in Path(folder).glob(pattern):
        with contextlib.suppress(OSError):
            shutil.rmtree(part) if part.is_dir() else part.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as UTF-8, completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@dataclass(frozen=True)
class InputFile:
    """Identification of an input file or folder: a checksum or, if it is large, the time of its last change."""

    path: str
    bytes: int
    sha256: str | None
    modified: str | None  # ISO 8601, UTC


@dataclass(frozen=True)
class ReadFile:
    """A file or folder as it was when its rows were read: inode, size and time of change of every file."""

    path: Path
    state: tuple[tuple[int, int, int], ...]

    @classmethod
    def now(cls, path: Path) -> ReadFile:
        """The file as it is now; nothing where it cannot be examined."""
        state: list[tuple[int, int, int]] = []
        with contextlib.suppress(OSError):
            state = [(one.st_ino, one.st_size, one.st_mtime_ns) for one in (file.stat() for file in _files(path))]
        return cls(path, tuple(state))


def describe_file(file: str | Path | ReadFile) -> InputFile:
    """Describe a file, or a folder by all files in it (the digest covers their sorted names and contents).

    The SHA-256 is that of the contents up to 1 GB; above that, the time of the last change takes its place. A file
    that is no longer as it was when it was read is refused: its rows may be mapped, and so may have changed with it.
    """
    before = file if isinstance(file, ReadFile) else None
    path = file.path if isinstance(file, ReadFile) else file if isinstance(file, Path) else Path(file)
    modified = None
    try:
        files = _files(path)
        stats = [one.stat() for one in files]
        size = sum(one.st_size for one in stats)
        digest = _digest(path, files) if size <= HASHED else None
        if digest is None:
            changed = datetime.fromtimestamp(max(one.st_mtime for one in stats), UTC)
            modified = changed.isoformat(timespec="seconds")
    except OSError as error:
        raise InputError(f"cannot read {path}: {system_reason(error) or error}") from error
    if before is not None and before != ReadFile.now(path):
        raise InputError(f"{path} was changed while it was in use; run again when nothing writes to it")
    return InputFile(str(path), size, digest, modified)


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _digest(path: Path, files: list[Path]) -> str:
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    whole = hashlib.sha256()
    for one in files:
        whole.update(f"{one.relative_to(path).as_posix()}\0{_digest(one, [one])}\n".encode())
    return whole.hexdigest()


def system_reason(error: BaseException) -> str:
    """Return the system's description of a failure ("No space left on device"), if it is a system error.

    Libraries put its number into the error or into their message.
    """
    number = getattr(error, "errno", None)
    if not isinstance(number, int):
        match = re.search(r"(?:errno = |\[errno |\(os error )(\d+)", str(error), re.IGNORECASE)
        number = int(match[1]) if match else 0
    return os.strerror(number) if number in errno.errorcode else ""


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
