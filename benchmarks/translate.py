"""The time of `translate apply`, and of the matrix product alone.

One run, interleaved, the same threads on both sides; wall and CPU seconds, the median over repetitions.

    python benchmarks/translate.py            # writes benchmarks/results/translate.csv
    python benchmarks/translate.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import platform
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from congruence.arrays import finite_rows
from congruence.maps.groups import fit_map
from congruence.tables import Stream, Table, stream_table, write_stream
from congruence.translation import Translator

SIZES = [(20_000, 64), (20_000, 256), (100_000, 128), (100_000, 256), (50_000, 512)]


def data(n, d, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d), dtype=np.float32)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0].astype(np.float32)
    return x, x @ turn + np.float32(0.1) * rng.standard_normal((n, d), dtype=np.float32)


def bare_product(x, h, path):
    """Read, multiply and write: the least that translating a file can cost."""
    rows = np.load(path, mmap_mode="r")
    matrix = h.matrix.astype(np.float32)
    shift = (h.target_mean - h.source_mean @ h.matrix).astype(np.float32)
    out = np.lib.format.open_memmap(path.with_name("bare.npy"), mode="w+", dtype=np.float32, shape=x.shape)
    for start in range(0, len(x), 16_384):
        out[start : start + 16_384] = rows[start : start + 16_384] @ matrix + shift
    out.flush()


def translated(x, h, path):
    """`congruence translate apply` on the same file."""
    translator = Translator(h, None, x.shape[1], x.shape[1])
    stream = stream_table(path)
    chunks = (Table(translator(chunk.values), "t") for chunk in stream.chunks if finite_rows(chunk.values).all())
    write_stream(Stream(stream.n, chunks), path.with_name("translated.npy"))


def timed(work):
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def against(name, mine, theirs, n, d, repeats):
    """Run both sides in turn and report the ratio of medians."""
    sides = {"ours": mine, "peer": theirs}
    runs = {side: [] for side in sides}
    for _ in range(repeats):
        for side, work in sides.items():
            runs[side].append(timed(work))
    wall = {side: statistics.median(w for w, _ in times) for side, times in runs.items()}
    cpu = {side: statistics.median(c for _, c in times) for side, times in runs.items()}
    row = {"what": name, "n": n, "d": d, "repeats": repeats}
    row |= {f"{side}_wall_s": round(wall[side], 3) for side in sides} | {
        f"{side}_cpu_s": round(cpu[side], 3) for side in sides
    }
    row["wall_ratio"] = round(wall["ours"] / wall["peer"], 2)
    row["cpu_ratio"] = round(cpu["ours"] / cpu["peer"], 2)
    print("  ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "translate.csv")
    arguments = parser.parse_args()
    sizes, repeats = ([(500, 8)], 1) if arguments.quick else (SIZES, 3)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for n, d in sizes:
            x, y = data(n, d, seed=0)
            path = Path(folder) / "x.npy"
            np.save(path, x)
            h = fit_map(x[:2000], y[:2000], "linear")
            work = partial(translated, x, h, path), partial(bare_product, x, h, path)
            rows.append(against("translate apply / bare product", *work, n, d, repeats))
    machine = f"{platform.machine()}, {np.__config__.CONFIG['Build Dependencies']['blas']['name']}"
    versions = f"numpy {np.__version__}, python {platform.python_version()}"
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, [*rows[0], "machine", "versions"])
        writer.writeheader()
        writer.writerows({**row, "machine": machine, "versions": versions} for row in rows)


if __name__ == "__main__":
    main()
