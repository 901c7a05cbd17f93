"""What DCI costs and says with scikit-learn's gradient boosting and with LightGBM, on the same codes.

Factors of several classes, with a little noise, are the codes; pairs of codes are then turned by an angle, from none
(each code is one factor) to 45 degrees (each is half of two). Both models see the same rows in the same run; CPU
seconds, because the machine may be shared. `rank_agreement` is Spearman's correlation of the two importance matrices;
ranks among codes that hold nothing of a factor are noise, so see `importance_apart`, the largest difference, too.

    python benchmarks/dci.py            # writes benchmarks/results/dci.csv
    python benchmarks/dci.py --quick    # seconds, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import platform
import time
from pathlib import Path

import lightgbm
import numpy as np
import sklearn
from scipy.stats import spearmanr

from congruence.metrics import dci

ANGLES = (0, 15, 30, 45)
CLASSES = (3, 4, 5, 6)


def data(n, classes, angle):
    """Factors (n, K) and codes that are the standardised factors, noisy, turned in the planes of neighbours."""
    rng = np.random.default_rng(0)
    factors = np.column_stack([rng.integers(count, size=n) for count in classes])
    codes = (factors - factors.mean(0)) / factors.std(0) + 0.1 * rng.normal(size=factors.shape)
    cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    for j in range(0, len(classes), 2):
        codes[:, j : j + 2] = codes[:, j : j + 2] @ [[cos, -sin], [sin, cos]]
    return codes, factors


def timed(model, codes, factors):
    start = time.process_time()
    result = dci(codes, factors, model=model)
    return result, time.process_time() - start


def compared(n, classes, angle):
    codes, factors = data(n, classes, angle)
    results = {model: timed(model, codes, factors) for model in ("boosting", "lightgbm")}
    cpu = {model: seconds for model, (_, seconds) in results.items()}
    importances = [result.importance.ravel() for result, _ in results.values()]
    row = {"angle": angle, "n": n, "factors": len(classes), "codes": codes.shape[1]}
    row |= {f"{model}_cpu_s": round(seconds, 2) for model, seconds in cpu.items()}
    row["speedup"] = round(cpu["boosting"] / cpu["lightgbm"], 1)
    row["rank_agreement"] = round(float(spearmanr(*importances).statistic), 3)
    row["importance_apart"] = round(float(np.abs(importances[0] - importances[1]).max()), 3)
    for model, (result, _) in results.items():
        row |= {f"{model}_{name.removeprefix('dci_')}": round(value, 3) for name, value in result.scores.items()}
    print("  ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "dci.csv")
    arguments = parser.parse_args()
    sizes, classes = ([200], (2, 3)) if arguments.quick else ([1000, 2000, 5000], CLASSES)
    dci(*data(100, (2, 2), 0), model="lightgbm")  # imports and first calls are nobody's time
    dci(*data(100, (2, 2), 0))
    rows = [compared(n, classes, angle) for n in sizes for angle in ANGLES]
    machine = f"{platform.machine()}, one thread"
    versions = (
        f"scikit-learn {sklearn.__version__}, lightgbm {lightgbm.__version__}, python {platform.python_version()}"
    )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, [*rows[0], "machine", "versions"])
        writer.writeheader()
        writer.writerows({**row, "machine": machine, "versions": versions} for row in rows)


if __name__ == "__main__":
    main()
