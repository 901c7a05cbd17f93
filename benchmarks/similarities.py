"""What similarity measures give for two unrelated Gaussian runs of 1000 rows, in sample.

A row has the mean over `--repeats` pairs of runs for each width. docs/similarities.md quotes them.

    python benchmarks/similarities.py            # writes benchmarks/results/similarities.csv
    python benchmarks/similarities.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from congruence.align.similarities import MEASURES

NAMES = ("cka", "plain_cka", "svcca", "pwcca", "rsa", "neighbour_overlap", "procrustes", "strong_mcc", "weak_mcc")
ROWS, WIDTHS = 1000, (8, 64, 512)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="200 rows, two widths, one pair of runs")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "similarities.csv")
    arguments = parser.parse_args()
    rows, widths = (200, WIDTHS[:2]) if arguments.quick else (ROWS, WIDTHS)
    repeats = 1 if arguments.quick else arguments.repeats
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["rows", "d", "repeats", *NAMES])
        for d in widths:
            values = []
            for seed in range(repeats):
                x, y = np.random.default_rng(seed).normal(size=(2, rows, d))
                values.append([MEASURES[name].function(x, y) for name in NAMES])
            writer.writerow([rows, d, repeats, *(f"{mean:.4f}" for mean in np.mean(values, axis=0))])


if __name__ == "__main__":
    main()
