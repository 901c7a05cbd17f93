"""Evaluate codes against factors by several metrics at once, with intervals and levels of chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.errors import InputError
from congruence.metrics.columns import columns_of
from congruence.metrics.draws import FEWEST_ROWS, MOST_ROWS, units_of
from congruence.metrics.evaluation import Evaluation
from congruence.metrics.factors import Factors, read_pair
from congruence.metrics.infomec import VERSIONS, InfoMEC
from congruence.metrics.noted import gathered
from congruence.metrics.registry import METRICS, chosen
from congruence.metrics.scoring import Effort, Measured, Pairing, score_by
from congruence.metrics.sensitivity import sensitivity as binned_sensitivity
from congruence.metrics.structural import StructuralNearness
from congruence.metrics.telling import (
    code_rows,
    explained_together,
    factor_rows,
    matched_order,
    pairings_needed,
    thresholds,
)
from congruence.metrics.trees import check_model
from congruence.metrics.varying import varying
from congruence.progress import Progress, Steps

DEFAULT = ("infomec", "mig", "modularity", "mcc", "regression")
SAMPLE = 2000  # rows kept for plots
BINS = (10, 20, 50)  # of the table of sensitivity


def evaluate_codes(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    metrics: str | Iterable[str] = DEFAULT,
    version: str = "standalone",
    discrete_codes: bool = False,
    model: str = "boosting",
    cluster: Any = None,
    resamples: int = 20,
    nulls: int = 5,
    slow_resamples: int = 0,
    slow_nulls: int = 1,
    sensitivity: bool | Sequence[int] = False,
    structural: bool = True,
    blocks: Any = None,
    factor_blocks: Any = None,
    name: str = "codes",
    code_names: Sequence[str] | None = None,
    factor_names: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Are these codes the true factors? Score them by several metrics, with intervals, beside chance.

    Intervals (90 %) come from parts of the rows, half of them or 2500, drawn without replacement: rows drawn with
    replacement repeat, and repeated rows break estimates from near neighbours. Scores of parts are biased by having
    fewer rows, so only their deviations from their own mean are used, brought to the size that they have for all
    rows (sqrt(m / (n - m)), 1 for halves) and put around the value. Chance is the mean score after codes and factors
    were paired at random. Metrics that take minutes see at most 10,000 rows; the notes say where that was so.

    Parameters
    ----------
    codes : (n, L) array, data frame, table or path
        Learned codes.
    factors : (n, K) or (n,) array, data frame, table, path, or mapping from name to column
        True factors, numbers or words. Those with ids are joined with codes that have ids.
    kinds : see `read_factors`
    metrics : "all", "fast", or a list of names of `congruence.metrics.registry.METRICS`
    version, discrete_codes : see `infomec`
    model : see `dci`
    cluster : (n,), optional
        Which rows belong together (plate, patient, video): they are drawn, held out and paired anew together.
    resamples, nulls : int
        Parts of the rows for the interval, and false pairings for chance; 0 for none. Where codes and factors are few,
        infomec takes more pairings, up to 40, to judge which code tells more than chance.
    slow_resamples, slow_nulls : int
        The same for metrics that take minutes (dci, regression, sis).
    sensitivity : bool or numbers of bins
        Whether to show how scores of binned codes depend on the number of bins; True means 10, 20 and 50.
    structural : bool
        Whether to measure how near the codes are to the factors up to a permutation, a rotation or a linear map.
    blocks, factor_blocks : see `congruence.metrics.blocks.blocks_of`
        For sis and block_score.
    name, code_names, factor_names
        What codes and factors are called; of data frames and mappings, names are known.
    seed : int
        Same seed, same result.
    progress : function (what, done, total), optional

    Returns
    -------
    Evaluation
        A score that cannot be had is NaN and has a reason.
    """
    wanted = chosen(metrics)
    _check(version, model, seed, resamples=resamples, nulls=nulls, slow_resamples=slow_resamples, slow_nulls=slow_nulls)
    read = read_pair(codes, factors, kinds, cluster=cluster)
    z, s = read.codes, _renamed(read.factors, factor_names)
    named = _code_names(code_names or read.code_names, z.shape[1])
    pairing = Pairing(z, s, units_of(read.cluster, len(z)))
    efforts = {one: _effort(one, resamples, nulls, slow_resamples, slow_nulls) for one in wanted}
    # What tells of what is always needed, and judged by false pairings.
    parts = efforts["infomec"].parts if "infomec" in wanted else 0
    efforts["infomec"] = Effort(parts, pairings_needed(nulls, len(s), z.shape[1]))
    if structural:
        efforts.setdefault("structural_nearness", Effort(0, 0))
    options = {"version": version, "discrete_codes": discrete_codes, "model": model}
    options |= {
        key: value for key, value in (("blocks", blocks), ("factor_blocks", factor_blocks)) if value is not None
    }

    steps = Steps(progress, sum(1 + effort.parts + effort.repairings for effort in efforts.values()))
    measured = {}
    for one, effort in efforts.items():
        strict = one in ("sis", "block_score") and (blocks is not None or factor_blocks is not None)
        tick = partial(steps, one.replace("_", " "))
        measured[one] = score_by(METRICS[one], pairing, options, effort, seed=seed, strict=strict, tick=tick)
    table = _sensitivity(pairing, sensitivity)

    settings = {
        "metrics": list(wanted),
        "kinds": dict(zip(s.names, s.kinds, strict=True)),
        **{key: value if isinstance(value, bool | int | str) else str(value) for key, value in options.items()},
        "clusters": None if pairing.unit is None else int(pairing.unit.max()) + 1,
        "resamples": resamples,
        "nulls": nulls,
        "slow_resamples": slow_resamples,
        "slow_nulls": slow_nulls,
        "seed": seed,
    }
    return _evaluation(name, named, pairing, measured, wanted, table, structural, settings)


def _evaluation(
    name: str,
    codes: tuple[str, ...],
    pairing: Pairing,
    measured: Mapping[str, Measured],
    wanted: tuple[str, ...],
    table: list[dict[str, float]],
    structural: bool,
    settings: Mapping[str, Any],
) -> Evaluation:
    s = pairing.s
    informed = measured["infomec"]
    found: InfoMEC = informed.result
    limits = thresholds(informed.chance, len(s))
    read = measured["regression"].result if "regression" in measured else None
    near: StructuralNearness | None = measured["structural_nearness"].result if structural else None
    near = near if near is not None and near.groups else None
    rows = np.sort(np.random.default_rng([settings["seed"], 6]).permutation(len(pairing.z))[:SAMPLE])
    return Evaluation(
        name=name,
        n=len(pairing.z),
        codes=codes,
        factors=s.names,
        scores=tuple(score for one in wanted for score in measured[one].scores),
        matrices=_matrices(s, len(codes), measured),
        per_factor=factor_rows(s, codes, found, limits, explained_together(found, informed.chance), read),
        per_code=code_rows(s, codes, found, limits),
        order=matched_order(found.nmi),
        structural=near,
        sensitivity=tuple(table),
        sample=(pairing.z[rows], np.column_stack([factor.values[rows] for factor in s])),
        levels={factor.name: factor.levels for factor in s if factor.levels},
        notes=_notes(pairing, measured, wanted, settings),
        settings=settings,
    )


def _check(version: str, model: str, seed: int, **counts: int) -> None:
    if version not in VERSIONS:
        raise InputError(f"version must be one of {', '.join(VERSIONS)}, not {version!r}")
    check_model(model)
    for key, value in {**counts, "seed": seed}.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise InputError(f"{key} must be a whole number of at least 0, not {value!r}")
    if seed >= 2**32:
        raise InputError(f"seed must be below 2**32, not {seed}")
    if counts["resamples"] == 1 or counts["slow_resamples"] == 1:
        raise InputError("resamples must be 0 or at least 2: one part of the rows makes no interval")


def _effort(name: str, resamples: int, nulls: int, slow_resamples: int, slow_nulls: int) -> Effort:
    slow = METRICS[name].cost != "fast"
    repairings = (slow_nulls if slow else nulls) if METRICS[name].supervised else 0
    return Effort(slow_resamples if slow else resamples, repairings)


def _code_names(given: Sequence[str] | None, width: int) -> tuple[str, ...]:
    names = tuple(map(str, range(width) if given is None else given))
    if len(names) != width:
        raise InputError(f"code_names must have one name for each of {width} codes, but has {len(names)}")
    return tuple(f"code{name}" if name.isdecimal() else name for name in names)


def _renamed(s: Factors, given: Sequence[str] | None) -> Factors:
    if given is None:
        return s
    if len(given) != len(s) or len(set(map(str, given))) < len(s):
        raise InputError(f"factor_names must be {len(s)} different names, not {list(given)!r}")
    renamed = (
        replace(factor, name=str(new), note=factor.note.replace(factor.name, str(new), 1))
        for factor, new in zip(s, given, strict=True)
    )
    return replace(s, of=tuple(renamed))


def _sensitivity(pairing: Pairing, asked: bool | Sequence[int]) -> list[dict[str, float]]:
    if asked is False:
        return []
    bins = BINS if asked is True else tuple(asked)
    return binned_sensitivity(pairing.z, pairing.s, bins=bins).rows


def _matrices(s: Factors, codes: int, measured: Mapping[str, Measured]) -> dict[str, Float]:
    """What metrics say of each factor and code, each (K, L); NaN for factors that a metric leaves out."""
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


def _notes(
    pairing: Pairing, measured: Mapping[str, Measured], wanted: tuple[str, ...], settings: Mapping[str, Any]
) -> tuple[str, ...]:
    """What was noted by the suite and by metrics, each once."""
    n, notes = len(pairing.z), []
    asked = settings["resamples"] or settings["slow_resamples"]
    if asked and n < FEWEST_ROWS:
        notes.append(f"There are no intervals: {n} rows are fewer than {FEWEST_ROWS}.")
    elif asked and n // 2 > MOST_ROWS:
        notes.append(f"Intervals come from parts of {MOST_ROWS} of {n} rows.")
    slow = [one for one in wanted if METRICS[one].cost != "fast"]
    if slow and settings["resamples"] and not settings["slow_resamples"]:
        notes.append(f"{', '.join(slow)}: no interval, because it takes minutes; slow_resamples asks for one.")
    if not settings["nulls"]:
        notes.append("Without false pairings there is no chance to compare with: any information counts as told.")
    near = measured.get("structural_nearness")
    if near is not None and all(math.isnan(score.value) for score in near.scores):
        notes.append(f"Structural nearness could not be measured: {near.scores[0].reason.rstrip('.')}.")
    return (*notes, *gathered({name: one.notes for name, one in measured.items()}, pairing.s))
