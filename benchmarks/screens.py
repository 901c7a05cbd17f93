"""The results of `deconfound` on two screens that docs/deconfound.md quotes.

`normalised` are the 3,073 wells of U2OS cells of `cellpainting/`, whose features were normalised before publication;
`raw` are the 423 wells of BBBC021 in `bbbc021/`, whose features were not. Each run is one call with default settings
besides those in `RUNS`. A row has one condition and one target, or all targets together; numbers that do not depend on
the target are in the row of all targets.

    CONGRUENCE_DATA=FOLDER python benchmarks/screens.py   # writes results/screens.csv
    CONGRUENCE_DATA=FOLDER python benchmarks/screens.py --quick --out quick.csv
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path

import numpy as np

from congruence import deconfound

SCREENS = {
    "normalised": {
        "x": "cellpainting/cell_injury_u2os_wells.parquet",
        "target": "injury_type",
        "components": 64,
        "positive": ["Saponin", "Miscellaneous", "Genotoxin", "Redox"],
        "metadata": "well,batch,treatment_hours,compound,concentration_um,relative_cell_count,source_split",
    },
    "raw": {
        "x": "bbbc021/mcf7_well_means.parquet",
        "target": "moa",
        "metadata": "week,well,replicate,compound,concentration_um",
    },
}
CORRECTIONS = ("base", "whitened", "ica", "standardised", "tvn")
WEEKS = {"cluster": "week", "metadata": "well,replicate,compound,concentration_um"}
ONLY_ICA = {"conditions": ("base", "ica"), "concentration": (), "leakage": False, "retrieval": False, "profiles": False}
RUNS = {
    ("normalised", "default"): {},
    ("normalised", "seed 1"): {"seed": 1} | ONLY_ICA,
    ("normalised", "seed 2"): {"seed": 2} | ONLY_ICA,
    ("normalised", "fit on all"): {"fit_on": "all"} | ONLY_ICA,
    ("normalised", "corrections"): {"conditions": CORRECTIONS},
    ("raw", "plates"): {},
    ("raw", "weeks"): WEEKS,
    ("raw", "weeks, corrections"): WEEKS | {"conditions": CORRECTIONS},
}
TARGET = ("auroc", "error", "auroc_low", "auroc_high", "difference", "low", "high", "sparsity", "map", "map_p_adjusted")
ALL = ("variance", "batch_accuracy", "batch_accuracy_chance", "retrieval", "retrieval_chance", "nesting")
COLUMNS = ("screen", "run", "condition", "target", *TARGET, "map_chance", "concentration25", *ALL)


def cells(numbers):
    """Numbers with four decimals; those that are absent are left out."""
    return {key: f"{value:.4f}" for key, value in numbers.items() if value is not None and np.isfinite(value)}


def table(screen, run, result):
    """One row for each condition and target, and one for each condition and all targets."""
    frame = result.to_frame().rename(columns={"concentration25_difference": "concentration25"})
    for name in result.conditions:
        where = {"screen": screen, "run": run, "condition": name}
        lines = frame[frame["condition"] == name]
        for _, line in lines.iterrows():
            precision = result[line["target"]].precision.get(name)
            numbers = {key: line.get(key) for key in (*TARGET, "concentration25")}
            numbers["map_chance"] = getattr(precision, "chance", None)
            yield where | {"target": line["target"]} | cells(numbers)
        numbers = {key: lines[key].mean() for key in ("auroc", "sparsity", "map", "concentration25") if key in lines}
        numbers["variance"] = result.variance.get(name)
        if name in result.overall:
            overall = result.overall[name]
            numbers |= {"difference": overall.difference, "low": overall.low, "high": overall.high}
        if name in result.leakage:
            leak, found = result.leakage[name], result.retrieval[name]
            numbers |= {"batch_accuracy": leak.mean, "batch_accuracy_chance": leak.by_chance}
            numbers |= {"retrieval": found.mean, "retrieval_chance": found.by_chance}
        if result.nesting is not None:
            numbers["nesting"] = result.nesting.share
        yield where | {"target": "all"} | cells(numbers)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run with few trees")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "screens.csv")
    arguments = parser.parse_args()
    data = Path(os.environ["CONGRUENCE_DATA"])
    rows = []
    for (screen, run), options in list(RUNS.items())[-1 if arguments.quick else 0 :]:
        settings = SCREENS[screen] | options | ({"rounds": 3, "folds": 2} if arguments.quick else {})
        path = data / settings.pop("x")
        result = deconfound(path, batch="plate", control="is_control=True", **settings)
        rows += table(screen, run, result)
        print(screen, run, result.verdict, flush=True)
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
