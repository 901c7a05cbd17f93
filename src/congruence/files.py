"""Atomic writes, locks of outputs, and checksums of files.

What a process that was killed has left of an output has a hidden name that ends in `.congruence.part`,
`.congruence.lock` or `.congruence.old`. The next process that writes the same output removes it.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from congruence.errors import CongruenceError, InputError

PART, LOCK, OLD = ".congruence.part", ".congruence.lock", ".congruence.old"  # end names next to an output
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


def real_path(path: Path) -> Path:
    """The path without links; of a link to itself, or with a name that no file can have, as it is."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # of a name with a NUL
        return path.absolute()


def make_folder(folder: str | Path) -> Path:
    """Create a folder and its parents, unless it exists; refuse one that cannot be written to."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot make the folder {folder}: {system_reason(error) or error}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to the folder {folder}: permission denied")
    return folder


@contextlib.contextmanager
def replacing(path: str | Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block succeeds, and is removed otherwise.

    An interruption of the block (an exception, Ctrl-C, a full disk) leaves `path` unchanged. The rename never follows a
    link, so one that was created in the meantime is replaced, and nothing is written to its target. A file is written
    in a hidden folder next to `path`, which also holds what a library writes beside the file it was asked for. With
    `folder` the block makes a folder. A folder cannot be replaced in one step: the old one is renamed, and comes back
    with the next write if the process is killed before the new one has its place.
    """
    path = Path(path) if folder else check_writable(path)
    hidden = _beside(path, f"-{secrets.token_hex(4)}{PART}")
    temporary = hidden if folder else hidden / "file"
    with alone(path, needed=False):
        try:
            if not folder:
                hidden.mkdir()
                temporary.touch()
                mode = temporary.stat().st_mode
            yield temporary
            if not folder:
                temporary.chmod(mode)  # safetensors makes files that only their owner can read
            for file in [temporary, *temporary.rglob("*")] if folder else [temporary]:
                _flush(file)  # some disks report only now that they are full
            if folder and path.is_dir():
                os.replace(path, _beside(path, OLD))
            os.replace(temporary, path)
            _flush(path.parent)
        except Exception as error:  # libraries have errors of their own for a full disk
            reason = "" if isinstance(error, CongruenceError) else system_reason(error)
            if not reason and not isinstance(error, OSError):
                raise
            raise InputError(f"cannot write to {path}: {reason or error}") from error
        finally:
            _remove(hidden)
            if folder:
                _recover(path)


@contextlib.contextmanager
def alone(path: str | Path, *, folder: bool = False, needed: bool = True) -> Iterator[bool]:
    """Lock an output for the block, and remove what killed processes have left of it; yield whether it is locked.

    A `folder` in which many files are written is created, and its lock is inside of it. An output that another process
    or thread has locked is refused, unless the lock is not `needed`. The system releases the lock when the process
    ends. If no lock can be obtained (on some network disks, or in a folder that is read-only), the block runs without.
    """
    from filelock import FileLock, Timeout

    path = make_folder(path) if folder else Path(path)
    lock = FileLock(path / LOCK if folder else _beside(path, LOCK), is_singleton=not folder)
    outer, locked = lock.is_locked, False  # a thread may lock a file again
    try:
        if path.parent.is_dir():  # the lock would make it
            lock.acquire(timeout=0)
            locked = True
    except Timeout as error:
        if needed:
            raise InputError(
                f"another process is using {path}; wait until it has finished, or give another output"
            ) from error
    except (OSError, NotImplementedError):
        pass
    if not locked:
        yield False
        return
    try:
        if not outer:
            _recover(path)
            inside = (f"**/.*{PART}", f"**/.?*{LOCK}")  # all but the locks of folders
            patterns = inside if folder else (f"{glob.escape(_beside(path, '').name)}-*{PART}",)
            for left in [left for pattern in patterns for left in (path if folder else path.parent).glob(pattern)]:
                if not (folder and _is_in_use(left)):
                    _remove(left)
        yield True
    finally:
        if not outer:
            with contextlib.suppress(OSError):  # Windows cannot remove an open file
                os.unlink(lock.lock_file)
        lock.release()


def _beside(path: Path, suffix: str) -> Path:
    """A hidden name next to an output, of its lock and of its temporary files; another for each name of an output."""
    digest = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:8]
    return path.absolute().parent / f".{path.name[:40]}.{digest}{suffix}"


def _is_in_use(left: Path) -> bool:
    """Whether a process holds the lock of the output whose lock or temporary file this is."""
    from filelock import FileLock, Timeout

    found = re.fullmatch(rf"(.+?)(-[0-9a-f]{{8}}{re.escape(PART)}|{re.escape(LOCK)})", left.name)
    if found is None:
        return False
    lock = left.with_name(found[1] + LOCK)
    try:
        with FileLock(lock, timeout=0, is_singleton=False):
            _remove(lock)
            return False
    except (Timeout, OSError):
        return True


def _recover(path: Path) -> None:
    """Put a folder back that was renamed to be replaced, if it was not, and remove it otherwise."""
    old = _beside(path, OLD)
    if old.exists() and not path.exists():
        os.replace(old, path)
    _remove(old)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _flush(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open folders
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as UTF-8, completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def append_line(path: Path, text: str) -> None:
    """Append a line to a file, in place of a last line that was truncated because the process was killed."""
    check_writable(path)
    try:
        with path.open("ab+") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            if file.read() != b"\n":
                file.seek(0)
                file.truncate(sum(len(one) for one in file if one.endswith(b"\n")))
            file.write(text.encode() + b"\n")
    except OSError as error:
        raise InputError(f"cannot write to {path}: {system_reason(error) or error}") from error


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

    def check(self) -> None:
        """Refuse a file that is no longer as it was: its rows may be mapped, and so may have changed with it."""
        if self != ReadFile.now(self.path):
            raise InputError(f"{self.path} was changed while it was in use; run again when nothing writes to it")


def describe_file(file: str | Path | ReadFile) -> InputFile:
    """Describe a file, or a folder by all files in it (the digest covers their sorted names and contents).

    The SHA-256 is that of the contents up to 1 GB; above that, the time of the last change takes its place. A file
    that is no longer as it was when it was read is refused.
    """
    before = file if isinstance(file, ReadFile) else None
    path = file.path if isinstance(file, ReadFile) else file if isinstance(file, Path) else Path(file)
    modified = None
    try:
        files = _files(path)
        stats = [one.stat() for one in files]
        if not all(stat.S_ISREG(one.st_mode) for one in stats):  # reading it may never end
            raise ValueError("it is not a regular file, but a pipe or a device")
        size = sum(one.st_size for one in stats)
        digest = _digest(path, files) if size <= HASHED else None
        if digest is None:
            changed = datetime.fromtimestamp(max(one.st_mtime for one in stats), UTC)
            modified = changed.isoformat(timespec="seconds")
    except (OSError, ValueError) as error:  # such as a NUL in the name
        raise InputError(f"cannot read {path}: {system_reason(error) or error}") from error
    if before is not None:
        before.check()
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
