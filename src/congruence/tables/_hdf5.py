"""Reader of .h5 files, and the inspection of HDF5 files in a child process before this process opens them.

The HDF5 library trusts the addresses and lengths inside a file. On damaged ones it can loop forever (a zeroed entry of
a global heap does so in version 2.0) or crash, and neither can be stopped from within Python. So a short-lived child
reads all the structure and text that the reader needs, within limits of processor time and memory, and a file that
stops the child is refused. Numbers are read only if they are few; the index of their chunks is always read. This
takes about 0.2 s and runs while the parent imports anndata. Lance datasets are inspected in the same way.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from congruence.arrays import Array
from congruence.checks import require
from congruence.errors import TableError
from congruence.guards import DEFLATE_RATIO, MEMBERS, first_sentence, reading
from congruence.memory import check_fits, load_matrix, max_bytes
from congruence.tables._arrays import Entry, table_from_entries
from congruence.tables.columns import Selection
from congruence.tables.table import Table

CPU_SECONDS = 5  # for a small file; processor time reveals an endless loop, however busy the disk is
CHILD = "from congruence.tables._hdf5 import main; main()"
DEPTH = 2  # levels of groups: a data frame, and a categorical column in it
ARRAYS = "*"  # in place of parts: all arrays of a file that is not AnnData
LANCE = ".lance"
_GROUPS = 4  # levels of groups that are searched for arrays
_BYTES_PER_SECOND = 2**24  # far slower than any machine reads
_SPARE_BYTES = 2**32  # of address space for the libraries themselves
_UNSEEN = "is not read, because it has to be inspected by a process of its own first"
_FIX = "allow more memory or processes, or save the table as .parquet or .npz"
_FEW_BYTES = 2**24  # of numbers that are read as a check
_TEXT_ROWS = 2**14  # of text read at a time
# numbers of filters: gzip; shuffling, checksums and packed bits, which do not expand beyond a chunk
_DEFLATE, _SAME_SIZE = 1, {2, 3, 5, 6}
_PER_CHUNK = 512  # bytes that HDF5 takes to keep track of one chunk
# What anndata reads about an element; other attributes may be of types that h5py does not know.
_ATTRIBUTES = ("encoding-type", "encoding-version", "_index", "column-order", "categories", "ordered", "shape")


@contextlib.contextmanager
def inspection(path: Path, parts: Sequence[str]) -> Iterator[None]:
    """Inspect a file while the block runs, and refuse it at the end of the block if it did not pass."""
    seconds = CPU_SECONDS + path.stat().st_size // _BYTES_PER_SECOND
    library = "Lance" if parts[0] == LANCE else "HDF5"
    child = _start(path, [os.path.abspath(path), str(seconds), *parts])
    try:
        yield
        answer, _ = child.communicate(timeout=60 + 20 * seconds)
    except subprocess.TimeoutExpired as error:
        raise TableError(f"{path} is damaged: {library} does not finish reading it") from error
    finally:
        child.kill()
        child.communicate()
    if child.returncode < 0:
        endless = child.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
        how = "does not finish reading it" if endless else "crashes on it"
        raise TableError(f"{path} is damaged: {library} {how} (signal {-child.returncode})")
    if answer:
        raise TableError(answer.decode().replace(os.path.abspath(path), str(path)))
    if child.returncode:  # it could not be loaded, perhaps for want of memory
        raise TableError(f"{path} {_UNSEEN}, which ended with code {child.returncode}; {_FIX}")


def _start(path: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start the child; a program that embeds Python may have no interpreter."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise TableError(f"{path} {_UNSEEN}, since there is no Python interpreter here; {_FIX}")
    # -P keeps the current folder, which may hold any h5py.py, off the path.
    command = [sys.executable, "-P", "-c", CHILD, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
    except OSError as error:
        raise TableError(f"{path} {_UNSEEN}, which cannot start ({first_sentence(error)}); {_FIX}") from error


def main() -> None:
    """Run as the child: print why the file is refused, or nothing."""
    name, seconds, *parts = sys.argv[1:]
    _limit(int(seconds))
    try:
        with reading(path := Path(name)):
            inspect(path, parts)
    except TableError as error:
        sys.stdout.buffer.write(str(error).encode())
        sys.stdout.flush()
    os._exit(0)  # HDF5 need not clean up after a damaged file


def _limit(seconds: int) -> None:
    try:
        import resource
    except ImportError:  # not a POSIX system; the parent's timeout remains
        return
    limits = (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, max_bytes() + _SPARE_BYTES)
    for limit, most in limits:
        hard = resource.getrlimit(limit)[1]  # which cannot be raised
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most + 1 if limit == resource.RLIMIT_CPU and most != hard else most))


def inspect(path: Path, parts: Sequence[str]) -> None:
    """Read the structure and text of the parts, and refuse what does not fit in memory or is in another file."""
    if parts[0] == LANCE:
        _inspect_lance(path)
        return
    import h5py

    with h5py.File(path, "r") as store:
        needed = 0
        if parts[0] == ARRAYS:
            arrays = _arrays(path, store, parts[1])
            chosen = [data for name, data in arrays.items() if data.ndim == 1 or parts[1] in ("", name)]
            check_fits(path, sum(_inspect_dataset(path, data) for data in chosen))
            return
        for group in ("obsm", "uns"):
            if group in store:
                list(store[group])
        for part in parts:
            node = store
            for name in part.split("/"):
                node = _member(path, node, name) if name in node else None
                if node is None:
                    break
            else:
                needed += _inspect(path, node, DEPTH)
        check_fits(path, needed)


def _inspect_lance(path: Path) -> None:
    """Read a small dataset and compare its rows with those of its files, or read the first rows of a large one."""
    from congruence.tables._folders import check_lance_rows, open_lance

    schema, _, read = open_lance(path)
    size = sum(file.stat().st_size for file in (path / "data").rglob("*"))
    for _ in read(schema.names, 2**10, None if size <= _FEW_BYTES else 2**10):
        pass
    if size <= _FEW_BYTES:
        check_lance_rows(path)


def _member(path: Path, group: Any, name: str) -> Any:
    import h5py

    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        what = "stored in another file" if isinstance(link, h5py.ExternalLink) else f"a link to {link.path}"
        raise TableError(f"{path}: {name} is {what}, which is not followed")
    return group[name]


def _inspect(path: Path, node: Any, depth: int) -> int:
    """Return the bytes of memory that reading a node takes."""
    import h5py

    needed = 0
    for name in _ATTRIBUTES:
        value = node.attrs.get(name)
        if isinstance(value, h5py.Reference):  # AnnData before 0.8 refers to its categories
            needed += _inspect(path, node.file[value], 0)
    if isinstance(node, h5py.Dataset):
        return needed + _inspect_dataset(path, node)
    if depth == 0:
        raise TableError(f"{path} is not an AnnData file: {node.name} has groups within groups")
    return needed + sum(_inspect(path, _member(path, node, name), depth - 1) for name in node)


def _inspect_dataset(path: Path, data: Any) -> int:
    if data.is_virtual or data.external:
        raise TableError(f"{path}: {data.name} is stored in another file, which is not followed")
    if data.shape is None:
        return 0
    needed = int(data.size) * max(8, int(data.dtype.itemsize))
    if data.chunks:
        needed += _PER_CHUNK * math.prod(-(-n // c) for n, c in zip(data.shape, data.chunks, strict=True))
    check_fits(path, needed, data.name)
    if data.chunks:
        _check_chunks(path, data)
    if data.dtype.hasobject and data.ndim == 0:
        return needed + len(str(data[()]))
    if data.dtype.hasobject:
        for start in range(0, len(data), _TEXT_ROWS):  # the same text may be stored once and used many times
            block = data[start : start + _TEXT_ROWS]
            needed += sum(len(item) for item in block.ravel() if isinstance(item, bytes | str))
            check_fits(path, needed, data.name)
    elif data.size and needed <= _FEW_BYTES:
        data[()]
    elif data.size:
        data[:1], data[-1:]
    return needed


def _check_chunks(path: Path, data: Any) -> None:
    """Visit all chunks, and refuse one that expands to more than a chunk."""
    pipeline = data.id.get_create_plist()
    filters = [pipeline.get_filter(at)[0] for at in range(pipeline.get_nfilters())]
    if sum(one not in _SAME_SIZE for one in filters) > 1:
        raise TableError(
            f"{path}: {data.name} is compressed more than once, so that its size is unknown; save it again"
        )
    stored: list[Any] = []
    if hasattr(data.id, "chunk_iter"):
        data.id.chunk_iter(stored.append)
    most = math.prod(data.chunks) * data.dtype.itemsize
    for chunk in stored if _DEFLATE in filters else ():
        if chunk.size * DEFLATE_RATIO > max_bytes():
            _, content = data.id.read_direct_chunk(chunk.chunk_offset)
            if len(zlib.decompressobj().decompress(content, most + 1)) > most:
                raise TableError(f"{path} is damaged: a chunk of {data.name} unpacks to more than {most} bytes")


def read_hdf5(path: Path, select: Selection) -> Table:
    """Read a matrix of an HDF5 file with its ids and metadata."""
    with inspection(path, [ARRAYS, select.key or ""]):
        h5py = require("h5py", str(path), "hdf5")
    with h5py.File(path, "r") as store:
        arrays = _arrays(path, store, select.key or "")
        entries = {name: Entry(tuple(data.shape), partial(_load, path, data)) for name, data in arrays.items()}
        return table_from_entries(path, entries, select)


def _load(path: Path, data: Any) -> Array:
    if data.dtype.hasobject:
        text: Array = data.asstr()[...]
        return text
    return load_matrix(data, path) if data.ndim == 2 and data.size else data[...]


def _arrays(path: Path, store: Any, key: str) -> dict[str, Any]:
    """Return the matrices and vectors of a file by name, without those behind links; a `key` that is one is refused."""
    import h5py

    found: dict[str, Any] = {}
    left = MEMBERS
    groups = [("", store, _GROUPS)]
    while groups:
        prefix, group, depth = groups.pop()
        for name in group:
            left -= 1
            if left < 0:
                raise TableError(f"{path} has more than {MEMBERS} members, which is more than is searched")
            if prefix + name == key or key.startswith(f"{prefix}{name}/"):
                _member(path, group, name)  # refuses a link that was asked for
            node = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
            if hasattr(node, "shape") and _is_readable(node):
                found[prefix + name] = node
            elif hasattr(node, "keys") and depth > 1:  # a group, not a type
                groups.append((f"{prefix}{name}/", node, depth - 1))
    return dict(sorted(found.items()))


def _is_readable(data: Any) -> bool:
    """Whether a data set is a matrix or vector of numbers or text."""
    import h5py

    return data.ndim in (1, 2) and (data.dtype.kind in "biufSU" or h5py.check_string_dtype(data.dtype) is not None)
