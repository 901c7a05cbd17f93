"""`congruence check` from a cold start: the whole command in a process of its own, for each outcome.

`wall_s` and `cpu_s` include the start of Python and all imports; the best of three runs, with one thread: `wall_s`
is that of a quiet machine only where it is close to `cpu_s`. `load` is the machine's load average at the end.

    python benchmarks/check.py            # writes benchmarks/results/check.csv
    python benchmarks/check.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from congruence import Table, write_table
from congruence.testing import save_baseline

SIZES = [(1000, 384)]


def outcomes(n, d, seed=0):
    """New embeddings, by what is expected of the check."""
    rng = np.random.default_rng(seed)
    turns = [np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2)]
    x = (rng.normal(size=(n, d)) / np.sqrt(np.arange(1, d + 1)) @ turns[0]).astype(np.float32)
    yield "baseline", x
    yield "float16", x.astype(np.float16).astype(np.float32)
    yield "rotated", (x @ turns[1]).astype(np.float32)
    yield "changed", (x + 0.3 * x.std() * rng.normal(size=x.shape)).astype(np.float32)


def measured(arguments, runs):
    """The best wall time and the best CPU time of several runs of the command, and its exit code."""
    one = {**os.environ} | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    one.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: modules are compiled once
    command = [sys.executable, "-m", "congruence", "check", *map(str, arguments)]
    walls, cpus, peak = [], [], 0
    for _ in range(runs):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=one)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        walls.append(time.perf_counter() - start)
        cpus.append(used.ru_utime + used.ru_stime)
        peak = max(peak, used.ru_maxrss)
    return {
        "exit_code": process.returncode,
        "wall_s": round(min(walls), 2),
        "cpu_s": round(min(cpus), 2),
        "peak_mb": round(peak / 2**10),
    }


def rows_of(sizes, runs):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n, d in sizes:
            ids = np.array([f"d{i}" for i in range(n)])
            for what, x in outcomes(n, d):
                table = Table(x, what, ids)
                if what == "baseline":
                    save_baseline(table, folder / "b.safetensors", rows=n)
                    continue
                write_table(table, folder / "new.parquet")
                for allow in ("identity",) if what == "float16" else ("identity", "similarity"):
                    arguments = (folder / "new.parquet", "--baseline", folder / "b.safetensors", "--allow", allow)
                    found = measured(arguments, runs)
                    yield {"what": what, "allow": allow, "n": n, "d": d, **found, "load": round(os.getloadavg()[0], 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "check.csv")
    arguments = parser.parse_args()
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, python {platform.python_version()}"
    )
    done = []
    for row in rows_of([(60, 4)] if arguments.quick else SIZES, 1 if arguments.quick else 3):
        done.append({**row, "machine": machine})
        print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(done[0]))
        writer.writeheader()
        writer.writerows(done)


if __name__ == "__main__":
    main()
