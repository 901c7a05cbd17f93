"""The options of `compare` and `compare_layers`, for Python and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from congruence.checks import check_names
from congruence.maps._names import GROUPS
from congruence.options import DATA, OUTPUT, ReadOptions, option

ROUTES = (*GROUPS, "ica")
ALLOWED = ("identity", "permutation", "rigid", "similarity")  # by `check`
ROWS_FOR_ICA = 50  # per dimension; with fewer, hardly any component can be distinguished from noise
BLOCKS_HELP = "Rows are ordered and depend on rows fewer than this many places away."
ROWS_HELP = (
    "Use a sample of this many rows, chosen by a hash of their ids and the seed: the same rows in every file, in any "
    "order. Clusters are sampled whole."
)


def check_groups(groups: Any) -> tuple[str, ...]:
    """The groups to fit; for "auto" all that may be fitted."""
    return check_names("groups", groups, ROUTES, shortcuts={"auto": ROUTES, "all": ROUTES})


def is_auto(groups: Any) -> bool:
    """Whether the numbers of rows and dimensions decide about ICA."""
    return list(groups) == ["auto"] or groups == "auto"


@dataclass(frozen=True)
class CompareOptions(ReadOptions):
    """How runs are read, paired and compared."""

    cluster: Any = option(None, "Column whose rows stay together (plate, patient, document).", panel=DATA)
    order_blocks: int | None = option(None, BLOCKS_HELP, panel=DATA)
    drop_missing: bool = option(False, "Leave out rows with NaN or infinity.", panel=DATA)
    rows: int | None = option(None, ROWS_HELP, panel=DATA)
    groups: str | Sequence[str] = option(
        ("auto",),
        f"Maps to fit, separated by commas, or 'all' ({', '.join(ROUTES)}). ica takes most of the time: 'auto' fits it "
        f"only from {ROWS_FOR_ICA} rows per dimension on, since fewer rarely suffice.",
    )
    directions: str = option("forward", "'forward' (earlier run onto later) or 'both'.")
    normalize: str | None = option(None, "'cosine' scales rows to the unit sphere first.")
    margin: float = option(0.1, "Largest |log gain| of a direction, after the common scale, that is no distortion.")
    tolerance: float = option(0.1, "Largest share of the variance that a rotation and scale may leave unexplained.")
    folds: int = option(5, "Number of folds held out in turn.")
    nulls: int = option(20, "Number of random re-pairings for the null, each scored on one fold; 0 for none.")
    bootstrap: int = option(200, "Number of bootstrap draws for the interval; 0 for none.")
    seed: int = option(0, "The same seed gives the same result.")
    device: str = option("auto", "auto, cpu, cuda or cuda:1.")
    similarities: str | Sequence[str] = option((), "Further measures (cka,svcca,rsa,procrustes,...), or 'all'.")
    color: Any = option(None, "Metadata column by which figures of rows are coloured.", panel=OUTPUT)
    consensus: bool = option(False, "Also compute the consensus of all runs.")
    steps: Sequence[float] | None = option(
        None,
        "Training step of each run, increasing, for checkpoints of one training. Each run is then mapped onto the next "
        "and onto the last, instead of all pairs.",
        in_shell=False,
    )


@dataclass(frozen=True)
class CheckOptions(ReadOptions):
    """How a check reads its rows, and what it accepts; what is not given is taken from a saved baseline."""

    cluster: Any = option(None, "Column whose rows stay together (plate, patient, document).", panel=DATA)
    drop_missing: bool = option(False, "Leave out rows with NaN or infinity.", panel=DATA)
    rows: int | None = option(
        None,
        "Sample this many rows by a hash of their ids and the seed; by default, 1000 rows are saved and all rows of a "
        "baseline are checked.",
        panel=DATA,
    )
    model_name: str | None = option(None, "Name of the model, stored with a baseline and compared with it.", panel=DATA)
    allow: str | None = option(
        None,
        f"The largest difference that is accepted: {', '.join(ALLOWED)} (rotation and scale). By default identity, "
        "since vectors that were stored before a rotation do not match those made after it.",
    )
    tolerance: float | None = option(None, "Largest share of the variance that may otherwise change (0.01).")
    margin: float | None = option(
        None, "Largest |log gain| of a direction that is no distortion, where a rotation is allowed (0.1)."
    )
    normalize: str | None = option(None, "'cosine' scales rows to the unit sphere first.")
    groups: str | Sequence[str] = option((), "Maps to fit in any case, not only if the rows changed, or 'all'.")
    seed: int = option(0, "The same seed gives the same result.")


@dataclass(frozen=True)
class CompareLayersOptions(ReadOptions):
    """How the layers of two runs are read, paired and compared."""

    cluster: Any = option(None, "Column whose rows stay together (plate, patient, document).", panel=DATA)
    order_blocks: int | None = option(None, BLOCKS_HELP, panel=DATA)
    drop_missing: bool = option(False, "Leave out rows with NaN or infinity.", panel=DATA)
    rows: int | None = option(None, ROWS_HELP, panel=DATA)
    names: Sequence[str] = option(
        (), "Names of the two runs, separated by a comma; by default from the patterns.", panel=DATA
    )
    measure: str = option("similarity", "A group of maps (rigid, linear, ...) or a similarity (cka, svcca, rsa, ...).")
    normalize: str | None = option(None, "'cosine' scales rows to the unit sphere first.")
    folds: int = option(5, "Number of folds held out in turn.")
    nulls: int = option(19, "Number of random re-pairings for the null; a p value of 0.05 takes 19. 0 for none.")
    seed: int = option(0, "The same seed gives the same result.")
    device: str = option("auto", "auto, cpu, cuda or cuda:1.")
