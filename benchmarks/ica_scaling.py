"""How the fit of independent components grows with the number of rows: in time, and in memory.

The rows are a .npy file on disk that is mapped into memory, float32, a mixture of independent sources. Every fit runs
in a process of its own: "one process" walks over the map with so many threads, and "dask" starts so many worker
processes of one thread and 1 GB each, which open the file themselves. All fits make the same number of passes over all
rows, from one start. Memory is what processes hold for themselves (not the pages of the file, which the system takes
back when it needs them), at its peak, above what they held after a fit of few rows; of dask, that of the largest
worker. CPU seconds are those of all processes: on a machine that others use too, they tell more than wall seconds, and
`pass_s` is the wall time of the fastest pass.

    python benchmarks/ica_scaling.py            # writes benchmarks/results/ica_scaling.csv; 10 minutes and 3 GB of disk
    python benchmarks/ica_scaling.py --quick    # seconds, for the test suite
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
import threading
import time
import warnings
from pathlib import Path

import numpy as np

D = 64
STEP = 100_000  # rows made at a time
ENGINES = [("one process", 1), ("one process", 2), ("dask", 1), ("dask", 2)]


def write_rows(path, n, d):
    """Laplace, uniform and exponential sources, mixed by one square matrix, as float32."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(d, d)).astype(np.float32)
    header = {"descr": "<f4", "fortran_order": False, "shape": (n, d)}
    with path.open("wb") as handle:
        np.lib.format.write_array_header_1_0(handle, header)
        for start in range(0, n, STEP):
            m = min(STEP, n - start)
            sources = np.empty((m, d), np.float32)
            sources[:, 0::3] = rng.laplace(size=sources[:, 0::3].shape)
            sources[:, 1::3] = rng.uniform(-1, 1, size=sources[:, 1::3].shape)
            sources[:, 2::3] = rng.exponential(size=sources[:, 2::3].shape)
            handle.write((sources @ mixing.T).tobytes())


class Watch:
    """CPU seconds and the peak of the memory of their own of some processes, above what they hold now."""

    def __init__(self, processes):
        self.processes = processes
        self.cpu = self.cpu_now()
        self.before = {pid: self.held(pid) for pid in processes}
        self.most = dict(self.before)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.done.wait(0.01):
            self.most = {pid: max(most, self.held(pid)) for pid, most in self.most.items()}

    def stop(self):
        """CPU seconds of all, and megabytes of the one that held most."""
        self.done.set()
        self.thread.join()
        return self.cpu_now() - self.cpu, max(self.most[pid] - self.before[pid] for pid in self.before) / 2**10

    def cpu_now(self):
        ticks = 0
        for pid in {*self.processes, os.getpid()}:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def held(pid):
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0])  # kilobytes


def timed_passes(n):
    """Take down the seconds of every pass over all n rows, from now on."""
    from congruence.ica._passes import DaskPasses, Passes

    seconds = []
    for kind in (Passes, DaskPasses):

        def averages(self, rotation, original=kind.averages, **options):
            start = time.perf_counter()
            found = original(self, rotation, **options)
            if self.n == n:
                seconds.append(time.perf_counter() - start)
            return found

        kind.averages = averages
    return seconds


def work(path, engine, workers, passes):
    """In a process of its own: fit once, and print what it took."""
    from congruence import ICA

    warnings.simplefilter("ignore")  # so few passes need not be enough
    ica = ICA(starts=1, check=False, max_iter=passes, tol=1e-12, random_state=0)
    if engine == "dask":
        from distributed import Client, LocalCluster

        from congruence.tables.parts import lazy_parts

        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, memory_limit="1GB", dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            rows = lazy_parts([path]).values
            processes = list(client.run(os.getpid).values())
            return measured(ica, rows, processes)
    return measured(ica, np.load(path, mmap_mode="r"), [os.getpid()])


def measured(ica, rows, processes):
    ica.fit(rows[: 20 * D])  # imports, and the memory that stays taken
    spent = timed_passes(len(rows))
    watch, start = Watch(processes), time.perf_counter()
    ica.fit(rows)
    total = time.perf_counter() - start
    cpu, peak = watch.stop()
    print(
        json.dumps(
            {
                "passes": len(spent),
                "pass_s": round(min(spent), 4),
                "total_s": round(total, 3),
                "cpu_s": round(cpu, 2),
                "peak_mb": round(peak, 1),
            }
        )
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ica_scaling.csv")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", default="10000,100000,1000000,10000000")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--note", default="", help="goes into the column about the machine")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.work, options.engine, options.workers, options.passes)
    sizes = [2_000] if options.quick else [int(size) for size in options.rows.split(",")]
    engines = ENGINES[::2] if options.quick else ENGINES
    machine = ", ".join(filter(None, [platform.machine(), f"{os.cpu_count()} cores", options.note]))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        for n in sizes:
            write_rows(path, n, D)
            for engine, workers in engines:
                threads = str(workers if engine == "one process" else 1)
                command = [sys.executable, __file__, "--work", path, "--engine", engine, "--workers", str(workers)]
                done = subprocess.run(
                    [*command, "--passes", str(options.passes)],
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=os.environ | {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
                )
                row = {"rows": n, "d": D, "engine": engine, "workers": workers, **json.loads(done.stdout)}
                found.append({**row, "machine": machine})
                print(*row.values(), flush=True)
    with options.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, found[0])
        writer.writeheader()
        writer.writerows(found)


if __name__ == "__main__":
    main()
