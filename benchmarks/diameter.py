"""Exact diameter against chunked scipy cdist and against the bare matrix product of all pairs.

One run: every row of the table times all three in turn (cdist and product blocks before and after the diameter), on
the same number of threads, in a process of its own, so that its peak memory is that of the data and the search.
cdist and the product visit each pair once; where that would take long they are extrapolated from timed blocks.

    python benchmarks/diameter.py            # benchmarks/results/diameter.csv, about six minutes
    python benchmarks/diameter.py --quick    # seconds, small sizes
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DATA = ("heavy-tailed", "mixture", "clusters", "mlp", "gaussian")
FULL = [
    *((data, n, d, 3, 0) for n, d in ((20_000, 64), (20_000, 384), (20_000, 768), (100_000, 128)) for data in DATA),
    *((data, 200_000, 64, 3, 0) for data in DATA),
    ("gaussian", 50_000, 384, 1, 0),
    *((data, 200_000, 768, 1, 0) for data in ("heavy-tailed", "mlp")),
    ("gaussian", 200_000, 768, 1, 5 * 10**8),  # stopped early on purpose: peak memory, and the interval
]
QUICK = [(data, 2000, 32, 1, 0) for data in DATA]
WHOLE = 1.5e10  # pairs times dimensions up to which cdist is timed on all pairs (of the first seed)
BLOCK = 2048
COLUMNS = (
    "data", "n", "d", "seed", "threads", "diameter_wall_s", "diameter_cpu_s", "cdist_wall_s", "cdist_cpu_s", "cdist",
    "product_wall_s", "product_cpu_s", "product", "times_faster_than_cdist", "times_product", "data_mb", "peak_mb",
    "exact", "low", "high", "max_pairs", "relative_error",
)  # fmt: skip
SHOWN = ("data", "n", "d", "diameter_cpu_s", "times_faster_than_cdist", "times_product", "peak_mb")


def make(data: str, n: int, d: int, seed: int) -> np.ndarray:
    """Float32 rows, made in pieces so that making them does not set the peak of memory."""
    rng = np.random.default_rng(seed)
    first, second = (rng.normal(size=(d, d)).astype(np.float32) / np.sqrt(d) for _ in range(2))
    centres = rng.normal(size=(20, d))
    x = np.empty((n, d), np.float32)
    for start in range(0, n, 4096):
        part = x[start : start + 4096]
        m = len(part)
        if data == "gaussian":
            part[:] = rng.standard_normal((m, d), dtype=np.float32)
        elif data == "heavy-tailed":
            part[:] = rng.standard_t(3, size=(m, d))
        elif data == "mixture":  # of independent sources
            part[:] = rng.laplace(size=(m, d)).astype(np.float32) @ first
        elif data == "clusters":
            scale = 0.5 * rng.uniform(0.5, 1.5, size=(m, 1))
            part[:] = centres[rng.integers(20, size=m)] + scale * rng.normal(size=(m, d))
        else:  # two layers of leaky ReLU on independent sources
            part[:] = rng.laplace(size=(m, d))
            for weight in (first, second):
                hidden = part @ weight
                part[:] = np.maximum(hidden, 0.2 * hidden)
    return x


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, wall seconds and CPU seconds of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def cdist_all(x: np.ndarray) -> float:
    from scipy.spatial.distance import cdist

    starts = range(0, len(x), BLOCK)
    return max(cdist(x[i : i + BLOCK], x[j : j + BLOCK]).max() for i in starts for j in starts if j >= i)


def cdist_block(x: np.ndarray) -> int:
    from scipy.spatial.distance import cdist

    block = cdist(x[:512], x[512 : 512 + BLOCK])
    block.max()
    return block.size


def product_block(x: np.ndarray) -> int:
    a, b = x[:BLOCK], x[-BLOCK:]
    for _ in range(3):
        _ = a @ b.T
    return 3 * len(a) * len(b)


def run_case(data: str, n: int, d: int, seed: int, max_pairs: int) -> dict[str, Any]:
    from congruence import diameter

    x = make(data, n, d, seed)
    pairs = n * (n - 1) / 2
    whole = pairs * d <= WHOLE and seed == 0
    seconds: dict[str, list[tuple[float, float]]] = {"cdist": [], "product": []}

    def blocks() -> None:
        for name, call in (("cdist", cdist_block), ("product", product_block)):
            count, wall, cpu = timed(lambda call=call: call(x))
            seconds[name].append((wall / count * pairs, cpu / count * pairs))

    cdist_block(x), product_block(x), diameter(x[:1000])  # imports and first calls are not timed
    blocks()
    found, wall, cpu = timed(lambda: diameter(x, max_pairs=max_pairs or None))
    blocks()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    truth: float | None = None
    if whole:
        truth, *spent = timed(lambda: cdist_all(x))
        seconds["cdist"] = [(spent[0], spent[1])]
    cdist_wall, cdist_cpu = np.mean(seconds["cdist"], axis=0)
    product_wall, product_cpu = np.mean(seconds["product"], axis=0)
    values = (
        data, n, d, seed, int(os.environ["OPENBLAS_NUM_THREADS"]), round(wall, 3), round(cpu, 3),
        round(cdist_wall, 2), round(cdist_cpu, 2), "timed" if whole else "extrapolated",
        round(product_wall, 3), round(product_cpu, 3), "extrapolated",
        round(cdist_cpu / cpu, 1) if found.exact else "", round(cpu / product_cpu, 3) if found.exact else "",
        round(x.nbytes / 1e6), round(peak), found.exact, found.low, found.high,
        max_pairs or "default", "" if truth is None else abs(found.value / truth - 1),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def machine(threads: int) -> list[str]:
    import scipy

    model = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    versions = f"Python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}"
    return [
        f"# {model}, {os.cpu_count()} cores, {threads} thread on every side; {versions}",
        f"# load average when started {os.getloadavg()[0]:.1f}; the machine was shared: compare CPU seconds in a row",
        "# cdist and product visit each pair once; extrapolated: from blocks timed just before and after the diameter",
        "# peak_mb: the whole process, data included",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, a few seconds")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "diameter.csv")
    parser.add_argument("--threads", type=int, default=1, help="of the products; cdist has one")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(run_case(*json.loads(args.case))))
        return

    threads = {f"{library}_NUM_THREADS": str(args.threads) for library in ("OPENBLAS", "OMP", "MKL")}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w", newline="") as file:
        file.writelines(line + "\n" for line in machine(args.threads))
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for data, n, d, seeds, max_pairs in QUICK if args.quick else FULL:
            for seed in range(seeds):
                command = [sys.executable, __file__, "--case", json.dumps([data, n, d, seed, max_pairs])]
                done = subprocess.run(command, env=os.environ | threads, stdout=subprocess.PIPE, text=True, check=True)
                row = json.loads(done.stdout)
                writer.writerow(row)
                file.flush()
                print(*(f"{name} {row[name]}" for name in SHOWN), sep=", ", flush=True)


if __name__ == "__main__":
    main()
