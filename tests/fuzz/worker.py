"""Read damaged files one after the other, and say of each, in a line of JSON, what came of it.

Run as a process of its own by run.py, which watches it: a reader that crashes or loops takes this process with it.
"""

import argparse
import gc
import json
import os
import resource
import shutil
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np
from folders import READERS, make_folder
from mutate import mutate_file, mutate_folder
from samples import make_sample

from congruence.errors import CongruenceError
from congruence.tables import Table, _hdf5, read_table

READ_LIMIT = 2**26  # bytes that read_table may need: enough for the samples, nothing like what absurd headers want
SPARE = 2**34  # bytes of address space above what the libraries take; running out of it is a failure
GROWTH = 2**29  # bytes of memory really used above what was used before


def check_table(table: Table) -> str:
    """Look at every part of a table; return what is wrong with it, or nothing."""
    values = np.asarray(table.values)
    if values.ndim != 2 or values.dtype.kind not in "fiu" or 0 in values.shape:
        return f"values of shape {values.shape} and dtype {values.dtype}"
    if values.nbytes > READ_LIMIT:
        return f"{values.nbytes} bytes of values"
    with np.errstate(all="ignore"):
        values.sum()  # touches what is mapped
    columns = [*table.metadata.values(), *([] if table.ids is None else [table.ids])]
    wrong = [column.shape for column in columns if len(column.tolist()) != table.n]
    return f"columns of shape {wrong} beside {table.n} rows" if wrong else ""


def check_error(error: BaseException, path: Path) -> str:
    """Return what is wrong with the way a file was refused, or nothing."""
    message = str(error)
    if not isinstance(error, CongruenceError):
        return f"{type(error).__name__}: {message[:300]}"
    if isinstance(error.__cause__, MemoryError):
        return f"memory ran out before the size was checked: {message[:300]}"
    if not message.isprintable() or len(message) > 2000 or str(path) not in message:
        return f"the message is not one sentence that names the file: {message[:300]!r}"
    return ""


def peak() -> int:
    """Return the most memory this process ever used, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def try_case(path: Path) -> tuple[str, str]:
    """Read a file; return how it ended, and what was wrong with that."""
    before = peak()
    end, wrong = try_reading(path)
    grown = peak() - before
    return end, wrong or (f"{grown} bytes of memory were used" if grown > GROWTH else "")


def try_reading(path: Path) -> tuple[str, str]:
    try:
        if path.name in READERS:
            READERS[path.name][1](path)
            return "read", ""
        table = read_table(path)
    except BaseException as error:
        return f"refused: {str(error)[:160]}", check_error(error, path)
    return f"read ({table.values.shape})", check_table(table)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="for the damaged files, which are left there")
    parser.add_argument("cases", nargs="+", help="NAME:SEED")
    options = parser.parse_args()
    os.environ["CONGRUENCE_MAX_BYTES"] = str(READ_LIMIT)
    warnings.simplefilter("error")
    _hdf5.CPU_SECONDS = 2  # an endless loop is met often here
    whole = Path(tempfile.mkdtemp(prefix="whole.", dir=options.folder))
    for name in sorted({case.split(":")[0] for case in options.cases}):
        broken = try_case((make_folder if name in READERS else make_sample)(name, whole))[
            1
        ]  # this also loads the libraries, before memory is counted
        if broken:
            raise SystemExit(f"the valid sample {name} is not read: {broken}")
    gc.freeze()
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (taken + SPARE, -1))
    for case in options.cases:
        name, seed = case.split(":")
        rng = np.random.default_rng([zlib.crc32(name.encode()), int(seed)])
        folder = Path(tempfile.mkdtemp(prefix=f"{seed}.", dir=options.folder))
        path = folder / name
        (shutil.copytree if (whole / name).is_dir() else shutil.copy)(whole / name, path)
        done = mutate_folder(path, rng) if path.is_dir() else mutate_file(path, rng)
        print(json.dumps({"case": case, "mutation": done}), flush=True)
        end, wrong = try_case(path)
        print(json.dumps({"case": case, "end": end, "wrong": wrong}), flush=True)
    os._exit(0)  # the libraries' threads are not waited for


if __name__ == "__main__":
    main()
