"""How long `deconfound` takes at the size of the paper's screen, and how much memory, step by step.

222,000 rows of 384 numbers on 180 plates are simulated. Whitening and ICA are fitted once on all rows, on the device;
then six genes with one guide each are separated from 25,000 controls in five folds, in four conditions, by 100
rounds of trees on `--jobs` cores, transforms being fitted again for every fold. `fits` are sets of trees. Peak memory
is that of the process (all steps so far) and, on a GPU, what torch took there.

    python benchmarks/deconfound.py            # writes benchmarks/results/deconfound.csv
    python benchmarks/deconfound.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import resource
import time
from pathlib import Path

import lightgbm
import numpy as np
import torch

from congruence import ICA
from congruence.batches import deconfound
from congruence.experiments.data.screen import CONTROL, simulate_screen
from congruence.experiments.recipes.deconfounding.screen import CONDITIONS, tree_labels

FULL = {"n": 222_000, "d": 384, "plates": 180}
QUICK = {"n": 1200, "d": 24, "plates": 15, "share": 0.03}
FOLDS, ROUNDS, CONTROLS = 5, 100, 25_000
COLUMNS = (
    "step", "n", "d", "device", "jobs", "fits", "seconds", "peak_gb", "gpu_gb", "machine", "versions",
)  # fmt: skip


def whole(screen, device, jobs, quick):
    labels = tree_labels(screen, 1, CONTROLS, 0)
    return deconfound(
        screen.x, batch=screen.plate, target=labels, control=CONTROL, positive=list(screen.genes),
        guide=screen.guide, components="all", conditions=CONDITIONS, folds=3 if quick else FOLDS,
        rounds=5 if quick else ROUNDS, rotations=1, concentration=(), leakage=False, retrieval=False, profiles=False,
        jobs=jobs, device=device,
    )  # fmt: skip


def timed(work):
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "deconfound.csv")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    machine = f"{platform.machine()}, {os.cpu_count()} cores" + (f", {torch.cuda.get_device_name()}" if on_gpu else "")
    versions = f"torch {torch.__version__}, lightgbm {lightgbm.__version__}, numpy {np.__version__}"
    rows = []

    def note(step, seconds, jobs, fits):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        gpu = round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else ""
        values = (
            step, size["n"], size["d"], device, jobs, fits, round(seconds, 2), round(peak, 2), gpu, machine, versions,
        )  # fmt: skip
        rows.append(dict(zip(COLUMNS, values, strict=True)))
        print(*values, flush=True)

    screen, seconds = timed(lambda: simulate_screen(dial=0.2, seed=0, **size))
    note("simulate", seconds, 1, 0)
    _, seconds = timed(lambda: ICA(device=device, starts=1, check=False, random_state=0).fit(screen.x))
    note("whitening and ICA of all rows", seconds, 1, 0)
    found, seconds = timed(lambda: whole(screen, device, arguments.jobs, arguments.quick))
    fits = sum(score.auroc.size for target in found.targets for score in target.scores.values())
    note("deconfound", seconds, arguments.jobs, fits)
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
