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


def rounded(value):
    """A number with four decimals; empty if there is none."""
    return "" if value is None or not np.isfinite(value) else f"{value:.4f}"


def table(screen, run, result):
    """One row for each condition and target, and one for each condition and all targets."""
    frame = result.to_frame()
    for name in result.conditions:
        lines = frame[frame["condition"] == name]
        for _, line in lines.iterrows():
            precision = result[line["target"]].precision.get(name)
            extra = (getattr(precision, "chance", None), line.get("concentration25_difference"))
            yield (screen, run, name, line["target"], *(rounded(line.get(key)) for key in TARGET), *map(rounded, extra))
        overall, leak, found = (getattr(result, key).get(name) for key in ("overall", "leakage", "retrieval"))
        mean = {key: lines[key].mean() for key in ("auroc", "sparsity", "map") if key in lines}
        mean |= {"difference": overall.difference, "low": overall.low, "high": overall.high} if overall else {}
        values = [
            *(mean.get(key) for key in TARGET),
            None,
            lines.get("concentration25_difference", lines["auroc"] * np.nan).mean(),
        ]
        values += [result.variance.get(name), leak and leak.mean, leak and leak.by_chance, found and found.mean]
        values += [found and found.by_chance, result.nesting and result.nesting.share]
        yield (screen, run, name, "all", *map(rounded, values))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few trees")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "screens.csv")
    arguments = parser.parse_args()
    data = Path(os.environ["CONGRUENCE_DATA"])
    rows = []
    for (screen, run), options in RUNS.items():
        settings = SCREENS[screen] | options | ({"rounds": 3, "folds": 2} if arguments.quick else {})
        path = data / settings.pop("x")
        result = deconfound(path, batch="plate", control="is_control=True", **settings)
        rows += table(screen, run, result)
        print(screen, run, result.verdict, flush=True)
    with arguments.out.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
