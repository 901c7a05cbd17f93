"""ICA of the token activations of a language model, and icalens: agreement over seeds and halves, Amari, time.

The activations are those of the recipe `dictionary-stability`: outputs of the middle block of a small language model at
single tokens of held-out files, with rows of length 1 in both. The mixture has known sources (Laplace and uniform), so
that an Amari distance can be computed. icalens runs a fixed number of iterations (200 by default, 50 in its published
lenses) in float32. It is not a dependency: ``pip install --no-deps icalens``; without it its rows are left out.

Agreement is the |correlation| of components that are matched one to one between fits with other seeds, and between
fits to disjoint halves of the rows.

    python benchmarks/ica_lens.py            # writes benchmarks/results/ica_lens.csv, minutes
    python benchmarks/ica_lens.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import platform
import time
import warnings
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

import numpy as np

from congruence import ICA, __version__
from congruence.errors import NotConvergedWarning
from congruence.experiments.recipes.dictionary_stability import PARAMETERS, language_activations
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.parts import Parts
from congruence.stats.matching import match
from ica import amari  # of this folder

HERE = Path(__file__).parent / "results"
COLUMNS = (
    "rows", "n", "d", "k", "method", "seeds", "agreement", "share_above_0.9", "halves", "identified",
    "agreement_identified", "halves_identified", "amari", "wall_s", "cpu_s", "machine", "versions",
)  # fmt: skip


def activations(scale):
    """Token activations of the language model of the recipe at this scale."""
    job = RecipeJob(0, "cpu", PARAMETERS[scale], Parts(Path(), {}), lambda *_: None)
    return language_activations(job)["rows"]


def mixture(n, d):
    rng = np.random.default_rng(0)
    sources = np.column_stack([rng.laplace(size=(n, d // 2)), rng.uniform(-1, 1, size=(n, d - d // 2))])
    mixing = rng.normal(size=(d, d))
    return (sources @ mixing.T).astype(np.float32), mixing


def ours(x, k, seed, normalize, **how):
    """Components (k, d), and which of them are identified."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        ica = ICA(k, normalize=normalize, random_state=seed, **how).fit(x)
    return ica.components_, ica.identified_


def icalens(x, k, seed, normalize, iterations):
    import torch
    from icalens._fastica import fit_fastica

    result = fit_fastica(
        torch.from_numpy(x), n_components=k, max_iter=iterations, random_state=seed,
        row_normalize=normalize is not None, objective_every=iterations,
    )  # fmt: skip
    return result.components.numpy(), np.ones(k, dtype=bool)


def agreement(rows, a, b):
    """The |correlation| on all rows of each component of a with its partner in b, (k,)."""
    one, two = (rows @ components.T for components in (a, b))
    correlations = np.abs(np.corrcoef(one, two, rowvar=False)[: len(a), len(a) :])
    return correlations[match(correlations)]


def measure(name, x, k, normalize, mixing, seeds):
    rows = x / np.linalg.norm(x, axis=1, keepdims=True) if normalize else x
    methods = {
        "congruence, one start": (ours, {"starts": 1, "check": False}),
        "congruence, default": (ours, {}),
    }
    if importlib.util.find_spec("icalens"):
        methods |= {f"icalens, {steps} iterations": (icalens, {"iterations": steps}) for steps in (50, 200)}
    half = np.random.default_rng(0).permutation(len(x))
    halves = half[: len(x) // 2], half[len(x) // 2 :]
    for method, (fit, how) in methods.items():
        wall, spent, fitted = time.perf_counter(), time.process_time(), []
        for seed in range(seeds):
            fitted.append(fit(x, k, seed, normalize, **how))
        took = (time.perf_counter() - wall) / seeds, (time.process_time() - spent) / seeds
        parts = [fit(x[some], k, seeds + i, normalize, **how)[0] for i, some in enumerate(halves)]
        over_seeds = [(agreement(rows, a, b), which) for (a, which), (b, _) in combinations(fitted, 2)]
        all_seeds = np.concatenate([found for found, _ in over_seeds])
        full, which = fitted[0]
        on_halves = np.minimum(*(agreement(rows, full, part) for part in parts))
        row = {
            "rows": name, "n": len(x), "d": x.shape[1], "k": k, "method": method, "seeds": seeds,
            "agreement": float(np.median(all_seeds)), "share_above_0.9": float((all_seeds > 0.9).mean()),
            "halves": float(np.median(on_halves)), "wall_s": took[0], "cpu_s": took[1],
            "amari": float(np.mean([amari(w @ mixing) for w, _ in fitted])) if mixing is not None else "",
        }  # fmt: skip
        if method.endswith("default") and which.any():
            some = np.concatenate([found[kind] for found, kind in over_seeds])
            row |= {"identified": " ".join(str(int(kind.sum())) for _, kind in fitted)}
            row |= {
                "agreement_identified": float(np.median(some)),
                "halves_identified": float(np.median(on_halves[which])),
            }
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "ica_lens.csv")
    arguments = parser.parse_args()
    peer = f", icalens {version('icalens')}" if importlib.util.find_spec("icalens") else ""
    threads = os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))
    about = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {threads} threads, load {os.getloadavg()[0]:.0f}",
        "versions": f"congruence {__version__}, numpy {np.__version__}{peer}",
    }
    scale, size, seeds = ("smoke", (1000, 6), 2) if arguments.quick else ("small", (20_000, 256), 3)
    tokens, (x, mixing) = activations(scale), mixture(*size)
    d = tokens.shape[1]
    data = [("language model", tokens, k, "cosine", None) for k in (d, d // 2)]
    data.append(("mixture", x, x.shape[1], None, mixing))
    rows = []
    for case in data:
        for row in measure(*case, seeds):
            rows.append(row | about)
            print({key: value for key, value in row.items() if value != ""}, flush=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


if __name__ == "__main__":
    main()
