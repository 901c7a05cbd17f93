"""Independent components on a GPU: seconds, cold and warm, where they go, passes, gradient and separation.

python benchmarks/ica_gpu.py                          # one GPU; writes benchmarks/results/ica_gpu.csv
python benchmarks/ica_gpu.py --device cpu --sizes 2000x8
python benchmarks/ica_gpu.py --repeats 2 --jobs mixture:222000x384:1 halves:1000000x1024:1      # these alone
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import torch

from congruence import ICA
from congruence.ica import _solver as solver
from congruence.ica._passes import Passes
from ica import amari

SIZES = ["20000x64", "222000x384", "2000000x128", "2000000x768"]


def mixture(n, d, device, seed):
    """Laplace, uniform and exponential sources times a square matrix, float32 on the device."""
    rng = torch.Generator(device).manual_seed(seed)
    x = torch.rand(n, d, device=device, generator=rng)
    x[:, 0::3] = -torch.sign(x[:, 0::3] - 0.5) * torch.log1p(-2 * (x[:, 0::3] - 0.5).abs().clamp(max=0.4999999))
    x[:, 2::3] = -torch.log(x[:, 2::3].clamp(min=1e-7))
    x -= x.mean(0)
    x /= x.std(0)
    mixing = torch.randn(d, d, device=device, generator=rng)
    return x @ mixing.T, mixing.double().cpu().numpy()


def mlp(n, d, device, seed):
    """Features of a random network: no mixture of anything."""
    rng = torch.Generator(device).manual_seed(seed)
    hidden = torch.randn(n, d, device=device, generator=rng)
    for width in (2 * d, d):
        matrix = torch.randn(hidden.shape[1], width, device=device, generator=rng) / hidden.shape[1] ** 0.5
        hidden = torch.nn.functional.leaky_relu(hidden @ matrix, 0.1)
    return hidden, None


def halves(n, d, device, seed):
    """Half Laplace, half uniform sources, which few rows for their width separate only from a spectral start."""
    rng = torch.Generator(device).manual_seed(seed)
    x = torch.rand(n, d, device=device, generator=rng)
    x[:, 0::2] = -torch.sign(x[:, 0::2] - 0.5) * torch.log1p(-2 * (x[:, 0::2] - 0.5).abs().clamp(max=0.4999999))
    x -= x.mean(0)
    x /= x.std(0)
    mixing = torch.linalg.qr(torch.randn(d, d, device=device, generator=rng))[0]
    return x @ mixing.T, mixing.double().cpu().numpy()


def gradient(x, ica):
    """Largest gradient of any pair of components, and of those that are not noise: float64, all rows.

    A random rotation has 1e-3 at 384 dimensions.
    """
    matrix = torch.as_tensor(ica.components_, dtype=torch.float64, device=x.device)
    mean = torch.as_tensor(ica.mean_, dtype=torch.float64, device=x.device)
    cross = torch.zeros(len(matrix), len(matrix), dtype=torch.float64, device=x.device)
    power = torch.zeros(len(matrix), dtype=torch.float64, device=x.device)
    for rows in x.split(2**16):
        s = (rows.double() - mean) @ matrix.T
        g = torch.tanh(s)
        cross += g.T @ s / len(x)
        power += (g * g).sum(0) / len(x)
    pushed = torch.where(1 - power >= cross.diag(), 1.0, -1.0)[:, None] * cross
    size = (pushed - pushed.T).abs() / 2
    firm = torch.as_tensor(~ica.found_.unmixing.noise, device=x.device)
    return float(size.max()), float(size[firm][:, firm].max())


def wait(device):
    if device != "cpu":
        torch.cuda.synchronize()


class Split:
    """Seconds inside some functions, measured by waiting for the device before and after each call."""

    def __init__(self, device, **places):
        self.device, self.seconds = device, dict.fromkeys(places, 0.0)
        for part, owners in places.items():
            for owner, name in owners:
                setattr(owner, name, self.timed(getattr(owner, name), part))

    def timed(self, function, part):
        def call(*args, **options):
            wait(self.device)
            begin = time.perf_counter()
            found = function(*args, **options)
            wait(self.device)
            self.seconds[part] += time.perf_counter() - begin
            return found

        return call


def split(x, device):
    """Where the time of one fit goes: in a process of its own, whose functions are wrapped for good."""
    parts = Split(device, passes=[(Passes, "averages")], turns=[(solver, "polar"), (solver, "cayley")])
    begin = time.perf_counter()
    ICA(starts=1, check=False, random_state=1).fit(x)
    wait(device)
    whole = time.perf_counter() - begin
    seconds = {f"{part}_s": round(value, 3) for part, value in parts.seconds.items()}
    return {**seconds, "rest_s": round(whole - sum(parts.seconds.values()), 3)}


def measure(case, n, d, device, starts, repeats):
    x, mixing = {"mixture": mixture, "mlp": mlp, "halves": halves}[case](n, d, device, seed=0)
    seconds = []
    for seed in range(repeats):
        wait(device)
        begin = time.perf_counter()
        ica = ICA(starts=starts, check=False, random_state=seed).fit(x)
        wait(device)
        seconds.append(time.perf_counter() - begin)
    everything, firm = gradient(x, ica)
    return {
        "case": case,
        "n": n,
        "d": d,
        "device": device if device == "cpu" else torch.cuda.get_device_name(),
        "starts": starts,
        "cold_s": round(seconds[0], 3),
        "warm_s": round(float(np.median(seconds[1:] or seconds)), 3),
        "passes": ica.n_iter_,
        "converged": ica.converged_,
        "turn": f"{ica.changes_[-1]:.1e}",
        "relative_gradient": f"{ica.gradients_[-1]:.1e}",
        "gradient": f"{everything:.1e}",
        "firm_gradient": f"{firm:.1e}",
        "identified": int(ica.identified_.sum()),
        "amari": "" if mixing is None else f"{amari(ica.components_ @ mixing):.4f}",
        **split(x, device),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ica_gpu.csv")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=["mixture", "mlp"])
    parser.add_argument("--jobs", nargs="+", help="case:size:starts, instead of all of them")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.one:
        case, size, starts = options.one
        print(json.dumps(measure(case, *map(int, size.split("x")), options.device, int(starts), options.repeats)))
        return
    with options.out.open("w", newline="") as handle:
        writer = None
        every = [(case, size, starts) for size, case, starts in product(options.sizes, options.cases, ("1", "2"))]
        for case, size, starts in [job.split(":") for job in options.jobs] if options.jobs else every:
            # In a process of its own, so that the first fit is a cold one.
            command = [sys.executable, __file__, "--one", case, size, starts, "--device", options.device]
            done = subprocess.run([*command, "--repeats", str(options.repeats)], stdout=subprocess.PIPE, check=True)
            row = json.loads(done.stdout)
            if writer is None:
                writer = csv.DictWriter(handle, row)
                writer.writeheader()
            writer.writerow(row)
            handle.flush()
            print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
