"""The options of `translate` and its commands, for Python and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from congruence.options import DATA, ReadOptions, option

CANDIDATES = ("identity", "rigid", "similarity", "ridge", "ridge_similarity")  # what group="auto" chooses from
GROUPS = ("auto", *CANDIDATES, "permutation", "linear")


@dataclass(frozen=True)
class TranslateOptions(ReadOptions):
    """How the vectors of two models are read, mapped onto each other and judged."""

    labels: Any = option(None, "Metadata column of OLD that a linear probe predicts.", panel=DATA)
    cluster: Any = option(None, "Column whose rows stay together (plate, patient, document).", panel=DATA)
    drop_missing: bool = option(False, "Leave out rows with NaN or infinity.", panel=DATA)
    index: Any = option(
        None,
        "The old vectors that will be searched (any size, read in blocks); by default the rows of OLD.",
        panel=DATA,
    )
    queries: Any = option(None, "Pair (old, new) of tables of queries, to certify on.", panel=DATA, in_shell=False)
    qrels: Any = option(
        None, "Relevance judgements, to certify with nDCG: columns query id, document id, relevance.", panel=DATA
    )
    group: str = option("auto", f"Kind of map: {', '.join(GROUPS)}.")
    normalize: str | None = option(None, "'cosine' puts rows on the unit sphere before and after.")
    require: float = option(0.9, "Share of true neighbours that translated vectors must find for a go.")
    folds: int = option(5, "Number of folds held out in turn.")
    nulls: int = option(5, "Number of null fits (random re-pairings; unpaired: of each kind); 0 for none.")
    bootstrap: int = option(200, "Number of bootstrap draws for the interval; 0 for none.")
    seed: int = option(0, "The same seed gives the same result.")
    device: str = option("auto", "auto, cpu, cuda or cuda:1.")
    unpaired: bool = option(False, "Experimental: no common rows; find the rotation that aligns both tables.")
    starts: int = option(256, "With --unpaired: most starts of each search; fewer where 64 more find the same map.")
    splits: int = option(3, "With --unpaired: number of random splits into halves that must agree; 0 for none.")


NEED_PAIRS = (
    "labels", "cluster", "index", "queries", "qrels", "group", "require", "folds", "bootstrap",
)  # fmt: skip
NEED_NO_PAIRS = ("starts", "splits")


@dataclass(frozen=True)
class ApplyOptions(ReadOptions):
    """How rows are read and translated."""

    inverse: bool = option(False, "Map from the old space to the new.")
    flag_far: bool = option(False, "Add a boolean column 'far': rows unlike those of the fit.")


FORMATS = ("onnx", "sentence-transformers", "numpy")  # of exported translators
