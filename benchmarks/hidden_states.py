"""How often hidden states are recovered from a sample: right, unknown or wrong, over separation and rows.

Structures are random: up to three hidden variables, at most 24 cells, 2 to 6 latents, every cell with at least 1 % of
the mass, no neighbourhood within another. On each latent the cells that it tells apart lie in a random order, each
`separation` to `up_to` standard deviations (of the wider) from the next, with deviations that differ by a factor of up
to 2; from 0.2 to 20 some are plain and others cannot be seen. Right means the number of variables, their
neighbourhoods, their numbers of states, and P(U), whose cells are off by 0.01 + sqrt(cells / rows) of the mass at most.

    python benchmarks/hidden_states.py            # writes benchmarks/results/hidden_states.csv, about 15 minutes
    python benchmarks/hidden_states.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import time
from itertools import pairwise, permutations, product
from pathlib import Path

import numpy as np

from congruence.mixture import GaussianMixture, recover_hidden_states

# separations from and to, rows, structures of each, and of the one that is claimed
MIXED = (0.2, 20.0)
FULL = ((*((s, 1.5 * s) for s in (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)), MIXED), (500, 1000, 2000, 5000, 50_000), 40, 200)
QUICK = (((6.0, 9.0),), (2000,), 2, 2)
CLAIM = ((6.0, 9.0), 50_000)
COLUMNS = (
    "separation", "up_to", "rows", "structures", "right", "unknown", "wrong", "seconds_each", "machine", "versions",
)  # fmt: skip


def random_structure(rng):
    """Latents, neighbourhoods and numbers of states."""
    while True:
        m, k = int(rng.integers(2, 7)), int(rng.integers(1, 4))
        dims = tuple(int(d) for d in rng.integers(2, 7, size=k))
        chosen = [rng.choice(m, size=rng.integers(1, m + 1), replace=False) for _ in range(k)]
        neighbourhoods = [tuple(sorted(int(t) for t in n)) for n in chosen]
        nested = any({*a} <= {*b} for a, b in permutations(neighbourhoods, 2))
        if np.prod(dims) <= 24 and not nested and {t for n in neighbourhoods for t in n} == {*range(m)}:
            return m, neighbourhoods, dims


def planted(rng, span):
    """A mixture with a random structure, and the structure with its cells."""
    m, neighbourhoods, dims = random_structure(rng)
    states = np.indices(dims).reshape(len(dims), -1).T
    means, deviations = np.zeros((len(states), m)), np.zeros((len(states), m))
    for t in range(m):
        touching = [i for i, n in enumerate(neighbourhoods) if t in n]
        cells, which = np.unique(states[:, touching], axis=0, return_inverse=True)
        spread = np.exp(rng.uniform(-0.35, 0.35, len(cells)))
        order, places, here = rng.permutation(len(cells)), np.zeros(len(cells)), 0.0
        for a, b in pairwise(order):
            here += max(spread[a], spread[b]) * rng.uniform(*span)
            places[b] = here
        means[:, t], deviations[:, t] = places[which.ravel()], spread[which.ravel()]
    weights = 0.01 + (1 - 0.01 * len(states)) * rng.dirichlet(np.ones(len(states)))
    order = sorted(range(len(dims)), key=lambda i: neighbourhoods[i])
    key = tuple((neighbourhoods[i], dims[i]) for i in order)
    return GaussianMixture.from_arrays(weights, means, deviations**2), states[:, order], key


def judged(found, prior, states, key, rows):
    """Right, unknown or wrong; states of each variable may have any names."""
    if found.status != "holds":
        return "unknown"
    if found.structure.key != key:
        return "wrong"
    truth = np.zeros(found.structure.dims)
    truth[tuple(states.T)] = prior.weights
    ours = found.structure.probabilities
    off = min(
        np.abs(ours[np.ix_(*names)] - truth).sum() / 2 for names in product(*map(permutations, map(range, ours.shape)))
    )
    return "right" if off < 0.01 + np.sqrt(len(states) / rows) else "wrong"


def measured(span, rows, structures):
    counts = dict.fromkeys(("right", "unknown", "wrong"), 0)
    spent = 0.0
    for seed in range(structures):
        prior, states, key = planted(np.random.default_rng(seed), span)
        z = prior.sample(rows, seed=seed)
        start = time.perf_counter()
        found = recover_hidden_states(z, seed=seed)
        spent += time.perf_counter() - start
        counts[judged(found, prior, states, key, rows)] += 1
    return counts | {"seconds_each": f"{spent / structures:.2f}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "hidden_states.csv")
    arguments = parser.parse_args()
    spans, sizes, structures, claimed = QUICK if arguments.quick else FULL
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f} when started"
    lines = []
    for rows in sizes:
        for span in spans:
            count = claimed if (span, rows) == CLAIM else structures
            line = {"separation": span[0], "up_to": span[1], "rows": rows, "structures": count}
            line |= measured(span, rows, count) | {"machine": machine, "versions": f"numpy {np.__version__}"}
            lines.append(line)
            print("  ".join(f"{key}={line[key]}" for key in COLUMNS[:-2]), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
