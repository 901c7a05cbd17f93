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
from congruence.arrays import Rows, resolve_device
from congruence.errors import FewRowsWarning, InputError
from congruence.maps.algebra import decomposing_on, one_thread
from congruence.maps.groups import GROUPS, fit_group
from congruence.maps.nearness import Protocol, check_method, protocol, row_errors
from congruence.maps.sums import PairSums, RunSums, pair_sums
from congruence.progress import Progress, Steps

FEW_ROWS = 200  # with fewer, unrelated layers came out as far above chance as those called near
Column = Callable[[PreparedRun], tuple[float, float]]  # of a source: its nearness to the target, and the null


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
    costs one product of the two layers and, where a rotation is sought, one small decomposition for each fold.

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
        With `rows`, `columns`, `nearness` and `null`, both (len(a), len(b)).

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
    if plan.repairings and rows[0].n < FEW_ROWS:
        advice.append(_blurred(rows[0].n))
    tell = Steps(progress, len(a) + len(b) * (1 + len(a)))
    with decomposing_on(engine):
        layers = (_told(tell, name, x, plan) for name, x in zip(inputs.names, rows, strict=True))
        sources = list(islice(layers, len(a)))
        nearness, null = np.empty((len(a), len(b))), np.empty((len(a), len(b)))
        for j, target in enumerate(layers):  # one at a time: only the sums of the sources are kept for all
            near = _column(measure, target, plan)
            for i, source in enumerate(sources):
                nearness[i, j], null[i, j] = near(source)
                tell(f"{source.name} -> {target.name}")
            if "diameter" in target.__dict__ and (note := advice_on_diameter(target.name, target.diameter)):
                advice.append(note)
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
        n=rows[0].n,
        advice=advice,
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


def _told(tell: Steps, name: str, rows: Rows, plan: Protocol) -> PreparedRun:
    prepared = prepare(name, rows, plan)
    tell(f"preparing {name}")
    return prepared


def _column(measure: str, target: PreparedRun, plan: Protocol) -> Column:
    """What measures any source beside one target, with what belongs to the target worked out once."""
    return _similarities(MEASURES[measure], target, plan) if measure in MEASURES else _errors(measure, target, plan)


def _repaired(target: PreparedRun, plan: Protocol) -> list[RunSums]:
    """The target with its rows beside others, once for each re-pairing and for all sources."""
    return [target.sums.shuffled(partner, inside_folds=not plan.clustered) for partner in plan.repairings]


def _errors(group: str, target: PreparedRun, plan: Protocol) -> Column:
    """The held-out error of the best map onto one layer, over its diameter."""
    repaired, diameter = _repaired(target, plan), target.diameter.value
    sizes = [len(fold) for fold in plan.folds]

    def column(source: PreparedRun) -> tuple[float, float]:
        sums = pair_sums(source.sums, target.sums)
        errors = [_held_out(group, sums, plan, k) for k in range(len(plan.folds))]
        near = float(np.average(errors, weights=sizes))
        # Some folds have farther rows than others, so a re-pairing is set beside the true pairing of its own fold.
        beyond = [
            _held_out(group, pair_sums(source.sums, y), plan, k % len(sizes)) - errors[k % len(sizes)]
            for k, y in enumerate(repaired)
        ]
        return near / diameter, (near + float(np.mean(beyond))) / diameter if beyond else float("nan")

    return column


def _held_out(group: str, sums: PairSums, plan: Protocol, fold: int) -> float:
    """The mean error of the rows of one fold under the best map fitted without it."""
    paired = sums.outside(fold)
    with one_thread(paired.width):
        best = fit_group(paired, group)
    return float(row_errors({group: best}, sums.source.rows, sums.target.rows, plan.folds[fold])[group].mean())


def _similarities(measure: Measure, target: PreparedRun, plan: Protocol) -> Column:
    """A measure of similarity to one layer, over all rows."""
    others = [Side(sums, plan.seed) for sums in _repaired(target, plan)]

    def value(source: PreparedRun, side: Side) -> float:
        return measure.of(Both(source.side, side, pair_sums(source.sums, side.sums).outside(None)))

    def column(source: PreparedRun) -> tuple[float, float]:
        nulls = [value(source, side) for side in others]
        return value(source, target.side), float(np.mean(nulls)) if nulls else float("nan")

    return column


def _blurred(n: int) -> str:
    return (
        f"{n} rows blur the null: with fewer than {FEW_ROWS}, unrelated layers may come out above chance by as much as "
        "those that are called near. More rows, or at least more re-pairings, would tell."
    )


def _advice(widths: Sequence[int], plan: Protocol) -> list[str]:
    found = (advice_on_rows(len(plan.unit), max(widths)), advice_on_clusters(plan.unit) if plan.clustered else None)
    notes = [note for note in found if note is not None]
    for note in notes:
        warnings.warn(note, FewRowsWarning, stacklevel=3)
    return notes
