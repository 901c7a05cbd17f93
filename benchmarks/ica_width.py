"""How many rows wide data need: the share of sources found from a random start and from a spectral one.

The rows are a rotation of half Laplace, half uniform sources, whitened; a source counts as found where a component
correlates with it by more than 0.9. `work` is the cost in full passes: a pass over some of the components counts as
their share of one, and a spectral start as eight.

    python benchmarks/ica_width.py            # writes benchmarks/results/ica_width.csv; some ten minutes on one core
    python benchmarks/ica_width.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import time
from pathlib import Path

import numpy as np

from congruence.ica._contrasts import contrast_named
from congruence.ica._passes import Passes
from congruence.ica._point import random_gradient, random_rotation
from congruence.ica._solver import solve
from congruence.ica._spectral import random_start_rows, rows_needed, spectral_rotation

WIDTHS = {64: (0.25, 0.5, 1, 2, 4, 8), 128: (0.25, 0.5, 1, 2, 4), 256: (0.125, 0.25, 0.5, 0.75, 1, 2)}
CAP = 200


class Counted(Passes):
    """Passes that add up their cost."""

    work = 0.0

    def averages(self, rotation, *, rough=False):
        self.work += len(rotation) / self.k
        return super().averages(rotation, rough=rough)

    def fourth(self, matrix):
        self.work += 1
        return super().fourth(matrix)


def halves(n, d, rng):
    """White rows (n, d), and the axes of their sources as columns."""
    sources = np.empty((n, d))
    sources[:, ::2], sources[:, 1::2] = rng.laplace(size=(n, (d + 1) // 2)), rng.uniform(-1, 1, size=(n, d // 2))
    sources -= sources.mean(0)
    values, vectors = np.linalg.eigh(sources.T @ sources / n)
    axes = random_rotation(d, rng)
    return (sources @ (vectors / np.sqrt(values)) @ vectors.T @ axes.T).astype(np.float32), axes


def measure(d, ratio, seed):
    n, rng = int(ratio * d**2), np.random.default_rng(seed)
    z, axes = halves(n, d, rng)
    begin = random_rotation(d, rng)
    for start in ("random", "spectral"):
        source = Counted(z, np.zeros(d), np.eye(d), contrast_named("logcosh"), precision="float32")
        reference = random_gradient(source, np.random.default_rng(seed), n)
        source.work, cpu = 0.0, time.process_time()
        first = begin if start == "random" else spectral_rotation(source, begin, rng)
        solution = solve(source, first, reference=reference, max_iter=CAP)
        cpu = time.process_time() - cpu
        found = np.abs(solution.rotation @ axes).max(0) > 0.9
        yield {
            "d": d,
            "rows_per_d2": ratio,
            "rows": n,
            "rows_for_random": int(random_start_rows(d)),
            "rows_for_spectral": rows_needed(d),
            "seed": seed,
            "start": start,
            "laplace_found": round(float(found[::2].mean()), 3),
            "uniform_found": round(float(found[1::2].mean()), 3),
            "not_noise": round(float(1 - solution.point.noise.mean()), 3),
            "reason": solution.reason,
            "passes": len(solution.changes),
            "work": round(source.work, 1),
            "cpu_s": round(cpu, 2),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ica_width.csv")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    plan = [(d, ratio, seed) for d, ratios in WIDTHS.items() for ratio in ratios for seed in range(options.seeds)]
    plan = [(8, 20, 0)] if options.quick else plan
    rows = []
    for job in plan:
        for row in measure(*job):
            rows.append({**row, "machine": f"{platform.machine()}, {os.cpu_count()} cores"})
            print(*row.values(), flush=True)
    with options.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
