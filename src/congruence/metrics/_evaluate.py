"""`evaluate`: are the axes the true factors? Several metrics at once, with intervals and chance levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.errors import InputError
from congruence.ica.latents import WAYS, LatentComponents, latent_components
from congruence.metrics._infomec import VERSIONS, InfoMEC
from congruence.metrics._informative import (
    code_rows,
    explained_together,
    factor_rows,
    matched_order,
    pairings_needed,
    thresholds,
)
from congruence.metrics._options import EvaluateOptions
from congruence.metrics._sensitivity import sensitivity as binned_sensitivity
from congruence.metrics.columns import columns_of
from congruence.metrics.draws import FEWEST_ROWS, MOST_ROWS, units_of
from congruence.metrics.evaluation import Evaluation
from congruence.metrics.factors import Factors, paired
from congruence.metrics.notes import Note, merge_notes
from congruence.metrics.registry import METRICS, chosen
from congruence.metrics.scoring import Effort, Measured, Pairing, score_by
from congruence.metrics.structural import StructuralNearness
from congruence.metrics.trees import check_model
from congruence.metrics.varying import varying
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
    """Tell whether learned codes are the true factors: score them by several metrics, with intervals and chance levels.

    Intervals (90 %) come from subsamples of the rows, half of them or 2500, drawn without replacement: repeated rows
    would break estimates from nearest neighbours. Scores of fewer rows are biased, so only their deviations from their
    own mean are used, rescaled to all rows (by sqrt(m / (n - m)), 1 for halves) and centred on the value. Chance is the
    mean score after codes and factors were paired at random. Metrics that take minutes use at most 10,000 rows; the
    notes say where that was so.

    Parameters
    ----------
    codes : array of shape (n, L), data frame, table or path
        Learned codes.
    factors : array of shape (n, K) or (n,), data frame, table, path or mapping from name to column, optional
        True factors, numbers or words. Rows are paired by id where both have ids, otherwise by position. Left out,
        `factor_columns` names columns of the codes.
    pictures : callable, optional
        ``pictures(components=...)`` returns images, reconstructions and traversals of the codes (None) or of
        components of the codes (`experiments.models.reconstructions.traverse_latents` with its first arguments bound).
    progress : callable, optional
        Called as progress(what, done, total) while working.
    factor_columns : str or sequence of str, optional
        Columns that are factors, as names or patterns ("hue,shape*"); by default all columns of `factors`.
    kinds : see `congruence.metrics.factors.read_factors`
    id, features, metadata, key : str, optional
        Which columns hold the row ids, the codes and the metadata; which array of a file.
    cluster : array of shape (n,), or name of a column, optional
        Rows of one cluster (plate, patient, video) stay together in subsamples, held-out rows and re-pairings.
    drop_missing : bool
        Leave out rows with missing values or infinity instead of refusing them.
    metrics : "all", "fast", or a list of names of `congruence.metrics.registry.METRICS`
    infomec_version, discrete_codes : see `version` and `discrete_codes` of `infomec`
    dci_model : see `model` of `dci`
    ica : bool
        Evaluate independent components of the codes (found without the factors); the codes as they are and two other
        ways of unmixing are in `compared`.
    resamples, nulls : int
        How many subsamples make the interval, and how many re-pairings the chance level; 0 for none. Where codes and
        factors are few, infomec takes more re-pairings, up to 40, to judge which codes are informative.
    slow_resamples, slow_nulls : int
        The same for metrics that take minutes (dci, regression, sis). By default 0, and 1 unless `nulls` is 0.
    sensitivity : bool or numbers of bins
        Whether to show how scores of binned codes depend on the number of bins; True means 10, 20 and 50.
    structural : bool
        Whether to measure how near the codes are to the factors up to a permutation, a rotation or a linear map.
    blocks, factor_blocks : see `congruence.metrics.blocks.blocks_of`
        For sis and block_score.
    name, code_names, factor_names
        What the codes and factors are called; names of files, frames and mappings are known.
    seed : int
        The same seed gives the same result.

    Returns
    -------
    Evaluation
        A score that is undefined is NaN and has a reason.
    """
    chosen(options.metrics)
    if options.slow_nulls is None:
        options = replace(options, slow_nulls=min(1, options.nulls))
    _check(options)
    rows = pair(
        codes,
        factors,
        columns=options.factor_columns,
        **reading(options),
        cluster=options.cluster,
        drop_missing=options.drop_missing,
    )
    z, s = paired(rows.codes, rows.factors, options.kinds)
    names = _code_names(options.code_names or rows.code_names, z.shape[1])
    rows = replace(rows, name=options.name or rows.name, code_names=names)
    pairing = Pairing(z, _renamed(s, options.factor_names), units_of(rows.cluster, len(z)))
    if options.ica and options.discrete_codes:
        raise InputError(f"ica needs codes that are numbers, but the codes of {rows.name} are classes")
    ways = {way: latent_components(z, way=way, seed=options.seed) for way in (WAYS if options.ica else ())}
    result = _evaluate(rows, pairing, options, progress, pictures)
    if not ways:
        return result
    first, *others = (_evaluate_components(one, rows, pairing, options, progress, pictures) for one in ways.values())
    unstable = tuple(
        Note(f"{rows.name}{NAMES[way]}: ICA did not converge, so the axes may be arbitrary")
        for way, one in ways.items()
        if not one.converged
    )
    return replace(first, notes=(*unstable, *first.notes), compared=(result, *others))


def _evaluate_components(
    found: LatentComponents,
    rows: CodesAndFactors,
    pairing: Pairing,
    options: EvaluateOptions,
    progress: Progress | None,
    pictures: Callable[..., Any] | None,
) -> Evaluation:
    names = tuple(f"component{j}" for j in range(found.k))
    return _evaluate(
        replace(rows, name=rows.name + NAMES[found.way], code_names=names),
        replace(pairing, z=found.transform(pairing.z)),
        options,
        progress,
        None if pictures is None else partial(pictures, components=found),
    )


def _evaluate(
    rows: CodesAndFactors,
    pairing: Pairing,
    options: EvaluateOptions,
    progress: Progress | None,
    pictures: Callable[..., Any] | None,
) -> Evaluation:
    wanted, s, names = chosen(options.metrics), pairing.s, rows.code_names or ()
    measured = _measure(pairing, options, progress)
    found: InfoMEC = measured["infomec"].result
    false = measured["infomec"].chance
    limits = thresholds(false, len(s))
    read = measured["regression"].result if "regression" in measured else None
    near: StructuralNearness | None = measured["structural_nearness"].result if options.structural else None
    shown = np.sort(np.random.default_rng([options.seed, 6]).permutation(len(pairing.z))[:SAMPLE])
    return Evaluation(
        name=rows.name,
        n=len(pairing.z),
        codes=names,
        factors=s.names,
        scores=tuple(score for one in wanted for score in measured[one].scores),
        matrices=_matrices(s, len(names), measured),
        per_factor=factor_rows(s, names, found, limits, explained_together(found, false), read),
        per_code=code_rows(s, names, found, limits),
        order=matched_order(found.nmi),
        structural=near if near is not None and near.groups else None,
        sensitivity=tuple(_sensitivity(pairing, options.sensitivity)),
        sample=(pairing.z[shown], np.column_stack([factor.values[shown] for factor in s])),
        levels={factor.name: factor.levels for factor in s if factor.levels},
        notes=(*map(Note, rows.notes), *_notes(pairing, measured, options)),
        settings=_settings(rows, pairing, options),
        pictures=None if pictures is None else pictures(),
    )


def _measure(pairing: Pairing, options: EvaluateOptions, progress: Progress | None) -> dict[str, Measured]:
    """What each metric found; infomec always, since it says which code is informative about which factor."""
    wanted = chosen(options.metrics)
    efforts = {one: _effort(one, options) for one in wanted}
    parts = efforts["infomec"].parts if "infomec" in wanted else 0
    efforts["infomec"] = Effort(parts, pairings_needed(options.nulls, len(pairing.s), pairing.z.shape[1]))
    if options.structural:
        efforts.setdefault("structural_nearness", Effort(0, 0))
    blocks = _blocks(options)
    keywords = {"version": options.infomec_version, "discrete_codes": options.discrete_codes}
    keywords |= {"model": options.dci_model} | blocks
    steps = Steps(progress, sum(1 + effort.parts + effort.repairings for effort in efforts.values()))
    measured = {}
    for one, effort in efforts.items():
        strict = one in ("sis", "block_score") and bool(blocks)
        tick = partial(steps, one.replace("_", " "))
        measured[one] = score_by(METRICS[one], pairing, keywords, effort, seed=options.seed, strict=strict, tick=tick)
    return measured


def _blocks(options: EvaluateOptions) -> dict[str, Any]:
    given = {"blocks": options.blocks, "factor_blocks": options.factor_blocks}
    return {name: value for name, value in given.items() if value is not None}


def _settings(rows: CodesAndFactors, pairing: Pairing, options: EvaluateOptions) -> dict[str, Any]:
    names = ("infomec_version", "discrete_codes", "dci_model", "ica", "resamples", "nulls", "slow_resamples")
    return {
        "metrics": list(chosen(options.metrics)),
        "kinds": dict(zip(pairing.s.names, pairing.s.kinds, strict=True)),
        "paired": "by id" if rows.by_id else "by position",
        "clusters": None if pairing.unit is None else int(pairing.unit.max()) + 1,
        **{name: str(value) for name, value in _blocks(options).items()},
        **{name: getattr(options, name) for name in (*names, "slow_nulls", "structural", "seed")},
        **recorded(rows.files),
    }


def _check(options: EvaluateOptions) -> None:
    if options.infomec_version not in VERSIONS:
        raise InputError(f"infomec_version must be one of {', '.join(VERSIONS)}, not {options.infomec_version!r}")
    check_model(options.dci_model)
    for name in ("resamples", "nulls", "slow_resamples", "slow_nulls", "seed"):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise InputError(f"{name} must be a whole number of at least 0, not {value!r}")
    if options.seed >= 2**32:
        raise InputError(f"seed must be below 2**32, not {options.seed}")
    if options.resamples == 1 or options.slow_resamples == 1:
        raise InputError("resamples must be 0 or at least 2: one subsample makes no interval")


def _effort(name: str, options: EvaluateOptions) -> Effort:
    slow = METRICS[name].cost != "fast"
    resamples, nulls = (options.slow_resamples, options.slow_nulls) if slow else (options.resamples, options.nulls)
    return Effort(resamples, int(nulls or 0) if METRICS[name].supervised else 0)


def _code_names(given: Sequence[str] | None, width: int) -> tuple[str, ...]:
    """The names of the codes; those that have only numbers are called code0, code1, ..."""
    names = tuple(map(str, range(width) if given is None else given))
    if len(names) != width:
        raise InputError(f"code_names must have one name for each of {width} codes, but has {len(names)}")
    return tuple(f"code{name}" if name.isdecimal() else name for name in names)


def _renamed(s: Factors, given: Sequence[str] | None) -> Factors:
    if given is None:
        return s
    if len(given) != len(s) or len(set(map(str, given))) < len(s):
        raise InputError(f"factor_names must be {len(s)} different names, not {list(given)!r}")
    return Factors(tuple(replace(factor, name=str(new)) for factor, new in zip(s, given, strict=True)))


def _sensitivity(pairing: Pairing, asked: bool | Sequence[int]) -> list[dict[str, float]]:
    if asked is False:
        return []
    bins = BINS if asked is True else tuple(asked)
    return binned_sensitivity(pairing.z, pairing.s, bins=bins).rows


def _matrices(s: Factors, codes: int, measured: Mapping[str, Measured]) -> dict[str, Float]:
    """The matrices (K, L) of metrics by name; NaN for factors that a metric leaves out."""
    matrices = {"nmi": np.asarray(measured["infomec"].result.nmi)}
    dci = measured["dci"].result if "dci" in measured else None
    if dci is not None:
        places = [s.names.index(name) for name in dci.factors]
        matrices["importance"] = _filled(len(s), codes, places, dci.importance)
    mcc = measured["mcc"].result if "mcc" in measured else None
    if mcc is not None:
        live = varying(s)[0]
        owner = columns_of(live, unordered=False).owner if len(live) else np.zeros(0, dtype=int)
        # Of the cosine and sine of a circular factor, each code shows the one it goes with.
        strongest = [_strongest(mcc.pearson[owner == k]) for k in np.unique(owner)]
        places = [s.names.index(live[int(k)].name) for k in np.unique(owner)]
        matrices["correlation"] = _filled(len(s), codes, places, strongest)
    return matrices


def _strongest(rows: Float) -> Float:
    best: Float = np.take_along_axis(rows, np.abs(rows).argmax(0)[None], axis=0)[0]
    return best


def _filled(factors: int, codes: int, places: list[int], rows: Any) -> Float:
    matrix = np.full((factors, codes), np.nan)
    if places:
        matrix[places] = rows
    return matrix


def _notes(pairing: Pairing, measured: Mapping[str, Measured], options: EvaluateOptions) -> tuple[Note, ...]:
    n, notes = len(pairing.z), list[Note]()
    asked = options.resamples or options.slow_resamples
    if asked and n < FEWEST_ROWS:
        notes.append(Note(f"There are no intervals: {n} rows are fewer than {FEWEST_ROWS}"))
    elif asked and n // 2 > MOST_ROWS:
        notes.append(Note(f"Intervals come from subsamples of {MOST_ROWS} of {n} rows"))
    slow = [one for one in chosen(options.metrics) if METRICS[one].cost != "fast"]
    if slow and options.resamples and not options.slow_resamples:
        notes.append(Note("No interval, because it takes minutes; ask for one with slow_resamples", metrics=slow))
    if not options.nulls:
        notes.append(Note("Without re-pairings (nulls) there is no chance level: any information counts"))
    near = measured.get("structural_nearness")
    if near is not None and all(math.isnan(score.value) for score in near.scores):
        notes.append(Note(f"Structural nearness is undefined. {near.scores[0].reason}"))
    return (*notes, *merge_notes(pairing.s.notes, {name: one.notes for name, one in measured.items()}))
