"""`compare_layers`: which layers of one run correspond to which layers of another?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from congruence.align._notes import diameter_notes, sampling_notes
from congruence.align._options import CompareLayersOptions
from congruence.align._run_statistics import PairStatistics, RunStatistics, read_paired, sum_run
from congruence.align.layer_comparison import LayerComparison
from congruence.align.similarities import ALIASES, LOWER, MEASURES
from congruence.align.similarities.scores import above_chance
from congruence.arrays import Array, Float, as_float64_like, row_chunks, to_numpy
from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.maps.dependence import check_rows
from congruence.maps.groups import GROUPS, fit_group
from congruence.maps.nearness import Protocol, row_errors
from congruence.options import takes
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.rows.algebra import decomposing_on, one_thread
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, pair_sums, run_sums
from congruence.stats.nulls import p_values
from congruence.tables import expanded, unique_names

NULL_FITS = 5  # re-pairings whose error is averaged to the null of a pair; all of them are tested
TESTED_AXES = 64  # principal components of a layer in which rotations of the re-pairings are fitted
TESTED_ROWS = 5  # rows per component, so that no map of the re-pairings fits them by chance
CLUSTERS_TO_TEST = 5  # of four, one in seven re-pairings is the true one
LEAST_SPREAD = 1e-9  # of the null, as a share of its size; less is rounding


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
        Rows of one cluster (document, patient) stay together in folds, and are exchanged whole in the null.
    measure : str, default "similarity"
        One of the groups identity, permutation, rigid, similarity (rigid and one scale) and linear: then
        nearness is the held-out error of the best map of the group from the layer of a to that of b, over the diameter
        of the layer of b. Or a measure of `congruence.align.similarities.MEASURES` such as cka: then nearness is its
        value in sample. Either has the invariances of the group or the measure.

    Returns
    -------
    LayerComparison
        With `nearness`, `null`, `above_chance` and `p`, all of shape (len(a), len(b));
        ``result["layer1", "layer2"]`` is one pair of layers.

    References
    ----------
    Nelson et al. 2026, Definition 1; Kornblith et al. 2019 (maps of layers, by CKA).
    """
    measure, nulls = ALIASES.get(options.measure, options.measure), options.nulls
    check_choice("measure", measure, (*GROUPS, *MEASURES))
    (name_a, a), (name_b, b) = (named_layers(x, called) for called, x in (("a", a), ("b", b)))
    names = _name_runs(options.names, name_a, name_b)
    runs = {f"{layer} of {run}": x for run, layers in zip(names, (a, b), strict=True) for layer, x in layers.items()}
    inputs, rows, plan, settings = read_paired(runs, options)
    notes = inputs.notes + sampling_notes(max(x.d for x in rows), plan, warn=True)
    step = Steps(progress, len(a) + len(b) * (1 + len(a)))
    skipped: list[str] = []
    shape = len(a), len(b)
    nearness, null = np.full(shape, np.nan), np.full(shape, np.nan)
    tested = np.full((1 + nulls, *shape), np.nan)
    with decomposing_on(settings["device"]):
        layers = (_sum_layer(step, name, x, plan, skipped) for name, x in zip(inputs.names, rows, strict=True))
        sources = list(islice(layers, len(a)))
        _check_any(a, skipped)
        tested_sources = [source and _leading(measure, source) for source in sources]
        for j, target in enumerate(layers):  # one at a time: only the sums of the sources are kept
            if target is None:
                continue
            tested[:, :, j] = _test_statistics(measure, tested_sources, _leading(measure, target), plan)
            for i, source in enumerate(sources):
                if source is not None and measure in MEASURES:
                    nearness[i, j], null[i, j] = tested[0, i, j], tested[1:, i, j].mean() if nulls else np.nan
                elif source is not None:
                    nearness[i, j], null[i, j] = _score_error(measure, source, target, plan)
                if source is not None:
                    step(f"{source.name} -> {target.name}")
            notes += diameter_notes([target])
    _check_any(b, skipped[sum(source is None for source in sources) :])
    closeness = tested if measure in MEASURES and MEASURES[measure].sign > 0 else -tested
    if plan.clustered and int(plan.unit.max()) + 1 < CLUSTERS_TO_TEST:
        notes.append(f"Fewer than {CLUSTERS_TO_TEST} clusters can be exchanged in too few ways to judge by.")
        closeness[:] = np.nan
    similarity = MEASURES.get(measure)
    dependence = None
    if not plan.clustered and np.isfinite(null).any():
        above = above_chance(nearness, null, 0.0 if similarity is None else similarity.itself)
        i, j = np.unravel_index(np.nan_to_num(above, nan=-np.inf).argmax(), shape)  # the pair that matters most
        dependence = check_rows(rows[i], rows[len(a) + j], plan)
        if dependence.matters:
            closeness[:] = np.nan
    p, p_layer = max_null(closeness)
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
        p=p,
        p_layer=p_layer,
        n=rows[0].n,
        dependence=dependence,
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


def _leading(measure: str, run: RunStatistics) -> RunStatistics:
    """The leading principal components of a wide layer, in which maps are fitted to re-paired rows.

    A test needs the same statistic for the true pairing and for each re-pairing, not the error in all dimensions.
    """
    most = max(1, run.rows.n // TESTED_ROWS)
    if measure in ("rigid", "similarity"):
        most = min(most, TESTED_AXES)
    if measure not in ("rigid", "similarity", "linear") or run.rows.d <= most:
        return run
    axes = run.spread.axes[0][:, :most]
    chunks = (run.rows.take(part) for part in row_chunks(run.rows.n, run.rows.d))
    values = np.concatenate([to_numpy(chunk @ as_float64_like(axes, chunk)) for chunk in chunks])
    return RunStatistics(run.name, run_sums(Rows(values), [np.arange(run.rows.n)]), run.seed)


def _test_statistics(
    measure: str, sources: Sequence[RunStatistics | None], target: RunStatistics, plan: Protocol
) -> Float:
    """The value of each source and one target, for the true pairing and each re-pairing: (1 + nulls, sources).

    Every source and target gets the same re-pairings, so that the largest of all values has a null, too.
    """
    of = MEASURES[measure].of if measure in MEASURES else partial(_in_sample_error, measure)
    values = np.full((1 + len(plan.repairings), len(sources)), np.nan)
    unit = plan.unit if plan.clustered else None
    for r, order in enumerate([None, *plan.shuffles()]):
        other = target if order is None else target.reordered(order, unit)
        values[r] = [np.nan if source is None else of(PairStatistics(source, other)) for source in sources]
    return values


def _in_sample_error(group: str, pair: PairStatistics) -> float:
    with one_thread(pair.sums.width):
        best = fit_group(pair.sums, group)
    everything = np.arange(pair.source.rows.n)
    return float(row_errors({group: best}, pair.source.rows, pair.target.rows, everything)[group].mean())


def max_null(closeness: Float) -> tuple[Float, Float]:
    """The p values of all pairs of layers, (a, b), and of all source layers, (a,), by the null of the maximum.

    `closeness`, shape (1 + nulls, a, b), is that of the true pairing and of each re-pairing. Nulls of pairs differ in
    mean and spread, so each pair is standardised over all its values, the true one included: under the hypothesis that
    the runs are unrelated all are exchangeable, and the p values are exact. A pair is compared with the maximum over
    all pairs (family-wise), a layer with the maximum over its own pairs. NaN below 19 re-pairings, which cannot give a
    p value of 0.05.
    """
    p, p_layer = np.full(closeness.shape[1:], np.nan), np.full(closeness.shape[1], np.nan)
    if len(closeness) < 20:
        return p, p_layer
    mean, spread = closeness.mean(0), closeness.std(0)
    known = spread > LEAST_SPREAD * np.abs(mean)  # not where it is NaN
    score = np.where(known, (closeness - mean) / np.where(known, spread, 1.0), -np.inf)
    p[known] = p_values(score[0], score[1:].max((1, 2)))[known]
    for i, any_known in enumerate(known.any(1)):
        if any_known:
            p_layer[i] = p_values(score[0, i].max(), score[1:, i].max(1))
    return p, p_layer


def _score_error(group: str, source: RunStatistics, target: RunStatistics, plan: Protocol) -> tuple[float, float]:
    """The held-out error of the best map onto the target and its null, over the diameter of the target."""
    sums = pair_sums(source.sums, target.sums)
    errors = [
        _held_out(group, sums.outside(k), source.rows, target.rows, fold) for k, fold in enumerate(plan.folds)
    ]  # each of shape (rows of the fold,)
    near = float(np.concatenate(errors).mean())
    # Folds differ in their errors, so a re-pairing is compared with the true pairing of its own fold.
    gaps = []
    for number, order in enumerate(plan.repairings[:NULL_FITS]):
        fold = number % len(errors)
        paired, rows = sums.repaired(order, fold, inside_folds=not plan.clustered)
        null = _held_out(group, paired, source.rows, rows, plan.folds[fold])
        gaps.append(float((null - errors[fold]).mean()))
    gap = float(np.mean(gaps)) if gaps else float("nan")
    return near / target.diameter.value, (near + gap) / target.diameter.value


def _held_out(group: str, paired: PairScatter, x: Rows, y: Rows, fold: Array) -> Float:
    """The error of every row of one fold under the best map fitted to other rows."""
    with one_thread(paired.width):
        best = fit_group(paired, group)
    return row_errors({group: best}, x, y, fold)[group]
