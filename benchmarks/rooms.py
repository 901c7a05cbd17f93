"""How long rooms and sprites take to draw, on the CPU and, where there is one, on a GPU.

On a GPU all combinations of the grid are drawn (480,000 rooms, 737,280 sprites) and stay there; on the CPU a part of
them. Both with levels of the grid and with continuous factors, where no two pictures share their rays. The first 500
pictures are drawn on the CPU again: `largest_difference` is in steps of 255, and `share_different` of all values.

    python benchmarks/rooms.py            # writes benchmarks/results/rooms.csv, about a minute
    python benchmarks/rooms.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from congruence.experiments.data import rooms, sprites
from congruence.experiments.data.room_images import ROOMS
from congruence.experiments.data.sprite_images import SPRITES

ON_CPU, QUICK = 10_000, 200
AGAIN = 500
COLUMNS = (
    "data", "factors", "device", "images", "repeats", "seconds", "images_per_s", "gpu_gb", "largest_difference",
    "share_different", "machine", "versions",
)  # fmt: skip


def drawn(make, n, continuous, device):
    """The images and how long they took."""
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    data = make(n, continuous=continuous, device=device)
    if device != "cpu":
        torch.cuda.synchronize()
    return data, time.perf_counter() - start


def compared(twin, data, continuous):
    """The first images compared with those of the CPU: the largest difference, and the share that differs."""
    factors = data.factors[:AGAIN]
    again = twin.draw(factors if continuous else twin.values(factors), 64, "cpu").int()
    apart = (data.images[:AGAIN].cpu().int() - again).abs()
    return int(apart.max()), float((apart > 0).double().mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "rooms.csv")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    cores = f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    versions = f"torch {torch.__version__}, numpy {np.__version__}"
    rows = []
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        where = torch.cuda.get_device_name() if device == "cuda" else f"{cores}, load {load:.0f} when started"
        few = QUICK if arguments.quick else ON_CPU if device == "cpu" else None
        repeats = 1 if arguments.quick else arguments.repeats
        for twin, make in ((ROOMS, rooms), (SPRITES, sprites)):
            for continuous in (False, True):
                drawn(make, 50, continuous, device)  # what is loaded once is not timed
                times = []
                for _ in range(repeats):
                    data = None  # the last ones make room
                    data, spent = drawn(make, few, continuous, device)
                    times.append(spent)
                seconds, (largest, share) = statistics.median(times), compared(twin, data, continuous)
                memory = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
                row = {"data": twin.name, "factors": "continuous" if continuous else "grid", "device": device}
                row |= {"images": len(data), "repeats": repeats, "seconds": round(seconds, 3)}
                row |= {"images_per_s": round(len(data) / seconds), "gpu_gb": round(memory, 1)}
                row |= {"largest_difference": largest, "share_different": f"{share:.1e}"}
                row |= {"machine": where, "versions": versions}
                rows.append(row)
                print("  ".join(f"{key}={row[key]}" for key in COLUMNS if key != "versions"), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
