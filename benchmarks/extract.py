"""Time of extraction from an array on disk to a table on disk, compared with the bare forward pass over the same rows.

One run, interleaved, the same threads, batches and weights; the median over repetitions. The bare pass keeps nothing.

    python benchmarks/extract.py            # writes benchmarks/results/extract.csv, about a minute
    python benchmarks/extract.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from congruence.activations import array_inputs, extract

# rows, side of the images, channels, repetitions
FULL = (2048, 64, 64, 5)
QUICK = (32, 16, 8, 1)
BATCH = 64
COLUMNS = ("what", "rows", "side", "width", "batch", "repeats", "ours_s", "bare_s", "ratio", "machine", "versions")


class Net(nn.Module):
    """Three convolutions, in two layers that are caught."""

    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU())
        self.body = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(), nn.Conv2d(2 * width, 4 * width, 3, 1, 1)
        )

    def forward(self, x):
        return self.body(self.stem(x))


def bare(model, path):
    rows = np.load(path, mmap_mode="r")
    with torch.inference_mode():
        for start in range(0, len(rows), BATCH):
            model(torch.as_tensor(np.array(rows[start : start + BATCH])))


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "extract.csv")
    arguments = parser.parse_args()
    n, side, width, repeats = QUICK if arguments.quick else FULL
    torch.manual_seed(0)
    model = Net(width).eval()
    layers, load = ["stem", "body"], os.getloadavg()[0]
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        np.save(path, np.random.default_rng(0).normal(size=(n, 3, side, side)).astype(np.float32))

        def run():
            out = Path(folder) / "{layer}.parquet"
            extract(model, array_inputs(path), layers, out, pool="mean", batch=BATCH, device="cpu")

        run(), bare(model, path)  # imports and the first touch of memory are not timed
        for _ in range(repeats):
            theirs.append(timed(lambda: bare(model, path)))
            ours.append(timed(run))
    a, b = statistics.median(ours), statistics.median(theirs)
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads, load {load:.1f}"
    versions = f"torch {torch.__version__}, numpy {np.__version__}"
    row = ("extract 2 layers, mean", n, side, width, BATCH, repeats, f"{a:.4g}", f"{b:.4g}", f"{a / b:.3f}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerow((*row, machine, versions))
    print(f"extraction {a:.3g} s, bare forward pass {b:.3g} s, ratio {a / b:.3f}")


if __name__ == "__main__":
    main()
