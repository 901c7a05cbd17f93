"""`compare_layers`: which layers of one run are near which layers of another?"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from congruence.align._options import CompareLayersOptions
from congruence.align.layer_comparison import LayerComparison
from congruence.align.prepared import PreparedRun, prepare
from congruence.align.similarities.registry import LOWER, MEASURES, Measure
from congruence.align.similarities.sides import Both, Side
from congruence.align.verdict import advice_on_clusters, advice_on_diameter, advice_on_rows
from congruence.arrays import Float, resolve_device
from congruence.errors import FewRowsWarning, InputError
from congruence.maps.algebra import decomposing_on, one_thread
from congruence.maps.groups import GROUPS, fit_group
from congruence.maps.nearness import Protocol, check_method, protocol, row_errors
from congruence.options import reading, takes
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.rows.engine import Rows
from congruence.rows.sums import PairSums, RunSums, pair_sums
from congruence.tables import expanded, gather, unique_names

Cell = tuple[float, float, float]  # the nearness of a pair of layers, its null, and the standard error of their gap
Column = Callable[[PreparedRun], Cell]  # of a source, for one target


@takes(CompareLayersOptions)
def compare_layers(
    a: Any, b: Any, *, options: CompareLayersOptions, progress: Progress | None = None
) -> LayerComparison:
    """Measure how near every layer of one run is to every layer of another, on the same rows.

    Statistics of one layer (sums over folds, decompositions, distances between rows) are computed once; a pair
    costs one product of the two layers and, for a rotation, one small decomposition for each fold. A layer without a
    defined number (all its rows are equal, or, on the unit sphere, some are zero) is left out: it is NaN in the
    result, and a note names it.

    Parameters
    ----------
    a, b : mapping of name to layer; or paths, or a pattern
        Each layer is an array or tensor of shape (n, d), a frame, a table, or a path. In a pattern such as
        ``"run_a.*.parquet"`` the star is the name of the layer and the text before it names the run; layers are sorted
        by name, numbers as numbers. A list of paths keeps its order. Arrays are paired row by row; files and tables by
        row id where they have one. Widths may differ: the narrower layer is zero-padded.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    id, features, metadata, key : str, optional
        Which columns hold the row ids, the embedding and the metadata; which array of a file or AnnData.
    cluster : array of shape (n,), or name of a metadata column, optional
        Rows of one cluster (document, patient) stay together in folds.
    drop_missing : bool
        Leave out rows with NaN or infinity in any layer instead of refusing them.
    names : (str, str), optional
        Names of the two runs; otherwise those of the patterns, or "a" and "b".
    measure : str
        One of the groups identity, permutation, rigid, similarity (rigid and one scale, the default) and linear: then
        nearness is the held-out error that the best map of the group from the layer of a to that of b leaves, over
        the diameter of the layer of b. Or a measure of `congruence.align.similarities.MEASURES` such as cka: then it
        is that number, in sample. Either has the invariances of the group or the measure.
    normalize : {None, "cosine"}
        "cosine" puts every row on the unit sphere first.
    folds, nulls : int
        How many folds are held out in turn, and how many re-pairings make the null: each is scored on one fold, the
        next on the next. With nulls=0 there is no null.
    seed : int
        The same seed gives the same result.
    device : str
        "auto" computes where the data is; "cpu", "cuda" or "cuda:1" choose.

    Returns
    -------
    LayerComparison
        With `nearness`, `null` and `standard_error`, all of shape (len(a), len(b)); ``result["layer1", "layer2"]`` is
        one pair of layers.

    References
    ----------
    Nelson et al. 2026, Definition 1; Kornblith et al. 2019 (maps of layers, by CKA).
    """
    measure, nulls = options.measure, options.nulls
    _check_measure(measure)
    check_method(options.normalize, folds=options.folds, nulls=nulls, bootstrap=0, seed=options.seed)
    (name_a, a), (name_b, b) = (named_layers(x, called) for called, x in (("a", a), ("b", b)))
    names = _names(options.names, name_a, name_b)
    runs = {f"{layer} of {run}": x for run, layers in zip(names, (a, b), strict=True) for layer, x in layers.items()}
    inputs = gather(runs, **reading(options), cluster=options.cluster, drop_missing=options.drop_missing)
    engine = resolve_device(options.device, *inputs.values)
    plan = protocol(
        len(inputs.values[0]), folds=options.folds, nulls=nulls, bootstrap=0, cluster=inputs.cluster, seed=options.seed
    )
    rows = inputs.rows(engine, options.normalize)
    notes = inputs.notes + _advice([x.d for x in rows], plan)
    if nulls == 1 and measure in MEASURES:
        notes.append("One re-pairing does not show how far chance reaches; give at least two (nulls=2).")
    step = Steps(progress, len(a) + len(b) * (1 + len(a)))
    left_out: list[str] = []
    nearness, null, error = (np.full((len(a), len(b)), np.nan) for _ in range(3))
    with decomposing_on(engine):
        layers = (_usable(step, name, x, plan, left_out) for name, x in zip(inputs.names, rows, strict=True))
        sources = list(islice(layers, len(a)))
        _check_any(a, left_out)
        for j, target in enumerate(layers):  # one at a time: only the sums of the sources are kept for all
            if target is None:
                continue
            near = _column(measure, target, plan)
            for i, source in enumerate(sources):
                if source is not None:
                    nearness[i, j], null[i, j], error[i, j] = near(source)
                    step(f"{source.name} -> {target.name}")
            if "diameter" in target.__dict__ and (note := advice_on_diameter(target.name, target.diameter)):
                notes.append(note)
    _check_any(b, left_out[sum(source is None for source in sources) :])
    if measure in MEASURES:
        error[:] = _pooled(error)
    found = MEASURES.get(measure)
    return LayerComparison(
        source=names[0],
        target=names[1],
        source_layers=list(a),
        target_layers=list(b),
        measure=measure,
        direction=LOWER if found is None else found.direction,
        perfect=0.0 if found is None else found.itself,
        held_out=found is None,
        nearness=nearness,
        null=null,
        standard_error=error,
        n=rows[0].n,
        notes=(*notes, *(f"A layer is left out: {reason}." for reason in left_out)),
        settings={
            "measure": measure,
            "normalize": options.normalize,
            "clusters": None if inputs.cluster is None else int(plan.unit.max()) + 1,
            "paired": "by id" if inputs.by_id else "by position",
            "folds": len(plan.folds),
            "nulls": nulls,
            "seed": options.seed,
            "device": engine,
            **recorded(inputs.files),
        },
    )


def _check_measure(measure: str) -> None:
    known = (*GROUPS, *MEASURES)
    if measure not in known:
        raise InputError(f"measure must be one of {', '.join(known)}; {measure!r} is not")


def _names(given: Sequence[str], a: str, b: str) -> tuple[str, str]:
    """The names of the runs: those given, or their own, the second with a number where both have the same."""
    if not given:
        return a, b if a != b else f"{b}#2"
    if isinstance(given, str) or len(given) != 2 or given[0] == given[1]:
        raise InputError(f"names must be two different names for the runs, not {given!r}")
    return given[0], given[1]


def named_layers(layers: Any, name: str) -> tuple[str, dict[str, Any]]:
    """The name of a run and its layers by their names.

    In ``run_a.*.parquet`` the star is the layer, and the text before it is the name of the run; in ``run_a/*.npy`` that
    is the folder. Other patterns and lists of paths name layers after their files.
    """
    if isinstance(layers, str | Path):
        run, layers = _matching(str(layers))
    elif isinstance(layers, list | tuple) and all(isinstance(path, str | Path) for path in layers):
        run, layers = name, dict(zip(unique_names(layers), layers, strict=True)) if layers else {}
    elif isinstance(layers, Mapping):
        run = name
    else:
        raise InputError(
            f"{name} must map names of layers to their rows, or be a pattern or a list of paths, "
            f"not {type(layers).__name__}"
        )
    if not layers:
        raise InputError(f"{name} has no layers; comparing layers takes at least one of each run")
    if not all(isinstance(layer, str) for layer in layers):  # 1 and "1" would be taken for the same
        raise InputError(f"the names of the layers of {name} must be text, not {', '.join(map(repr, layers))}")
    return run, dict(layers)


def _matching(pattern: str) -> tuple[str, dict[str, str]]:
    """The name of a run and the file of each of its layers, sorted by name, numbers as numbers."""
    paths = expanded([pattern])
    before, star, after = Path(pattern).name.partition("*")
    if star and not any(sign in before + after for sign in "*?[") and "**" not in pattern:
        names = [Path(path).name[len(before) : -len(after) or None] for path in paths]
        names = names if len(set(names)) == len(names) else unique_names(paths)
        run = before.strip("._- ") or Path(pattern).parent.name or pattern
    else:
        names, run = unique_names(paths), pattern
    return run, dict(sorted(zip(names, paths, strict=True), key=lambda named: _numerically(named[0])))


def _numerically(name: str) -> list[tuple[bool, int, str]]:
    """A key that sorts layers.10 after layers.9."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", name)]


def _usable(step: Steps, name: str, rows: Rows, plan: Protocol, left_out: list[str]) -> PreparedRun | None:
    """A layer with its sums; or nothing, and the reason, where its numbers are undefined."""
    step(f"preparing {name}")
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
    """A function that measures any source against one target, whose statistics are computed once."""
    return _similarities(MEASURES[measure], target, plan) if measure in MEASURES else _errors(measure, target, plan)


def _repaired(target: PreparedRun, plan: Protocol) -> list[RunSums]:
    """The target with its rows re-paired, once for each re-pairing and for all sources."""
    return [target.sums.shuffled(partner, inside_folds=not plan.clustered) for partner in plan.repairings]


def _errors(group: str, target: PreparedRun, plan: Protocol) -> Column:
    """The held-out error of the best map onto one layer, over its diameter."""
    repaired, diameter = _repaired(target, plan), target.diameter.value

    def column(source: PreparedRun) -> Cell:
        sums = pair_sums(source.sums, target.sums)
        errors = [_held_out(group, sums, plan, k) for k in range(len(plan.folds))]  # each of shape (rows of the fold,)
        near = float(np.concatenate(errors).mean())
        # Folds differ in their errors, so a re-pairing is compared with the true pairing of its own fold.
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
    """The standard error, over rows (or clusters), of the gap between re-pairings and the true pairing.

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
    """The standard error of a column or of the whole map, the larger: few re-pairings of one pair vary much."""
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
