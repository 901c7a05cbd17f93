"""The options of `match_features`, for Python and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from congruence.options import DATA, option

MATCHINGS = ("one-to-one", "mutual")
SIGNS = ("auto", "signed", "unsigned")


@dataclass(frozen=True)
class FeatureOptions:
    """How dictionaries are read, matched and judged."""

    key: str | None = option(None, "Array with the features, one per row, e.g. W_dec.", panel=DATA)
    transpose: bool = option(False, "The array has one feature per column.", panel=DATA)
    activations: Any = option(
        (), "Rows to encode: one table for all dictionaries, or one per dictionary, separated by commas.", panel=DATA
    )
    id: str | None = option(None, "Column of the activations with row ids, by which they are paired.", panel=DATA)
    text: str | None = option(
        None, "Column of the activations that is shown for top rows (token, context).", panel=DATA
    )
    rows: int = option(20_000, "Largest number of rows of the activations that are used.", panel=DATA)
    aligned: bool = option(
        False, "All dictionaries are in one space, also if each has its own activations: fit no rotation."
    )
    matching: str = option("one-to-one", f"How features are matched: {' or '.join(MATCHINGS)} nearest.")
    signs: str = option("auto", "'unsigned' matches a feature with its negative too; 'auto' does so for ICA.")
    similarity: float = option(0.7, "Least cosine at which a matched feature counts as the same.")
    level: float = option(0.01, "Share of features that exceed the chance limit by chance.")
    require: float = option(0.9, "Share of features that must come back for 'holds'.")
    nulls: int = option(2, "Number of null dictionaries of each kind.")
    device: str = option("auto", "Device of the products: auto, cpu or cuda.")
    seed: int = option(0, "Seed of the null dictionaries and of samples.")
