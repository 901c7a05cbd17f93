"""`compare`: did retraining only rotate the embeddings? One answer for two or more runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from congruence.align._distortion import measure_distortion
from congruence.align._notes import diameter_notes, sampling_notes
from congruence.align._options import ROWS_FOR_ICA, CompareOptions, check_groups, is_auto
from congruence.align._run_statistics import PairStatistics, RunStatistics, read_paired, squared_norms, sum_run
from congruence.align.comparison import Comparison, Pair, PairMCC, PairVerdict, Plane, Run
from congruence.align.similarities import MEASURES, SimilarityScore, check_measures, score_pair
from congruence.align.verdict import (
    Evidence,
    FarRows,
    count_moved,
    dependence_sentence,
    far_rows,
    judge,
    result_in_words,
    summarise,
)
from congruence.arrays import Array, to_numpy
from congruence.checks import check_choice, check_number
from congruence.errors import InputError, NotConvergedWarning, warn_caller
from congruence.formatting import count
from congruence.maps.dependence import measure_dependence
from congruence.maps.groups import GROUPS, Map, centred_map, fit_group
from congruence.maps.matching import fit_cca, matched_correlation
from congruence.maps.nearness import Fit, Nearness, Protocol, measure
from congruence.options import takes
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.rows.algebra import decomposing_on, eigh, multiply
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, PairSums, pair_sums
from congruence.stats.matching import signed_permutation

ROWS_FOR_CCA = 10  # in every fold; a held-out correlation over fewer rows has no meaning
PLANE_ROWS = 300
ALWAYS = ("cka", "neighbour_overlap")
NO_SCORE, NO_MCC = SimilarityScore(*[float("nan")] * 4), PairMCC(*[float("nan")] * 2)
ROWS_TO_CHECK = 50  # with fewer, rows left out together are so many that the error rises for that reason
_ICA_LEFT_OUT = (
    f"The ICA route was left out: with fewer than {ROWS_FOR_ICA} rows per dimension hardly any independent component "
    "can be distinguished from noise. Ask for it with groups='all' (--groups all)."
)


@takes(CompareOptions)
def compare(*runs: Any, options: CompareOptions, progress: Progress | None = None) -> Comparison:
    """Measure whether runs differ only by a permutation, a rotation and scale, or a linear map, and by how much.

    Parameters
    ----------
    *runs : array, table, frame or path; or one mapping, list or stacked array
        Two or more runs that embed the same rows: ``compare(a, b)``. Or one argument that holds them all: a mapping
        of name to run, a list, or an array of shape (runs, n, d). Frames, files and tables are paired by row id where
        they have one, arrays row by row. Widths may differ. The blocks of a dask array are summed on its workers, and
        copied to this process once, since the null pairs any row with any other.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    cluster : array of shape (n,), or name of a metadata column, optional
        Rows of one cluster (patient, plate, document) stay together in folds, null and bootstrap.
    color : array of shape (n,), or name of a metadata column, optional
        Colours the rows in the figure of each pair, before and after the map.
    similarities : sequence of str, or "all", default ()
        Further measures for every pair, by the names in `congruence.align.similarities.MEASURES`, in sample, each
        with its null, its calibrated value and, from 199 re-pairings on, its p value (`SimilarityScore`).

    Returns
    -------
    Comparison
        Errors relative to chance (`of_chance`: 0 is a perfect match, 1 is chance), R², and errors as shares of the
        target's diameter; `status` and `verdict` say whether the difference is only a rotation and a scale.

    References
    ----------
    Nelson et al. 2026, Definition 1, Theorem 1 and Table 1.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import ortho_group
    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(300, 3))
    >>> new = old @ ortho_group.rvs(3, random_state=0)
    >>> result = compare({"old": old, "new": new}, groups=["rigid", "linear"])
    >>> result.status, result["old", "new"].groups["rigid"].held_out.mean < 1e-6
    ('holds', True)
    """
    measures = check_measures(options.similarities)
    groups = check_groups(options.groups)
    check_choice("directions", options.directions, ("forward", "both"))
    check_number("margin", options.margin, 0, open_low=True)
    check_number("tolerance", options.tolerance, 0, 1)
    inputs, rows, plan, settings = read_paired(runs[0] if len(runs) == 1 else list(runs), options, options.color)
    among = _choose_pairs(inputs.names, options)
    left_out = is_auto(options.groups) and rows[0].n < ROWS_FOR_ICA * max(one.d for one in rows)
    groups = GROUPS if left_out else groups
    unmixed = (None, *range(len(plan.folds))) if "ica" in groups else ()
    n_runs, n_pairs = len(inputs.names), len(among)
    kinds = {"preparing": n_runs, "unmixing": n_runs * len(unmixed), "": n_pairs * (1 + options.nulls)}
    step = Steps(progress, kinds | {"similarities": n_pairs})
    summed, common = [], None
    with decomposing_on(settings["device"]):
        for name, one in zip(inputs.names, rows, strict=True):
            summed.append(sum_run(name, one, plan))
            step(f"preparing {name}")
            for fold in unmixed:
                summed[-1].unmixing(fold)
                step(f"unmixing {name}")
        pairs = [compare_pair(summed[i], summed[j], groups, measures, plan, options, step) for i, j in among]
        if options.consensus:
            from congruence.align._consensus import fit_consensus

            common = fit_consensus(inputs.names, [run.sums for run in summed], plan, "similarity", 1)

    return Comparison(
        runs=[Run(run.name, n, run.rows.d) for run, n in zip(summed, inputs.read, strict=True)],
        pairs=pairs,
        headlines=summarise(pairs),
        notes=(
            *inputs.notes,
            *_notes(summed, plan),
            *dict.fromkeys(note for pair in pairs for note in pair.notes),
            *([_ICA_LEFT_OUT] if left_out else []),
        ),
        settings={"groups": list(groups), "directions": options.directions, **settings}
        | ({"similarities": list(measures)} if measures else {})
        | ({} if options.color is None else {"color": options.color if isinstance(options.color, str) else "color"})
        | recorded(inputs.files),
        ids=inputs.ids,
        id_name=inputs.id_name,
        types=inputs.types,
        metadata=inputs.metadata,
        steps=None if options.steps is None else [float(one) for one in options.steps],
        consensus=common,
        color=inputs.labels,
    )


def _choose_pairs(names: Sequence[str], options: CompareOptions) -> list[tuple[int, int]]:
    """The pairs to compare: all of them, or each checkpoint with the next and with the last."""
    steps, last = options.steps, len(names) - 1
    if steps is None:
        forward = list(combinations(range(len(names)), 2))
        return forward if options.directions == "forward" else forward + [(j, i) for i, j in forward]
    if len(steps) != len(names):
        raise InputError(f"steps must have one entry for each of the {len(names)} runs; got {len(steps)}")
    if not all(isinstance(one, int | float) for one in steps):
        raise InputError(f"steps must be numbers; got {', '.join(map(repr, steps))}")
    if not all(np.isfinite(steps)) or any(later <= earlier for earlier, later in pairwise(steps)):
        raise InputError(f"steps must increase from run to run; got {', '.join(f'{s:g}' for s in steps)}")
    if options.directions != "forward":
        raise InputError(f"directions must be 'forward' for a series of checkpoints; got {options.directions!r}")
    return sorted({(k, k + 1) for k in range(last)} | {(k, last) for k in range(last)})


def compare_pair(
    source: RunStatistics,
    target: RunStatistics,
    groups: Sequence[str],
    measures: Sequence[str],
    plan: Protocol,
    options: CompareOptions,
    step: Steps,
    *,
    brief: bool = False,
) -> Pair:
    """Fit, measure and judge one pair; `brief` leaves out the numbers that the verdict does not rest on."""
    name = f"{source.name} -> {target.name}"
    sums = pair_sums(source.sums, target.sums)
    pair = PairStatistics(source, target, sums.outside(None))
    fits: dict[str, Fit] = {g: partial(_fit_ica, source, target) if g == "ica" else _fit(g) for g in groups}
    near, maps = measure(sums, fits, target.diameter.value, plan, partial(step, name))
    known = _evidence(source, target, sums, near, plan, options, target.diameter.value)
    asked, always = ({one: MEASURES[one] for one in names} for names in (measures, ALWAYS))
    # without a null, which would take longer than the rest
    scores = dict.fromkeys(ALWAYS, NO_SCORE) if brief else score_pair(always, pair, ())
    scores |= score_pair(asked, pair, plan.shuffles(), plan.unit if plan.clustered else None)
    found = Pair(
        source=source.name,
        target=target.name,
        n=source.rows.n,
        diameter=target.diameter.value,
        diameter_exact=target.diameter.exact,
        groups=near,
        mcc=NO_MCC if brief else PairMCC(matched_correlation(pair.sums), _held_out_weak_mcc(sums)),
        cka=scores["cka"],
        neighbour_overlap=scores["neighbour_overlap"],
        verdict=judge(near, replace(known, maps=maps), name=name),
        maps=maps,
        plane=_plane(sums, plan.seed),
        components=_match_components(source, target, plan) if "ica" in groups else None,
        similarities={one: scores[one] for one in measures},
        distortion=known.distortion,
        dependence=known.dependence,
        notes=tuple(
            _pair_notes(source, target, known, "similarity" if "similarity" in near else "rigid", plan, options)
        ),
    )
    if not brief:
        step(f"similarities of {name}")
    return found


def _evidence(
    source: RunStatistics,
    target: RunStatistics,
    sums: PairSums,
    near: Mapping[str, Nearness],
    plan: Protocol,
    options: CompareOptions,
    diameter: float,
    *,
    whole: bool = True,
) -> Evidence:
    """What the pair is judged by, in addition to its errors; far rows are searched for only with `whole`."""
    known = Evidence(plan=plan, d=max(source.rows.d, target.rows.d), tolerance=options.tolerance)
    claim = near.get("similarity") or near.get("rigid")
    if claim is None:
        return known
    known = replace(known, distortion=measure_distortion(sums, plan, options.margin))
    errors = claim.errors * diameter
    known = replace(known, moved=count_moved(errors, target.cached(squared_norms)))
    lengths = [run.cached(squared_norms) for run in (source, target)]
    far = far_rows(*lengths) if whole else np.zeros(0, dtype=int)
    if len(far) and len(np.unique(np.delete(plan.unit, far))) > 1:  # dependence is then measured without them
        rest, verdict = _without(far, source, target, claim.group, plan, options)
        share = max(float(one[far].sum() / one.sum()) for one in lengths)
        return replace(known, moved=verdict.moved, far=FarRows(len(far), share, rest, verdict))
    if not plan.clustered and source.rows.n >= ROWS_TO_CHECK and np.isfinite(claim.null) and claim.null > 0:
        null = claim.null * diameter
        found = measure_dependence(source.rows, target.rows, plan, errors, null, claim.group)
        known = replace(known, dependence=found)
    return known


def _pair_notes(
    source: RunStatistics,
    target: RunStatistics,
    known: Evidence,
    group: str,
    plan: Protocol,
    options: CompareOptions,
) -> Iterator[str]:
    """Notes on rows that depend on each other, where this does not change the verdict."""
    found = known.dependence
    if found is None or found.matters:
        return
    if found.ordered or found.clustered or found.repeated:
        yield f"{dependence_sentence(found)} The match is too close to be due to that, but intervals are too narrow."
    elif len(found.copies):
        near, _ = _without(found.copies, source, target, group, plan, options)
        rows = f"{count(len(found.copies), 'row')} of {source.name} and {target.name}"
        yield f"{rows} {'repeats' if len(found.copies) == 1 else 'repeat'} others; without, {result_in_words(near)}."


def _without(
    rows: Array, source: RunStatistics, target: RunStatistics, group: str, plan: Protocol, options: CompareOptions
) -> tuple[Nearness, PairVerdict]:
    """The nearness and the verdict without some rows."""
    keep, rest = np.setdiff1d(np.arange(source.rows.n), rows), plan.without(rows)
    x, y = (
        sum_run(run.name, Rows(run.rows.data[keep], run.rows.device, run.rows.scale_rows), rest)
        for run in (source, target)
    )
    sums = pair_sums(x.sums, y.sums)
    near, maps = measure(sums, {group: _fit(group)}, target.diameter.value, rest)
    known = _evidence(x, y, sums, near, rest, options, target.diameter.value, whole=False)
    return near[group], judge(near, replace(known, maps=maps))


def _fit(group: str) -> Fit:
    return lambda paired, fold: fit_group(paired, group)


def _fit_ica(source: RunStatistics, target: RunStatistics, paired: PairScatter, fold: int | None) -> Map:
    """The unsupervised route h = W_y^-1 P W_x: each run unmixed on its own, components matched by P."""
    x, y = source.unmixing(fold), target.unmixing(fold)
    cross = np.zeros((max(x.k, y.k),) * 2)
    cross[: x.k, : y.k] = multiply(x.unmixing, paired.cross, y.unmixing.T)
    matched = signed_permutation(cross)[: x.k, : y.k]
    matrix = np.zeros((paired.width, paired.width))
    matrix[: source.rows.d, : target.rows.d] = multiply(x.unmixing.T, matched, y.mixing.T)
    return centred_map(paired, "linear", matrix)


def _match_components(source: RunStatistics, target: RunStatistics, plan: Protocol) -> Nearness | None:
    """The nearness of matched components of unit variance, over the diameter of the target's components."""
    if source.unmixing(None).k == 0:  # a constant run has none
        return None
    x, y = source.components, target.components
    once = replace(plan, repairings=plan.repairings[: len(plan.folds)])  # a null in which every row is scored once
    return measure(pair_sums(x.sums, y.sums), {"ica": _fit("permutation")}, y.diameter.value, once)[0]["ica"]


def _held_out_weak_mcc(sums: PairSums) -> float:
    folds = range(len(sums.source.folds))
    if min(len(fold) for fold in sums.source.folds) < ROWS_FOR_CCA:
        return float("nan")
    fitted = [sums.outside(k) for k in folds]
    return float(np.mean([matched_correlation(sums.inside(k), fit_cca(fitted[k]), fitted[k]) for k in folds]))


def _plane(sums: PairSums, seed: int) -> Plane:
    """A sample of rows in the plane in which the target varies most."""
    x, y, paired = sums.source.rows, sums.target.rows, sums.outside(None)
    values, vectors = eigh(paired.target.scatter)
    axes = np.zeros((paired.width, 2))
    axes[: y.d, : min(2, y.d)] = vectors[:, ::-1][:, :2]
    index = np.sort(np.random.default_rng(seed).permutation(x.n)[:PLANE_ROWS])
    before = to_numpy(x.take(index, width=paired.width)) + np.pad(x.mean, (0, paired.width - x.d))
    origin = np.pad(y.mean, (0, paired.width - y.d))
    return Plane(
        target=to_numpy(y.take(index, width=paired.width)) @ axes,
        before=(before - origin) @ axes,
        after=(fit_group(paired, "similarity")(before) - origin) @ axes,
        share=float(values[::-1][:2].sum() / max(values.sum(), np.finfo(float).tiny)),
        rows=index,
    )


def _notes(runs: Sequence[RunStatistics], plan: Protocol) -> list[str]:
    notes = sampling_notes(max(run.rows.d for run in runs), plan, warn=True) + diameter_notes(runs)
    dead = [f"{run.dead} of {run.rows.d} in {run.name}" for run in runs if run.dead]
    if dead:
        notes.append(f"Some dimensions are constant (dead units): {', '.join(dead)}.")
    unmixed = {run.name: list(run.unmixings.values()) for run in runs if run.unmixings}
    for name, fits in unmixed.items():
        weak = int(fits[0].noise.sum())
        if 0 < weak < fits[0].k:
            notes.append(
                f"{weak} of {fits[0].k} independent components of {name} are indistinguishable from Gaussian noise; "
                "where these converge, and with them a part of the ICA row, depends on the start and on the rows."
            )
    noise = [name for name, fits in unmixed.items() if all(fit.k > 1 and fit.noise.all() for fit in fits)]
    stuck = [name for name, fits in unmixed.items() if name not in noise and not all(fit.converged for fit in fits)]
    cause = "The data may be Gaussian, or the rows too few for their width. The other groups are not affected."
    for names, problem in (
        (noise, "No independent component of {} differs from Gaussian noise, so the ICA row is arbitrary."),
        (stuck, "ICA did not converge on {} (on all rows, or without a fold), so its row depends on its start."),
    ):
        if names:
            notes.append(f"{problem.format(', '.join(names))} {cause}")
            warn_caller(notes[-1], NotConvergedWarning)
    return notes
