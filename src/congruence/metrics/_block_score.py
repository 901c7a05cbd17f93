"""The block score: is each group of factors a function of one block of codes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.metrics.blocks import blocks_of, match_blocks
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note, note_if
from congruence.metrics.varying import NO_FACTORS, split_rows, standardised

REGRESSORS = ("tree", "ridge")


@dataclass(frozen=True, eq=False)
class BlockScore:
    """How well blocks of factors are predicted from matched blocks of codes, from 0 to 1, higher is better."""

    factors: tuple[str, ...]  # the blocks of factors: rows of `r2`
    r2: Float  # (K, S) of blocks of factors from blocks of codes, on rows held out; may be negative
    matched: Array  # (K,) the block of codes of each block of factors; -1 where none is left
    per_block: Float  # (K,) R2 from the matched block, 0 where it is negative or none is left
    block_score: float  # their mean
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline number."""
        return {"block_score": self.block_score}


def block_score(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    blocks: Any = None,
    factor_blocks: Any = None,
    regressor: str = "tree",
    train: Any = None,
    test: Any = 0.2,
    seed: int = 0,
) -> BlockScore:
    """Predict each block of factors from each block of codes, match them one to one, and take the mean R2.

    Parameters
    ----------
    codes : (n, blocks, width) or (n, L)
        Learned codes. See `congruence.metrics.blocks.blocks_of` for `kinds`, `blocks` and `factor_blocks`.
    factors : (n, blocks, width), or (n, K)
        True factors, grouped by `factor_blocks`; each alone by default.
    regressor : {"tree", "ridge"}
        A decision tree of depth 10, which finds any function of few codes, or a ridge regression with penalty 1, which
        finds linear ones.
    train, test : row numbers, or a share as `test`
        Training rows and held-out rows; see `split_rows`.
    seed : int
        Of the split, and of ties in the tree.

    References
    ----------
    Lachapelle et al. 2023, who multiply it by 100.
    """
    if regressor not in REGRESSORS:
        raise InputError(f"regressor must be one of {', '.join(REGRESSORS)}, not {regressor!r}")
    cut = blocks_of(codes, factors, kinds, blocks, factor_blocks)
    if not cut.factors:
        none, nan = np.zeros((0, len(cut.codes))), float("nan")
        reasons = {"block_score": NO_FACTORS}
        return BlockScore((), none, np.zeros(0, dtype=int), np.zeros(0), nan, reasons, cut.notes)
    learned_from, held = split_rows(cut.n, train, test, seed)
    r2 = np.array(
        [[_r2(regressor, x, y, learned_from, held, seed) for x in cut.codes] for y in map(standardised, cut.factors)]
    )
    size = np.maximum(r2, 0.0)
    matched = match_blocks(size)
    per_block = np.where(matched < 0, 0.0, size[np.arange(len(size)), matched])
    lost = [name for name, block in zip(cut.names, matched, strict=True) if block < 0]
    return BlockScore(
        factors=cut.names,
        r2=r2,
        matched=matched,
        per_block=per_block,
        block_score=float(per_block.mean()),
        reasons={},
        notes=(*cut.notes, *note_if(lost, "no block of codes is left")),
    )


def _r2(regressor: str, block: Float, y: Float, train: Array, test: Array, seed: int) -> float:
    """The R2 of a block of factors, mean over its columns that vary among the rows held out."""
    from sklearn.linear_model import Ridge
    from sklearn.tree import DecisionTreeRegressor

    x = standardised(block, train)
    model = DecisionTreeRegressor(max_depth=10, random_state=seed) if regressor == "tree" else Ridge()
    predicted = model.fit(x[train], y[train]).predict(x[test]).reshape(len(test), -1)
    total = np.square(y[test] - y[test].mean(0)).sum(0)
    live = total > 0
    if not live.any():
        return 0.0
    return float((1 - np.square(y[test] - predicted).sum(0)[live] / total[live]).mean())


DECLARED = Metric(
    name="block_score",
    function=block_score,
    scores=("block_score",),
    range=(0.0, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"scale", "scales", "sign", "shift"}),
    cost="fast",
    reference="Lachapelle et al. 2023",
)
