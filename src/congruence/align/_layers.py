"""`compare_layers`: which layers of one run correspond to which layers of another?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from congruence.align._layer_runs import layered_run
from congruence.align._layer_tests import (
    count_tested,
    max_null,
    over_seeds,
    repaired_values,
    seed_interval,
    source_to_test,
    tenths,
    too_few_units,
)
from congruence.align._notes import diameter_notes, sampling_notes
from congruence.align._options import CompareLayersOptions
from congruence.align._run_statistics import PairStatistics, RunStatistics, read_paired, sum_run
from congruence.align.layer_comparison import LayerComparison
from congruence.align.similarities import ALIASES, LOWER, MEASURES, above_chance
from congruence.arrays import Array, Float
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

NULL_FITS = 5  # re-pairings whose error is averaged to the null of a pair; all of them are tested


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
        row id where they have one. Widths may differ: the narrower layer is zero-padded. Several seeds of one run
        are a list of mappings, or a pattern with two stars, the first for the seed: ``"run_a/seed*/*.npy"``. Numbers
        are then means over all pairs of seeds, with an interval for new seeds and new rows.
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

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import ortho_group
    >>> rng = np.random.default_rng(0)
    >>> a = {"first": rng.normal(size=(300, 3)), "second": rng.normal(size=(300, 3))}
    >>> b = {name: layer @ ortho_group.rvs(3, random_state=0) for name, layer in a.items()}
    >>> result = compare_layers(a, b)
    >>> result.status
    'holds'
    """
    measure = ALIASES.get(options.measure, options.measure)
    check_choice("measure", measure, (*GROUPS, *MEASURES))
    one, other = layered_run(a, "a"), layered_run(b, "b")
    names = _name_runs(options.names, one.name, other.name)
    inputs, rows, plan, settings = read_paired(one.labelled(names[0]) | other.labelled(names[1]), options)
    width = max(x.d for x in rows) if measure in GROUPS else 0  # a similarity is compared with its null instead
    notes = inputs.notes + sampling_notes(width, plan, warn=True)
    layers_a, layers_b = one.layers, other.layers
    shape = len(one.seeds), len(other.seeds), len(layers_a), len(layers_b)
    of_a = shape[0] * shape[2]  # sources, and then targets, by seed and layer
    step = Steps(progress, of_a + shape[1] * shape[3] * (1 + of_a))
    skipped: list[str] = []
    nearness, null = np.full(shape, np.nan), np.full(shape, np.nan)
    tested = np.full((1 + count_tested(plan), *shape), np.nan)
    tenth = tenths(plan) if shape[:2] != (1, 1) else None
    without = np.full((0 if tenth is None else int(tenth.max()) + 1, *shape), np.nan)
    with decomposing_on(settings["device"]):
        summed = (_sum_layer(step, name, x, plan, skipped) for name, x in zip(inputs.names, rows, strict=True))
        sources = list(islice(summed, of_a))
        _check_any(of_a, skipped)
        tested_sources = [source and source_to_test(measure, source, plan) for source in sources]
        for number, target in enumerate(summed):  # one at a time: only the sums of the sources are kept
            if target is None:
                continue
            t, j = divmod(number, shape[3])
            values = repaired_values(measure, tested_sources, target, plan)
            tested[:, :, t, :, j] = values.reshape(-1, shape[0], shape[2])
            for s, i in np.ndindex(shape[0], shape[2]):
                source, at = sources[s * shape[2] + i], (s, t, i, j)
                if source is None:
                    continue
                if measure in MEASURES:
                    nearness[at], null[at] = _score_similarity(
                        measure, source, target, plan, tested[(slice(None), *at)]
                    )
                else:
                    nearness[at], null[at], without[(slice(None), *at)] = _score_error(
                        measure, source, target, plan, tenth
                    )
                step(f"{source.name} -> {target.name}")
            notes += diameter_notes([target])
        _check_any(len(rows) - of_a, skipped[sum(source is None for source in sources) :])
        if tenth is not None and measure in MEASURES:
            without[:] = np.where(np.isfinite(nearness), _without_tenths(measure, rows, shape, tenth), np.nan)
    closeness = over_seeds(tested if measure in MEASURES and MEASURES[measure].sign > 0 else -tested)
    too_few = too_few_units(plan)
    if too_few:
        notes.append(too_few)
        closeness[:] = np.nan
    similarity = MEASURES.get(measure)
    dependence = None
    if not plan.clustered and np.isfinite(null).any():
        above = above_chance(nearness, null, 0.0 if similarity is None else similarity.itself)
        s, t, i, j = np.unravel_index(np.nan_to_num(above, nan=-np.inf).argmax(), shape)  # the pair that matters most
        dependence = check_rows(rows[s * shape[2] + i], rows[of_a + t * shape[3] + j], plan)
        if dependence.matters:
            closeness[:] = np.nan
    p, p_layer = max_null(closeness)
    several = shape[:2] != (1, 1)
    return LayerComparison(
        source=names[0],
        target=names[1],
        source_layers=layers_a,
        target_layers=layers_b,
        measure=measure,
        direction=LOWER if similarity is None else similarity.direction,
        perfect=0.0 if similarity is None else similarity.itself,
        held_out=similarity is None,
        nearness=over_seeds(nearness),
        null=over_seeds(null),
        p=p,
        p_layer=p_layer,
        n=rows[0].n,
        by_seed=nearness if several else None,
        interval=seed_interval(nearness, over_seeds(without)) if several else None,
        dependence=dependence,
        notes=(*notes, *(f"A layer is left out: {reason}." for reason in skipped)),
        settings={
            "measure": measure,
            **({"seeds": [list(one.seeds), list(other.seeds)]} if several else {}),
            **settings,
            **recorded(inputs.files),
        },
    )


def _name_runs(names: Sequence[str], a: str, b: str) -> tuple[str, str]:
    """The names of the runs: those chosen by the user, or those of the patterns, made distinct."""
    if not names:
        return a, b if a != b else f"{b}#2"
    if isinstance(names, str) or len(names) != 2 or names[0] == names[1]:
        raise InputError(f"names must be two different names for the runs; got {names!r}")
    return names[0], names[1]


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


def _check_any(layers: int, skipped: Sequence[str]) -> None:
    if len(skipped) == layers:
        raise InputError(f"no layer of a run can be measured: {'; '.join(skipped)}")


def _score_similarity(
    measure: str, source: RunStatistics, target: RunStatistics, plan: Protocol, tested: Float
) -> tuple[float, float]:
    """The value of a similarity in sample and its mean over re-pairings, which `tested` has unless rows are ordered."""
    if plan.block is None:
        return float(tested[0]), float(tested[1:].mean()) if len(tested) > 1 else float("nan")
    of, orders = MEASURES[measure].of, plan.repairings[:NULL_FITS]
    null = [of(PairStatistics(source, target.reordered(order))) for order in orders]
    return of(PairStatistics(source, target)), float(np.mean(null)) if null else float("nan")


def _score_error(
    group: str, source: RunStatistics, target: RunStatistics, plan: Protocol, tenth: Array | None
) -> tuple[float, float, Float]:
    """The held-out error of the best map onto the target and its null, over the diameter of the target.

    With `tenth`, also the error without each tenth of the rows.
    """
    sums = pair_sums(source.sums, target.sums)
    errors = [
        _held_out(group, sums.outside(k), source.rows, target.rows, fold) for k, fold in enumerate(plan.folds)
    ]  # each of shape (rows of the fold,)
    joined = np.concatenate(errors)
    near = float(joined.mean())
    # Folds differ in their errors, so a re-pairing is compared with the true pairing of its own fold.
    gaps = []
    for number, order in enumerate(plan.repairings[:NULL_FITS]):
        fold = number % len(errors)
        paired, rows = sums.repaired(order, fold, inside_folds=not plan.clustered)
        null = _held_out(group, paired, source.rows, rows, plan.folds[fold])
        gaps.append(float((null - errors[fold]).mean()))
    gap, diameter = float(np.mean(gaps)) if gaps else float("nan"), target.diameter.value
    without = np.empty(0)
    if tenth is not None:
        part = tenth[np.concatenate(plan.folds)]
        without = (joined.sum() - np.bincount(part, weights=joined)) / (len(part) - np.bincount(part)) / diameter
    return near / diameter, (near + gap) / diameter, without


def _held_out(group: str, paired: PairScatter, x: Rows, y: Rows, fold: Array) -> Float:
    """The error of every row of one fold under the best map fitted to other rows."""
    with one_thread(paired.width):
        best = fit_group(paired, group)
    return row_errors({group: best}, x, y, fold)[group]


def _without_tenths(measure: str, rows: Sequence[Rows], shape: tuple[int, ...], tenth: Array) -> Float:
    """The similarity of every source and target without each tenth of the rows, shape (tenths, *shape)."""
    of, of_a = MEASURES[measure].of, shape[0] * shape[2]
    values = np.full((int(tenth.max()) + 1, shape[1], shape[3], shape[0], shape[2]), np.nan)
    for one, of_targets in enumerate(values):
        keep = np.flatnonzero(tenth != one)
        parts = (Rows(x.data[keep], x.device, x.scale_rows) for x in rows)
        runs = (RunStatistics("", run_sums(part, [np.arange(part.n)])) for part in parts)
        sources = list(islice(runs, of_a))
        for at, target in zip(np.ndindex(shape[1], shape[3]), runs, strict=True):
            pairs = [of(PairStatistics(source, target)) for source in sources]
            of_targets[at] = np.reshape(pairs, (shape[0], shape[2]))
    return np.moveaxis(values, (1, 2), (2, 4))
