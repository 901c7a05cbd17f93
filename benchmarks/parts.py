"""The memory of `congruence compare` for two runs that are stored in many parquet files.

Each part has 600 rows of 128 float32 numbers. `anonymous_mb` is the largest memory that cannot be released, sampled
every 20 ms; the rows of a large table are in a temporary file, whose pages the system releases when it needs memory.

    python benchmarks/parts.py            # writes benchmarks/results/parts.csv, about five minutes
    python benchmarks/parts.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from congruence import Table, write_table

ROWS, DIMENSIONS = 600, 128
COUNTS, QUICK = (1, 100, 300, 1000), (2,)
GROUPS = {"without ica": ("--groups", "identity,rigid,similarity,linear"), "all": ("--groups", "all")}


def write_parts(folder, count, d, seed=0):
    """Two runs that differ by a rotation and noise, as folders of parts."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    for part in range(count):
        ids = np.array([f"r{i}" for i in range(part * ROWS, (part + 1) * ROWS)])
        x = rng.laplace(size=(ROWS, d))
        for name, values in (("a", x), ("b", x @ turn + 0.1 * rng.normal(size=x.shape))):
            (folder / name).mkdir(exist_ok=True)
            write_table(Table(values.astype(np.float32), name, ids), folder / name / f"part{part:05d}.parquet")


def measured(arguments):
    """Exit code, seconds and the largest anonymous memory in MB of a command."""
    command = [sys.executable, "-m", "congruence", *map(str, arguments)]
    start, peak = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max([peak, *map(int, re.findall(r"RssAnon:\s+(\d+)", status))])
            time.sleep(0.02)
    seconds = time.perf_counter() - start
    return {"exit_code": process.returncode, "seconds": round(seconds, 1), "anonymous_mb": round(peak / 1024)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "parts.csv")
    arguments = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}"
    d, done = 4 if arguments.quick else DIMENSIONS, []
    for count in QUICK if arguments.quick else COUNTS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_parts(folder, count, d)
            for groups, option in GROUPS.items():
                row = {"parts": count, "rows": count * ROWS, "dimensions": d, "groups": groups}
                row |= measured(["compare", folder / "a", folder / "b", *option])
                done.append({**row, "load": round(os.getloadavg()[0], 1), "machine": machine})
                print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(done[0]))
        writer.writeheader()
        writer.writerows(done)


if __name__ == "__main__":
    main()
