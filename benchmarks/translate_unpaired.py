"""Maps without paired rows: ours, mini-vec2vec's method re-stated, and a rotation fitted on pairs.

Pairs of the five trainings in `modelpairs` (CONGRUENCE_DATA). Each model sees its own half of the molecules; R² and
recall@10 are measured on the new model's half, whose true old vectors no unpaired method sees. The paired rotation is
fitted on the first half, which it sees in both models. Seconds are of one process; ours is the search alone, the nulls
and halves of the verdict repeat it.

    python benchmarks/translate_unpaired.py                     # writes benchmarks/results/translate_unpaired.csv
    python benchmarks/translate_unpaired.py --quick             # seconds, simulated rows, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import quadratic_assignment
from sklearn.cluster import KMeans

from congruence import fit_map, translate

Array = np.ndarray
CENTRES, CLUSTERINGS, NEIGHBOURS, STEPS = 20, 30, 50, 50  # of mini-vec2vec as described


def on_sphere(x: Array) -> Array:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def nearest_mean(codes: Array, index: Array, rows: Array, k: int) -> Array:
    """The mean of the rows whose codes are the k nearest of each code, by cosine."""
    found = np.argpartition(-(on_sphere(codes) @ on_sphere(index).T), k - 1, axis=1)[:, :k]
    return rows[found].mean(1)


def rotation(x: Array, y: Array) -> Array:
    u, _, vt = np.linalg.svd(x.T @ y)
    return u @ vt


def mini_vec2vec(old: Array, new: Array, seed: int) -> Callable[[Array], Array]:
    """One start: matched k-means centres, relative codes, Procrustes, iterative matching (Dar 2025)."""
    means, rng = (new.mean(0), old.mean(0)), np.random.default_rng(seed)
    x, y = (on_sphere(rows - mean) for rows, mean in zip((new, old), means, strict=True))
    codes: list[list[Array]] = [[], []]
    for _ in range(CLUSTERINGS):
        draw = int(rng.integers(2**31))
        a, b = (on_sphere(KMeans(CENTRES, n_init=1, random_state=draw).fit(rows).cluster_centers_) for rows in (x, y))
        order = quadratic_assignment(a @ a.T, b @ b.T, method="faq", options={"maximize": True, "rng": rng}).col_ind
        codes[0].append(x @ a.T)
        codes[1].append(y @ b[order].T)
    k = min(NEIGHBOURS, len(y))
    q = rotation(x, nearest_mean(np.hstack(codes[0]), np.hstack(codes[1]), y, k))
    for _ in range(STEPS):
        q = rotation(x, nearest_mean(x @ q, y, y, k))
    scale = np.sqrt(old.var(0).sum() / new.var(0).sum())
    return lambda rows: scale * (rows - means[0]) @ q + means[1]


def ours(old: Array, new: Array, seed: int) -> Callable[[Array], Array]:
    return translate(old, new, unpaired=True, nulls=0, splits=0, seed=seed).translator


def judge(predicted: Array, truth: Array, index: Array) -> dict[str, float]:
    """R², and the share of the 10 nearest old vectors of the true vector that the predicted one finds."""

    def ten(rows: Array) -> Array:
        distances = np.square(index).sum(1) - 2 * rows @ index.T
        return np.argpartition(distances, 9, axis=1)[:, :10]

    shared = [len(set(a) & set(b)) / 10 for a, b in zip(ten(predicted), ten(truth), strict=True)]
    r2 = 1 - np.square(predicted - truth).sum() / np.square(truth - truth.mean(0)).sum()
    return {"r2": round(float(r2), 4), "recall_10": round(float(np.mean(shared)), 4)}


def pairs(quick: bool) -> Iterator[tuple[str, Array, Array]]:
    if quick:
        rng = np.random.default_rng(0)
        old = 3 * rng.normal(size=(8, 6))[rng.integers(8, size=400)] + rng.normal(size=(400, 6))
        yield "simulated", old, old @ np.linalg.qr(rng.normal(size=(6, 6)))[0]
        return
    folder = Path(os.environ["CONGRUENCE_DATA"]) / "modelpairs"
    runs = [np.load(folder / f"admet_cls_seed{seed}.npy").astype(np.float64) for seed in range(5)]
    for i, j in itertools.combinations(range(5), 2):
        yield f"admet_cls {i} from {j}", runs[i], runs[j]


def measure(old: Array, new: Array, seed: int) -> Iterator[dict[str, Any]]:
    order = np.random.default_rng(seed).permutation(len(old))
    mine, other = np.array_split(order, 2)
    methods = {
        "paired rotation": lambda: fit_map(new[mine], old[mine], "similarity"),
        "congruence, unpaired": lambda: ours(old[mine], new[other], seed),
        "mini-vec2vec re-stated": lambda: mini_vec2vec(old[mine], new[other], seed),
    }
    for name, fit in methods.items():
        wall, cpu = time.perf_counter(), time.process_time()
        fitted = fit()
        times = {"wall_s": round(time.perf_counter() - wall, 2), "cpu_s": round(time.process_time() - cpu, 2)}
        yield {"method": name} | judge(fitted(new[other]), old[other], old[mine]) | times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "translate_unpaired.csv")
    arguments = parser.parse_args()
    origin = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "versions": f"numpy {np.__version__}"}
    rows = []
    for name, old, new in pairs(arguments.quick):
        for found in measure(old, new, seed=0):
            rows.append({"pair": name, "n": len(old) // 2, "d": old.shape[1]} | found | origin)
            print(*list(rows[-1].values())[:-2], sep=" | ", flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
