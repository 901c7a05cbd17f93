"""The boundary to files of others: what may be opened, how large it may be, and one sentence for whatever fails.

Every reader opens its files inside `reading`, or with a function below that does. It refuses pipes, sockets and
devices, turns what a library raises into one `InputError` that names the file, and notices when the file is changed
meanwhile. The limits of files are declared here; that of memory is in `memory`.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from congruence.errors import CongruenceError, InputError, TableError, is_failure, printable
from congruence.files import system_reason
from congruence.memory import check_fits

MEMBERS = 10_000  # of an archive (.npz, .pt), and of an HDF5 file
SETTINGS_BYTES = 2**24  # of a file of settings in JSON
JSON_DEPTH = 100  # lists and objects inside of each other
PRIOR_BYTES = NUMBERS_BYTES = 2**28  # of the arrays of a mixture prior, and of the numbers of a recipe
COLUMNS = 100_000  # of a file with named columns, each of which takes about 8 kB and 0.3 ms
MISSING_CHUNKS = 10_000  # that a zarr array may declare beyond those it has; each takes about 0.3 ms
NPY_HEADER = 2**14  # bytes; numpy writes a few hundred and refuses to parse more than 10,000
DEFLATE_RATIO = 1032  # the largest expansion of gzip and zlib
PIXEL_BYTES = 12  # of memory for each pixel while an image is decoded and converted
MODEL_TENSORS, MODEL_NUMBERS = 1000, 2**24  # of a model, beyond four times those of its weights
MODEL_COUNT = 10**6  # of layers, labels and other parts in the settings of a model
TOKENIZER_BYTES, TEXT_GROWTH = 2**27, 1000  # of a tokenizer, and of a text by the replacements of one
IMAGE_BYTES = 72  # of memory for each pixel that an image processor makes: three channels of up to three float64

_SOURCE_LINES = re.compile(r",? \S+\.rs:[\d:]+")  # which libraries in Rust add to their messages


def suffix_of(path: Path) -> str:
    """Return the suffix that names the format, in lower case: ``.npy``, ``.csv``, ``.csv.gz``."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def first_sentence(error: BaseException) -> str:
    """Return the first sentence of a library's error message, or the type of the error if it has none."""
    lines = _SOURCE_LINES.sub("", system_reason(error) or str(error)).strip().splitlines()
    return lines[0].split(". ")[0][:200].rstrip(".") if lines else type(error).__name__


def is_file(path: str | Path) -> bool:
    """Whether there is something other than a folder under this name, which `reading` then refuses if it is no file."""
    return os.path.exists(path) and not os.path.isdir(path)  # methods of Path raise for a name that is too long


def check_readable(path: Path, *, folder: bool = False) -> None:
    """Refuse a path that does not exist, is of the wrong kind, is empty or may not be read; see also `check_folder`."""
    try:
        mode, size = (status := path.stat()).st_mode, status.st_size
    except FileNotFoundError as error:
        raise TableError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:  # a folder that may not be searched, a name too long, a NUL in it
        raise TableError(f"{path} cannot be read: {first_sentence(error)}") from error
    if folder and not stat.S_ISDIR(mode):
        raise TableError(f"{path} is a file, but a {suffix_of(path)} store is a folder")
    if not folder and stat.S_ISDIR(mode):
        expected = f"a {suffix_of(path)} table is a file" if suffix_of(path) else "a file is required"
        raise TableError(f"{path} is a folder, but {expected}")
    _stamp(path)
    if not os.access(path, os.R_OK):
        raise TableError(f"{path} cannot be read: permission denied")
    if not folder and size == 0:
        raise TableError(f"{path} is empty: it has 0 bytes")
    if folder:
        check_folder(path)


def check_folder(folder: Path, *places: Path, names: Iterable[str] | None = None) -> None:
    """Refuse a folder with pipes, devices, or links that lead out of it and of other `places`, such as a cache.

    With `names`, only these members are checked, not all.
    """
    inside = [os.path.realpath(place) for place in (folder, *places)]  # accepts a link to itself, unlike Path.resolve
    walk = os.walk(folder) if names is None else [(os.fspath(folder), (), names)]
    for path in (os.path.join(parent, name) for parent, *members in walk for name in chain(*members)):
        _stamp(path)
        target = Path(os.path.realpath(path)) if os.path.islink(path) else None
        if target is not None and not any(target.is_relative_to(place) for place in inside):
            raise TableError(f"{path} is a link out of {folder}, to {target}, which is not followed")


def _stamp(path: str | Path) -> tuple[int, ...] | None:
    """Return the inode, size and time of a file, None if there is none; refuse what is no file and no folder."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # absent, in a folder that may not be searched, too long a name, a NUL in it
        return None  # the reader says why
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):  # reading it may never end
        raise TableError(f"{path} is not a regular file, but a pipe or a device")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def reading(path: str | Path, what: str = "") -> Iterator[None]:
    """Turn whatever is raised while a file is read into one sentence that names it, and `what` it was to hold.

    Refuses a pipe, socket or device before the block, and a file that was changed during it.
    """
    path = path if isinstance(path, Path) else Path(path)  # an address stays one
    before, failure = _stamp(path), None
    try:
        yield
    except CongruenceError as error:
        if printable(str(path)) not in str(error):
            raise type(error)(f"{path}: {error}") from error
        raise
    except BaseException as error:  # on damaged bytes libraries raise many kinds, from struct.error to RecursionError
        if not is_failure(error):
            raise
        failure = error
    if before is not None and _stamp(path) != before:
        raise TableError(f"{path} was changed while it was read; read it when it is complete") from failure
    if failure is None:
        return
    reason = first_sentence(failure)
    if isinstance(failure, MemoryError):
        raise TableError(f"{path} does not fit in memory: {reason}") from failure
    if isinstance(failure, RecursionError | json.JSONDecodeError):
        reason = "it is nested too deeply" if isinstance(failure, RecursionError) else f"it is not JSON ({reason})"
    if what and before is None:
        raise InputError(f"cannot read {what} from {path}: {reason}") from failure
    if what:
        raise InputError(f"cannot read {what} from {path}, it may be damaged: {reason}") from failure
    raise TableError(f"{path} could not be read as {suffix_of(path)}, it may be damaged: {reason}") from failure


@contextlib.contextmanager
def open_archive(path: str | Path, what: str = "") -> Iterator[zipfile.ZipFile]:
    """Open a zip archive whose members have different names, also where case does not count, and are not too many."""
    with reading(path, what), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(names) > MEMBERS:
            raise TableError(f"{path} has {len(names)} members; at most {MEMBERS} are read")
        keys = [name.casefold().removesuffix(".npy") for name in names]  # numpy reads x and x.npy as x
        key, count = (Counter(keys).most_common(1) or [("", 0)])[0]
        if count > 1:
            name = names[keys.index(key)]
            raise TableError(f"{path} is damaged: {count} of its members have the name {name!r}; save it again")
        yield archive


@contextlib.contextmanager
def open_tensors(path: str | Path, what: str = "", framework: str = "numpy") -> Iterator[Any]:
    """Open a safetensors file."""
    from safetensors import safe_open

    with reading(path, what), safe_open(os.fspath(path), framework=framework) as file:
        yield file


@contextlib.contextmanager
def within_weights(folder: Path, weights: Iterable[Path]) -> Iterator[None]:
    """Stop the construction of the model of a folder as soon as it has far more parts than there are weights for."""
    from torch.nn.modules import module as registry

    tensors, numbers = MODEL_TENSORS, MODEL_NUMBERS
    for path in weights:
        with open_tensors(path, "weights") as file:
            names = list(file.keys())
            tensors += 4 * len(names)
            numbers += 4 * sum(math.prod(file.get_slice(name).get_shape()) for name in names)
    left = {"parts": 10 * tensors, "tensors": tensors, "numbers": numbers}

    def spend(**amounts: int) -> None:
        for what, amount in amounts.items():
            left[what] -= amount
            if left[what] < 0:
                raise InputError(
                    f"{folder} is not built: its config asks for a model with far more {what} than its weights have"
                )

    def add_parameter(module: Any, name: str, value: Any) -> None:
        if value is not None:
            spend(tensors=1, numbers=value.numel())

    def add_buffer(module: Any, name: str, value: Any) -> None:
        if value is not None:
            check_fits(folder, value.numel() * value.element_size(), f"the buffer {name} of the model")

    hooks = [
        registry.register_module_parameter_registration_hook(add_parameter),
        registry.register_module_buffer_registration_hook(add_buffer),
        registry.register_module_module_registration_hook(lambda module, name, part: spend(parts=1)),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def parse_json(text: str | bytes, path: str | Path, what: str = "") -> Any:
    """Parse JSON from a file, if lists and objects are not nested too deeply for what is done with them later."""
    with reading(path, what):
        content = json.loads(text)
    layer, depth = [content], 0
    while layer := [one for node in layer if isinstance(node, list | dict) for one in _inside(node)]:
        depth += 1
        if depth > JSON_DEPTH:
            raise InputError(f"{path} is damaged: its JSON is nested more than {JSON_DEPTH} levels deep")
    return content


def _inside(node: Any) -> Any:
    return node.values() if isinstance(node, dict) else node


def read_small(path: str | Path, what: str, most: int = SETTINGS_BYTES) -> bytes:
    """Read a file of limited size, compressed if its name ends in .gz."""
    with reading(path, what), gzip.open(path) if os.fspath(path).endswith(".gz") else open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(f"{path} has more than {most} bytes, too many for {what}")
    return content


def read_json(path: str | Path, what: str, most: int = SETTINGS_BYTES) -> Any:
    """Read a file that holds JSON of limited size, compressed if its name ends in .gz."""
    return parse_json(read_small(path, what, most), path, what)


def read_json_lines(path: str | Path, what: str) -> list[Any]:
    """Read a file with a JSON value in each line, without a last line that was truncated."""
    with reading(path, what):
        check_fits(path, os.stat(path).st_size)
        with open(path, "rb") as file:
            *lines, _truncated = file.read().split(b"\n")
    return [parse_json(line, path, f"line {number} of {what}") for number, line in enumerate(lines, start=1)]


def read_object(path: str | Path, what: str) -> dict[str, Any]:
    """Read a file that holds one JSON object."""
    content = read_json(path, what)
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, but holds a {type(content).__name__}")
    return content
