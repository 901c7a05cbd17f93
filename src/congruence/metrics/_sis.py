"""SIS: does each slot of codes hold one object, and no other slot anything of it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.metrics._block_score import Blocks, cut_blocks
from congruence.metrics._estimators import column_r2, standardise
from congruence.metrics._results import MetricResult, Note, note_if
from congruence.metrics.factors import NO_FACTORS
from congruence.stats.matching import match_columns

FITTED = 0.8  # share of the rows, the first, that regressions are fitted on
MOST_ROWS = 10_000  # a kernel of more takes gigabytes


@dataclass(frozen=True, eq=False)
class SIS(MetricResult):
    """The slot identifiability score, at most 1, higher is better; about 0 for codes that mix the slots."""

    factors: tuple[str, ...]  # the true slots: rows of `r2`
    r2: Float  # (K, S) of true slots from inferred ones, on held-out rows; may be negative
    matched: Array  # (K,) the inferred slot of each true one; -1 if none is left
    on: Float  # (K,) R2 from the matched slot, 0 if it is negative
    off: Float  # (K,) the largest R2 from any other slot, 0 if it is negative
    sis: float  # mean of on - off

    headline = ("sis",)


def sis(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    blocks: Any = None,
    factor_blocks: Any = None,
    seed: int = 0,
) -> SIS:
    """Predict each true slot from each inferred slot, match them, and subtract what the other slots predict.

    Kernel ridge regression (Gaussian kernel of width 1/width of the slot, penalty 1) of standardised slots, fitted on
    the first 80 % of the rows and scored on the rest, so rows must be in random order. Invariant to the order
    of slots, and to rotation, scale and shift inside a slot as far as standardising each code leaves it.

    Parameters
    ----------
    codes : (n, slots, width) or (n, L)
        Inferred slots; an array of three axes is in slots already.
    factors : (n, slots, width), or (n, K)
        True slots; an array of three axes is in slots of continuous factors already.
    kinds : str, list or dict, default "auto"
        Kinds of the factors that are not in slots already; see `read_factors`.
    blocks : int or list of lists of column numbers, optional
        The number of slots of the same width of the codes (n, L), or the columns of each; by default as many as there
        are true slots.
    factor_blocks : int or list of lists of column numbers or names, optional
        The same for the factors; by default each factor is a slot.
    seed : int, default 0
        Of the rows used if there are more than 10,000.

    References
    ----------
    Brady et al. 2023, the score of their synthetic data.
    """
    cut = cut_blocks(codes, factors, kinds, blocks, factor_blocks)
    n = len(cut.codes[0])
    rows, notes = np.arange(n), cut.notes
    if n > MOST_ROWS:
        rows = np.sort(np.random.default_rng(seed).permutation(n)[:MOST_ROWS])
        notes = (*notes, Note(f"{MOST_ROWS} of {n} rows were used"))
    r2 = _held_out_r2(cut, rows)
    reason = ""
    if not cut.factors:
        reason = NO_FACTORS
    elif len(cut.codes) < 2:
        reason = "There is only one slot of codes; two are needed."
    elif n < 5:
        reason = "Holding rows out needs at least 5 rows."
    if reason:
        nan = np.full(len(r2), np.nan)
        unmatched = np.full(len(r2), -1)
        return SIS(cut.names, r2, unmatched, nan, nan, float("nan"), reasons={"sis": reason}, notes=notes)

    size = np.maximum(r2, 0.0)
    matched = match_columns(size)
    mine = matched[:, None] == np.arange(r2.shape[1])
    on, off = np.where(mine, size, 0.0).max(1), np.where(mine, 0.0, size).max(1)
    notes += note_if(
        [name for name, slot in zip(cut.names, matched, strict=True) if slot < 0], "no slot of codes is left"
    )
    return SIS(cut.names, r2, matched, on, off, float((on - off).mean()), reasons={}, notes=notes)


def _held_out_r2(cut: Blocks, rows: Array) -> Float:
    """R2 of every true slot from every inferred one, mean over the columns of the true slot, shape (K, S)."""
    from sklearn.kernel_ridge import KernelRidge

    scores = np.full((len(cut.factors), len(cut.codes)), np.nan)
    fitted = int(FITTED * len(rows))
    if len(rows) < 5 or not cut.factors:
        return scores
    targets = [standardise(block[rows]) for block in cut.factors]
    ends = np.cumsum([target.shape[1] for target in targets])
    y = np.hstack(targets)
    for j, block in enumerate(cut.codes):
        x = standardise(block[rows])
        model = KernelRidge(alpha=1.0, kernel="rbf").fit(x[:fitted], y[:fitted])
        r2 = column_r2(y[fitted:], model.predict(x[fitted:]))
        r2 = np.where(np.isnan(r2), 0.0, r2)  # a column that is constant among the held-out rows
        scores[:, j] = [part.mean() for part in np.split(r2, ends[:-1])]
    return scores
