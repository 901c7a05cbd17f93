"""`match_features` on dictionaries that share a known part: share found, false matches, time and memory.

Half of the cells have features spread evenly over all directions, half a covariance that falls as 1/k. The peer is what
papers do: cosines of all pairs and scipy's Hungarian method, with a fixed limit of 0.7 and no null.

    python benchmarks/features.py            # writes benchmarks/results/features.csv, minutes
    python benchmarks/features.py --quick    # seconds, for the test suite
    python benchmarks/features.py --gpu      # writes benchmarks/results/features_gpu.csv
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import resource
import time
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from congruence import __version__, match_features

HERE = Path(__file__).parent / "results"
COLUMNS = (
    "what", "m", "d", "spectrum", "shared", "cosine", "found", "false_share", "chance", "limit", "seconds", "cpu_s",
    "peak_gb", "device", "machine", "versions",
)  # fmt: skip
SIZES = ((1024, 128), (4096, 256), (16_384, 768))
SHARED, COSINES = (0.0, 0.05, 0.3, 0.9), (0.75, 0.95)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def planted(m, d, shared, cosine, spectrum, seed):
    """Two dictionaries in float32 of which a known part is shared at a known cosine, and the true partner of each."""
    rng = np.random.default_rng(seed)
    scale = np.ones(d, np.float32) if spectrum == "flat" else (1 / np.sqrt(np.arange(1, d + 1))).astype(np.float32)
    a, b = (unit(rng.standard_normal((m, d), dtype=np.float32) * scale) for _ in range(2))
    count = round(shared * m)
    noise = rng.standard_normal((count, d), dtype=np.float32)
    noise = unit(noise - (noise * a[:count]).sum(1, keepdims=True) * a[:count])  # orthogonal to the feature
    places = rng.permutation(m)[:count]
    b[places] = cosine * a[:count] + np.sqrt(1 - cosine**2) * noise
    partner = np.full(m, -1)
    partner[:count] = places
    return a, b, partner


def hungarian(a, b):
    """The matching of the literature: one to one over all features, kept from a cosine of 0.7 on."""
    cosines = a @ b.T
    rows, columns = linear_sum_assignment(cosines, maximize=True)
    found = np.full(len(a), -1)
    kept = cosines[rows, columns] >= 0.7
    found[rows[kept]] = columns[kept]
    return found


def measure(m, d, shared, cosine, spectrum, device, peer):
    a, b, partner = planted(m, d, shared, cosine, spectrum, seed=m)
    named = {"m": m, "d": d, "spectrum": spectrum, "shared": shared, "cosine": cosine, "device": device}
    start, spent = time.perf_counter(), time.process_time()
    result = match_features(a, b, aligned=True, device=device)
    took = {"seconds": time.perf_counter() - start, "cpu_s": time.process_time() - spent}
    back = result.comes_back
    wrong = back & (result.pairs[0].partner != partner)
    yield (
        named
        | took
        | {
            "what": "match_features",
            "found": float(back.mean()),
            "false_share": float(wrong.sum() / max(back.sum(), 1)),
            "chance": result.chance,
            "limit": result.pairs[0].null.limit,
            "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }
    )
    if peer:
        start, spent = time.perf_counter(), time.process_time()
        found = hungarian(a, b)
        took = {"seconds": time.perf_counter() - start, "cpu_s": time.process_time() - spent}
        wrong = float(((found >= 0) & (found != partner)).sum() / max((found >= 0).sum(), 1))
        yield named | took | {"what": "scipy, no null", "found": float((found >= 0).mean()), "false_share": wrong}


def cells(quick, gpu):
    if quick:
        return [(128, 32, 0.3, 0.95, "flat", True)]
    if gpu:
        return [(16_384, 768, 0.3, 0.95, "flat", False), (131_072, 2304, 0.3, 0.95, "flat", False)]
    laws = ("flat", "1/k")
    small = [(*SIZES[0], s, c, law, True) for s in SHARED for c in COSINES for law in laws]
    medium = [(*SIZES[1], s, 0.95, law, True) for s in (0.0, 0.3) for law in laws]
    return small + medium + [(*SIZES[2], 0.3, 0.95, law, False) for law in laws]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    threads = os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {threads} threads, load {os.getloadavg()[0]:.0f} at first"
    about = {"machine": machine, "versions": f"congruence {__version__}, numpy {np.__version__}"}
    device = "cuda" if arguments.gpu and not arguments.quick else "cpu"
    out = arguments.out or HERE / ("features_gpu.csv" if arguments.gpu else "features.csv")
    with out.open("w", newline="", buffering=1) as handle:
        write(handle, cells(arguments.quick, arguments.gpu), device, about)


def write(handle, chosen, device, about):
    """Measure and write cell by cell, since the last ones take longest."""
    writer = csv.DictWriter(handle, COLUMNS, restval="")
    writer.writeheader()
    for m, d, shared, cosine, spectrum, peer in chosen:
        for row in measure(m, d, shared, cosine, spectrum, device, peer):
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in (row | about).items()})
            print(
                {key: row[key] for key in ("what", "m", "shared", "cosine", "found", "false_share", "cpu_s")},
                flush=True,
            )


if __name__ == "__main__":
    main()
