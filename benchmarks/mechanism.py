"""How long the criteria of mechanistic independence take on decoders of pictures, and how much memory.

10 latents to 12,288 outputs (3 x 64 x 64) at 64 points, on all cores, for a dense and a convolutional decoder: all of
`check_blocks` with derivatives of order 2, and of orders 2 and 3. Each runs in its own process, whose peak resident
memory is measured, together with that of a process that only loads torch and decodes the points.

    python benchmarks/mechanism.py            # writes benchmarks/results/mechanism.csv, a few minutes
    python benchmarks/mechanism.py --quick    # seconds, for the test suite
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
from pathlib import Path

import numpy as np
import torch
from torch import nn

from congruence.mechanism import check_blocks

FULL = (10, 64, 64)  # latents, points, pixels to a side
QUICK = (3, 4, 8)
COLUMNS = (
    "decoder", "what", "latents", "outputs", "points", "seconds", "cpu_seconds", "peak_mb", "peak_without_mb",
    "verdicts", "machine", "versions",
)  # fmt: skip


def dense(latents, side):
    """A dense decoder, smooth."""
    return nn.Sequential(
        nn.Linear(latents, 256), nn.SiLU(), nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 3 * side * side)
    )


def convolutional(latents, side):
    """A decoder of transposed convolutions, smooth, as in the usual autoencoders of 64 x 64 pictures."""
    parts, channels, size = [nn.Linear(latents, 64 * 16), nn.SiLU(), nn.Unflatten(1, (64, 4, 4))], 64, 4
    while size < side:
        size, fewer = 2 * size, max(channels // 2, 16) if 2 * size < side else 3
        parts += [nn.ConvTranspose2d(channels, fewer, 4, stride=2, padding=1), nn.SiLU()]
        channels = fewer
    return nn.Sequential(*parts[:-1])


DECODERS = {"dense": dense, "convolutional": convolutional}
TASKS = {"nothing": None, "order 2": (2,), "orders 2 and 3": (2, 3)}


def measured(name, task, size):
    """What one task takes in this process."""
    latents, points, side = size
    torch.manual_seed(0)
    model = DECODERS[name](latents, side).eval()
    z = np.random.default_rng(0).normal(size=(points, latents))
    with torch.no_grad():
        outputs = model(torch.as_tensor(z, dtype=torch.float32)).flatten(1).shape[1]
    start, used = time.perf_counter(), time.process_time()
    verdicts = ""
    if TASKS[task] is not None:
        verdicts = " ".join(f"{one.name}:{one.status}" for one in check_blocks(model, z, orders=TASKS[task]).criteria)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"outputs": outputs, "seconds": seconds, "cpu": used, "peak": peak, "verdicts": verdicts}


def in_a_process(name, task):
    """The same in a process of its own, so that the largest memory is that of the task."""
    command = [sys.executable, __file__, "--one", name, task]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "mechanism.csv")
    parser.add_argument("--one", nargs=2, metavar=("DECODER", "TASK"), help="do a single task, for the processes")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    if arguments.one:
        print(json.dumps(measured(*arguments.one, size)))
        return
    load = os.getloadavg()[0]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {load:.0f} when started"
    versions = f"torch {torch.__version__}, numpy {np.__version__}"
    rows = []
    for name in DECODERS:
        without = 0.0
        for task in TASKS:
            told = measured(name, task, size) if arguments.quick else in_a_process(name, task)
            if TASKS[task] is None:
                without = told["peak"]
                continue
            row = {"decoder": name, "what": task, "latents": size[0], "outputs": told["outputs"], "points": size[1]}
            row |= {
                "seconds": round(told["seconds"], 2),
                "cpu_seconds": round(told["cpu"], 2),
                "peak_mb": round(told["peak"]),
            }
            row |= {"peak_without_mb": round(without), "verdicts": told["verdicts"]}
            rows.append(row | {"machine": machine, "versions": versions})
            print("  ".join(f"{key}={rows[-1][key]}" for key in COLUMNS[:-2]), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
