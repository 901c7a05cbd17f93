"""`translate`: map the vectors of a new model into the space of the old one, and measure what is lost.

A team that replaces its embedding model need not embed everything again if the new model is the old one up to a
map: a few thousand rows embedded by both are enough to fit it, and held-out rows show what it costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from congruence.align.prepared import prepare
from congruence.align.verdict import advice_on_clusters, advice_on_diameter, advice_on_rows, clearly_better
from congruence.arrays import Array, Float, resolve_device, row_chunks, to_numpy
from congruence.errors import InputError
from congruence.maps.groups import Map, fit_group
from congruence.maps.nearness import Nearness, Protocol, check_method, measure, protocol
from congruence.options import reading, takes
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.rows.engine import Rows
from congruence.rows.sums import Paired, PairSums, pair_sums
from congruence.tables import gather
from congruence.translation._options import CANDIDATES, GROUPS, NEED_NO_PAIRS, NEED_PAIRS, TranslateOptions
from congruence.translation._unpaired import translate_unpaired
from congruence.translation._verdict import judge_retrieval
from congruence.translation.certificate import (
    Certificate,
    check_labels,
    learning_curve,
    measure_drift,
    measure_probe,
    measure_retrieval,
)
from congruence.translation.result import Translation
from congruence.translation.translator import Translator, on_sphere

EVALUATED_ROWS = 10_000  # retrieval is quadratic: more rows than this are sampled


@takes(TranslateOptions)
def translate(old: Any, new: Any, *, options: TranslateOptions, progress: Progress | None = None) -> Translation:
    """Fit the map from a new model's vectors to the old model's, and test it on held-out rows.

    With ``unpaired=True`` no row needs to be embedded by both models. That is experimental: each model is unmixed on
    its own, and components are matched by the shapes of their distributions. The rows of both models must be drawn
    from the same population, the models must be linear images of the same independent components (up to noise), and
    these must differ in shape. Without paired rows, none of this can be checked.

    Parameters
    ----------
    old, new : (n, d_old) and (n, d_new)
        The same rows embedded by both models: arrays, frames, tables or paths, paired as by `compare`. With
        ``unpaired=True`` their rows are not paired, and ids are ignored.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    id, features, metadata, key : str, optional
        Which columns hold the row ids, the embedding and the metadata; which array of a file or AnnData.
    labels : (n,) or (n, m), or the name of a metadata column, optional
        What a linear probe trained on old vectors should predict: text or whole numbers are classes, floats are
        regressed.
    cluster : array of shape (n,), or name of a metadata column, optional
        Rows of one cluster (patient, plate, document) stay together in folds and bootstrap.
    drop_missing : bool
        Leave out rows with NaN or infinity instead of refusing them.
    group : {"auto", "rigid", "similarity", "linear", "permutation", "identity"}
        The kind of map. "auto" takes the smallest of rigid, similarity and linear that no larger one clearly beats on
        held-out rows.
    normalize : {None, "cosine"}
        "cosine" for embeddings compared by their angle: rows are put on the unit sphere before and after.
    require : float
        The share of the true 10 nearest neighbours that translated vectors must find for a go.
    folds, nulls, bootstrap, seed, device
        As for `compare`.
    unpaired : bool
        Match the components of models that share no rows. It has its own options:
    components : int
        How many principal directions of each model are unmixed (fewer where a model is narrower). Only few can be
        distinguished by their shapes, so more is seldom better.
    splits : int
        How often the rows are split into halves; whitening, ICA and matching are repeated on each half.
    trust : float
        The confidence, from 0 to 1, from which on a component is trusted.
    keep : {"trusted", "all"}
        Which components the translator maps: those that are trusted, the others staying at their mean, or all.

    Returns
    -------
    Translation
        ``result.translator(x)`` translates; `status` and `verdict` say whether to use it.
    """
    _check_options(options)
    if options.unpaired:
        return translate_unpaired(old, new, options, progress)
    inputs = gather(
        {"old": old, "new": new},
        **reading(options),
        cluster=options.cluster,
        labels=options.labels,
        drop_missing=options.drop_missing,
    )
    if inputs.labels is not None:
        check_labels(inputs.labels)
    engine = resolve_device(options.device, *inputs.values)
    y, x = inputs.rows(engine, options.normalize)
    plan = protocol(
        y.n,
        folds=options.folds,
        nulls=options.nulls,
        bootstrap=options.bootstrap,
        cluster=inputs.cluster,
        seed=options.seed,
    )
    target, source = prepare("old", y, plan), prepare("new", x, plan)
    diameter = target.diameter
    step = Steps(progress, 1 + options.nulls + 4)
    sums = pair_sums(source.sums, target.sums)
    tried = CANDIDATES if options.group == "auto" else (options.group,)
    fits = {name: partial(_fit, name) for name in tried}
    near, _ = measure(sums, fits, diameter.value, plan, partial(step, "fitting"))
    chosen = _choose(near, plan)
    translator = Translator(fit_group(sums.outside(None), chosen), options.normalize, x.d, y.d)
    certificate = _certify(sums, chosen, translator, diameter.value, plan, inputs.labels, step)
    verdict = judge_retrieval(near[chosen], certificate, options.require)
    advice = (
        advice_on_rows(x.n, max(x.d, y.d)),
        advice_on_clusters(plan.unit) if plan.clustered else None,
        advice_on_diameter("old", diameter),
    )
    return Translation(
        translator=translator,
        n_old=y.n,
        n_new=x.n,
        finding=verdict.finding,
        headlines=verdict.headlines,
        notes=(*verdict.notes, *inputs.notes, *(note for note in advice if note)),
        settings={
            "group": options.group,
            "normalize": options.normalize,
            "require": options.require,
            "clusters": None if inputs.cluster is None else int(plan.unit.max()) + 1,
            "paired": "by id" if inputs.by_id else "by position",
            "folds": len(plan.folds),
            "nulls": options.nulls,
            "bootstrap": options.bootstrap,
            "seed": options.seed,
            "device": engine,
            **recorded(inputs.files),
        },
        diameter=diameter.value,
        candidates=near,
        certificate=certificate,
    )


def _check_options(options: TranslateOptions) -> None:
    """Refuse values that mean nothing, and options of the other way to translate."""
    defaults = {field.name: field.default for field in fields(TranslateOptions)}
    for name in NEED_PAIRS if options.unpaired else NEED_NO_PAIRS:
        value = getattr(options, name)
        if not (value is None or (isinstance(value, str | int | float) and value == defaults[name])):
            if options.unpaired:
                raise InputError(f"{name} needs rows that both models embedded, so it cannot be used with unpaired")
            raise InputError(f"{name} can be used with unpaired only")
    if options.group not in GROUPS:
        raise InputError(f"group must be one of {', '.join(GROUPS)}, not {options.group!r}")
    check_method(
        options.normalize, folds=options.folds, nulls=options.nulls, bootstrap=options.bootstrap, seed=options.seed
    )
    if not 0 < options.require <= 1:
        raise InputError(f"require must be a share above 0 and at most 1, such as 0.9, not {options.require!r}")


def _fit(group: str, paired: Paired, fold: int | None) -> Map:
    """The map as it is applied: of wider new vectors, what lies beyond the old dimensions is cut off, and no error."""
    h = fit_group(paired, group)
    return replace(h, matrix=np.where(np.arange(h.width) < paired.target.rows.d, h.matrix, 0.0))


def _choose(near: dict[str, Nearness], plan: Protocol) -> str:
    """The smallest group that no larger one clearly beats on held-out rows."""
    names = list(near)
    for i, name in enumerate(names):
        if not any(clearly_better(near[larger], near[name], plan.unit) for larger in names[i + 1 :]):
            return name
    return names[-1]


def _certify(
    sums: PairSums,
    group: str,
    translator: Translator,
    diameter: float,
    plan: Protocol,
    labels: Array | None,
    step: Callable[[str], None],
) -> Certificate:
    x, y = sums.source.rows, sums.target.rows
    index = np.arange(x.n)
    if x.n > EVALUATED_ROWS:
        index = np.sort(np.random.default_rng(plan.seed).choice(x.n, EVALUATED_ROWS, replace=False))
    old, new = _raw(y, index), _raw(x, index)
    carried = _held_out_translations(sums, group, translator, plan, index)
    retrieval = measure_retrieval(old, carried, new, plan.unit[index], plan)
    step("measuring retrieval")
    probe = None if labels is None else measure_probe(old, carried, new, labels[index], plan.fold_of[index])
    step("training probes")
    curve = learning_curve(x, y, partial(_fit, group), diameter, plan)
    step("learning curve")
    drift = measure_drift(x, y, plan)
    step("looking for drift")
    return Certificate(retrieval=retrieval, probe=probe, curve=curve, drift=drift)


def _held_out_translations(sums: PairSums, group: str, translator: Translator, plan: Protocol, index: Array) -> Float:
    """Every chosen row translated by a map that was fitted without its fold, shape (m, d_old)."""
    x = sums.source.rows
    carried = np.empty((len(index), translator.d_old))
    fold_of = plan.fold_of[index]
    for k in range(len(plan.folds)):
        mine = np.flatnonzero(fold_of == k)
        h = fit_group(sums.outside(k), group)
        for part in row_chunks(len(mine), h.width):
            carried[mine[part]] = h(_raw(x, index[mine[part]]))[:, : translator.d_old]
    return on_sphere(carried) if translator.normalize else carried


def _raw(rows: Rows, index: Array) -> Float:
    return np.asarray(to_numpy(rows.take(index)) + rows.mean)
