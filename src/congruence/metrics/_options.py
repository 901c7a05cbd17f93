"""The options of `evaluate`, for Python and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from congruence.options import DATA, ReadOptions, option

DEFAULT = ("infomec", "mig", "modularity", "mcc", "regression")


@dataclass(frozen=True)
class EvaluateOptions(ReadOptions):
    """How codes and factors are read, paired and scored."""

    factor_columns: str | Sequence[str] | None = option(
        None, "Columns that are factors, e.g. 'hue,shape'; by default all columns of FACTORS.", panel=DATA
    )
    kinds: Any = option(
        "auto",
        "Kinds of factors: one for all, or by name, e.g. hue=circular:360; others are guessed.",
        panel=DATA,
    )
    cluster: Any = option(None, "Column whose rows stay together (plate, patient, document).", panel=DATA)
    order_blocks: int | None = option(
        None,
        "Rows are ordered, and rows fewer than so many places apart depend on each other: blocks stay together.",
        panel=DATA,
    )
    drop_missing: bool = option(False, "Leave out rows with missing values or infinity.", panel=DATA)
    metrics: str | Sequence[str] = option(DEFAULT, "Metrics, separated by commas; 'fast' or 'all'. --list shows them.")
    infomec_version: str = option("standalone", "Version of InfoMEC: standalone, training or tripod.")
    discrete_codes: bool = option(False, "The values of codes are classes (quantised).")
    dci_model: str = option("boosting", "Trees of DCI: boosting, forest or lightgbm.")
    ica: bool = option(False, "Evaluate independent components of the codes, and compare with the codes.")
    resamples: int = option(10, "Number of subsamples for intervals; 0 for none.")
    nulls: int = option(5, "Number of random re-pairings for the chance level; 0 for none.")
    slow_resamples: int = option(0, "The same as --resamples for metrics that take minutes (dci, regression, sis).")
    slow_nulls: int | None = option(
        None, "The same as --nulls for these and the information of infomec; 1 unless --nulls is 0."
    )
    sensitivity: bool | Sequence[int] = option(False, "Also show scores for 10, 20 and 50 bins.")
    structural: bool = option(True, "Measure the distance to the factors up to a permutation, rotation or linear map.")
    seed: int = option(0, "The same seed gives the same result.")
    blocks: Any = option(None, "Blocks of codes, for sis and block_score.", in_shell=False)
    factor_blocks: Any = option(None, "Blocks of factors, for sis and block_score.", in_shell=False)
    name: str | None = option(None, "What the codes are called.", in_shell=False)
    code_names: Sequence[str] | None = option(None, "Names of the codes.", in_shell=False)
    factor_names: Sequence[str] | None = option(None, "Names of the factors.", in_shell=False)
