"""SIS and the block score: is each slot of factors a function of one slot of codes?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.metrics._estimators import column_r2, mean_of_finite, standardise
from congruence.metrics._resampling import split_rows
from congruence.metrics._results import MetricResult, Note, note_if
from congruence.metrics.factors import NO_FACTORS, factor_columns, read_pair
from congruence.stats.matching import match_columns

REGRESSORS = ("tree", "ridge")
FITTED = 0.8  # share of the rows, the first, that the regressions of SIS are fitted on
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
    reason = "" if n >= 5 else "Holding rows out needs at least 5 rows."
    reason = reason if len(cut.codes) > 1 else "There is only one slot of codes; two are needed."
    reason = reason if cut.factors else NO_FACTORS
    r2 = _kernel_r2(cut, rows) if n >= 5 and cut.factors else np.full((len(cut.factors), len(cut.codes)), np.nan)
    if reason:
        unknown, no_slot = np.full(len(r2), np.nan), np.full(len(r2), -1)
        return SIS(cut.names, r2, no_slot, unknown, unknown, float("nan"), reasons={"sis": reason}, notes=notes)

    matched, size, unmatched = _match_slots(r2, cut.names)
    mine = matched[:, None] == np.arange(r2.shape[1])
    on, off = np.where(mine, size, 0.0).max(1), np.where(mine, 0.0, size).max(1)
    notes += note_if(unmatched, "no slot of codes is left")
    return SIS(cut.names, r2, matched, on, off, float((on - off).mean()), reasons={}, notes=notes)


def _match_slots(r2: Float, names: Sequence[str]) -> tuple[Array, Float, list[str]]:
    """The slot of codes of each slot of factors, -1 if none is left, R2 (K, S) at least 0, and what has no slot."""
    size = np.maximum(r2, 0.0)
    matched = match_columns(size)
    return matched, size, [name for name, slot in zip(names, matched, strict=True) if slot < 0]


def _kernel_r2(cut: Blocks, rows: Array) -> Float:
    """R2 of every true slot from every inferred one, mean over the columns of the true slot, shape (K, S)."""
    from sklearn.kernel_ridge import KernelRidge

    scores = np.empty((len(cut.factors), len(cut.codes)))
    fitted = int(FITTED * len(rows))
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


@dataclass(frozen=True, eq=False)
class BlockScore(MetricResult):
    """How well blocks of factors are predicted from matched blocks of codes, from 0 to 1, higher is better."""

    factors: tuple[str, ...]  # the blocks of factors: rows of `r2`
    r2: Float  # (K, S) of blocks of factors from blocks of codes, on held-out rows; may be negative
    matched: Array  # (K,) the block of codes of each block of factors; -1 if none is left
    per_block: Float  # (K,) R2 from the matched block, 0 if it is negative or none is left
    block_score: float  # their mean

    headline = ("block_score",)


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
        Learned codes; an array of three axes is in blocks already.
    factors : (n, blocks, width), or (n, K)
        True factors; an array of three axes is in blocks of continuous factors already.
    kinds : str, list or dict, default "auto"
        Kinds of the factors that are not in blocks already; see `read_factors`.
    blocks : int or list of lists of column numbers, optional
        The number of blocks of the same width of the codes (n, L), or the columns of each; by default as many as there
        are blocks of factors.
    factor_blocks : int or list of lists of column numbers or names, optional
        The same for the factors; by default each factor is a block.
    regressor : {"tree", "ridge"}, default "tree"
        A decision tree of depth 10, which fits any function of few codes, or a ridge regression with penalty 1, which
        fits linear ones.
    train : row numbers or mask; all that are not held out if None, optional
    test : row numbers, mask or share, default 0.2
        Held-out rows; a share is drawn at random.
    seed : int, default 0
        Of the split, and of ties in the tree.

    References
    ----------
    Lachapelle et al. 2023, who multiply it by 100.
    """
    check_choice("regressor", regressor, REGRESSORS)
    cut = cut_blocks(codes, factors, kinds, blocks, factor_blocks)
    r2 = np.zeros((len(cut.factors), len(cut.codes)))
    if cut.factors:
        fitted, held = split_rows(len(cut.codes[0]), train, test, seed)
        targets = [standardise(block) for block in cut.factors]
        r2[:] = [[_held_out_r2(regressor, x, y, fitted, held, seed) for x in cut.codes] for y in targets]
    matched, size, unmatched = _match_slots(r2, cut.names)
    per_block = np.where(matched < 0, 0.0, size[np.arange(len(size)), matched])
    return BlockScore(
        factors=cut.names,
        r2=r2,
        matched=matched,
        per_block=per_block,
        block_score=mean_of_finite(per_block),
        reasons={} if cut.factors else {"block_score": NO_FACTORS},
        notes=(*cut.notes, *note_if(unmatched, "no block of codes is left")),
    )


def _held_out_r2(regressor: str, block: Float, y: Float, train: Array, test: Array, seed: int) -> float:
    """The R2 of a block of factors, mean over its columns that vary among the held-out rows; 0 if none does."""
    from sklearn.linear_model import Ridge
    from sklearn.tree import DecisionTreeRegressor

    x = standardise(block, train)
    model = DecisionTreeRegressor(max_depth=10, random_state=seed) if regressor == "tree" else Ridge()
    predicted = model.fit(x[train], y[train]).predict(x[test]).reshape(len(test), -1)
    return float(np.nan_to_num(mean_of_finite(column_r2(y[test], predicted))))


@dataclass(frozen=True, eq=False)
class Blocks:
    """Codes and factors of the same n rows, in blocks of columns."""

    codes: tuple[Float, ...]  # each (n, some)
    factors: tuple[Float, ...]  # each (n, some); constant columns are left out
    names: tuple[str, ...]  # of the blocks of factors
    notes: tuple[Note, ...]


def cut_blocks(codes: Any, factors: Any, kinds: Any, blocks: Any, factor_blocks: Any) -> Blocks:
    """Cut codes and factors into blocks; the parameters are those of `block_score`."""
    flat, slots = _flatten(codes, "codes", blocks)
    true, true_slots = _flatten(factors, "factors", factor_blocks)
    z, s = read_pair(flat, true, kinds if true is factors else "continuous")
    groups = _column_groups(len(s) if true_slots is None else true_slots, len(s), s.names, "factor_blocks")
    code_groups = _column_groups(len(groups) if slots is None else slots, z.shape[1], (), "blocks")
    live = [j for j, factor in enumerate(s) if not factor.left_out]
    table = factor_columns([s[j] for j in live], unordered=True)
    owner = np.array(live)[table.owner] if live else table.owner
    kept = {k: group for k, group in enumerate(groups) if not set(group).isdisjoint(live)}
    in_slots = isinstance(true_slots, int | np.integer)
    return Blocks(
        codes=tuple(z[:, group] for group in code_groups),
        factors=tuple(table.values[:, np.isin(owner, group)] for group in kept.values()),
        names=tuple(f"slot{k}" if in_slots else " + ".join(s.names[j] for j in group) for k, group in kept.items()),
        notes=(*s.notes, *s.exclusions, *table.notes),
    )


def _flatten(x: Any, name: str, blocks: Any) -> tuple[Any, Any]:
    """The matrix (n, L) of an array of three axes and its number of blocks; anything else as it is."""
    if len(getattr(x, "shape", ())) != 3:
        return x, blocks
    if blocks is not None:
        raise InputError(f"{name} has three axes and so is in blocks already; leave out which they are")
    return to_numpy(x).reshape(len(x), -1), int(x.shape[1])


def _column_groups(blocks: Any, width: int, names: Sequence[str], argument: str) -> list[list[int]]:
    """Column numbers of each block."""
    if isinstance(blocks, int | np.integer) and not isinstance(blocks, bool):
        if not 1 <= blocks <= width or width % blocks:
            raise InputError(f"{argument}: {width} columns cannot be cut into {blocks} blocks of the same width")
        return [list(part) for part in np.arange(width).reshape(blocks, -1).tolist()]
    try:
        groups = [[_column_number(entry, names, width, argument) for entry in block] for block in blocks]
    except TypeError as error:
        raise InputError(f"{argument} must be a number, or a list of lists of columns; got {blocks!r}") from error
    flat = [column for group in groups for column in group]
    if not groups or not all(groups) or len(set(flat)) < len(flat):
        raise InputError(f"{argument} must be blocks that are not empty and share no column; got {blocks!r}")
    return groups


def _column_number(entry: Any, names: Sequence[str], width: int, argument: str) -> int:
    if entry in names:
        return list(names).index(entry)
    if isinstance(entry, int | np.integer) and not isinstance(entry, bool) and 0 <= entry < width:
        return int(entry)
    raise InputError(f"{argument} names {entry!r}, but columns are numbered from 0 to {width - 1}")
