"""Maps without paired rows: ours, mini-vec2vec's method re-stated, and a rotation fitted on pairs; and our verdicts.

Pairs of the five trainings in `modelpairs` (CONGRUENCE_DATA) and of small text encoders. Each model sees its own half
of the rows; R², recall@10 and the share of the new model's own 10 nearest (`full`) are measured on the new model's
half, whose true old vectors no unpaired method sees. The paired rotation is fitted on the first half, which it sees in
both models. Seconds and peak memory are of a process of its own; ours is the search alone, the nulls and halves of the
verdict repeat it.

With --verdicts, `translate(..., unpaired=True)` is called with its checks on halves of the same molecules, on halves
whose joint structure is destroyed, on different molecules, on rows of another domain, and on halves of texts. The
first has a map, and so have the texts.

    python benchmarks/translate_unpaired.py                     # writes benchmarks/results/translate_unpaired.csv
    python benchmarks/translate_unpaired.py --verdicts          # writes translate_unpaired_verdicts.csv
    python benchmarks/translate_unpaired.py --verdicts --case other     # cases with this text; the others are kept
    python benchmarks/translate_unpaired.py --quick             # seconds, simulated rows, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import multiprocessing
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import quadratic_assignment
from sklearn.cluster import KMeans
from translate_maps import text_pairs

from congruence import fit_map, translate
from congruence.rows.devices import load_torch

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


def judge(predicted: Array, old: tuple[Array, Array], new: tuple[Array, Array]) -> dict[str, float]:
    """R² and two shares of 10 neighbours, from the vectors (index, queries) of both models.

    `recall_10` is the share of the 10 nearest old vectors of the true old vector that the predicted one finds, and
    `full` the share of the 10 nearest new vectors of the new vector.
    """

    def ten(index: Array, rows: Array) -> Array:
        distances = np.square(index).sum(1) - 2 * rows @ index.T
        return np.argpartition(distances, 9, axis=1)[:, :10]

    found, (index, truth) = ten(old[0], predicted), old
    shares = {
        name: np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, nearest, strict=True)])
        for name, nearest in (("recall_10", ten(index, truth)), ("full", ten(*new)))
    }
    r2 = 1 - np.square(predicted - truth).sum() / np.square(truth - truth.mean(0)).sum()
    return {name: round(float(value), 4) for name, value in {"r2": r2, **shares}.items()}


def trainings() -> list[Array]:
    folder = Path(os.environ["CONGRUENCE_DATA"]) / "modelpairs"
    return [np.load(folder / f"admet_cls_seed{seed}.npy").astype(np.float64) for seed in range(5)]


def simulated() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    old = 3 * rng.normal(size=(8, 6))[rng.integers(8, size=400)] + rng.normal(size=(400, 6))
    return old, old @ np.linalg.qr(rng.normal(size=(6, 6)))[0]


def pairs(quick: bool) -> Iterator[tuple[str, Array, Array]]:
    if quick:
        yield "simulated", *simulated()
        return
    runs = trainings()
    for i, j in itertools.combinations(range(5), 2):
        yield f"admet_cls {i} from {j}", runs[i], runs[j]
    yield from text_pairs(4000, 128)


def measure(old: Array, new: Array, seed: int) -> Iterator[dict[str, Any]]:
    mine, other = np.array_split(np.random.default_rng(seed).permutation(len(old)), 2)
    methods = {
        "paired rotation": lambda: fit_map(new[mine], old[mine], "similarity"),
        "congruence, unpaired": lambda: ours(old[mine], new[other], seed),
        "mini-vec2vec re-stated": lambda: mini_vec2vec(old[mine], new[other], seed),
    }
    for name, fit in methods.items():

        def run(fit: Callable[[], Callable[[Array], Array]] = fit) -> dict[str, float]:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            wall, cpu = time.perf_counter(), time.process_time()
            fitted = fit()
            cost = {"wall_s": round(time.perf_counter() - wall, 2), "cpu_s": round(time.process_time() - cpu, 2)}
            cost["peak_mb"] = round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, 1)
            return judge(fitted(new[other]), (old[mine], old[other]), (new[mine], new[other])) | cost

        yield {"method": name} | apart(run)


def apart(work: Callable[[], dict[str, float]]) -> dict[str, float]:
    """The result of a function in a process of its own, whose peak memory is not that of others."""
    context = multiprocessing.get_context("fork")
    results: Any = context.SimpleQueue()
    process = context.Process(target=lambda: results.put(work()))
    process.start()
    found: dict[str, float] = results.get()
    process.join()
    return found


# Verdicts.

CHECKED = {"starts": 256, "nulls": 3, "splits": 1}  # fewer than by default
DESTROYED, ROWS = 20, 600  # cases with destroyed structure, and rows of each model in cases without a map


def cases(quick: bool) -> Iterator[tuple[str, Array, Array, Array | None]]:
    """The name of a case, old vectors, new vectors, and the true old vectors of the new rows if a map is true."""
    from sklearn.datasets import load_digits

    runs = list(simulated()) if quick else trainings()
    chosen = [*itertools.combinations(range(len(runs)), 2)]
    halves = [np.array_split(np.random.default_rng(k).permutation(len(runs[0])), 2) for k in range(DESTROYED)]
    for k, (i, j) in enumerate(chosen):
        mine, other = halves[k]
        yield "same molecules", runs[i][mine], runs[j][other], runs[i][other]
    for name, old, new in () if quick else text_pairs(4000, 128):
        mine, other = np.array_split(np.random.default_rng(0).permutation(len(old)), 2)
        yield name, old[mine], new[other], old[other]
    for k in range(1 if quick else DESTROYED):
        (i, j), (mine, other) = chosen[k % len(chosen)], halves[k]
        centred = runs[j][other] - runs[j][other].mean(0)
        scores = centred @ np.linalg.svd(centred, full_matrices=False)[2].T
        yield "structure destroyed", runs[i][mine], np.random.default_rng(k).permuted(scores, axis=0), None
    # The rows of a run are in the order of the molecules, which may be that of their source.
    rng = np.random.default_rng(0)
    kind = KMeans(2, n_init=5, random_state=0).fit(runs[0]).labels_
    digits = load_digits().data
    for i, j in chosen[:4]:
        yield "other molecules", rng.permutation(runs[i][kind == 0]), rng.permutation(runs[j][kind == 1]), None
    for k in range(1 if quick else 3):
        yield "another domain: images of digits", runs[k][halves[k][0]], rng.permutation(digits), None
    if not quick:
        import pyarrow.parquet as pq

        table = pq.read_table(Path(os.environ["CONGRUENCE_DATA"]) / "cellpainting" / "cell_injury_u2os_wells.parquet")
        wells = np.column_stack([column.to_numpy() for column in table.columns[-352:]]).astype(float)
        for k in range(3):
            yield "another domain: wells of cells", runs[k][halves[k][0]], rng.permutation(wells), None


def verdicts(quick: bool, text: str) -> Iterator[dict[str, Any]]:
    checked = {"starts": 4, "nulls": 2, "splits": 1} if quick else CHECKED
    for number, (name, old, new, truth) in enumerate(cases(quick)):
        if text not in name:
            continue
        start = time.process_time()
        rows = len(old) + len(new) if truth is not None else ROWS
        old, new = old[:rows], new[:rows]
        found = translate(old, new, unpaired=True, seed=number, **checked)
        seconds, one = time.process_time() - start, found.matching
        row: dict[str, Any] = {"case": name, "n_old": len(old), "n_new": len(new), **checked, "status": found.status}
        row |= {key: round(getattr(one, key), 4) for key in ("residual", "null", "p", "shared", "lead")}
        row |= {"agreement": round(one.mean_agreement, 4), "agreement_within": round(one.mean_agreement_within, 4)}
        r2 = math.nan
        if truth is not None:
            r2 = 1 - np.square(found.translator(new) - truth).sum() / np.square(truth - truth.mean(0)).sum()
        yield row | {"r2": "" if truth is None else round(float(r2), 4), "cpu_s": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--verdicts", action="store_true")
    parser.add_argument("--case", default="", help="only verdicts of the cases with this text in their name")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    name = "translate_unpaired_verdicts.csv" if arguments.verdicts else "translate_unpaired.csv"
    out = arguments.out or Path(__file__).parent / "results" / name
    origin = {"machine": f"{platform.machine()}, one thread", "versions": f"numpy {np.__version__}"}
    out.parent.mkdir(parents=True, exist_ok=True)
    measured = verdicts(arguments.quick, arguments.case) if arguments.verdicts else scores(arguments.quick)
    kept = read(out) if arguments.verdicts and arguments.case else []
    rest = (row | origin for row in measured)
    with out.open("w", newline="") as handle:
        for number, row in enumerate(itertools.chain((r for r in kept if arguments.case not in r["case"]), rest)):
            writer = csv.DictWriter(handle, list(row), lineterminator="\n")
            if not number:
                writer.writeheader()
            writer.writerow(row)
            handle.flush()
            print(*list(row.values())[:-2], sep=" | ", flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


def scores(quick: bool) -> Iterator[dict[str, Any]]:
    load_torch("unpaired translation")  # before the processes are forked, or its code would count as memory of one
    for name, old, new in pairs(quick):
        for found in measure(old, new, seed=0):
            yield {"pair": name, "n": len(old) // 2, "d": old.shape[1]} | found


if __name__ == "__main__":
    main()
