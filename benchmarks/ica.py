"""How long independent components take, how far they converge and what they need, and other libraries.

Every fit runs in a process of its own, which reports its wall and CPU seconds and its unmixing matrix; another one,
for the first seed, reports the peak of memory above the interpreter with the data loaded (freed memory is given back at
once there, which costs time). All start from the same rotation of the same whitened rows, and for all the gradient of
the contrast (largest pair, relative to that of a random rotation) is then measured in float64 on all rows.

    python benchmarks/ica.py                # writes benchmarks/results/ica.csv; some four hours on two cores
    python benchmarks/ica.py --lanes 7 --cases 0,1,2,3,4,5      # on 16 cores: seven cases at a time, 20 minutes
    python benchmarks/ica.py --cases 7,8,9 --threads 1 --seeds 2 --out benchmarks/results/ica_one_thread.csv \\
        --peers "congruence f32,congruence f32 2-starts,sklearn f32 svd,sklearn f32 eigh,icalens f32"
    python benchmarks/ica.py --quick        # seconds, for the test suite

icalens 0.4.0 (its `fit_fastica`, rows not normalized) needs torch and tqdm alone, not what its package declares:
`pip install --no-deps --target FOLDER icalens`, and FOLDER on PYTHONPATH. It draws its own start, and always
takes 200 steps.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

PEERS = [
    "congruence f32",
    "congruence f64",
    "congruence f32 2-starts",
    "sklearn f32 svd",
    "sklearn f32 eigh",
    "sklearn f64 svd",
    "picard f64",
]
QUICK = ["congruence f32", "sklearn f64 svd", "picard f64"]
CASES = [
    ("mixture", 50_000, 64),
    ("mixture", 50_000, 128),
    ("mlp", 50_000, 64),
    ("mixture", 20_000, 256),
    ("mlp", 50_000, 128),
    ("mixture", 60_000, 256),
    ("mixture", 60_000, 384),
    ("mixture", 40_000, 64),
    ("mixture", 40_000, 128),
    ("mixture", 40_000, 256),
]
SLOW = {"picard f64": 50_000 * 128}  # numbers in the data up to which a peer is run at all


def mixture(n, d, rng):
    """Laplace, uniform and exponential sources, and the square matrix that mixed them."""
    draw = [rng.laplace, lambda size: rng.uniform(-1, 1, size), lambda size: rng.exponential(size=size)]
    sources = np.column_stack([draw[j % 3](size=n) for j in range(d)])
    sources = (sources - sources.mean(0)) / sources.std(0)
    mixing = rng.normal(size=(d, d))
    return (sources @ mixing.T).astype(np.float32), mixing


def mlp(n, d, rng):
    """Features of a random network: no mixture of anything."""
    hidden = rng.normal(size=(n, d))
    for width in (2 * d, d):
        hidden = hidden @ rng.normal(size=(hidden.shape[1], width)) / np.sqrt(hidden.shape[1])
        hidden = np.maximum(hidden, 0.1 * hidden)
    return hidden.astype(np.float32), None


def whitened(x):
    """Principal components of unit variance in float64, and the matrix that gives them."""
    x = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    matrix = (vectors / np.sqrt(values)).T[::-1]
    return x @ matrix.T, matrix


def gradient(z, rotation):
    """Largest gradient of any pair of components, float64, all rows."""
    s = z @ rotation.T
    g = np.tanh(s)
    cross = g.T @ s / len(s)
    signs = np.where(1 - np.square(g).mean(0) >= np.diag(cross), 1.0, -1.0)
    pushed = signs[:, None] * cross
    return float(np.abs(pushed - pushed.T).max() / 2)


def amari(matrix):
    """Amari's distance of a matrix from a scaled permutation: 0 is perfect separation."""
    size, k = np.abs(matrix), len(matrix)
    rows, columns = size.sum(1) / size.max(1) - 1, size.sum(0) / size.max(0) - 1
    return float((rows.sum() + columns.sum()) / (2 * k * (k - 1)))


def fit(peer, x, start, max_iter):
    """Unmixing matrix of the whitened rows' own coordinates, passes, and whether the library says it converged."""
    library, dtype, *solver = peer.split()
    x = x.astype(np.float64) if dtype == "f64" else x
    if library == "congruence":
        from congruence import ICA

        ica = ICA(w_init=start, starts=2 if solver else 1, check=False, random_state=0, max_iter=max_iter).fit(x)
        return ica.components_, ica.n_iter_, ica.converged_
    if library == "sklearn":
        from sklearn.decomposition import FastICA

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ica = FastICA(whiten="unit-variance", whiten_solver=solver[0], w_init=start, random_state=0).fit(x)
        return ica.components_, ica.n_iter_, not any("did not converge" in str(w.message) for w in caught)
    if library == "icalens":
        import torch
        from icalens._fastica import fit_fastica

        found = fit_fastica(torch.from_numpy(x), n_components=x.shape[1], row_normalize=False)
        return found.components.numpy(), found.n_iter, found.n_iter < 200
    from picard import picard

    k, w, _, passes = picard(
        x.T, ortho=True, extended=True, w_init=start, max_iter=max_iter, tol=1e-5, return_n_iter=True
    )
    return w @ k, passes, passes < max_iter


def start_for(peer, rotation, matrix, x):
    """The same start in the coordinates a peer whitens to: principal axes in the same order, with other signs."""
    library, dtype, *solver = peer.split()
    rows = x.astype(np.float64 if dtype == "f64" else np.float32)
    if library == "congruence":
        from congruence import Whitener

        theirs = Whitener().fit(rows).whitening_
    elif library == "sklearn":
        from sklearn.decomposition import FastICA

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = FastICA(whiten="unit-variance", whiten_solver=solver[0], max_iter=1).fit(rows).whitening_
    else:
        u, d, _ = np.linalg.svd((rows - rows.mean(0)).T, full_matrices=False)
        theirs = (u / d).T * np.sqrt(len(rows))
    return (rotation * np.sign((theirs * matrix).sum(1))).astype(rows.dtype)


def work(folder, peer, max_iter):
    """In a process of its own: fit once, and write what it took."""
    x, start = np.load(folder / "x.npy"), np.load(folder / "start.npy")
    warnings.simplefilter("ignore")
    fit(peer, x[: 4 * x.shape[1]], None, 2)  # imports, thread pools
    peak = Peak()
    wall, cpu = time.perf_counter(), time.process_time()
    matrix, passes, converged = fit(peer, x, start, max_iter)
    took = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "peak_mb": peak.stop()}
    np.save(folder / "found.npy", matrix)
    (folder / "took.json").write_text(json.dumps({**took, "passes": int(passes), "converged": bool(converged)}))


class Peak:
    """The most memory the process holds above what it holds now, looked at every 5 ms."""

    def __init__(self):
        self.before = self.most = self.now()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.done.wait(0.005):
            self.most = max(self.most, self.now())

    def stop(self):
        self.done.set()
        self.thread.join()
        return (self.most - self.before) / 2**20

    @staticmethod
    def now():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(case, n, d, seed, threads, peers, max_iter, memory=True):
    """All peers on the same rows from the same start."""
    rng = np.random.default_rng(seed)
    x, mixing = {"mixture": mixture, "mlp": mlp}[case](n, d, rng)
    z, matrix = whitened(x)
    rotation, other = (np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2))
    random = gradient(z, other)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "x.npy", x)
        for peer in peers:
            if n * d > SLOW.get(peer, np.inf):
                continue
            np.save(folder / "start.npy", start_for(peer, rotation, matrix, x))
            limit = {key: str(threads) for key in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
            command = [sys.executable, __file__, "--work", name, "--peer", peer, "--max-iter", str(max_iter)]
            peak = ""
            if memory and seed == 0 and threads == 1:
                giving_back = {"MALLOC_MMAP_THRESHOLD_": "65536"}
                subprocess.run(command, check=True, env=os.environ | limit | giving_back)
                peak = round(json.loads((folder / "took.json").read_text())["peak_mb"], 1)
            subprocess.run(command, check=True, env=os.environ | limit)
            took = json.loads((folder / "took.json").read_text())
            found = np.load(folder / "found.npy").astype(np.float64)
            turned = found @ np.linalg.pinv(matrix)
            turned = np.linalg.svd(turned)[0] @ np.linalg.svd(turned)[2]
            yield {
                "case": case,
                "n": n,
                "d": d,
                "seed": seed,
                "threads": threads,
                "peer": peer,
                "wall_s": round(took["wall_s"], 3),
                "cpu_s": round(took["cpu_s"], 3),
                "peak_mb": peak,
                "passes": took["passes"],
                "converged": took["converged"],
                "gradient": f"{gradient(z, turned) / random:.1e}",
                "amari": f"{amari(found @ mixing):.4f}" if mixing is not None else "",
            }


def in_lanes(plan, options, folder):
    """Measure several cases at a time, each with all its peers one after the other on cores that are its own."""
    free = queue.Queue()
    for first in core_pairs()[: options.lanes]:
        free.put(first)

    def measured(job):
        (case, n, d), seed, threads = job
        cores, out = free.get(), folder / f"{case}-{n}-{d}-{seed}-{threads}.csv"
        index = str(CASES.index((case, n, d)))
        job = ["--cases", index, "--seed", str(seed), "--threads", str(threads), "--max-iter", str(options.max_iter)]
        limit = {key: str(threads) for key in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
        command = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, __file__, *job, "--out", str(out)]
        if not out.exists():
            subprocess.run(command, check=True, env=os.environ | limit)
        free.put(cores)
        return out

    longest_first = sorted(plan, key=lambda job: -job[0][1] * job[0][2] ** 2)
    with ThreadPoolExecutor(options.lanes) as pool:
        for out in pool.map(measured, longest_first):
            with out.open(newline="") as handle:
                yield from csv.DictReader(handle)


def core_pairs():
    """The processors in pairs: the two threads of one core where cores have two, so that lanes share none."""
    siblings = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings.setdefault(path.read_text().strip() if path.exists() else cpu, []).append(cpu)
    cores = list(siblings.values())
    if all(len(core) >= 2 for core in cores):
        return cores
    cpus = [cpu for core in cores for cpu in core]
    return [cpus[i : i + 2] for i in range(0, len(cpus) - 1, 2)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ica.csv")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seed", type=int, help="this seed alone")
    parser.add_argument("--peers", help="names separated by commas; all but icalens by default")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--cases", help="numbers of the cases to run, such as 0,3; all by default")
    parser.add_argument("--lanes", type=int, default=1, help="how many cases are measured at a time")
    parser.add_argument("--parts", type=Path, help="folder that keeps what the lanes found, to go on after a stop")
    parser.add_argument("--max-iter", type=int, default=500)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.work, options.peer, options.max_iter)
    cases = [CASES[int(i)] for i in options.cases.split(",")] if options.cases else CASES
    seeds = range(options.seeds) if options.seed is None else [options.seed]
    plan = [(case, seed, int(t)) for case in cases for t in options.threads.split(",") for seed in seeds]
    if options.quick:
        plan = [(("mixture", 1_000, 4), 0, 1)]
    rows = []
    with tempfile.TemporaryDirectory() as parts:
        folder = options.parts or Path(parts)
        found = in_lanes(plan, options, folder) if options.lanes > 1 else one_by_one(plan, options)
        for row in found:
            rows.append({**row, "machine": f"{platform.machine()}, {os.cpu_count()} cores"})
            print(*row.values(), flush=True)
    order = {job: i for i, job in enumerate(plan)}
    rows.sort(key=lambda row: order[key_of(row)])
    with options.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def key_of(row):
    return (row["case"], int(row["n"]), int(row["d"])), int(row["seed"]), int(row["threads"])


def one_by_one(plan, options):
    peers = QUICK if options.quick else options.peers.split(",") if options.peers else PEERS
    for case, seed, threads in plan:
        yield from measure(*case, seed, threads, peers, options.max_iter, memory=not options.quick)


if __name__ == "__main__":
    main()
