"""How much plate-wise normalisation gains when it is scored on the controls that it was fitted to.

Raw features of BBBC021 (423 wells, 37 plates of ten weeks, six DMSO wells on each plate). Trees separate two groups of
wells; each week is held out in turn. `standardised` and `tvn` align every plate on three reference controls, which are
either among the controls that are scored (`reference` is `scored`) or others of the same plate (`other`). Scored wells,
training wells and the number of reference controls are the same in both cases.

- `null`: one DMSO well of each plate against two others. Nothing distinguishes them, so AUROC is 0.5 without a bias.
- `active`: all treated wells against three DMSO wells of each plate.

DMSO wells are divided at random, 20 times. An interval is a t interval over the ten weeks of the mean over divisions.
`scored - other` is the bias. The rule was fixed before the run: there is a bias if the interval of `scored - other` is
above 0, and the null task must have 0.5 inside its interval for `other`.

    CONGRUENCE_DATA=FOLDER python benchmarks/normalisation_controls.py   # writes results/normalisation_controls.csv
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy import stats

from congruence.batches.classify import auroc, fit_trees
from congruence.batches.conditions import condition_named

CONDITIONS, TASKS, REFERENCES = ("base", "standardised", "tvn"), ("null", "active"), ("scored", "other")
COLUMNS = ("task", "condition", "reference", "auroc", "low", "high", "weeks", "divisions")
LABELS = ("plate", "week", "well", "replicate", "compound", "concentration_um", "moa", "is_control")


def divide(control, plate, rng):
    """Number the controls of each plate in a random order, from 0; -1 for other wells."""
    place = np.full(len(control), -1)
    for one in np.unique(plate):
        rows = np.flatnonzero(control & (plate == one))
        place[rows] = rng.permutation(len(rows))
    return place


def roles(task, place):
    """Which wells are positive and negative, and the reference controls if they are scored or others."""
    other = place >= 3
    if task == "null":
        negative = (place == 1) | (place == 2)
        return place == 0, negative, {"scored": negative | (place == 3), "other": other}
    negative = (place >= 0) & (place < 3)
    return place < 0, negative, {"scored": negative, "other": other}


def score(x, plate, week, control, division, rounds):
    """AUROC of each held-out week for one division: {(task, condition, reference): (weeks,)}."""
    place = divide(control, plate, np.random.default_rng([0, division]))
    out = {}
    for task in TASKS:
        positive, negative, references = roles(task, place)
        for condition in CONDITIONS:
            for reference in REFERENCES if condition != "base" else ("",):
                values = []
                for held in np.unique(week):
                    train, test = (week != held) & (positive | negative), (week == held) & (positive | negative)
                    known = references.get(reference, control)
                    fitted = condition_named(condition, None, 0, 0, "cpu")
                    fitted.fit(x[week != held], plate[week != held], known[week != held])
                    z = fitted.transform(x, plate, known)
                    trees = fit_trees(z[train], positive[train], rounds=rounds)
                    values.append(auroc(positive[test], trees.booster.predict(z[test])))
                out[task, condition, reference] = np.array(values)
    return out


def row(task, condition, reference, values):
    """One line of the table from the values of divisions and weeks, (divisions, weeks)."""
    weeks = values.mean(0)
    half = stats.t.ppf(0.975, len(weeks) - 1) * weeks.std(ddof=1) / np.sqrt(len(weeks))
    mean = weeks.mean()
    numbers = (f"{value:.4f}" for value in (mean, mean - half, mean + half))
    return (task, condition, reference, *numbers, len(weeks), len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one division and few trees")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "normalisation_controls.csv")
    arguments = parser.parse_args()
    wells = pd.read_parquet(Path(os.environ["CONGRUENCE_DATA"]) / "bbbc021" / "mcf7_well_means.parquet")
    x = wells.drop(columns=list(LABELS)).to_numpy(np.float64)
    plate, week = (np.unique(wells[name].astype(str), return_inverse=True)[1] for name in ("plate", "week"))
    control = wells["is_control"].to_numpy(bool)
    divisions, rounds = (1, 5) if arguments.quick else (20, 100)
    tasks = (delayed(score)(x, plate, week, control, i, rounds) for i in range(divisions))
    scores = Parallel(n_jobs=arguments.jobs)(tasks)
    rows = []
    for task in TASKS:
        values = {key[1:]: np.array([one[key] for one in scores]) for key in scores[0] if key[0] == task}
        rows += [row(task, *key, one) for key, one in values.items()]
        for condition in CONDITIONS[1:]:
            bias = values[condition, "scored"] - values[condition, "other"]
            rows.append(row(task, condition, "scored - other", bias))
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([COLUMNS, *rows])
    print(pd.DataFrame(rows, columns=COLUMNS).to_string(index=False))


if __name__ == "__main__":
    main()
