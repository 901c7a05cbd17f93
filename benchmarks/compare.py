"""`compare` and its peers on the same two files, in one run: CPU seconds and peak memory; and `compare` on a GPU.

Every row is a process of its own with one thread: `cold_cpu_s` counts the start of Python and the imports, `cpu_s` only
the work; the better of two runs. `compare` fits six groups in sample, held out in five folds and for 20 re-pairings,
and ICA where `what` says so; the peers are

- scipy: `orthogonal_procrustes` and `lstsq` on the same five folds, without a null or an interval
- shape metric: the angle of two shapes after the best rotation (Williams et al. 2021), as netrep computes it, in sample
- calibrated-similarity: its `calibrate` at the defaults (200 permutations) with the CKA of its documentation

    python benchmarks/compare.py            # writes benchmarks/results/compare.csv; peers from PyPI on PYTHONPATH
    python benchmarks/compare.py --gpu      # writes benchmarks/results/compare_gpu.csv
    python benchmarks/compare.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SIZES = [(1000, 384), (10_000, 256), (50_000, 128)]
GPU_SIZES = [(50_000, 384), (222_000, 384)]
WITHOUT_ICA = "identity,permutation,rigid,similarity,ridge,linear"
TASKS = (
    "compare, without ica", "compare, default", "compare, all groups", "scipy", "shape metric", "calibrated-similarity"
)  # fmt: skip


def runs(n, d, seed=0):
    """Network features of n rows, and the same rotated and scaled, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d // 4), dtype=np.float32)
    for wide in (d, d):
        x = np.maximum(x @ (rng.standard_normal((x.shape[1], wide)) * np.sqrt(2 / x.shape[1])).astype(np.float32), 0)
    x = x @ (rng.standard_normal((d, d)) / np.sqrt(d)).astype(np.float32)
    turn = 1.3 * np.linalg.qr(rng.standard_normal((d, d)))[0]
    noise = rng.standard_normal((n, d), dtype=np.float32)
    return x, x @ turn.astype(np.float32) + np.float32(0.1 * x.std()) * noise


def scipy_folds(x, y):
    """Held-out errors of the best rotation and of least squares, over five folds, as in a notebook."""
    from scipy.linalg import lstsq, orthogonal_procrustes

    x, y = x.astype(np.float64), y.astype(np.float64)
    folds = np.random.default_rng(0).permutation(len(x)) % 5
    errors = np.empty((2, len(x)))
    for fold in range(5):
        fit, score = folds != fold, folds == fold
        at, to = x[fit].mean(0), y[fit].mean(0)
        rotation = orthogonal_procrustes(x[fit] - at, y[fit] - to)[0]
        linear = lstsq(x[fit] - at, y[fit] - to)[0]
        for i, matrix in enumerate((rotation, linear)):
            errors[i, score] = np.linalg.norm((x[score] - at) @ matrix + to - y[score], axis=1)
    return errors.mean(1)


def shape_metric(x, y):
    """The angular distance of centred runs of norm 1 after the best rotation."""
    from scipy.linalg import svdvals

    x, y = x - x.mean(0, dtype=np.float64), y - y.mean(0, dtype=np.float64)
    return np.arccos(min(svdvals(x.T @ y).sum() / np.linalg.norm(x) / np.linalg.norm(y), 1.0))


def calibrated(x, y):
    """CKA with the null of calibrated-similarity; from d x d products, which are the cheaper ones here."""
    import torch
    from calibrated_similarity import calibrate

    def cka(a, b):
        a, b = a - a.mean(0), b - b.mean(0)
        return (a.T @ b).norm() ** 2 / (a.T @ a).norm() / (b.T @ b).norm()

    torch.set_num_threads(1)
    return calibrate(torch.from_numpy(x), torch.from_numpy(y), cka)


def ours(groups):
    def work(x, y):
        from congruence import compare

        return compare(x, y, groups=groups)

    return work


def task(what, first, second):
    """Do one task in this process, and print its CPU seconds."""
    work = {
        "compare, without ica": ours(WITHOUT_ICA.split(",")),
        "compare, default": ours("auto"),
        "compare, all groups": ours("all"),
        "scipy": scipy_folds,
        "shape metric": shape_metric,
        "calibrated-similarity": calibrated,
    }[what]
    x, y = np.load(first), np.load(second)
    start = time.process_time()
    work(x, y)
    print(json.dumps({"cpu_s": time.process_time() - start}))


def measured(what, paths):
    """One task in a process of its own: CPU seconds with and without the start, and peak memory."""
    one = {**os.environ} | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    one.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: modules are compiled once
    command = [sys.executable, "-W", "ignore", __file__, "--task", what, *map(str, paths)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=one, text=True)
    text = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        return {"cpu_s": "", "cold_cpu_s": "not installed", "peak_mb": ""}
    cpu = json.loads(text.splitlines()[-1])["cpu_s"]
    return {
        "cpu_s": round(cpu, 2),
        "cold_cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(used.ru_maxrss / 2**10),
    }


def on_cpu(sizes):
    """All tasks for every size."""
    with tempfile.TemporaryDirectory() as folder:
        for n, d in sizes:
            paths = [Path(folder) / name for name in ("x.npy", "y.npy")]
            for path, x in zip(paths, runs(n, d), strict=True):
                np.save(path, x)
            for what in TASKS:
                best = min((measured(what, paths) for _ in range(2)), key=lambda found: found["cpu_s"])
                yield {"what": what, "n": n, "d": d} | best


def on_gpu(sizes):
    """`compare` on a GPU, from numpy arrays, the first call and the best of three more, with the numbers of the CPU."""
    import torch

    from congruence import compare

    device = "cuda" if torch.cuda.is_available() else "cpu"
    compare(*runs(1000, 16), device=device)  # loads the libraries of the GPU
    for n, d in sizes:
        x, y = runs(n, d)
        for what, groups in (("without ica", WITHOUT_ICA.split(",")), ("all groups", "all")):
            seconds = []
            for _ in range(4):
                start = time.perf_counter()
                pair = compare(x, y, groups=groups, device=device).pairs[0]
                seconds.append(time.perf_counter() - start)
            row = {"what": f"compare, {what}", "n": n, "d": d, "first_s": round(seconds[0], 2)}
            row["best_s"] = round(min(seconds[1:]), 2)
            row |= {f"{g}_held_out": f"{near.held_out.mean:.8f}" for g, near in pair.groups.items() if g != "identity"}
            row["gpu_gb"] = round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else ""
            yield {"ica_held_out": ""} | row
        start = time.perf_counter()
        pair = compare(x, y, groups=WITHOUT_ICA.split(","), device="cpu").pairs[0]
        row = {"what": "compare, without ica, CPU", "n": n, "d": d, "first_s": round(time.perf_counter() - start, 2)}
        row |= {f"{g}_held_out": f"{near.held_out.mean:.8f}" for g, near in pair.groups.items() if g != "identity"}
        yield {"ica_held_out": "", "best_s": "", "gpu_gb": ""} | row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--task", nargs=3, metavar=("WHAT", "FIRST", "SECOND"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.task:
        return task(*arguments.task)
    quick = [(400, 8)]
    if arguments.gpu:
        rows, name = on_gpu(quick if arguments.quick else GPU_SIZES), "compare_gpu.csv"
    else:
        rows, name = on_cpu(quick if arguments.quick else SIZES), "compare.csv"
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, python {platform.python_version()}"
    )
    if arguments.gpu:
        import torch

        card = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
        machine = f"{card}, torch {torch.__version__}, {machine}"
    done = []
    for row in rows:
        done.append({**row, "machine": machine})
        print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    path = arguments.out or Path(__file__).parent / "results" / name
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(done[0]))
        writer.writeheader()
        writer.writerows(done)
    return None


if __name__ == "__main__":
    main()
