"""The options of `deconfound`, for Python and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from congruence.options import DATA, OUTPUT, ReadOptions, option

CONDITIONS = ("base", "whitened", "ica", "rotated")
FITTED_ON = ("training", "all", "both")
ROUNDS = 100  # of boosting; not stated in the paper; LightGBM's default
SHARES = (0.1, 0.25, 0.5)  # of features that count as top features


@dataclass(frozen=True)
class DeconfoundOptions(ReadOptions):
    """Which rows are compared, how the embedding is prepared, and how it is scored."""

    batch: Any = option(None, "Column with the batch (plate, experiment, donor).", panel=DATA)
    target: Any = option(
        None,
        "Column with the treatment (gene, compound); each value with at least five rows on at least two batches is "
        "classified against controls. Without it, all rows that are not controls form one target.",
        panel=DATA,
    )
    control: Any = option(
        None,
        "What marks controls: COLUMN=VALUE such as gene=none, or a value of --target.",
        panel=DATA,
        metavar="COLUMN=VALUE",
    )
    positive: Any = option(
        None,
        "Only this value of --target; may be repeated. Without --control, all other rows are controls.",
        panel=DATA,
        in_shell=False,
    )
    guide: Any = option(
        None, "Column with guides: independent experiments of a target, each judged on its own.", panel=DATA
    )
    cluster: Any = option(
        None,
        "Column whose rows stay together: weeks or sites with several batches, or compounds, held out in addition to "
        "batches.",
        panel=DATA,
    )
    image: Any = option(
        None,
        "Column with the image that each row is a patch of: one patch is fitted on, scores are averaged by image.",
        panel=DATA,
    )
    drop_missing: bool = option(False, "Leave out rows with missing labels or values.", panel=DATA)
    name: str | None = option(None, "What the embedding is called.", in_shell=False)

    conditions: Sequence[str] = option(
        CONDITIONS, "Some of base, whitened, ica, rotated, standardised, tvn and harmony."
    )
    components: Any = option(
        "auto",
        "Directions kept by whitening: a number, a share of the variance, 'auto' (one for 20 rows) or 'all'.",
        metavar="N|SHARE|auto|all",
    )
    fit_on: str = option(
        "training", "Rows that conditions are fitted on: 'training' batches, 'all' (the paper) or 'both'."
    )
    protocol: str = option("folds", "'folds' (batches held out in turn) or 'batch' (one model per batch).")
    folds: int = option(5, "Number of folds of batches.")
    rounds: int = option(ROUNDS, "Rounds of boosting.")
    rotations: int = option(3, "Number of random rotations of the condition rotated.")
    concentration: Sequence[float] = option(
        SHARES, "Top shares of features, each compared with the rest at the cost of two fits; or 'none'."
    )
    reading: str = option("difference", "How concentration is shown: 'difference' or 'ratio' (top / rest - 1).")
    leakage: bool = option(True, "Predict the batch from held-out controls.")
    retrieval: bool = option(True, "Search for replicates across batches.")
    profiles: bool = option(True, "Describe each feature on its own.")
    seed: int = option(0, "The same seed gives the same result.")
    jobs: int = option(1, "Number of fits at a time; the result does not depend on it.")
    device: str = option("auto", "Where ICA runs: auto, cpu, cuda or cuda:1.")
    parts: Any = option(None, "Folder for finished parts, so that an interrupted run can continue.", metavar="FOLDER")
    embedding: str | None = option(
        None,
        "Condition whose embedding, fitted on all rows, is kept for --out and --write-back; ica unless given.",
        panel=OUTPUT,
        metavar="CONDITION",
    )
