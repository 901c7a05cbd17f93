"""When ICA recovers the rotation between two runs: rows for each dimension, noise, Gaussian sources, classes.

Two runs are the same sources (32 dimensions of unit variance), rotated at random, each with noise of its own. `compare`
maps one onto the other: up to a permutation, up to a rotation and scale (supervised), and by ICA of each run alone. The
held-out efficiency is the share of the gain of the rotation over the permutation that ICA reaches: 1 is all of it, and
below 0 ICA is worse than matching the raw dimensions.

Sources are independent and Laplace. One thing is changed at a time; where it is not changed there are 100 rows for each
dimension, and noise with a standard deviation of 0.1.

- `rows`: rows for each dimension.
- `noise`: the standard deviation of the noise of each run.
- `gaussian`: the share of the sources that are Gaussian instead.
- `classes`: the share of the variance that lies between ten classes, whose means are random; within classes sources are
  Laplace (`classes, laplace`) or Gaussian (`classes, gaussian`).

Ten seeds; an interval is a t interval over them. `recovers` says whether the interval lies above 0.9, a limit
fixed before the run.

    python benchmarks/ica_rotation.py   # writes results/ica_rotation.csv
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from scipy import stats

from congruence import compare
from congruence.errors import CongruenceWarning

WIDTH, CLASSES, RECOVERS = 32, 10, 0.9
PLAIN = {"rows": 100, "noise": 0.1, "gaussian": 0.0, "classes": 0.0, "inside": "laplace"}
CHANGES = {
    "rows": [{"rows": value} for value in (4, 6, 10, 20, 50, 100, 200)],
    "noise": [{"noise": value} for value in (0.0, 0.1, 0.3, 0.5, 1.0)],
    "gaussian": [{"gaussian": value} for value in (0.0, 0.25, 0.5, 0.75, 1.0)],
    "classes, laplace": [{"classes": value} for value in (0.0, 0.25, 0.5, 0.75, 0.95)],
    "classes, gaussian": [{"classes": value, "inside": "gaussian"} for value in (0.25, 0.5, 0.75, 0.95)],
}
COLUMNS = (
    "changed",
    "value",
    "efficiency",
    "low",
    "high",
    "recovers",
    "permutation",
    "rotation",
    "ica",
    "null",
    "seeds",
)


def draw(rng, rows, noise, gaussian, classes, inside):
    """Two runs (n, WIDTH) with the same sources."""
    n = rows * WIDTH
    sources = rng.laplace(scale=np.sqrt(0.5), size=(n, WIDTH))
    if inside == "gaussian":
        sources = rng.normal(size=(n, WIDTH))
    sources[:, : round(gaussian * WIDTH)] = rng.normal(size=(n, round(gaussian * WIDTH)))
    means = rng.normal(size=(CLASSES, WIDTH))
    sources = np.sqrt(classes) * means[rng.integers(CLASSES, size=n)] + np.sqrt(1 - classes) * sources
    turns = (np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0] for _ in range(2))
    return [sources @ turn + noise * rng.normal(size=(n, WIDTH)) for turn in turns]


def score(setting, seed):
    """Efficiency, the errors of the three routes, and the null, held out."""
    runs = dict(zip("ab", draw(np.random.default_rng([seed, 3]), **(PLAIN | setting)), strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CongruenceWarning)
        groups = ("permutation", "similarity", "ica")
        (pair,) = compare(runs, groups=groups, nulls=2, bootstrap=0, folds=4, seed=seed, device="cpu").pairs
    errors = [pair.groups[group].held_out.mean for group in groups]
    return [pair.held_out_efficiency, *errors, pair.groups["similarity"].null]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds, few rows, one value of each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ica_rotation.csv")
    arguments = parser.parse_args()
    seeds = 2 if arguments.quick else 10
    cells = [(name, one) for name, some in CHANGES.items() for one in (some[:1] if arguments.quick else some)]
    small = {"rows": 4} if arguments.quick else {}
    found = Parallel(n_jobs=arguments.jobs)(
        delayed(score)(one | small, seed) for _, one in cells for seed in range(seeds)
    )
    rows = []
    for (name, one), values in zip(cells, np.array(found).reshape(len(cells), seeds, -1), strict=True):
        efficiency, *errors = values.mean(0)
        half = stats.t.ppf(0.975, seeds - 1) * values[:, 0].std(ddof=1) / np.sqrt(seeds)
        numbers = (f"{value:.4f}" for value in (efficiency, efficiency - half, efficiency + half))
        recovers = "yes" if efficiency - half > RECOVERS else "no"
        rows.append((name, next(iter(one.values())), *numbers, recovers, *(f"{value:.4f}" for value in errors), seeds))
        print(*rows[-1], flush=True)
    with arguments.out.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
