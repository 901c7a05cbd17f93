"""Reader of .pt and .pth files: tensors saved with torch.save."""

from __future__ import annotations

import io
import mmap
import pickletools
import re
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import is_tensor, to_numpy
from congruence.errors import TableError
from congruence.tables.access import require
from congruence.tables.columns import Selection
from congruence.tables.memory import check_fits
from congruence.tables.read_arrays import VALUES, Entry, table_from_entries
from congruence.tables.table import Table

# All that a file of tensors names. torch's own weights_only list is longer, and on it stand calls that take as much
# memory as a few bytes ask for, such as bytearray(10**12).
TENSOR_GLOBALS = re.compile(
    r"collections OrderedDict|torch Size|torch\._utils _rebuild_(tensor|tensor_v2|tensor_v3|parameter)"
    r"|torch\.nn\.parameter Parameter|torch (\w+Storage|b?float\w*|u?int\d+|bool|double|half|short|long)"
    r"|torch\.storage UntypedStorage"
)
LEGACY_PICKLES = 5  # the file of before torch 1.6: magic number, version, system, object, names of the storages


def read_pt(path: Path, select: Selection) -> Table:
    """Read a tensor, or a dict of tensors, saved with torch.save; mapped into memory where torch can."""
    from pickle import UnpicklingError

    torch = require("torch", "torch", path)
    try:
        loaded = _load_zip(path, torch) if zipfile.is_zipfile(path) else _load_legacy(path, torch)
    except UnpicklingError as error:
        raise TableError(_refusal(path)) from error
    arrays = loaded if isinstance(loaded, dict) else {VALUES: loaded}
    entries = {}
    for name, item in arrays.items():
        if is_tensor(item):
            entries[str(name)] = Entry(tuple(item.shape), partial(to_numpy, item), _memory(item))
        elif isinstance(item, list | tuple) and all(isinstance(part, str | int | float) for part in item):
            entries[str(name)] = Entry((len(item),), partial(np.asarray, item))
    return table_from_entries(path, entries, select)


def _load_zip(path: Path, torch: Any) -> Any:
    """Load the zip format, torch's default since 1.6, which can be mapped."""
    with zipfile.ZipFile(path) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise TableError(f"{path} is compressed, which torch.save does not do; save it anew")
        for member in archive.namelist():
            if member.endswith("data.pkl"):
                _check_pickle(path, io.BytesIO(archive.read(member)), 1)
    return torch.load(str(path), weights_only=True, mmap=True, map_location="cpu")


def _load_legacy(path: Path, torch: Any) -> Any:
    """Load the format of before torch 1.6, which has to be read whole."""
    check_fits(path, path.stat().st_size)
    # A map hands out no more bytes than there are, whatever length the file claims.
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        _check_pickle(path, mapped, LEGACY_PICKLES)
        mapped.seek(0)
        return torch.load(mapped, weights_only=True, map_location="cpu")


def _check_pickle(path: Path, stream: Any, count: int) -> None:
    """Refuse, without running it, a pickle that calls for anything but the parts of tensors."""
    for _ in range(count):
        for opcode, argument, _ in pickletools.genops(stream):
            by_name = opcode.name in ("GLOBAL", "INST") and TENSOR_GLOBALS.fullmatch(str(argument))
            if opcode.name in ("GLOBAL", "INST", "STACK_GLOBAL") and not by_name:
                raise TableError(_refusal(path))


def _memory(tensor: Any) -> int:
    """Return the bytes that using a tensor as an array takes, beyond those of its storage."""
    if str(tensor.dtype) == "torch.bfloat16":
        return 4 * int(tensor.numel())
    size = int(tensor.numel()) * int(tensor.element_size())
    # A stride of 0 makes a matrix of any size out of one number.
    stored = str(tensor.layout) == "torch.strided" and size <= tensor.untyped_storage().nbytes()
    return 0 if stored else size


def _refusal(path: Path) -> str:
    return (
        f"{path} is damaged or holds Python objects besides tensors, which are never unpickled "
        "because they may run code; save tensors only, as in torch.save({'values': x}, path)"
    )
