"""`compare`: did retraining only rotate the embeddings? One answer for two or more runs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from congruence.align._consensus import consensus_of
from congruence.align._options import ROUTES, CompareOptions
from congruence.align.comparison import MCC, Comparison, Pair, Plane, Run
from congruence.align.prepared import PreparedRun, prepare
from congruence.align.similarities.registry import MEASURES, chosen
from congruence.align.similarities.sides import Both
from congruence.align.verdict import advice_on_clusters, advice_on_diameter, advice_on_rows, judge, summarise
from congruence.arrays import resolve_device, to_numpy
from congruence.errors import FewRowsWarning, InputError, NotConvergedWarning
from congruence.maps.algebra import eigh
from congruence.maps.groups import Map, centred_map, fit_group
from congruence.maps.matching import fit_cca, matched_correlation
from congruence.maps.nearness import Fit, Nearness, Protocol, check_method, measure, protocol
from congruence.options import reading, takes
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.rows.sums import Paired, PairSums, pair_sums
from congruence.stats.matching import signed_permutation
from congruence.tables import gather

ROWS_FOR_CCA = 10  # a held-out correlation over fewer rows says nothing
PLANE_ROWS = 300


@takes(CompareOptions)
def compare(*runs: Any, options: CompareOptions, progress: Progress | None = None) -> Comparison:
    """Tell whether runs differ only by a permutation, a rotation and scale, or a linear map, and by how much.

    Parameters
    ----------
    *runs : array, table, frame or path; or one mapping, list or stacked array
        Two or more runs that embed the same rows: ``compare(a, b)``. Or one argument that holds them all: a mapping
        of name to run, a list, or an array of shape (runs, n, d). Frames, files and tables are paired by row id where
        they have one, arrays row by row. Widths may differ. The blocks of a dask array are summed where they are; they
        are also copied here once, since the null pairs any row with any other.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    id, features, metadata, key : str, optional
        Which columns hold the row ids, the embedding and the metadata; which array of a file or AnnData.
    cluster : array of shape (n,), or name of a metadata column, optional
        Rows of one cluster (patient, plate, document) stay together in folds and bootstrap.
    drop_missing : bool
        Leave out rows with NaN or infinity instead of refusing them.
    groups : sequence of str
        Which maps to fit: any of identity, permutation, rigid, similarity, linear, and ica.
    directions : {"forward", "both"}
        Map earlier runs onto later ones, or also back.
    normalize : {None, "cosine"}
        "cosine" puts every row on the unit sphere first.
    folds, nulls, bootstrap : int
        How many folds are held out in turn, how many re-pairings make the null, how many bootstrap draws make the
        interval (0 for none of the last two: their numbers are then NaN).
    seed : int
        The same seed gives the same result.
    device : str
        "auto" computes where the data is; "cpu", "cuda" or "cuda:1" choose.
    similarities : sequence of str, or "all"
        Further measures for every pair, by the names in `congruence.align.similarities.MEASURES`, in sample.
    consensus : bool
        Also find the consensus of all runs (`consensus` with its defaults, over the same folds).
    steps : sequence of float, optional
        For checkpoints of one training: the step of each run, increasing. Then each run is mapped onto the next and
        onto the last, instead of all pairs.

    Returns
    -------
    Comparison
        All errors are shares of the target's diameter: 0 is a perfect match, lower is nearer.

    References
    ----------
    Nelson et al. 2026, Definition 1, Theorem 1 and Table 1.
    """
    measures = chosen(options.similarities)
    groups, nulls = options.groups, options.nulls
    _check_options(groups, options.directions)
    check_method(options.normalize, folds=options.folds, nulls=nulls, bootstrap=options.bootstrap, seed=options.seed)
    inputs = gather(
        runs[0] if len(runs) == 1 else list(runs),
        **reading(options),
        cluster=options.cluster,
        drop_missing=options.drop_missing,
    )
    engine = resolve_device(options.device, *inputs.values)
    plan = protocol(
        len(inputs.values[0]),
        folds=options.folds,
        nulls=nulls,
        bootstrap=options.bootstrap,
        cluster=inputs.cluster,
        seed=options.seed,
    )
    among = _among(inputs.names, options)
    preparations = len(inputs.names) * (1 + ("ica" in groups) * (1 + len(plan.folds)))
    tell = Steps(progress, preparations + len(among) * (1 + nulls))
    prepared = []
    for name, rows in zip(inputs.names, inputs.rows(engine, options.normalize), strict=True):
        prepared.append(prepare(name, rows, plan))
        tell(f"preparing {name}")
        for fold in (None, *range(len(plan.folds))) if "ica" in groups else ():
            prepared[-1].unmixing(fold)
            tell(f"unmixing {name}")
    pairs = [_compare_pair(prepared[i], prepared[j], groups, measures, plan, tell) for i, j in among]
    sums = [run.sums for run in prepared]

    return Comparison(
        runs=[Run(run.name, n, run.rows.d) for run, n in zip(prepared, inputs.read, strict=True)],
        pairs=pairs,
        headlines=summarise(pairs),
        notes=(*inputs.notes, *_advice(prepared, groups, plan)),
        settings={
            "groups": list(groups),
            "directions": options.directions,
            "normalize": options.normalize,
            "clusters": None if inputs.cluster is None else int(plan.unit.max()) + 1,
            "paired": "by id" if inputs.by_id else "by position",
            "folds": len(plan.folds),
            "nulls": nulls,
            "bootstrap": options.bootstrap,
            "seed": options.seed,
            "device": engine,
        }
        | ({"similarities": list(measures)} if measures else {})
        | recorded(inputs.files),
        ids=inputs.ids,
        metadata=inputs.metadata,
        steps=None if options.steps is None else [float(step) for step in options.steps],
        consensus=consensus_of(inputs.names, sums, plan, "similarity", 1) if options.consensus else None,
    )


def _among(names: Sequence[str], options: CompareOptions) -> list[tuple[int, int]]:
    """Which runs are compared: all pairs, or each checkpoint with the next and the last."""
    if options.steps is not None:
        return _series(options.steps, names, options.directions)
    return _pairs(len(names), options.directions)


def _check_options(groups: Sequence[str], directions: str) -> None:
    if isinstance(groups, str) or not groups:
        raise InputError(f"groups must be a list of some of {', '.join(ROUTES)}, not {groups!r}")
    for group in groups:
        if group not in ROUTES:
            raise InputError(f"groups must be among {', '.join(ROUTES)}; {group!r} is not")
    if len(set(groups)) < len(groups):
        raise InputError(f"groups names one twice: {', '.join(groups)}")
    if directions not in ("forward", "both"):
        raise InputError(f"directions must be 'forward' or 'both', not {directions!r}")


def _pairs(runs: int, directions: str) -> list[tuple[int, int]]:
    forward = [(i, j) for i in range(runs) for j in range(i + 1, runs)]
    return forward if directions == "forward" else forward + [(j, i) for i, j in forward]


def _series(steps: Sequence[float], names: Sequence[str], directions: str) -> list[tuple[int, int]]:
    """Each checkpoint onto the next, and each onto the last."""
    if len(steps) != len(names):
        raise InputError(f"steps must have one entry for each of the {len(names)} runs, not {len(steps)}")
    if not all(np.isfinite(steps)) or any(later <= earlier for earlier, later in pairwise(steps)):
        raise InputError(f"steps must rise from run to run, but are {', '.join(f'{s:g}' for s in steps)}")
    if directions != "forward":
        raise InputError("a series of checkpoints is compared forward only; leave directions out")
    last = len(names) - 1
    return sorted({(k, k + 1) for k in range(last)} | {(k, last) for k in range(last)})


def _compare_pair(
    source: PreparedRun,
    target: PreparedRun,
    groups: Sequence[str],
    measures: Sequence[str],
    plan: Protocol,
    tell: Steps,
) -> Pair:
    sums = pair_sums(source.sums, target.sums)
    both = Both(source.side, target.side, sums.outside(None))
    fits: dict[str, Fit] = {g: partial(_fit_ica, source, target) if g == "ica" else _fit(g) for g in groups}
    diameter = target.diameter
    tick = partial(tell, f"{source.name} -> {target.name}")
    near, maps = measure(sums, fits, diameter.value, plan, tick)
    return Pair(
        source=source.name,
        target=target.name,
        n=source.rows.n,
        diameter=diameter.value,
        diameter_exact=diameter.exact,
        groups=near,
        mcc=MCC(matched_correlation(both.sums), _held_out_weak_mcc(sums)),
        cka=MEASURES["cka"].of(both),
        neighbour_overlap=MEASURES["neighbour_overlap"].of(both),
        verdict=judge(
            near,
            source.rows.n,
            max(source.rows.d, target.rows.d),
            plan.unit,
            name=f"{source.name} -> {target.name}",
        ),
        maps=maps,
        plane=_plane(sums, plan.seed),
        components=_components(source, target, plan) if "ica" in groups else None,
        similarities={name: MEASURES[name].of(both) for name in measures},
    )


def _fit(group: str) -> Fit:
    return lambda paired, fold: fit_group(paired, group)


def _fit_ica(source: PreparedRun, target: PreparedRun, paired: Paired, fold: int | None) -> Map:
    """The unsupervised route h = W_y^-1 P W_x: each run unmixed on its own, components matched by P."""
    x, y = source.unmixing(fold), target.unmixing(fold)
    cross = np.zeros((max(x.k, y.k),) * 2)
    cross[: x.k, : y.k] = x.unmixing @ paired.cross @ y.unmixing.T
    matched = signed_permutation(cross)[: x.k, : y.k]
    matrix = np.zeros((paired.width, paired.width))
    matrix[: source.rows.d, : target.rows.d] = x.unmixing.T @ matched @ y.mixing.T
    return centred_map(paired, "linear", matrix)


def _components(source: PreparedRun, target: PreparedRun, plan: Protocol) -> Nearness | None:
    """The matched components themselves, unit variance each, over the diameter of the target's components."""
    if source.unmixing(None).k == 0:  # a constant run has none
        return None
    x, y = source.components, target.components
    return measure(pair_sums(x.sums, y.sums), {"ica": _fit("permutation")}, y.diameter.value, plan)[0]["ica"]


def _held_out_weak_mcc(sums: PairSums) -> float:
    folds = range(len(sums.source.folds))
    if min(len(fold) for fold in sums.source.folds) < ROWS_FOR_CCA:
        return float("nan")
    fitted = [sums.outside(k) for k in folds]
    return float(np.mean([matched_correlation(sums.inside(k), fit_cca(fitted[k]), fitted[k]) for k in folds]))


def _plane(sums: PairSums, seed: int) -> Plane:
    """A sample of rows in the two directions in which the target varies most."""
    x, y = sums.source.rows, sums.target.rows
    everything = sums.outside(None)
    values, vectors = eigh(everything.target.scatter)
    axes = np.zeros((everything.width, 2))
    axes[: y.d, : min(2, y.d)] = vectors[:, ::-1][:, :2]
    index = np.sort(np.random.default_rng(seed).permutation(x.n)[:PLANE_ROWS])
    before = to_numpy(x.take(index, width=everything.width)) + np.pad(x.mean, (0, everything.width - x.d))
    origin = np.pad(y.mean, (0, everything.width - y.d))
    after = fit_group(everything, "similarity")(before)
    return Plane(
        target=to_numpy(y.take(index, width=everything.width)) @ axes,
        before=(before - origin) @ axes,
        after=(after - origin) @ axes,
        share=float(values[::-1][:2].sum() / max(values.sum(), np.finfo(float).tiny)),
    )


def _advice(prepared: Sequence[PreparedRun], groups: Sequence[str], plan: Protocol) -> list[str]:
    notes = []
    rows = advice_on_rows(prepared[0].rows.n, max(run.rows.d for run in prepared))
    if rows is not None:
        notes.append(rows)
        warnings.warn(rows, FewRowsWarning, stacklevel=3)
    clusters = advice_on_clusters(plan.unit) if plan.clustered else None
    if clusters is not None:
        notes.append(clusters)
        warnings.warn(clusters, FewRowsWarning, stacklevel=3)
    measured = [run for run in prepared if "diameter" in run.__dict__]
    notes += [note for run in measured if (note := advice_on_diameter(run.name, run.diameter))]
    dead = [f"{run.dead} of {run.rows.d} in {run.name}" for run in prepared if run.dead]
    if dead:
        notes.append(f"Some dimensions never change (dead units): {', '.join(dead)}.")
    asked = prepared if "ica" in groups else []
    noise = [run.name for run in asked if run.is_noise]
    stuck = [run.name for run in asked if not run.unmixed_well and not run.is_noise]
    texts = []
    if noise:
        texts.append(
            f"No independent component of {', '.join(noise)} can be told from Gaussian noise, so the ICA row is "
            "arbitrary: the data may be Gaussian, or too few for their width. The other rows are not affected."
        )
    if stuck:
        texts.append(
            f"ICA did not converge on {', '.join(stuck)} (on all rows, or without some fold), so its row depends on "
            "where it started: the data may be near Gaussian, or too few for their width. "
            "The other rows are not affected."
        )
    for text in texts:
        notes.append(text)
        warnings.warn(text, NotConvergedWarning, stacklevel=3)
    return notes
