"""Structural nearness: how far the codes are from the true factors, up to a permutation, a rotation or a linear map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.maps._diameter import rows_diameter
from congruence.maps.groups import Map, centred_map, fit_group
from congruence.maps.nearness import Nearness, check_method, measure, protocol
from congruence.metrics._estimators import standardise as standardise_columns
from congruence.metrics._results import MetricResult, note_if
from congruence.metrics.factors import NO_FACTORS, factor_columns, read_usable
from congruence.rows.algebra import one_thread, svd
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, pair_sums, run_sums
from congruence.stats.matching import match

GROUPS = ("permutation", "rigid", "similarity", "linear")
STEPS, ENOUGH = 200, 1e-13  # of the search for a rotation, and the relative gain at which it stops


@dataclass(frozen=True, eq=False)
class StructuralNearness(MetricResult):
    """How near the codes are to the factors up to each group. Errors are shares of the factors' diameter."""

    asked: tuple[str, ...]  # groups, in order
    groups: Mapping[str, Nearness]  # of each: mean, rms, q95 and sup in sample, held out with an interval, and null
    columns: tuple[str, ...]  # coordinates of the factors: the columns of the target
    codes: Array  # (M,) the code that the signed permutation gives each column; -1 if none is left
    signs: Float  # (M,) its sign; 0 if none is left
    unused: tuple[int, ...]  # codes that the permutation leaves out
    diameter: float  # of the factors, in the units that errors are measured in
    maps: Mapping[str, Map]  # fitted to all rows, from codes to coordinates of the factors, standardised if they are

    @property
    def scores(self) -> dict[str, float]:
        """The mean held-out error of each group."""
        errors = {group: near.held_out.mean for group, near in self.groups.items()}
        return {f"structural_{group}": errors.get(group, float("nan")) for group in self.asked}


def structural_nearness(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    groups: Sequence[str] = GROUPS,
    standardise: bool = True,
    folds: int = 5,
    nulls: int = 20,
    bootstrap: int = 200,
    cluster: Any = None,
    seed: int = 0,
) -> StructuralNearness:
    """Map the codes onto the factors by the best map h of each group, and measure |h(code) - factor|.

    The map is fitted on some rows and scored on others, with a null (rows re-paired at random) and an interval, as in
    `congruence.compare`. A signed permutation and a rotation are only meaningful if codes and factors have the same
    units, so both are first scaled to unit variance, column by column.

    More codes than coordinates: a permutation selects the codes it uses and leaves out the rest, a rotation is followed
    by leaving out the directions that are not the factors'. Fewer codes: a coordinate that gets none is predicted by
    its mean, and is named in the notes.

    Parameters
    ----------
    codes : (n, L)
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors. Cosine and sine of a circular one; 0 and 1 for each class but the first of three or more without
        order; numbers that were only guessed to be classes are used as numbers.
    kinds : str, list or dict as of `read_factors`, default "auto"
    groups : sequence of str, default ("permutation", "rigid", "similarity", "linear")
        Groups of maps; the permutation is signed.
    standardise : bool, default True
        Whether to scale codes and coordinates to unit variance (over all rows).
    folds : of the cross-validation, default 5
    nulls : random re-pairings, default 20
    bootstrap : bootstrap samples of the interval, default 200
    cluster : (n,), optional
        The cluster of each row; clusters are held out, resampled and re-paired whole.
    seed : int, default 0
        Of the folds, the null and the interval.

    Returns
    -------
    StructuralNearness
        0 is perfect, lower is nearer; the null is the value of unrelated codes.

    References
    ----------
    Nelson et al. 2026, Definition 2: it bounds the supremum over x of |h(f(x)) - u(x)|, which is `sup` here.
    """
    if isinstance(groups, str) or not groups or not set(groups) <= set(GROUPS):
        raise InputError(f"groups must be a list of some of {', '.join(GROUPS)}; got {groups!r}")
    wanted = tuple(dict.fromkeys(groups))
    check_method(None, folds=folds, nulls=nulls, bootstrap=bootstrap, seed=seed)
    z, s, notes = read_usable(codes, factors, kinds)
    table = factor_columns(s, unordered=True)
    near, maps, diameter = dict[str, Nearness](), dict[str, Map](), math.nan
    used, signs = np.zeros(0, dtype=int), np.zeros(0)
    if len(s):
        x, y = (Rows(standardise_columns(values) if standardise else values) for values in (z, table.values))
        plan = protocol(x.n, folds=folds, nulls=nulls, bootstrap=bootstrap, cluster=cluster, seed=seed)
        sums = pair_sums(run_sums(x, plan.folds), run_sums(y, plan.folds))
        diameter = rows_diameter(y).value
        near, maps = measure(sums, {group: partial(fit_onto, group=group) for group in wanted}, diameter, plan)
        permutation = maps.get("permutation") or fit_onto(sums.outside(None), None, group="permutation")
        # The signs of the codes that each column gets; a constant code is none.
        matrix = permutation.matrix[: x.d, : y.d] * ~(z == z[0]).all(0)[:, None]
        signs = matrix.sum(0)
        used = np.where(signs == 0, -1, np.abs(matrix).argmax(0))
    unmatched = [name for name, code in zip(table.names, used, strict=True) if code < 0]
    return StructuralNearness(
        asked=wanted,
        groups=near,
        columns=table.names,
        codes=used,
        signs=signs,
        unused=tuple(int(j) for j in np.setdiff1d(np.arange(z.shape[1]), used)),
        diameter=diameter,
        maps=maps,
        reasons={} if len(s) else {f"structural_{group}": NO_FACTORS for group in wanted},
        notes=(*notes, *table.notes, *note_if(unmatched, "no code is left, predicted by the mean")),
    )


def fit_onto(paired: PairScatter, fold: int | None, *, group: str) -> Map:
    """Fit the map of `group` from codes (n, L) onto coordinates (n, M) with the least squared error.

    Up to M codes this is `fit_group`. With more, only M columns of the result are compared, and its label is
    "linear", because it has no inverse.
    """
    codes, columns = paired.cross.shape
    if codes <= columns or group == "linear":
        return fit_group(paired, group)
    fitted = _select_codes(paired) if group == "permutation" else _rotate(paired, scaled=group == "similarity")
    matrix = np.zeros((codes, codes))
    matrix[:, :columns] = fitted
    return centred_map(paired, "linear", matrix)


def _select_codes(paired: PairScatter) -> Float:
    """The columns of a signed permutation: |x_i - y_j|^2 is least where |x_i y_j| - |x_i|^2 / 2 is largest, (L, M)."""
    rows, columns = match(np.abs(paired.cross) - np.diag(paired.source.scatter)[:, None] / 2)
    selection = np.zeros_like(paired.cross)
    selection[rows, columns] = np.where(paired.cross[rows, columns] < 0, -1.0, 1.0)
    return selection


def _rotate(paired: PairScatter, *, scaled: bool) -> Float:
    """Some columns of a rotation, times one scale if `scaled`, that map the codes onto the coordinates, (L, M).

    Unlike between equal widths this has no closed form: the rotation decides how much of the codes is left out. If
    the coordinates are filled up with what the present rotation leaves out, it has one, and that one is no worse
    (Green & Gower 1979); repeated until nothing is gained.
    """
    cross, scatter, columns = paired.cross, paired.source.scatter, paired.cross.shape[1]
    rotation, scale, last = paired.rotation, 1.0, np.inf
    with one_thread(len(scatter)):
        for _ in range(STEPS):
            kept = rotation[:, :columns]
            shared, size = float((kept * cross).sum()), float((kept * (scatter @ kept)).sum())
            if scaled and size > 0:
                scale = max(shared, 0.0) / size
            error = scale * (scale * size - 2 * shared)  # less the size of the target, which does not change
            if last - error <= ENOUGH * abs(error):
                break
            last = error
            filled = np.hstack([cross, scale * (scatter @ rotation[:, columns:])])
            try:
                u, _, vt = np.linalg.svd(filled)  # for few columns, the checks of `svd` take longer than it does
            except np.linalg.LinAlgError:
                u, _, vt = svd(filled)
            rotation = u @ vt
    return scale * rotation[:, :columns]
