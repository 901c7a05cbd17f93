"""`compare_layers`: which layers of one run correspond to which layers of another?"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from congruence.align._options import CompareLayersOptions
from congruence.align._run_statistics import PairStatistics, RunStatistics, read_paired, sum_run
from congruence.align.layer_comparison import LayerComparison
from congruence.align.similarities import LOWER, MEASURES, Measure
from congruence.align.verdict import diameter_notes, sampling_notes
from congruence.arrays import Array, Float
from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.maps.groups import GROUPS, fit_group
from congruence.maps.nearness import Protocol, row_errors
from congruence.options import takes
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.rows.algebra import decomposing_on, one_thread
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, pair_sums
from congruence.tables import expanded, unique_names

Score = tuple[float, float, float]  # the nearness of two layers, its null, and the standard error of their gap


@takes(CompareLayersOptions)
def compare_layers(
    a: Any, b: Any, *, options: CompareLayersOptions, progress: Progress | None = None
) -> LayerComparison:
    """Measure how close every layer of one run is to every layer of another, on the same rows.

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
    cluster : array of shape (n,), or name of a metadata column, optional
        Rows of one cluster (document, patient) stay together in folds.
    measure : str, default "similarity"
        One of the groups identity, permutation, rigid, similarity (rigid and one scale) and linear: then
        nearness is the held-out error of the best map of the group from the layer of a to that of b, over the diameter
        of the layer of b. Or a measure of `congruence.align.similarities.MEASURES` such as cka: then nearness is its
        value in sample. Either has the invariances of the group or the measure.

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
    check_choice("measure", measure, (*GROUPS, *MEASURES))
    (name_a, a), (name_b, b) = (named_layers(x, called) for called, x in (("a", a), ("b", b)))
    names = _name_runs(options.names, name_a, name_b)
    runs = {f"{layer} of {run}": x for run, layers in zip(names, (a, b), strict=True) for layer, x in layers.items()}
    inputs, rows, plan, settings = read_paired(runs, options)
    notes = inputs.notes + sampling_notes(max(x.d for x in rows), plan, warn=True)
    if nulls == 1 and measure in MEASURES:
        notes.append("One re-pairing does not show how much the null varies; set nulls to at least 2.")
    step = Steps(progress, len(a) + len(b) * (1 + len(a)))
    skipped: list[str] = []
    nearness, null, error = (np.full((len(a), len(b)), np.nan) for _ in range(3))
    with decomposing_on(settings["device"]):
        layers = (_sum_layer(step, name, x, plan, skipped) for name, x in zip(inputs.names, rows, strict=True))
        sources = list(islice(layers, len(a)))
        _check_any(a, skipped)
        for j, target in enumerate(layers):  # one at a time: only the sums of the sources are kept
            if target is None:
                continue
            score = _score_by(measure, target, plan)
            for i, source in enumerate(sources):
                if source is not None:
                    nearness[i, j], null[i, j], error[i, j] = score(source)
                    step(f"{source.name} -> {target.name}")
            notes += diameter_notes([target])
    _check_any(b, skipped[sum(source is None for source in sources) :])
    if measure in MEASURES:
        error[:] = _pool(error)
    similarity = MEASURES.get(measure)
    return LayerComparison(
        source=names[0],
        target=names[1],
        source_layers=list(a),
        target_layers=list(b),
        measure=measure,
        direction=LOWER if similarity is None else similarity.direction,
        perfect=0.0 if similarity is None else similarity.itself,
        held_out=similarity is None,
        nearness=nearness,
        null=null,
        standard_error=error,
        n=rows[0].n,
        notes=(*notes, *(f"A layer is left out: {reason}." for reason in skipped)),
        settings={"measure": measure, **settings, **recorded(inputs.files)},
    )


def _name_runs(names: Sequence[str], a: str, b: str) -> tuple[str, str]:
    """The names of the runs: those chosen by the user, or those of the patterns, made distinct."""
    if not names:
        return a, b if a != b else f"{b}#2"
    if isinstance(names, str) or len(names) != 2 or names[0] == names[1]:
        raise InputError(f"names must be two different names for the runs; got {names!r}")
    return names[0], names[1]


def named_layers(layers: Any, name: str) -> tuple[str, dict[str, Any]]:
    """The name of a run and its layers by name.

    In ``run_a.*.parquet`` the star is the layer, and the text before it is the name of the run; in ``run_a/*.npy`` that
    is the folder. Other patterns and lists of paths name layers after their files.
    """
    if isinstance(layers, str | Path):
        run, layers = _find_layers(str(layers))
    elif isinstance(layers, list | tuple) and all(isinstance(path, str | Path) for path in layers):
        run, layers = name, dict(zip(unique_names(layers), layers, strict=True)) if layers else {}
    elif isinstance(layers, Mapping):
        run = name
    else:
        kind = type(layers).__name__
        raise InputError(f"{name} must be a mapping of names to layers, a pattern or a list of paths; got {kind}")
    if not layers:
        raise InputError(f"{name} must have at least one layer; got none")
    if not all(isinstance(layer, str) for layer in layers):  # 1 and "1" would be taken for the same
        raise InputError(f"the names of the layers of {name} must be text; got {', '.join(map(repr, layers))}")
    return run, dict(layers)


def _find_layers(pattern: str) -> tuple[str, dict[str, str]]:
    """The name of a run and the file of each of its layers, sorted by name, numbers as numbers."""
    paths = expanded([pattern])
    before, star, after = Path(pattern).name.partition("*")
    if star and not any(sign in before + after for sign in "*?[") and "**" not in pattern:
        names = [Path(path).name[len(before) : -len(after) or None] for path in paths]
        names = names if len(set(names)) == len(names) else unique_names(paths)
        run = before.strip("._- ") or Path(pattern).parent.name or pattern
    else:
        names, run = unique_names(paths), pattern

    def in_order(named: tuple[str, str]) -> list[tuple[bool, int, str]]:  # layers.10 after layers.9
        parts = re.split(r"(\d+)", named[0])
        return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]

    return run, dict(sorted(zip(names, paths, strict=True), key=in_order))


def _sum_layer(step: Steps, name: str, rows: Rows, plan: Protocol, skipped: list[str]) -> RunStatistics | None:
    """A layer with its sums; None, and the reason in `skipped`, where its numbers are undefined."""
    step(f"preparing {name}")
    try:
        summed = sum_run(name, rows, plan)
    except InputError as error:
        skipped.append(str(error))
        return None
    if summed.dead == rows.d:
        skipped.append(f"all rows of {name} are equal")
        return None
    return summed


def _check_any(layers: Mapping[str, Any], skipped: Sequence[str]) -> None:
    if len(skipped) == len(layers):
        raise InputError(f"no layer of a run can be measured: {'; '.join(skipped)}")


def _score_by(measure: str, target: RunStatistics, plan: Protocol) -> Callable[[RunStatistics], Score]:
    """A function that scores any source against one target, whose statistics are computed once."""
    if measure not in MEASURES:
        diameter = target.diameter.value
        return lambda source: _score_error(measure, source, target, diameter, plan)
    shuffled = [
        RunStatistics(target.name, target.sums.shuffled(partner, inside_folds=not plan.clustered), plan.seed)
        for partner in plan.repairings
    ]
    return lambda source: _score_similarity(MEASURES[measure], source, target, shuffled)


def _score_error(
    group: str,
    source: RunStatistics,
    target: RunStatistics,
    diameter: float,
    plan: Protocol,
) -> Score:
    """The held-out error of the best map onto the target, over its diameter."""
    sums = pair_sums(source.sums, target.sums)
    errors = [
        _held_out(group, sums.outside(k), source.rows, target.rows, fold) for k, fold in enumerate(plan.folds)
    ]  # each of shape (rows of the fold,)
    near = float(np.concatenate(errors).mean())
    # Folds differ in their errors, so a re-pairing is compared with the true pairing of its own fold.
    gaps = []
    for number, order in enumerate(plan.repairings):
        fold = number % len(errors)
        paired, rows = sums.repaired(order, fold, inside_folds=not plan.clustered)
        gaps.append(_held_out(group, paired, source.rows, rows, plan.folds[fold]) - errors[fold])
    if not gaps:
        return near / diameter, float("nan"), float("nan")
    gap = float(np.mean([rows.mean() for rows in gaps]))
    return near / diameter, (near + gap) / diameter, _standard_error(gaps, gap, plan) / diameter


def _standard_error(gaps: Sequence[Float], mean: float, plan: Protocol) -> float:
    """The standard error, over rows (or clusters), of the mean gap between re-pairings and the true pairing.

    `gaps` are those of the rows of one fold for each re-pairing, folds in turn. Infinite where all rows are of one
    cluster.
    """
    total = np.zeros(len(plan.unit))
    for k, rows in enumerate(gaps):
        total[plan.folds[k % len(plan.folds)]] += rows - mean
    scored = np.unique(plan.unit[np.concatenate(plan.folds[: len(gaps)])])
    if len(scored) < 2:
        return float("inf")
    spread = np.bincount(plan.unit, weights=total)[scored]
    return float(np.sqrt((spread**2).sum() * len(scored) / (len(scored) - 1)) / sum(map(len, gaps)))


def _held_out(group: str, paired: PairScatter, x: Rows, y: Rows, fold: Array) -> Float:
    """The error of every row of one fold under the best map fitted to other rows."""
    with one_thread(paired.width):
        best = fit_group(paired, group)
    return row_errors({group: best}, x, y, fold)[group]


def _score_similarity(
    measure: Measure, source: RunStatistics, target: RunStatistics, shuffled: Sequence[RunStatistics]
) -> Score:
    """The value of a similarity measure over all rows."""

    def value(other: RunStatistics) -> float:
        return measure.of(PairStatistics(source, other, pair_sums(source.sums, other.sums).outside(None)))

    nulls = [value(other) for other in shuffled]
    spread = float(np.std(nulls, ddof=1) * np.sqrt(1 + 1 / len(nulls))) if len(nulls) > 1 else float("nan")
    return value(target), float(np.mean(nulls)) if nulls else float("nan"), spread


def _pool(error: Float) -> Float:
    """The standard error of a column or of all pairs, the larger: few re-pairings of one pair vary much."""
    known = np.isfinite(error)
    squares = np.where(known, error, 0.0) ** 2
    of_column, of_all = squares.sum(0) / np.maximum(known.sum(0), 1), squares.sum() / max(known.sum(), 1)
    return np.where(known, np.sqrt(np.maximum(of_column, of_all)), np.nan)
