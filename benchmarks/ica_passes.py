"""How many passes over the rows the gradient takes to fall, for several second phases.

The rows are features of a random network, which are no mixture; a mixture; and a real table, the hidden representation
of a published graph network (modelpairs, 2784 molecules; 32 principal components), where the data are found.

All start from the same rotation with the fixed point of FastICA. `prototype` takes ten such steps and then L-BFGS with
all components active; `frozen` is what `ICA` does: L-BFGS once the fixed point stalls, with components that are
indistinguishable from noise frozen; `pairwise` is the same with the curvature of every pair of components measured, at
the cost of a third matrix product in every pass, instead of that of independent components. `work` counts a pass over
some of the components as their share of one.

    python benchmarks/ica_passes.py            # writes benchmarks/results/ica_passes.csv and a figure for the docs
    python benchmarks/ica_passes.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path

import numpy as np

from congruence.ica import _solver as solver
from congruence.ica._contrasts import contrast_named
from congruence.ica._passes import Passes
from congruence.ica._point import Point, random_gradient, random_rotation
from ica import mixture, mlp, whitened

CASES = [
    ("network", 50_000, 64),
    ("network", 50_000, 128),
    ("network", 50_000, 256),
    ("mixture", 50_000, 128),
    ("modelpairs", 2784, 32),
]
METHODS = ["fastica", "prototype", "frozen", "pairwise"]
CAP = 400
NAMES = {
    "fastica": "fixed point alone",
    "prototype": "ten steps, then L-BFGS",
    "frozen": "noise frozen (ICA)",
    "pairwise": "and pairwise curvature",
}


class Watched(Passes):
    """Passes that take down the gradient at every rotation: over all pairs, and over those without noise."""

    def __init__(self, z, pairwise):
        self.seen, self.pairwise, self.work = [], pairwise, 0.0
        super().__init__(z, np.zeros(z.shape[1]), np.eye(z.shape[1]), contrast_named("logcosh"))

    def averages(self, rotation, *, rough=False):
        found = super().averages(rotation)
        self.work += len(rotation) / self.k
        if len(rotation) < self.k:  # over some components: the gradient of all is that of the pass before
            self.seen.append((*self.seen[-1][:2], self.work))
            return found
        point = Point(rotation, found, self.n, np.ones(self.k))
        size, firm = np.abs(point.gradient), ~point.noise
        self.seen.append((size.max(), size[np.ix_(firm, firm)].max(initial=0), self.work))
        if self.pairwise:
            MEASURED[found.cross.tobytes()] = self.second(rotation)
        return found

    def second(self, rotation):
        """E[g'(s_i) s_j^2], (k, k)."""
        total = np.zeros((self.k, self.k))
        for part in np.array_split(np.arange(self.n), max(1, self.n // 5000)):
            s = self.data[part] @ rotation.T.astype(np.float32)
            total += (1 - np.tanh(s) ** 2).T @ (s * s)
        return total / self.n


MEASURED: dict[bytes, np.ndarray] = {}
INDEPENDENT = Point.curvature.func


def measured_curvature(point):
    """The curvature in every plane as the rows have it, where it was measured."""
    second = MEASURED.get(point.at.cross.tobytes())
    if second is None:
        return INDEPENDENT(point)
    own = point.signs[:, None] * (second - np.diag(point.at.cross)[:, None])
    both = (own + own.T) / 2
    return np.maximum(both, 0.01 * np.abs(np.median(both)))


def followed(method, z, seed, cap):
    """The gradients of one fit, pass by pass, relative to a random rotation's."""
    rng = np.random.default_rng(seed)
    reference = random_gradient(
        Passes(z, np.zeros(z.shape[1]), np.eye(z.shape[1]), contrast_named("logcosh")), rng, len(z)
    )
    source, start = Watched(z, method == "pairwise"), random_rotation(z.shape[1], rng)
    options = {"reference": reference, "max_iter": cap, "tol": 1e-5}
    try:
        if method == "pairwise":
            Point.curvature = property(measured_curvature)
        if method == "fastica":
            fixed_point(source, start, cap)
        elif method == "prototype":
            begin = fixed_point(source, start, 10)
            prototype(source, begin, options)
        else:
            solver.solve(source, start, **options)
    finally:
        Point.curvature = property(INDEPENDENT)
        MEASURED.clear()
    return [(everything / reference, firm / reference, work) for everything, firm, work in source.seen[:cap]]


def rows_of(case, n, d, seed):
    """The rows of a case, or None where the data are not found."""
    rng = np.random.default_rng(seed)
    if case != "modelpairs":
        return {"network": mlp, "mixture": mixture}[case](n, d, rng)[0]
    path = Path(os.environ.get("CONGRUENCE_DATA", "")) / "modelpairs" / f"admet_cls_seed{seed}.npy"
    if not path.exists():
        return None
    x = np.load(path).astype(np.float64)
    x = x - x.mean(0)
    return x @ np.linalg.svd(x, full_matrices=False)[2][:d].T


def fixed_point(source, rotation, count):
    for _ in range(count):
        point = solver.point_at(rotation, source)
        rotation = solver.polar(solver._newton_matrix(point)) @ rotation
    return rotation


def prototype(source, begin, options):
    """L-BFGS from `begin` to the end, every component active."""
    point = solver.point_at(begin, source)
    solution = solver.Solution(point, options["reference"], options["tol"], options["max_iter"])
    solver._lbfgs(source, solution, noise_matters=True)


def picture(rows, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "congruence", "font.size": 9})
    from matplotlib import pyplot

    rows = [row for row in rows if row["case"] == "network"]
    cases = sorted({(int(row["n"]), int(row["d"])) for row in rows})
    figure, panels = pyplot.subplots(1, len(cases), figsize=(3.4 * len(cases), 3), sharey=True, squeeze=False)
    for panel, (n, d) in zip(panels[0], cases, strict=True):
        for i, method in enumerate(METHODS):
            chosen = [
                r for r in rows if (int(r["n"]), int(r["d"]), r["method"]) == (n, d, method) and int(r["seed"]) == 0
            ]
            at, size = [int(row["pass"]) for row in chosen], [float(row["firm"]) for row in chosen]
            size = np.where(np.array(size) > 0, np.maximum(size, 1e-5), np.nan)  # at first all are noise
            panel.semilogy(at, size, color=f"C{i}", label=NAMES[method], linewidth=1.3)
        panel.set(title=f"{n:,} x {d}", xlabel="passes over the rows")
    panels[0, 0].set_ylabel("largest gradient, relative")
    panels[0, -1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).parent
    parser.add_argument("--out", type=Path, default=here / "results" / "ica_passes.csv")
    parser.add_argument("--figure", type=Path, help="an .svg of the curves of the first seed")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    cases, seeds, cap = ([("network", 2000, 6)], 1, 30) if options.quick else (CASES, options.seeds, CAP)
    rows = []
    for case, n, d in cases:
        for seed in range(seeds):
            x = rows_of(case, n, d, seed)
            if x is None:
                continue
            z = whitened(x)[0].astype(np.float32)
            for method in METHODS:
                curve = followed(method, z, seed, cap)
                print(
                    case,
                    n,
                    d,
                    seed,
                    method,
                    len(curve),
                    *(f"{at:.1e}" for at in curve[-1][:2]),
                    curve[-1][2],
                    flush=True,
                )
                kept = [i for i in range(len(curve)) if i < 20 or i % 5 == 0 or i == len(curve) - 1]
                rows += [
                    {
                        "case": case,
                        "n": n,
                        "d": d,
                        "seed": seed,
                        "method": method,
                        "pass": i,
                        "gradient": f"{curve[i][0]:.2e}",
                        "firm": f"{curve[i][1]:.2e}",
                        "work": round(curve[i][2], 2),
                    }
                    for i in kept
                ]
    with options.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    if options.figure:
        picture(rows, options.figure)


if __name__ == "__main__":
    main()
