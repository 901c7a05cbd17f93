"""`layer_map`: which layers of one run are near which layers of another?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from congruence.align.inputs import gather
from congruence.align.layer_nearness import LayerMap
from congruence.align.prepared import PreparedRun, prepare
from congruence.align.similarities.registry import LOWER, MEASURES, Measure
from congruence.align.similarities.sides import Both, Side
from congruence.align.verdict import advice_on_clusters, advice_on_diameter, advice_on_rows
from congruence.arrays import Float, Rows, resolve_device
from congruence.errors import FewRowsWarning, InputError
from congruence.maps.algebra import decomposing_on, one_thread
from congruence.maps.groups import GROUPS, fit_group
from congruence.maps.nearness import Protocol, check_method, protocol, row_errors
from congruence.maps.sums import PairSums, RunSums, pair_sums
from congruence.progress import Progress, Steps

Cell = tuple[float, float, float]  # the nearness of a pair of layers, its null, and the standard error of their gap
Column = Callable[[PreparedRun], Cell]  # of a source, beside one target


def layer_map(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    *,
    measure: str = "similarity",
    names: tuple[str, str] = ("a", "b"),
    normalize: str | None = None,
    cluster: Any = None,
    folds: int = 5,
    nulls: int = 3,
    seed: int = 0,
    device: str = "auto",
    drop_missing: bool = False,
    progress: Progress | None = None,
) -> LayerMap:
    """Measure how near every layer of one run is to every layer of another, on the same rows.

    What belongs to one layer (sums over folds, decompositions, distances between rows) is worked out once; a pair
    costs one product of the two layers and, where a rotation is sought, one small decomposition for each fold. A layer
    that has no number (all its rows are equal, or, on the unit sphere, some are zero) is left out: NaN in the map, and
    a note that names it.

    Parameters
    ----------
    a, b : mapping of name to layer
        Each layer is an array or tensor of shape (n, d), a path to an embedding file, or a `Table`. Arrays are paired
        row by row; files and tables by row id where they have one. Widths may differ: the narrower layer is
        zero-padded.
    measure : str
        One of the groups identity, permutation, rigid, similarity (rigid and one scale, the default) and linear: then
        nearness is the held-out error that the best map of the group from the layer of a to that of b leaves, over
        the diameter of the layer of b. Or a measure of `congruence.align.similarities.MEASURES` such as cka: then it
        is that number, in sample. Either ignores what the group or the measure says it ignores.
    names : (str, str)
        What the two runs are called.
    normalize : {None, "cosine"}
        "cosine" puts every row on the unit sphere first.
    cluster : array of shape (n,), or name of a metadata column, optional
        Rows of one cluster (document, patient) stay together in folds.
    folds, nulls : int
        How many folds are held out in turn, and how many re-pairings make the null: each is scored on one fold, the
        next on the next. With nulls=0 there is no null.
    seed : int
        The same seed gives the same result.
    device : str
        "auto" computes where the data lives; "cpu", "cuda" or "cuda:1" choose.
    drop_missing : bool
        Leave out rows with NaN or infinity in any layer instead of refusing them.
    progress : callable, optional
        Called as progress(what, done, total) while working.

    Returns
    -------
    LayerMap
        With `rows`, `columns`, `nearness`, `null` and `standard_error`, all (len(a), len(b)).

    References
    ----------
    Nelson et al. 2026, Definition 1; Kornblith et al. 2019 (maps of layers, by CKA).
    """
    _check(a, b, measure, names)
    check_method(normalize, folds=folds, nulls=nulls, bootstrap=0, seed=seed)
    runs = {f"{layer} of {run}": x for run, layers in zip(names, (a, b), strict=True) for layer, x in layers.items()}
    inputs = gather(runs, cluster, drop_missing)
    engine = resolve_device(device, *inputs.values)
    plan = protocol(len(inputs.values[0]), folds=folds, nulls=nulls, bootstrap=0, cluster=inputs.cluster, seed=seed)
    rows = inputs.rows(engine, normalize)
    advice = inputs.notes + _advice([x.d for x in rows], plan)
    if nulls == 1 and measure in MEASURES:
        advice.append(
            "One re-pairing does not say how far chance reaches: with two or more, layers are judged by that."
        )
    tell = Steps(progress, len(a) + len(b) * (1 + len(a)))
    left_out: list[str] = []
    nearness, null, error = (np.full((len(a), len(b)), np.nan) for _ in range(3))
    with decomposing_on(engine):
        layers = (_usable(tell, name, x, plan, left_out) for name, x in zip(inputs.names, rows, strict=True))
        sources = list(islice(layers, len(a)))
        _check_any(a, left_out)
        for j, target in enumerate(layers):  # one at a time: only the sums of the sources are kept for all
            if target is None:
                continue
            near = _column(measure, target, plan)
            for i, source in enumerate(sources):
                if source is not None:
                    nearness[i, j], null[i, j], error[i, j] = near(source)
                    tell(f"{source.name} -> {target.name}")
            if "diameter" in target.__dict__ and (note := advice_on_diameter(target.name, target.diameter)):
                advice.append(note)
    _check_any(b, left_out[sum(source is None for source in sources) :])
    if measure in MEASURES:
        error[:] = _pooled(error)
    found = MEASURES.get(measure)
    return LayerMap(
        source=names[0],
        target=names[1],
        rows=[str(name) for name in a],
        columns=[str(name) for name in b],
        measure=measure,
        direction=LOWER if found is None else found.direction,
        perfect=0.0 if found is None else found.itself,
        held_out=found is None,
        nearness=nearness,
        null=null,
        standard_error=error,
        n=rows[0].n,
        advice=[*advice, *(f"A layer is left out of the map: {reason}." for reason in left_out)],
        settings={
            "measure": measure,
            "normalize": normalize,
            "clusters": None if inputs.cluster is None else int(plan.unit.max()) + 1,
            "paired": "by id" if inputs.by_id else "by position",
            "folds": len(plan.folds),
            "nulls": nulls,
            "seed": seed,
            "device": engine,
        },
    )


def _check(a: Any, b: Any, measure: str, names: tuple[str, str]) -> None:
    known = (*GROUPS, *MEASURES)
    if measure not in known:
        raise InputError(f"measure must be one of {', '.join(known)}; {measure!r} is not")
    for called, layers in (("a", a), ("b", b)):
        if not isinstance(layers, Mapping):
            raise InputError(f"{called} must map names of layers to their rows, not be a {type(layers).__name__}")
        if not layers:
            raise InputError(f"{called} has no layers; a map of layers takes at least one of each run")
        if not all(isinstance(name, str) for name in layers):  # 1 and "1" would be taken for the same
            raise InputError(f"the layers of {called} must have texts for names, not {', '.join(map(repr, layers))}")
    if len(names) != 2 or names[0] == names[1]:
        raise InputError(f"names must be two different names for the runs, not {', '.join(map(repr, names))}")


def _usable(tell: Steps, name: str, rows: Rows, plan: Protocol, left_out: list[str]) -> PreparedRun | None:
    """A layer with its sums; or nothing, and why, where no number can be had of it."""
    tell(f"preparing {name}")
    try:
        prepared = prepare(name, rows, plan)
    except InputError as error:
        left_out.append(str(error))
        return None
    if prepared.dead == rows.d:
        left_out.append(f"all rows of {name} are equal")
        return None
    return prepared


def _check_any(layers: Mapping[str, Any], left_out: Sequence[str]) -> None:
    if len(left_out) == len(layers):
        raise InputError(f"no layer of a run is left to measure: {'; '.join(left_out)}")


def _column(measure: str, target: PreparedRun, plan: Protocol) -> Column:
    """What measures any source beside one target, with what belongs to the target worked out once."""
    return _similarities(MEASURES[measure], target, plan) if measure in MEASURES else _errors(measure, target, plan)


def _repaired(target: PreparedRun, plan: Protocol) -> list[RunSums]:
    """The target with its rows beside others, once for each re-pairing and for all sources."""
    return [target.sums.shuffled(partner, inside_folds=not plan.clustered) for partner in plan.repairings]


def _errors(group: str, target: PreparedRun, plan: Protocol) -> Column:
    """The held-out error of the best map onto one layer, over its diameter."""
    repaired, diameter = _repaired(target, plan), target.diameter.value

    def column(source: PreparedRun) -> Cell:
        sums = pair_sums(source.sums, target.sums)
        errors = [_held_out(group, sums, plan, k) for k in range(len(plan.folds))]  # each of shape (rows of the fold,)
        near = float(np.concatenate(errors).mean())
        # Some folds have farther rows than others, so a re-pairing is set beside the true pairing of its own fold.
        beyond = [
            _held_out(group, pair_sums(source.sums, y), plan, k % len(errors)) - errors[k % len(errors)]
            for k, y in enumerate(repaired)
        ]
        if not beyond:
            return near / diameter, float("nan"), float("nan")
        gap = float(np.mean([rows.mean() for rows in beyond]))
        return near / diameter, (near + gap) / diameter, _standard_error(beyond, gap, plan) / diameter

    return column


def _standard_error(beyond: Sequence[Float], gap: float, plan: Protocol) -> float:
    """How far the gap of re-pairings to the true pairing is from what other rows (or clusters) would give.

    `beyond` has the gaps of the rows of one fold for each re-pairing, the next on the next. Infinite where all are of
    one cluster.
    """
    total = np.zeros(len(plan.unit))
    for k, rows in enumerate(beyond):
        total[plan.folds[k % len(plan.folds)]] += rows - gap
    scored = np.unique(plan.unit[np.concatenate(plan.folds[: len(beyond)])])
    if len(scored) < 2:
        return float("inf")
    spread = np.bincount(plan.unit, weights=total)[scored]
    return float(np.sqrt((spread**2).sum() * len(scored) / (len(scored) - 1)) / sum(map(len, beyond)))


def _held_out(group: str, sums: PairSums, plan: Protocol, fold: int) -> Float:
    """The error of every row of one fold under the best map fitted without it."""
    paired = sums.outside(fold)
    with one_thread(paired.width):
        best = fit_group(paired, group)
    return row_errors({group: best}, sums.source.rows, sums.target.rows, plan.folds[fold])[group]


def _similarities(measure: Measure, target: PreparedRun, plan: Protocol) -> Column:
    """A measure of similarity to one layer, over all rows."""
    others = [Side(sums, plan.seed) for sums in _repaired(target, plan)]

    def value(source: PreparedRun, side: Side) -> float:
        return measure.of(Both(source.side, side, pair_sums(source.sums, side.sums).outside(None)))

    def column(source: PreparedRun) -> Cell:
        nulls = [value(source, side) for side in others]
        spread = float(np.std(nulls, ddof=1) * np.sqrt(1 + 1 / len(nulls))) if len(nulls) > 1 else float("nan")
        return value(source, target.side), float(np.mean(nulls)) if nulls else float("nan"), spread

    return column


def _pooled(error: Float) -> Float:
    """The standard error of a column or of the whole map, the larger: a few re-pairings of one pair tell little."""
    known = np.isfinite(error)
    squares = np.where(known, error, 0.0) ** 2
    of_column, of_all = squares.sum(0) / np.maximum(known.sum(0), 1), squares.sum() / max(known.sum(), 1)
    return np.where(known, np.sqrt(np.maximum(of_column, of_all)), np.nan)


def _advice(widths: Sequence[int], plan: Protocol) -> list[str]:
    found = (advice_on_rows(len(plan.unit), max(widths)), advice_on_clusters(plan.unit) if plan.clustered else None)
    notes = [note for note in found if note is not None]
    for note in notes:
        warnings.warn(note, FewRowsWarning, stacklevel=3)
    return notes
