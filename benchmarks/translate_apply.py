"""Microseconds per query of a translator, against the bare numpy product; and how often far rows are flagged.

Queries: CPU time of one query at a time and of batches, one thread, float32. Far rows: the share of rows of the same
population that are flagged (false) and of rows of another domain (digits of the same mean and total variance), over
random splits of the molecules of `modelpairs/admet_cls`, where CONGRUENCE_DATA has it.

    python benchmarks/translate_apply.py            # writes translate_apply.csv and translate_far.csv in results
    python benchmarks/translate_apply.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from congruence.arrays import on_sphere, single_threaded
from congruence.maps.groups import fit_map
from congruence.rows.engine import Rows
from congruence.translation import Translator
from congruence.translation._far import fit_region

WIDTHS, BATCHES = (300, 768, 1024), (1, 32, 1024)
FITTED = (200, 300, 500, 1000, 1800)


def microseconds(work, batch, repeats):
    """CPU time of a query: the median of five means, so that other work on the machine does not count."""
    means = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(repeats):
            work()
        means.append((time.process_time() - start) / repeats)
    return 1e6 * statistics.median(means) / batch


def queries(d, batch, normalize, repeats):
    rng = np.random.default_rng(0)
    n = max(100, 2 * d)
    new, old = rng.normal(size=(n, d)), rng.normal(size=(n, d))
    translator = Translator(fit_map(new, old, "linear"), normalize, d, d, fit_region(Rows(new), np.arange(n) % 5))
    matrix, x = translator.map.matrix.astype(np.float32), rng.normal(size=(batch, d)).astype(np.float32)
    works = {"translator": lambda: translator(x), "matmul": lambda: x @ matrix, "far": lambda: translator.far(x)}
    row = {"d": d, "batch": batch, "normalize": normalize or "none", "repeats": repeats}
    for name, work in works.items():
        work()
        row[f"{name}_us"] = round(microseconds(work, batch, repeats), 2)
    return row


def far_rates(molecules, n, normalize, splits):
    """False flags and detections over random splits."""
    flagged = tested = found = shown = 0
    place = on_sphere if normalize else np.asarray
    for seed in range(splits):
        rng = np.random.default_rng(seed)
        x = molecules[seed % len(molecules)]
        x = x[rng.permutation(len(x))]
        fitted, others = x[:n], x[n:]
        digits = load_digits().data @ rng.normal(size=(64, x.shape[1]))
        digits = (digits - digits.mean(0)) / digits.std() * np.sqrt(fitted.var(0).mean()) + fitted.mean(0)
        region = fit_region(Rows(fitted, scale_rows=normalize is not None), np.arange(n) % 5)
        flagged += int((region.exceedance(place(others)) > 1).sum())
        found += int((region.exceedance(place(digits)) > 1).sum())
        tested, shown = tested + len(others), shown + len(digits)
    rates = {"false": round(flagged / tested, 5), "digits": round(found / shown, 4)}
    return {"fitted_rows": n, "normalize": normalize or "none", "splits": splits, **rates}


def write(path, rows):
    if not rows:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = f"{platform.machine()}, {np.__config__.CONFIG['Build Dependencies']['blas']['name']}, one thread"
    versions = f"numpy {np.__version__}, python {platform.python_version()}"
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, [*rows[0], "machine", "versions"])
        writer.writeheader()
        writer.writerows({**row, "machine": machine, "versions": versions} for row in rows)


def shown(row):
    print("  ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "translate_apply.csv")
    arguments = parser.parse_args()
    quick = arguments.quick
    widths, batches, fitted = ((8,), (1, 4), (200,)) if quick else (WIDTHS, BATCHES, FITTED)
    with single_threaded():
        speed = [
            shown(queries(d, batch, normalize, 3 if quick else max(5, 500 // batch)))
            for d in widths
            for batch in batches
            for normalize in (None, "cosine")
        ]
        folder = Path(os.environ.get("CONGRUENCE_DATA", "")) / "modelpairs"
        runs = sorted(folder.glob("admet_cls_seed*.npy"))
        molecules = [np.load(run).astype(np.float64) for run in runs[: 1 if quick else None]]
        far = [
            shown(far_rates(molecules, n, normalize, 1 if quick else 40))
            for n in (fitted if molecules else ())
            for normalize in (None, "cosine")
        ]
    write(arguments.out, speed)
    write(arguments.out.with_name("translate_far.csv"), far)


if __name__ == "__main__":
    main()
