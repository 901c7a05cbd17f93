"""SIS: does each slot of codes hold one object, and no other slot anything of it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.metrics.blocks import Blocks, blocks_of, match_blocks
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note, note_if
from congruence.metrics.varying import NO_FACTORS, standardised

FITTED = 0.8  # share of the rows, the first, that regressions are fitted on
MOST_ROWS = 10_000  # a kernel of more takes gigabytes


@dataclass(frozen=True, eq=False)
class SIS:
    """The slot identifiability score, at most 1, higher is better; about 0 for codes that mix the slots."""

    factors: tuple[str, ...]  # the true slots: rows of `r2`
    r2: Float  # (K, S) of true slots from inferred ones, on rows held out; may be negative
    matched: Array  # (K,) the inferred slot of each true one; -1 where none is left
    on: Float  # (K,) R2 from the matched slot, 0 where it is negative
    off: Float  # (K,) the largest R2 from any other slot, 0 where it is negative
    sis: float  # mean of on - off
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline number."""
        return {"sis": self.sis}


def sis(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    blocks: Any = None,
    factor_blocks: Any = None,
    seed: int = 0,
) -> SIS:
    """Predict each true slot from each inferred slot, match them, and subtract what the other slots give away.

    Kernel ridge regression (Gaussian kernel of width 1/width of the slot, penalty 1) of standardised slots, fitted on
    the first 80 % of the rows and scored on the rest, so rows must be in no particular order. Invariant to the order
    of slots, and to rotation, scale and shift inside a slot as far as standardising each code leaves it.

    Parameters
    ----------
    codes : (n, slots, width) or (n, L)
        Inferred slots.
    factors : (n, slots, width), or (n, K) with `factor_blocks`
        True slots. See `congruence.metrics.blocks.blocks_of` for `kinds`, `blocks` and `factor_blocks`.
    seed : int
        Of the rows taken where there are more than 10,000.

    References
    ----------
    Brady et al. 2023, the score of their synthetic data.
    """
    cut = blocks_of(codes, factors, kinds, blocks, factor_blocks)
    rows = np.arange(cut.n)
    notes = cut.notes
    if cut.n > MOST_ROWS:
        rows = np.sort(np.random.default_rng(seed).permutation(cut.n)[:MOST_ROWS])
        notes = (*notes, Note(f"{MOST_ROWS} of {cut.n} rows were used"))
    r2 = _scores(cut, rows)
    reason = _reason(cut, len(rows))
    if reason:
        nan = np.full(len(cut.names), np.nan)
        return SIS(cut.names, r2, np.full(len(nan), -1), nan, nan, float("nan"), {"sis": reason}, notes)

    size = np.maximum(r2, 0.0)
    matched = match_blocks(size)
    mine = matched[:, None] == np.arange(r2.shape[1])
    on, off = np.where(mine, size, 0.0).max(1), np.where(mine, 0.0, size).max(1)
    lost = [name for name, slot in zip(cut.names, matched, strict=True) if slot < 0]
    return SIS(
        factors=cut.names,
        r2=r2,
        matched=matched,
        on=on,
        off=off,
        sis=float((on - off).mean()),
        reasons={},
        notes=(*notes, *note_if(lost, "no slot of codes is left")),
    )


def _reason(cut: Blocks, n: int) -> str:
    if not cut.factors:
        return NO_FACTORS
    if len(cut.codes) < 2:
        return "There is only one slot of codes; two are needed."
    return "Holding rows out needs at least 5 rows." if n < 5 else ""


def _scores(cut: Blocks, rows: Array) -> Float:
    """R2 of every true slot from every inferred one, mean over the columns of the true slot, shape (K, S)."""
    from sklearn.kernel_ridge import KernelRidge

    scores = np.full((len(cut.factors), len(cut.codes)), np.nan)
    fitted = int(FITTED * len(rows))
    if len(rows) < 5 or not cut.factors:
        return scores
    targets = [standardised(block[rows]) for block in cut.factors]
    ends = np.cumsum([target.shape[1] for target in targets])
    y = np.hstack(targets)
    total = np.square(y[fitted:] - y[fitted:].mean(0)).sum(0)
    live = total > 0
    for j, block in enumerate(cut.codes):
        x = standardised(block[rows])
        model = KernelRidge(alpha=1.0, kernel="rbf").fit(x[:fitted], y[:fitted])
        rest = np.square(y[fitted:] - model.predict(x[fitted:])).sum(0)
        r2 = np.where(live, 1 - rest / np.where(live, total, 1.0), 0.0)
        scores[:, j] = [part.mean() for part in np.split(r2, ends[:-1])]
    return scores


DECLARED = Metric(
    name="sis",
    function=sis,
    scores=("sis",),
    range=(-1.0, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"scale", "scales", "sign", "shift"}),
    cost="minutes",
    reference="Brady et al. 2023",
)
