"""Recall of the map that `translate` chooses, and of Procrustes, least squares, RidgeCV and two nonlinear maps.

Pairs of trainings of a graph network (`modelpairs/admet_cls`, if `CONGRUENCE_DATA` has it), and pairs of small text
encoders, trained here on the docstrings of Python's standard library. 400 rows are queries, which no map is fitted on;
the index is all rows but the query. `full` is the share of the new model's 10 nearest rows that translated queries find
(recall relative to full re-embedding). `gain` is the recall@10 minus ours on the same queries, with a 95 % interval.
CPU seconds of one thread; peak memory of Python's allocations.

    python benchmarks/translate_maps.py            # writes benchmarks/results/translate_maps.csv, pair by pair
    python benchmarks/translate_maps.py --pair text    # only pairs with this text in their name; others are kept
    python benchmarks/translate_maps.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import importlib
import inspect
import os
import pkgutil
import platform
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from scipy.linalg import orthogonal_procrustes

from congruence.maps.groups import fit_group
from congruence.maps.nearness import protocol
from congruence.rows.engine import Rows
from congruence.rows.sums import pair_sums, run_sums
from congruence.translation._choice import choose_group, find_nearest
from congruence.translation._options import CANDIDATES

SIZES = (200, 300, 500, 1000, None)
QUERIES = 400
Fitted = Callable[[np.ndarray], np.ndarray]


# Maps.


def ours(x: np.ndarray, y: np.ndarray) -> tuple[Fitted, str]:
    """The map that `translate` chooses and fits."""
    plan = protocol(len(x), nulls=0)
    sums = pair_sums(*(run_sums(Rows(one), plan.folds) for one in (x, y)))
    group = choose_group(sums, CANDIDATES, plan).group
    h = fit_group(sums.outside(None), group)
    return (lambda z: h(z)[:, : y.shape[1]]), group


def procrustes(x: np.ndarray, y: np.ndarray) -> tuple[Fitted, str]:
    mx, my = x.mean(0), y.mean(0)
    width = max(x.shape[1], y.shape[1])
    a, b = (np.pad(z - z.mean(0), ((0, 0), (0, width - z.shape[1]))) for z in (x, y))
    turn, scale = orthogonal_procrustes(a, b)
    matrix = turn[: x.shape[1], : y.shape[1]] * scale / np.square(a).sum()
    return (lambda z: (z - mx) @ matrix + my), ""


def least_squares(x: np.ndarray, y: np.ndarray) -> tuple[Fitted, str]:
    mx, my = x.mean(0), y.mean(0)
    matrix = np.linalg.lstsq(x - mx, y - my, rcond=None)[0]
    return (lambda z: (z - mx) @ matrix + my), ""


def ridge_cv(x: np.ndarray, y: np.ndarray) -> tuple[Fitted, str]:
    from sklearn.linear_model import RidgeCV

    alphas = np.square(x - x.mean(0)).sum() / x.shape[1] * np.logspace(-6, 2, 16)
    model = RidgeCV(alphas=alphas).fit(x, y)
    return model.predict, f"alpha {model.alpha_:.3g}"


def residual_network(x: np.ndarray, y: np.ndarray) -> tuple[Fitted, str]:
    """RidgeCV, plus a network of one hidden layer for its residual, stopped early on a tenth of the rows."""
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    linear, _ = ridge_cv(x, y)
    left = y - linear(x)
    unit = left.std()
    net = MLPRegressor(hidden_layer_sizes=256, alpha=1e-2, early_stopping=True, max_iter=300, random_state=0)
    model = make_pipeline(StandardScaler(), net).fit(x, left / unit)
    return (lambda z: linear(z) + unit * model.predict(z)), f"{net.n_iter_} epochs"


def local_maps(x: np.ndarray, y: np.ndarray) -> tuple[Fitted, str]:
    """RidgeCV, plus one of its residual in each cluster of 20 rows or more; a cluster per 100 rows, at most 8."""
    from sklearn.cluster import KMeans

    linear, _ = ridge_cv(x, y)
    groups = KMeans(min(max(len(x) // 100, 1), 8), n_init=1, random_state=0).fit(x)
    members = [np.flatnonzero(groups.labels_ == k) for k in range(groups.n_clusters)]
    left = y - linear(x)
    maps = {k: ridge_cv(x[own], left[own])[0] for k, own in enumerate(members) if len(own) >= 20}

    def apply(z: np.ndarray) -> np.ndarray:
        moved, member = linear(z), groups.predict(z)
        for k, h in maps.items():
            if (member == k).any():
                moved[member == k] += h(z[member == k])
        return moved

    return apply, f"{len(maps)} maps"


METHODS = {
    "ours": ours,
    "Procrustes": procrustes,
    "least squares": least_squares,
    "RidgeCV": ridge_cv,
    "residual network": residual_network,
    "local maps": local_maps,
}


# Pairs.


def molecules() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    folder = Path(os.environ.get("CONGRUENCE_DATA", "")) / "modelpairs"
    runs = [np.load(path).astype(float) for path in sorted(folder.glob("admet_cls_seed*.npy"))]
    for i, j in combinations(range(len(runs)), 2):
        yield f"admet_cls {i}, {j}", runs[i], runs[j]


def docstrings(most: int) -> list[str]:
    """Paragraphs of the docstrings of the standard library, without repetitions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated modules and attributes
        return list(dict.fromkeys(_paragraphs()))[:most]


def _paragraphs() -> Iterator[str]:
    names = sorted(m.name for m in pkgutil.iter_modules() if m.name in sys.stdlib_module_names)
    for name in names:
        if name in ("antigravity", "this", "idlelib") or name.startswith("_"):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for _, thing in sorted(vars(module).items(), key=lambda pair: pair[0]):
            members = vars(thing).values() if inspect.isclass(thing) else ()
            for one in (thing, *members):
                doc = getattr(one, "__doc__", None)
                for part in doc.split("\n\n") if isinstance(doc, str) else ():
                    text = " ".join(part.split())
                    if len(text.split()) >= 12:
                        yield text


def encode_text(texts: list[str], kind: str, d: int, seed: int) -> np.ndarray:
    """Train a small encoder on the texts and embed them: latent semantic analysis of words or of letters."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    options: dict[str, Any] = (
        {"analyzer": "word"} if kind == "words" else {"analyzer": "char_wb", "ngram_range": (2, 4)}
    )
    rng = np.random.default_rng(seed)
    trained = [texts[i] for i in rng.permutation(len(texts))[: int(0.7 * len(texts))]]
    vectors = TfidfVectorizer(max_features=20_000, sublinear_tf=True, **options).fit(trained)
    svd = TruncatedSVD(d, random_state=seed).fit(vectors.transform(trained))
    x = svd.transform(vectors.transform(texts))
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))


def text_pairs(most: int, d: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    texts = docstrings(most)
    words, again, letters = (encode_text(texts, *how) for how in (("words", d, 0), ("words", d, 1), ("letters", d, 0)))
    yield "text, words twice", words, again
    yield "text, words and letters", words, letters


# Scores.


def score(name: str, old: np.ndarray, new: np.ndarray, n: int | None, seed: int) -> Iterator[dict[str, Any]]:
    order = np.random.default_rng(seed).permutation(len(old))
    queries, rows = order[: min(QUERIES, len(old) // 4)], order[min(QUERIES, len(old) // 4) :][:n]
    nearest_new, first = true_nearest(new, queries), np.zeros(len(queries))
    for method, fit in METHODS.items():
        tracemalloc.start()
        start = time.process_time()
        h, choice = fit(new[rows], old[rows])
        seconds = time.process_time() - start
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        z = h(new[queries])
        left = np.square(z - old[queries]).sum() / np.square(old[queries] - old[rows].mean(0)).sum()
        found, recall = true_nearest(old, queries, z), find_nearest(old, queries, z)
        first = recall if method == "ours" else first
        gain, wide = (recall - first).mean(), 1.96 * (recall - first).std() / np.sqrt(len(queries))
        yield {
            "pair": name,
            "d": old.shape[1],
            "paired_rows": len(rows),
            "index": len(old) - 1,
            "method": method,
            "choice": choice,
            "recall_10": round(float(recall.mean()), 4),
            "gain": round(float(gain), 4),
            "gain_low": round(float(gain - wide), 4),
            "gain_high": round(float(gain + wide), 4),
            "full": round(float((found[:, :, None] == nearest_new[:, None, :]).any(2).mean()), 4),
            "r2": round(1 - float(left), 4),
            "cpu_s": round(seconds, 3),
            "peak_mb": round(peak / 1e6, 1),
        }


def true_nearest(index: np.ndarray, queries: np.ndarray, z: np.ndarray | None = None) -> np.ndarray:
    """The 10 nearest rows of the index to each query but itself, shape (m, 10)."""
    distances = np.square(index).sum(1) - 2 * (index[queries] if z is None else z) @ index.T
    distances[np.arange(len(queries)), queries] = np.inf
    return np.argpartition(distances, 9, axis=1)[:, :10]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "translate_maps.csv")
    parser.add_argument("--pair", default="", help="only the pairs with this text in their name")
    args = parser.parse_args()
    pairs = list(text_pairs(300, 8)) if args.quick else [*molecules(), *text_pairs(4000, 128)]
    about = {
        "machine": f"{platform.machine()}, one thread",
        "versions": f"numpy {np.__version__}, scikit-learn {sklearn.__version__}, python {platform.python_version()}",
    }
    for seed, (name, old, new) in enumerate(pairs):
        if args.pair not in name:
            continue
        rows = []
        for n in (100,) if args.quick else SIZES:
            for row in score(name, old, new, n, seed):
                rows.append(row | about)
                print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        replace_rows(args.out, name, rows)


def replace_rows(path: Path, pair: str, rows: list[dict[str, Any]]) -> None:
    """Write the rows of a pair, and keep those of the others."""
    kept: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="") as handle:
            kept = [row for row in csv.DictReader(handle) if row["pair"] != pair]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted([*kept, *rows], key=lambda row: row["pair"]))


if __name__ == "__main__":
    main()
