"""How long many small autoencoders take when they are trained as one batch, compared with one training after the other.

The same members (leaks x seeds x two of a pair), rows, orders, batches and steps on the same device, in one run. The
peers: the same code with one member at a time, and the loop one would write, a module with torch's own orthogonal
parametrisation and its Adam. Peers train some of the members, and their time is scaled up to all of them.

    python benchmarks/ensemble.py                     # writes benchmarks/results/ensemble.csv; --device cuda on a GPU
    python benchmarks/ensemble.py --quick             # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from congruence.experiments.training.ensemble import Member, draw_orthogonal, train_ensemble
from congruence.rows.devices import one_thread

LEAKS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
# members, rows, widths, batch, epochs, members that the peers train
FULL = (120, 4000, (784, 128, 64, 16), 1000, 5, 4)
QUICK = (12, 200, (20, 12, 8, 3), 100, 2, 2)
COLUMNS = (
    "device", "members", "peer_members", "rows", "batch", "steps", "ours_s", "peer_s", "times_faster",
    "largest_difference", "peer", "machine", "versions",
)  # fmt: skip


class Stack(nn.Module):
    """An autoencoder of orthogonal layers, as torch's own parametrisation keeps them."""

    def __init__(self, widths, member):
        super().__init__()
        self.leak, self.half = member.leak, len(widths) - 1
        self.layers = nn.ModuleList()
        for weight in draw_orthogonal([*widths, *reversed(widths[:-1])], member.seed):
            layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            layer.weight.data = torch.from_numpy(weight)
            self.layers.append(nn.utils.parametrizations.orthogonal(layer))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i not in (self.half - 1, len(self.layers) - 1):
                x = nn.functional.leaky_relu(x, self.leak)
        return x


def plain(x, member, widths, batch, epochs, device):
    """One training as one would write it."""
    model, x = Stack(widths, member).to(device), torch.from_numpy(x).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        order = torch.from_numpy(np.random.default_rng([member.seed, epoch]).permutation(len(x))).to(device)
        for rows in order.split(batch):
            optimiser.zero_grad()
            loss = (model(x[rows]) - x[rows]).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
    return float(loss.detach())


def timed(work, device):
    start = time.perf_counter()
    result = work()
    if device != "cpu":
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ensemble.csv")
    options = parser.parse_args()
    count, n, widths, batch, epochs, few = QUICK if options.quick else FULL
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(n, widths[-1])) @ rng.normal(size=(widths[-1], widths[0]))).astype(np.float32)
    x = np.tanh(x + rng.normal(size=x.shape).astype(np.float32)).astype(np.float32)
    members = [Member(LEAKS[i % len(LEAKS)], i) for i in range(count)]
    some = members[:: count // few][:few]
    how = {"widths": widths, "batch": batch, "device": options.device, "patience": None}
    alone = {
        "the same code, one member at a time": lambda one: train_ensemble(x, [one], epochs=epochs, **how).losses[0],
        "a module with torch's parametrisation": lambda one: plain(x, one, widths, batch, epochs, options.device),
    }
    train_ensemble(x, members, epochs=1, **how)  # imports, and the first calls of a GPU
    ensemble, ours = timed(lambda: train_ensemble(x, members, epochs=epochs, **how), options.device)
    rows = []
    for peer, train in alone.items():
        with one_thread():
            train(some[0])
            losses, spent = timed(lambda train=train: [train(one) for one in some], options.device)
        theirs = spent * count / few
        row = {"device": name_of(options.device), "members": count, "peer_members": few, "rows": n, "batch": batch}
        row |= {"steps": epochs * -(-n // batch), "ours_s": round(ours, 3), "peer_s": round(theirs, 3)}
        row |= {"times_faster": round(theirs / ours, 1), "peer": peer, "largest_difference": ""}
        if peer.startswith("the same"):
            row["largest_difference"] = f"{np.abs(np.array(losses) - ensemble.losses[:: count // few][:few]).max():.1e}"
        row["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, load {os.getloadavg()[0]:.0f}"
        row["versions"] = f"torch {torch.__version__}"
        rows.append(row)
        print("  ".join(f"{key}={row[key]}" for key in COLUMNS), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def name_of(device):
    return torch.cuda.get_device_name() if device != "cpu" else "cpu"


if __name__ == "__main__":
    main()
