"""Files at an address (s3://, gs://, file://) and standard input, as paths to local copies.

An `Address` is a `Path` whose text is the address, and whose file is a copy that is fetched when it is first opened.
So every reader reads it as it reads any file, messages name the address, and parts are fetched one at a time.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from congruence.errors import TableError
from congruence.guards import first_sentence
from congruence.memory import check_fits

STDIN = "<stdin>"  # how standard input, given as "-", is named in messages
RETRY_SECONDS = 30  # of a network that does not answer; by default gs:// goes on for a quarter of an hour
KEPT_BYTES = 2**30  # of copies that are kept for the next reading
_SCHEME = re.compile(r"(s3|gs|gcs|file):/+")  # a Path has lost one of the two slashes
_BLOCK = 2**22
_MAGIC = {b"PAR1": ".parquet", b"ARRO": ".arrow", b"\x1f\x8b": ".csv.gz"}
_copies: dict[str, Path] = {}  # of what was fetched, by address, the oldest first


class Address(type(Path())):  # type: ignore[misc]
    """A path to the local copy of a file elsewhere."""

    def __str__(self) -> str:
        text = PurePosixPath(*self.parts).as_posix()
        scheme = _SCHEME.match(f"{text}/")  # also of an address without a name
        if scheme is None:
            return STDIN
        return f"{scheme[1]}://{'/' if scheme[1] == 'file' else ''}{text[scheme.end() :]}"

    def __fspath__(self) -> str:
        return os.fspath(_fetch(str(self)))

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return Path(*self.parts, name)  # nothing is inside of a file

    def resolve(self, strict: bool = False) -> Address:
        """Return the address itself: it has no links."""
        return self


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path, or an `Address` for text that is one; "-" is standard input."""
    if isinstance(path, Address):
        return path
    text = str(path)
    if text in ("-", STDIN):
        return Address(_fetch(STDIN).name)
    is_address = _SCHEME.match(text) and ("://" in text or not os.path.lexists(text))  # a folder may be called "s3:"
    return Address(text) if is_address else Path(path)


def listed(folder: Address, pattern: str = "*") -> list[str]:
    """Return the addresses of the files in a folder whose names match a pattern, sorted; none if it is a file."""
    from pyarrow.fs import FileSelector, FileType

    try:
        system, root = _system(str(folder))
        if system.get_file_info(root).type == FileType.File:
            return []
        found = system.get_file_info(FileSelector(root))
        names = sorted(one.base_name for one in found if one.type == FileType.File)
    except Exception as error:  # of a network, credentials, a name that is not UTF-8
        raise _unreachable(str(folder), error) from error
    return [f"{folder}/{name}" for name in names if fnmatchcase(name, pattern)]


def _system(address: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem

    if not address.partition("://")[2]:  # gs:// would look for its buckets for a quarter of an hour
        raise TableError(f"{address} cannot be read: it names no file")
    more = f"{'&' if '?' in address else '?'}retry_limit_seconds={RETRY_SECONDS}" if address[0] == "g" else ""
    system, path = FileSystem.from_uri(address + more)
    return system, path


def _unreachable(address: str, error: Exception) -> TableError:
    if isinstance(error, TableError):
        return error
    missing = isinstance(error, FileNotFoundError)
    return TableError(f"{address} does not exist" if missing else f"{address} cannot be read: {first_sentence(error)}")


def _fetch(address: str) -> Path:
    """Return the local copy of a file, after copying it if there is none."""
    if address in _copies:
        return _copies[address]
    folder = Path(tempfile.mkdtemp(prefix="congruence-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _make_room()
    copy = folder / ("stdin" if address == STDIN else PurePosixPath(address).name)
    try:
        with copy.open("wb") as target, _opened(address) as source:
            size = 0
            while block := source.read(_BLOCK):
                check_fits(address, size := size + len(block))
                target.write(block)
    except Exception as error:
        raise _unreachable(address, error) from error
    if address == STDIN:
        with copy.open("rb") as handle:
            start = handle.read(4)
        suffix = next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), ".csv")
        copy = copy.rename(copy.with_suffix(suffix))
    _copies[address] = copy
    return copy


def _opened(address: str) -> Any:
    if address == STDIN:
        return contextlib.nullcontext(sys.stdin.buffer)
    from pyarrow.fs import FileType

    system, path = _system(address)
    if address.startswith("file:") and system.get_file_info(path).type == FileType.Unknown:
        raise TableError(f"{address} is not a regular file, but a pipe or a device")  # reading it may never end
    return system.open_input_stream(path)


def _make_room() -> None:
    """Remove the oldest copies of more than `KEPT_BYTES`; those that are mapped into memory stay readable."""
    sizes = {address: copy.stat().st_size for address, copy in _copies.items() if address != STDIN}
    kept = sum(sizes.values())
    for address, size in sizes.items():
        if kept > KEPT_BYTES:
            shutil.rmtree(_copies.pop(address).parent, ignore_errors=True)
            kept -= size
