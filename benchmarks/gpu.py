"""`compare` on a GPU and on the CPU of the same machine: python benchmarks/gpu.py --out results.csv."""

from __future__ import annotations

import argparse
import csv
import resource
import time
from pathlib import Path

import numpy as np
import torch

from congruence.align._compare import compare

GROUPS = ("identity", "permutation", "rigid", "similarity", "linear")


def data(n, d):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d), dtype=np.float32) * np.float32(1 + np.arange(d) % 7)
    heavy = rng.standard_t(3, size=(n, 1)).astype(np.float32)  # so that the diameter can be pruned
    x *= 1 + np.abs(heavy)
    return x, x @ np.linalg.qr(rng.normal(size=(d, d)))[0].astype(np.float32) + np.float32(0.3) * rng.standard_normal(
        (n, d), dtype=np.float32
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", default="100000x256,1000000x256")
    parser.add_argument("--nulls", type=int, default=2)
    arguments = parser.parse_args()
    rows = []
    for size in arguments.sizes.split(","):
        n, d = map(int, size.split("x"))
        x, y = data(n, d)
        answers = {}
        devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
        for device in devices:
            start = time.perf_counter()
            result = compare({"x": x, "y": y}, groups=GROUPS, nulls=arguments.nulls, device=device)
            seconds = time.perf_counter() - start
            answers[device] = result
            pair = result.pairs[0]
            rows.append(
                {
                    "n": n,
                    "d": d,
                    "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
                    "wall_s": round(seconds, 2),
                    "similarity_held_out": f"{pair.groups['similarity'].held_out.mean:.10f}",
                    "linear_held_out": f"{pair.groups['linear'].held_out.mean:.10f}",
                    "diameter_exact": pair.diameter_exact,
                    "peak_rss_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
                    "peak_gpu_gb": round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else "",
                }
            )
            print(rows[-1], flush=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
