"""How long metrics of codes against factors take, compared with the same numbers by way of scikit-learn.

One run, interleaved, one thread on both sides, both from the same arrays; the median over repetitions. `evaluate` at
its defaults comes with the seconds of each metric; its peers are single values, without intervals and chance levels.

    python benchmarks/metrics.py            # writes benchmarks/results/metrics.csv, about six minutes
    python benchmarks/metrics.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import time
import tracemalloc
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import scipy
import sklearn
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, mutual_info_score
from sklearn.model_selection import cross_val_predict
from threadpoolctl import threadpool_limits

from congruence import evaluate
from congruence.metrics._estimators import log_loss as our_log_loss
from congruence.metrics._estimators import standardise
from congruence.metrics._infomec import NEIGHBOURS, infomec, neighbour_shares
from congruence.metrics.factors import read_factors

COLUMNS = (
    "metric", "part", "n", "codes", "factors", "repeats", "ours_wall_s", "ours_cpu_s", "peer_wall_s", "peer_cpu_s",
    "times_less_cpu", "largest_difference", "peak_mb", "peer", "machine", "versions",
)  # fmt: skip


def data(n, codes, factors):
    """Factors of 2 to 20 classes, and codes that mix two of them each, with noise."""
    rng = np.random.default_rng(0)
    classes = np.linspace(2, 20, factors).astype(int)
    s = rng.integers(0, classes, (n, factors))
    weight = np.zeros((factors, codes))
    for j in range(codes):
        weight[j % factors, j] = 1.0
        weight[(j + 1) % factors, j] = 0.3
    return (s / classes) @ weight + 0.1 * rng.normal(size=(n, codes)), s


def mixed_data(n, codes, factors):
    """Half of the factors numbers, half classes of 2 to 20 as integers, and codes that are a noisy rotation of all."""
    rng = np.random.default_rng(0)
    classes = np.linspace(2, 20, factors // 2).astype(int)
    numbers = rng.normal(size=(n, factors - len(classes)))
    numbers[:, ::2] = rng.uniform(-1, 1, numbers[:, ::2].shape)
    s = np.column_stack([numbers, rng.integers(0, classes, (n, len(classes)))])
    rotation = np.linalg.qr(np.random.default_rng(99).normal(size=(codes, codes)))[0][:factors]
    return (s - s.mean(0)) / s.std(0) @ rotation + 0.1 * rng.normal(size=(n, codes)), s


def timed(work):
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def against(metric, part, z, s, repeats, ours, peer, peer_name):
    """Run both sides in turn; the medians, and the largest difference of their results."""
    seconds, results = {"ours": [], "peer": []}, {}
    sides = {"ours": ours} if peer is None else {"ours": ours, "peer": peer}
    for _ in range(repeats):
        for side, work in sides.items():
            results[side], *spent = timed(work)
            seconds[side].append(spent)
    row = dict.fromkeys(COLUMNS, "") | {"metric": metric, "part": part, "n": len(z), "codes": z.shape[1]}
    row |= {"factors": s.shape[1], "repeats": repeats, "peer": peer_name if peer else "not run"}
    for side in sides:
        row[f"{side}_wall_s"], row[f"{side}_cpu_s"] = (
            round(statistics.median(spent), 3) for spent in zip(*seconds[side], strict=True)
        )
    if peer is not None:
        row["times_less_cpu"] = round(row["peer_cpu_s"] / max(row["ours_cpu_s"], 1e-3), 1)
        row["largest_difference"] = f"{np.abs(np.subtract(results['ours'], results['peer'])).max():.1e}"
    print("  ".join(f"{name}={value}" for name, value in row.items() if value != ""), flush=True)
    return row


def our_shares(z, s):
    return neighbour_shares(z, read_factors(s, "categorical"), NEIGHBOURS["standalone"], 0)


def peer_shares(z, s):
    """One call of scikit-learn for each code and factor, as the published metric does, with the same random numbers."""
    z, random = standardise(z), np.random.RandomState(0)
    share = np.empty((s.shape[1], z.shape[1]))
    for i, factor in enumerate(s.T):
        for j, code in enumerate(z.T):
            share[i, j] = mutual_info_classif(code[:, None], factor, n_neighbors=10, random_state=random)[0]
        share[i] /= mutual_info_score(factor, factor)
    return share


def our_readouts(z, s):
    x = standardise(z)
    return [1 - our_log_loss(x, factor) / np.log(factor.max() + 1) for factor in s.T]


def peer_readouts(z, s):
    x, explained = standardise(z), []
    for factor in s.T:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # 100 iterations are part of the metric
            model = LogisticRegression(C=np.inf, class_weight="balanced", max_iter=100).fit(x, factor)
        explained.append(1 - log_loss(factor, model.predict_proba(x)) / np.log(factor.max() + 1))
    return explained


def infomec_rows(n, codes, factors, repeats, with_peer):
    """InfoMEC as a whole, and its two parts."""
    z, s = data(n, codes, factors)
    ours = {
        "information": partial(our_shares, z, s),
        "readouts": partial(our_readouts, z, s),
        "whole": lambda: [*infomec(z, s, kinds="categorical").scores.values()],
    }

    def peer_whole():
        share, explained = peer_shares(z, s), peer_readouts(z, s)
        modular = (np.mean(share.max(0) / share.sum(0)) - 1 / factors) / (1 - 1 / factors)
        compact = (np.mean(share.max(1) / share.sum(1)) - 1 / codes) / (1 - 1 / codes)
        return [modular, np.mean(explained), compact]

    peers = {"information": partial(peer_shares, z, s), "readouts": partial(peer_readouts, z, s), "whole": peer_whole}
    names = {
        "information": "mutual_info_classif for each pair",
        "readouts": "LogisticRegression for each factor",
        "whole": "mutual_info_classif and LogisticRegression",
    }
    return [
        against("infomec", part, z, s, repeats, ours[part], peers[part] if with_peer else None, names[part])
        for part in ours
    ]


def peer_values(z, s):
    """The two dearest values alone: information of every code about every factor, and R2 of boosting in five folds."""
    x, seconds = standardise(z), {}
    for part in ("information", "regression"):
        start = time.process_time()
        for factor in s.T:
            if part == "regression":
                cross_val_predict(HistGradientBoostingRegressor(early_stopping=False), x, factor, cv=5)
            elif len(np.unique(factor)) > 100:
                mutual_info_regression(x, factor, n_neighbors=10, random_state=0)
            else:
                mutual_info_classif(x, factor.astype(int), n_neighbors=10, random_state=0)
        seconds[part] = time.process_time() - start
    return seconds


def evaluate_rows(n, codes, factors, repeats, with_peer):
    """`evaluate` at its defaults, and the seconds of each metric in it."""
    if not with_peer:
        return []
    names = {"infomec": "information", "regression": "regression"}  # where the value alone has a peer
    described = {
        "information": "mutual_info_regression or _classif, the values alone",
        "regression": "HistGradientBoostingRegressor in 5 folds, the nonlinear values alone",
    }
    rows = []
    for kind, make in (("mixed", mixed_data), ("classes", data)):
        z, s = make(n, codes, factors)
        runs, peer = [], {}
        for _ in range(repeats):
            spent, last, wall = {}, [time.process_time()], time.perf_counter()

            def progress(what, done, total, spent=spent, last=last):
                now = time.process_time()
                spent[what] = spent.get(what, 0.0) + now - last[0]
                last[0] = now

            start = time.process_time()
            evaluate(z, s, progress=progress)
            runs.append(spent | {"whole": time.process_time() - start, "wall": time.perf_counter() - wall})
            peer = peer or peer_values(z, s)  # once: it takes longer than the rest
        for part in [*spent, "whole"]:
            row = dict.fromkeys(COLUMNS, "") | {"metric": f"evaluate, {kind}", "part": part, "n": n, "codes": codes}
            row |= {"factors": factors, "repeats": repeats, "peer": "none"}
            row["ours_cpu_s"] = round(statistics.median(run[part] for run in runs), 3)
            if part == "whole":
                row["ours_wall_s"] = round(statistics.median(run["wall"] for run in runs), 3)
                row["peak_mb"] = round(peak_memory(z, s), 1)
            if part in names:
                row["peer_cpu_s"] = round(peer[names[part]], 3)
                row["times_less_cpu"] = round(row["peer_cpu_s"] / max(row["ours_cpu_s"], 1e-3), 1)
                row["peer"] = described[names[part]]
            print("  ".join(f"{name}={value}" for name, value in row.items() if value != ""), flush=True)
            rows.append(row)
    return rows


def peak_memory(z, s):
    """The most that Python and numpy allocate at one time, in megabytes; tracing slows, so it is not timed."""
    tracemalloc.start()
    evaluate(z, s, resamples=2, nulls=1, slow_nulls=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


SIZES = [(10_000, 20, 10, 3, True), (100_000, 20, 10, 1, False)]  # rows, codes, factors, repeats, with the peer
FULL = [(infomec_rows, SIZES), (evaluate_rows, SIZES)]
QUICK = [(infomec_rows, [(1500, 4, 3, 1, True)]), (evaluate_rows, [(150, 3, 2, 1, True)])]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "metrics.csv")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with threadpool_limits(1):
        infomec(*data(200, 3, 3))  # imports are not timed
        evaluate(*mixed_data(200, 4, 4))
        rows = [row for part, sizes in (QUICK if arguments.quick else FULL) for size in sizes for row in part(*size)]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, load {load:.0f} when started"
    versions = f"numpy {np.__version__}, scipy {scipy.__version__}, scikit-learn {sklearn.__version__}"
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "machine": machine, "versions": versions} for row in rows)


if __name__ == "__main__":
    main()
