"""`evaluate`: are the axes the true factors? Several metrics at once, with intervals and chance levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.checks import check_choice, check_integers, check_seed
from congruence.errors import InputError
from congruence.ica.latents import WAYS, latent_components
from congruence.metrics._binned import sensitivity
from congruence.metrics._conditions import check_cluster, check_conditions, dependence_notes, measure_row_dependence
from congruence.metrics._dci import check_model
from congruence.metrics._encoding import (
    code_rows,
    correct_for_chance,
    count_pairings,
    factor_code_matrices,
    factor_rows,
    matched_order,
)
from congruence.metrics._infomec import NEIGHBOURS
from congruence.metrics._options import EvaluateOptions
from congruence.metrics._own_codes import measure_conditional
from congruence.metrics._registry import METRICS, select_metrics
from congruence.metrics._regression import HELD_OUT
from congruence.metrics._resampling import FEWEST_ROWS, MOST_ROWS, number_clusters
from congruence.metrics._results import Note, merge_notes
from congruence.metrics._scoring import NULL_FACTORS, Measurement, Pairing, score_by
from congruence.metrics.evaluation import Evaluation
from congruence.metrics.factors import Factors, read_pair
from congruence.options import reading, takes
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.tables import CodesAndFactors, pair

SAMPLE = 2000  # rows kept for plots
BINS = (10, 20, 50)  # of the table of sensitivity
NAMES = {"centred": " + ICA", "as is": " + ICA, not centred", "whitened": " + ICA, whitened"}


@takes(EvaluateOptions)
def evaluate(
    codes: Any,
    factors: Any = None,
    *,
    options: EvaluateOptions,
    pictures: Callable[..., Any] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score learned codes against the true factors by several metrics, with intervals and chance levels.

    Intervals (95 %) come from subsamples of the rows, half of them or 2500, drawn without replacement. Only the
    standard deviation of their scores is used, rescaled to all rows (by sqrt(m / (n - m)), 1 for halves), times the
    quantile of Student's t, around the value. A score whose bias at this number of rows may exceed its spread has no
    interval (`Score.no_interval` says why); `Score.corrected` is InfoM or InfoC without the information that unrelated
    codes appear to have. If rows depend on each other, or repeat, and no clusters or blocks are given, the status is
    "unknown". Chance is the mean score after codes and factors were paired at random; `regression` uses 3
    factors, drawn at random, of each pairing. Metrics that take minutes use at most 10,000 rows; the notes state if
    that was so, and `settings` how many rows and re-pairings were used.

    Parameters
    ----------
    codes : array of shape (n, L), data frame, table or path
        Learned codes.
    factors : array of shape (n, K) or (n,), data frame, table, path or mapping from name to column, optional
        True factors, numbers or words. Rows are paired by id if both have ids, otherwise by position. Left out,
        `factor_columns` names columns of the codes.
    pictures : callable, optional
        ``pictures(components=...)`` returns images, reconstructions and traversals of the codes (None) or of
        components of the codes (`experiments.models.reconstructions.traverse_latents` with its first arguments bound).
    progress : callable, optional
        Called as progress(what, done, total) while working.
    kinds : str, list or dict, default "auto"
        Kinds of the factors; see `congruence.metrics.read_factors`.
    cluster : array of shape (n,), or name of a column, optional
        Rows of one cluster (plate, patient, video) stay together in subsamples, held-out rows and re-pairings. It
        cannot be one of the factors.
    order_blocks : int, optional
        Rows are ordered (time series), and rows fewer than so many places apart depend on each other: blocks of so many
        stay together, and re-pairings shift the rows.
    metrics : str or sequence of str, default ("infomec", "mig", "modularity", "mcc", "regression")
        "all", "fast", or names of `congruence.metrics.METRICS`.
    ica : bool, default False
        Evaluate independent components of the codes (found without the factors); the codes as they are and two other
        ways of unmixing are in `compared`.
    slow_nulls : int, optional
        The same as `nulls` for metrics that take minutes and for the information of infomec (InfoM, InfoC); by default
        1, or 0 if `nulls` is 0. For few codes and factors infomec uses more, up to 40, to judge which codes are
        informative.

    Returns
    -------
    Evaluation
        A score that is undefined is NaN and has a reason.

    Examples
    --------
    >>> import numpy as np
    >>> factors = np.random.default_rng(0).uniform(size=(300, 2))
    >>> named = {"hue": factors[:, 0], "size": factors[:, 1]}
    >>> result = evaluate(-factors[:, ::-1], named, metrics=["mcc"], resamples=0)
    >>> result.verdict, result["hue"].code
    ('All 2 factors have a code of their own.', 'code1')
    """
    options = _check(options)
    rows = pair(
        codes,
        factors,
        columns=options.factor_columns,
        **reading(options),
        cluster=options.cluster,
        drop_missing=options.drop_missing,
    )
    z, s = read_pair(rows.codes, rows.factors, options.kinds)
    names = _name_codes(options.code_names or rows.code_names, z.shape[1])
    rows = replace(rows, name=options.name or rows.name, code_names=names)
    pairing = Pairing(z, _rename(s, options.factor_names), _units(rows, options), options.order_blocks)
    check_cluster(pairing, rows.cluster)
    if options.ica and options.discrete_codes:
        raise InputError(f"ica needs codes that are numbers, but the codes of {rows.name} are classes")
    ways = [latent_components(z, way=way, seed=options.seed) for way in (WAYS if options.ica else ())]
    result = _evaluate(rows, pairing, options, progress, pictures)
    if not ways:
        return result
    first, *others = (
        _evaluate(
            replace(rows, name=rows.name + NAMES[one.way], code_names=tuple(f"component{j}" for j in range(one.k))),
            replace(pairing, z=one.transform(z)),
            options,
            progress,
            None if pictures is None else partial(pictures, components=one),
        )
        for one in ways
    )
    unstable = tuple(
        Note(f"{rows.name}{NAMES[one.way]}: ICA did not converge, so the axes may be arbitrary")
        for one in ways
        if not one.converged
    )
    return replace(first, notes=(*unstable, *first.notes), compared=(result, *others))


def _check(options: EvaluateOptions) -> EvaluateOptions:
    """The options with the defaults that depend on others; refuse wrong ones before any work."""
    select_metrics(options.metrics)
    check_choice("infomec_version", options.infomec_version, tuple(NEIGHBOURS))
    check_model(options.dci_model, "dci_model")
    check_seed(options.seed)
    check_integers(0, **{name: getattr(options, name) for name in ("resamples", "nulls", "slow_resamples")})
    if options.slow_nulls is None:
        options = replace(options, slow_nulls=min(1, options.nulls))
    check_integers(0, slow_nulls=options.slow_nulls)
    if options.resamples == 1 or options.slow_resamples == 1:
        raise InputError("resamples and slow_resamples must be 0 or at least 2: one subsample makes no interval")
    return options


def _units(rows: CodesAndFactors, options: EvaluateOptions) -> Array | None:
    """The cluster or the block of each row, (n,); None if rows are independent."""
    n, block = len(rows.codes), options.order_blocks
    if block is None:
        return number_clusters(rows.cluster)
    check_integers(1, order_blocks=block)
    if rows.cluster is not None:
        raise InputError("cluster and order_blocks exclude each other: rows are held out by one of them")
    if n < 4 * block:
        raise InputError(f"order_blocks must be at most a quarter of the {n} rows, or too few are left; got {block}")
    return np.arange(n) // block


def _name_codes(given: Sequence[str] | None, width: int) -> tuple[str, ...]:
    """The names of the codes; those that have only numbers are called code0, code1, ..."""
    names = tuple(map(str, range(width) if given is None else given))
    if len(names) != width:
        raise InputError(f"code_names must have one name for each of {width} codes, but has {len(names)}")
    return tuple(f"code{name}" if name.isdecimal() else name for name in names)


def _rename(s: Factors, given: Sequence[str] | None) -> Factors:
    if given is None:
        return s
    if len(given) != len(s) or len(set(map(str, given))) < len(s):
        raise InputError(f"factor_names must be {len(s)} different names; got {list(given)!r}")
    return Factors(tuple(replace(factor, name=str(new)) for factor, new in zip(s, given, strict=True)))


def _evaluate(
    rows: CodesAndFactors,
    pairing: Pairing,
    options: EvaluateOptions,
    progress: Progress | None,
    pictures: Callable[..., Any] | None,
) -> Evaluation:
    s, z, names = pairing.s, pairing.z, rows.code_names or ()
    measured = _measure(pairing, options, progress)
    results = {name: one.result for name, one in measured.items()}
    infomec, null = results["infomec"], measured["infomec"].null_results
    conditional = measure_conditional(z, s, unit=pairing.unit, discrete_codes=options.discrete_codes, seed=options.seed)
    corrected = correct_for_chance(infomec, null)
    conditions = check_conditions(z, s, names, infomec, conditional, discrete_codes=options.discrete_codes)
    dependence = measure_row_dependence(pairing, discrete_codes=options.discrete_codes, seed=options.seed)
    doubts = [] if dependence is None else dependence_notes(dependence, s)
    near = results["structural_nearness"] if options.structural else None
    bins = BINS if options.sensitivity is True else options.sensitivity
    shown = np.sort(np.random.default_rng([options.seed, 6]).permutation(len(z))[:SAMPLE])
    return Evaluation(
        name=rows.name,
        n=len(z),
        codes=names,
        factors=s.names,
        scores=tuple(
            replace(score, corrected=corrected.get(score.score, math.nan), conditions=conditions.unmet(score.score))
            for name in select_metrics(options.metrics)
            for score in measured[name].scores
        ),
        matrices=factor_code_matrices(s, results),
        per_factor=factor_rows(s, names, infomec, null, results.get("regression"), conditional),
        per_code=code_rows(s, names, infomec, null),
        order=matched_order(infomec.nmi),
        structural=near if getattr(near, "groups", None) else None,
        sensitivity=tuple(sensitivity(z, s, bins=bins).rows) if bins is not False else (),
        sample=(z[shown], np.column_stack([factor.values[shown] for factor in s])),
        conditions=conditions.found(),
        dependence=dependence,
        levels={factor.name: factor.levels for factor in s if factor.levels},
        notes=(*map(Note, (*rows.notes, *doubts)), *_notes(pairing, measured, options)),
        settings=_settings(rows, pairing, options),
        pictures=None if pictures is None else pictures(),
    )


def _measure(pairing: Pairing, options: EvaluateOptions, progress: Progress | None) -> dict[str, Measurement]:
    """The measurement by each metric; infomec always, since it decides which code is informative about which factor."""
    efforts = {}  # resamples and nulls
    for name in select_metrics(options.metrics):
        slow = METRICS[name].cost != "fast"
        resamples, nulls = (options.slow_resamples, options.slow_nulls) if slow else (options.resamples, options.nulls)
        efforts[name] = (resamples, int(nulls or 0) if METRICS[name].supervised else 0)
    informed = _count_informed(pairing, options)
    efforts["infomec"] = (efforts.get("infomec", (0, 0))[0], max(options.nulls, informed))
    if options.structural:
        efforts.setdefault("structural_nearness", (0, 0))
    blocks = _given_blocks(options)
    keywords = {"version": options.infomec_version, "discrete_codes": options.discrete_codes}
    keywords |= {"model": options.dci_model} | blocks
    steps = Steps(progress, {name.replace("_", " "): 1 + sum(effort) for name, effort in efforts.items()})
    return {
        name: score_by(
            METRICS[name],
            pairing,
            keywords,
            resamples=resamples,
            nulls=nulls,
            informed=informed if name == "infomec" else None,
            seed=options.seed,
            strict=name in ("sis", "block_score") and bool(blocks),
            tick=partial(steps, name.replace("_", " ")),
        )
        for name, (resamples, nulls) in efforts.items()
    }


def _count_informed(pairing: Pairing, options: EvaluateOptions) -> int:
    """The re-pairings that the information of infomec is measured in, which is what takes its time."""
    if not options.nulls:
        return 0
    return count_pairings(max(1, int(options.slow_nulls or 0)), len(pairing.s), pairing.z.shape[1])


def _given_blocks(options: EvaluateOptions) -> dict[str, Any]:
    given = {"blocks": options.blocks, "factor_blocks": options.factor_blocks}
    return {name: value for name, value in given.items() if value is not None}


def _settings(rows: CodesAndFactors, pairing: Pairing, options: EvaluateOptions) -> dict[str, Any]:
    names = ("infomec_version", "discrete_codes", "dci_model", "ica", "resamples", "nulls", "slow_resamples")
    return {
        "metrics": list(select_metrics(options.metrics)),
        "kinds": dict(zip(pairing.s.names, pairing.s.kinds, strict=True)),
        "paired": "by id" if rows.by_id else "by position",
        "clusters": None if pairing.unit is None else int(pairing.unit.max()) + 1,
        "order_blocks": options.order_blocks,
        "subsample_rows": min(len(pairing.z) // 2, MOST_ROWS),
        "information_nulls": _count_informed(pairing, options),
        "regression_null_factors": NULL_FACTORS,
        "regression_held_out": HELD_OUT,
        **{name: str(value) for name, value in _given_blocks(options).items()},
        **{name: getattr(options, name) for name in (*names, "slow_nulls", "structural", "seed")},
        **recorded(rows.files),
    }


def _notes(pairing: Pairing, measured: Mapping[str, Measurement], options: EvaluateOptions) -> tuple[Note, ...]:
    n, notes = len(pairing.z), list[Note]()
    resampled = options.resamples or options.slow_resamples
    if resampled and n < FEWEST_ROWS:
        notes.append(Note(f"There are no intervals: {n} rows are fewer than {FEWEST_ROWS}"))
    elif resampled and n // 2 > MOST_ROWS:
        notes.append(Note(f"Intervals come from subsamples of {MOST_ROWS} of {n} rows"))
    slow = [name for name in select_metrics(options.metrics) if METRICS[name].cost != "fast"]
    if slow and options.resamples and not options.slow_resamples:
        notes.append(Note("No interval, because it takes minutes; ask for one with slow_resamples", metrics=slow))
    reasons: dict[str, list[str]] = {}
    for name in select_metrics(options.metrics) if resampled and n >= FEWEST_ROWS else ():
        for score in measured[name].scores:
            if score.no_interval and METRICS[name].cost == "fast":
                reasons.setdefault(score.no_interval, []).append(score.score)
    notes += [Note(f"No interval. {reason.removesuffix('.')}", metrics=names) for reason, names in reasons.items()]
    if not options.nulls:
        notes.append(Note("Without re-pairings (nulls) there is no chance level: any information counts"))
    near = measured.get("structural_nearness")
    if near is not None and all(math.isnan(score.value) for score in near.scores):
        notes.append(Note(f"Structural nearness is undefined. {near.scores[0].reason}"))
    return (*notes, *merge_notes(pairing.s.notes, {name: one.notes for name, one in measured.items()}))
