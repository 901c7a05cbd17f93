"""Independent components on a GPU: seconds, passes, gradient and separation, beside the same fit on the CPU.

python benchmarks/ica_gpu.py                          # one GPU; writes benchmarks/results/ica_gpu.csv
python benchmarks/ica_gpu.py --device cpu --sizes 2000x8
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from congruence import ICA
from congruence.resolve.components import independent_components

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


def amari(matrix):
    size, k = np.abs(matrix), len(matrix)
    rows, columns = size.sum(1) / size.max(1) - 1, size.sum(0) / size.max(0) - 1
    return float((rows.sum() + columns.sum()) / (2 * k * (k - 1)))


def wait(device):
    if device != "cpu":
        torch.cuda.synchronize()


def measure(case, n, d, device, starts, repeats):
    x, mixing = {"mixture": mixture, "mlp": mlp}[case](n, d, device, seed=0)
    seconds = []
    for seed in range(repeats):
        wait(device)
        begin = time.perf_counter()
        ica = ICA(starts=starts, random_state=seed).fit(x)
        wait(device)
        seconds.append(time.perf_counter() - begin)
    return {
        "case": case,
        "n": n,
        "d": d,
        "device": device if device == "cpu" else torch.cuda.get_device_name(),
        "starts": starts,
        "first_s": round(seconds[0], 3),
        "median_s": round(float(np.median(seconds[1:] or seconds)), 3),
        "passes": ica.n_iter_,
        "converged": ica.converged_,
        "turn": f"{ica.changes_[-1]:.1e}",
        "gradient": f"{ica.gradients_[-1]:.1e}",
        "identified": int(ica.identified_.sum()),
        "amari": "" if mixing is None else f"{amari(ica.components_ @ mixing):.4f}",
    }


def warm_up(device):
    independent_components(mixture(5000, 8, device, 1)[0], starts=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ica_gpu.csv")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=["mixture", "mlp"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    warm_up(options.device)
    rows = []
    for size in options.sizes:
        n, d = map(int, size.split("x"))
        for case in options.cases:
            for starts in (1, 2):
                rows.append(measure(case, n, d, options.device, starts, options.repeats))
                print(*rows[-1].values(), flush=True)
    with options.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
