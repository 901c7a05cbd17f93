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
from congruence.maps.groups import Map
from congruence.maps.nearness import Nearness, check_method, measure, protocol
from congruence.maps.nearness import statistical_from_structural as statistical_from_structural
from congruence.metrics.columns import columns_of
from congruence.metrics.factors import paired
from congruence.metrics.metric import LOWER, Metric
from congruence.metrics.narrowing import fit_onto
from congruence.metrics.notes import Note, note_if
from congruence.metrics.varying import NO_FACTORS, constant_codes, standardised, varying
from congruence.rows.engine import Rows
from congruence.rows.sums import pair_sums, run_sums

GROUPS = ("permutation", "rigid", "similarity", "linear")


@dataclass(frozen=True, eq=False)
class StructuralNearness:
    """How near the codes are to the factors up to each group. Errors are shares of the factors' diameter."""

    asked: tuple[str, ...]  # groups, in order
    groups: Mapping[str, Nearness]  # of each: mean, rms, q95 and sup in sample, held out with an interval, and null
    columns: tuple[str, ...]  # coordinates of the factors: the columns of the target
    codes: Array  # (M,) the code that the signed permutation gives each column; -1 where none is left
    signs: Float  # (M,) its sign; 0 where none is left
    unused: tuple[int, ...]  # codes that the permutation leaves out
    diameter: float  # of the factors, in the units that errors are measured in
    maps: Mapping[str, Map]  # fitted to all rows, from codes to coordinates of the factors, standardised where they are
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The mean error held out, for each group."""
        found = {group: near.held_out.mean for group, near in self.groups.items()}
        return {f"structural_{group}": found.get(group, float("nan")) for group in self.asked}


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
    """Carry the codes onto the factors by the best map h of each group, and measure |h(code) - factor|.

    The map is fitted on some rows and scored on others, with a null (rows re-paired at random) and an interval, as in
    `congruence.compare`. A signed permutation and a rotation only make sense where codes and factors have the same
    units, so both are first scaled to unit variance, column by column.

    More codes than coordinates: a permutation picks the codes it uses and leaves out the rest, a rotation is followed
    by leaving out the directions that are not the factors'. Fewer codes: a coordinate that gets none is predicted by
    its mean, and is named in the notes.

    Parameters
    ----------
    codes : (n, L)
        Learned codes.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors. Cosine and sine of a circular one; 0 and 1 for each class but the first of three or more without
        order; numbers that were only guessed to be classes are taken as numbers.
    groups : sequence of str
        Some of permutation (signed), rigid, similarity and linear.
    standardise : bool
        Bring codes and coordinates to unit variance (by all rows); False leaves the units to you.
    folds, nulls, bootstrap : int
        As in `congruence.compare`.
    cluster : (n,), optional
        Which rows belong together: they are held out, resampled and re-paired together.
    seed : int
        Of the folds, the null and the interval.

    Returns
    -------
    StructuralNearness
        0 is perfect, lower is nearer; the null says what unrelated codes would get.

    References
    ----------
    Nelson et al. 2026, Definition 2: it bounds the supremum over x of |h(f(x)) - u(x)|, which is `sup` here.
    """
    wanted = _checked(groups)
    check_method(None, folds=folds, nulls=nulls, bootstrap=bootstrap, seed=seed)
    z, s = paired(codes, factors, kinds)
    s, notes = varying(s)
    table = columns_of(s, unordered=True)
    constant, more = constant_codes(z)
    notes = (*s.notes, *notes, *more, *table.notes)
    if not len(s):
        nothing = np.zeros(0, dtype=int), np.zeros(0), tuple(range(z.shape[1])), float("nan")
        reasons = {f"structural_{group}": NO_FACTORS for group in wanted}
        return StructuralNearness(wanted, {}, (), *nothing, {}, reasons, notes)

    x, y = (
        Rows(standardised(z) if standardise else z),
        Rows(standardised(table.values) if standardise else table.values),
    )
    plan = protocol(x.n, folds=folds, nulls=nulls, bootstrap=bootstrap, cluster=cluster, seed=seed)
    sums = pair_sums(run_sums(x, plan.folds), run_sums(y, plan.folds))
    diameter = rows_diameter(y).value
    near, maps = measure(sums, {group: partial(fit_onto, group=group) for group in wanted}, diameter, plan)
    chosen = maps.get("permutation") or fit_onto(sums.outside(None), None, group="permutation")
    used, signs = _used(chosen, x.d, y.d, constant)
    lost = [name for name, code in zip(table.names, used, strict=True) if code < 0]
    return StructuralNearness(
        asked=wanted,
        groups=near,
        columns=table.names,
        codes=used,
        signs=signs,
        unused=tuple(int(j) for j in np.setdiff1d(np.arange(x.d), used)),
        diameter=diameter,
        maps=maps,
        reasons={},
        notes=(*notes, *note_if(lost, "no code is left, predicted by the mean")),
    )


def _checked(groups: Sequence[str]) -> tuple[str, ...]:
    if isinstance(groups, str) or not groups:
        raise InputError(f"groups must be a list of some of {', '.join(GROUPS)}, not {groups!r}")
    for group in groups:
        if group not in GROUPS:
            raise InputError(f"groups must be among {', '.join(GROUPS)}; {group!r} is not")
    return tuple(dict.fromkeys(groups))


def _used(permutation: Map, codes: int, columns: int, constant: Array) -> tuple[Array, Float]:
    """Which code each column gets and with which sign; -1 and 0 where it gets none, or one that is constant."""
    matrix = permutation.matrix[:codes, :columns] * ~constant[:, None]
    signs = matrix.sum(0)
    return np.where(signs == 0, -1, np.abs(matrix).argmax(0)), signs


DECLARED = Metric(
    name="structural_nearness",
    function=structural_nearness,
    scores=tuple(f"structural_{group}" for group in GROUPS),
    range=(0.0, math.inf),
    direction=LOWER,
    invariant_to=frozenset({"permutation", "sign", "scale", "scales", "shift", "factor order"}),
    cost="fast",
    reference="Nelson et al. 2026, Definition 2",
)
