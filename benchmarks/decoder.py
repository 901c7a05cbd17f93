"""Time of the exact spectra of a decoder's Jacobians, compared with a loop over torch.autograd.functional.jacobian.

One run, interleaved, one thread on both sides, the same points and the same weights; the median over repetitions. The
loop is timed in its three forms (plain, vectorized, vectorized and forwards) on a part of the points, and its time is
scaled up to all of them.

    python benchmarks/decoder.py            # writes benchmarks/results/decoder.csv, about two minutes
    python benchmarks/decoder.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from congruence import bilipschitz

# widths from latents to outputs, points, points of the loop, repetitions
FULL = ((32, 256, 512, 784), 1000, 100, 3)
QUICK = ((8, 16, 24, 40), 60, 30, 1)
COLUMNS = (
    "what", "latents", "outputs", "points", "peer_points", "repeats", "ours_s", "peer_s", "times_faster",
    "largest_difference", "peer", "machine", "versions",
)  # fmt: skip


def decoder(widths):
    torch.manual_seed(0)
    parts = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.LeakyReLU(0.3))]
    return nn.Sequential(*parts[:-1]).eval()


def loop(model, z, **how):
    """One Jacobian after the other, with its singular values in float64."""
    jacobian = torch.autograd.functional.jacobian
    found = [jacobian(lambda one: model(one[None])[0], row, **how) for row in z]
    return np.stack([torch.linalg.svdvals(J.double()).numpy() for J in found])


def timed(work):
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "decoder.csv")
    arguments = parser.parse_args()
    widths, points, few, repeats = QUICK if arguments.quick else FULL
    torch.set_num_threads(1)
    model = decoder(widths)
    for weight in model.parameters():
        weight.requires_grad_(False)  # the loop would otherwise keep the graph of the weights as well
    z = torch.as_tensor(np.random.default_rng(0).normal(size=(points, widths[0])), dtype=torch.float32)
    peers = {
        "loop over functional.jacobian": {},
        "loop over functional.jacobian, vectorize": {"vectorize": True},
        "loop over functional.jacobian, vectorize, forward": {"vectorize": True, "strategy": "forward-mode"},
    }
    seconds, results = {"ours": [], **{name: [] for name in peers}}, {}
    load = os.getloadavg()[0]
    with threadpool_limits(1):
        bilipschitz(model, z[:10])  # imports are not timed
        for how in peers.values():
            loop(model, z[:2], **how)
        for _ in range(repeats):
            found, spent = timed(lambda: bilipschitz(model, z, method="exact").spectra)
            seconds["ours"].append(spent)
            for name, how in peers.items():
                results[name], spent = timed(lambda how=how: loop(model, z[:few], **how))
                seconds[name].append(spent * points / few)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, load {load:.0f} when started"
    versions = f"torch {torch.__version__}, numpy {np.__version__}"
    ours = statistics.median(seconds["ours"])
    rows = []
    for name in peers:
        theirs = statistics.median(seconds[name])
        row = {"what": "exact spectra", "latents": widths[0], "outputs": widths[-1], "points": points}
        row |= {"peer_points": few, "repeats": repeats, "ours_s": round(ours, 3), "peer_s": round(theirs, 3)}
        row |= {"times_faster": round(theirs / ours, 1), "peer": name, "machine": machine, "versions": versions}
        row["largest_difference"] = f"{np.abs(results[name] / found[:few] - 1).max():.1e}"
        rows.append(row)
        print("  ".join(f"{key}={row[key]}" for key in COLUMNS if key not in ("machine", "versions")), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
