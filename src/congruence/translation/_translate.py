"""`translate`: map the vectors of a new model into the space of the old one, and measure the loss.

A team that replaces its embedding model need not embed everything again if the new model is the old one up to a
map: a few thousand rows embedded by both are enough to fit it, and held-out rows measure its quality.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from congruence.align._notes import diameter_notes, sampling_notes
from congruence.align._run_statistics import read_paired, sum_run
from congruence.align.verdict import clearly_better
from congruence.arrays import Array, Float, on_sphere, row_chunks, to_numpy
from congruence.checks import check_choice, check_number
from congruence.errors import InputError
from congruence.maps.groups import Map, fit_group
from congruence.maps.nearness import Nearness, Protocol, measure
from congruence.options import takes
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, PairSums, pair_sums
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
from congruence.translation.translator import Translator

EVALUATED_ROWS = 10_000  # retrieval is quadratic: more rows than this are sampled


@takes(TranslateOptions)
def translate(old: Any, new: Any, *, options: TranslateOptions, progress: Progress | None = None) -> Translation:
    """Fit the map from a new model's vectors to the old model's, and test it on held-out rows.

    With ``unpaired=True`` no row needs to be embedded by both models. That is experimental: the map is the rotation and
    scale that bring the two sets of rows closest together. The rows of both models must be samples of one population.
    The map is compared with searches on rows without shared structure and with maps of halves of the rows; only paired
    rows can confirm it.

    Parameters
    ----------
    old, new : (n, d_old) and (n, d_new)
        The same rows embedded by both models: arrays, frames, tables or paths, paired as by `compare`. With
        ``unpaired=True`` their rows are not paired, and ids are ignored.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    labels : (n,) or (n, m), or the name of a metadata column, optional
        The target of a linear probe trained on old vectors: text and integers are classes, floats are regressed.
    cluster : array of shape (n,), or name of a metadata column, optional
        Rows of one cluster (patient, plate, document) stay together in folds and bootstrap.
    group : {"auto", "rigid", "similarity", "linear", "permutation", "identity"}, default "auto"
        The kind of map. "auto" takes the smallest of rigid, similarity and linear that no larger one clearly beats on
        held-out rows.

    Returns
    -------
    Translation
        ``result.translator(x)`` translates; `status` and `verdict` are the decision whether to use it.
    """
    _check_options(options)
    if options.unpaired:
        return translate_unpaired(old, new, options, progress)
    inputs, (y, x), plan, settings = read_paired({"old": old, "new": new}, options, options.labels)
    if inputs.labels is not None:
        check_labels(inputs.labels)
    target, source = sum_run("old", y, plan), sum_run("new", x, plan)
    diameter = target.diameter
    step = Steps(progress, {"fitting": 1 + options.nulls, "": 4})
    sums = pair_sums(source.sums, target.sums)
    tried = CANDIDATES if options.group == "auto" else (options.group,)
    fits = {name: partial(_fit, name) for name in tried}
    near, _ = measure(sums, fits, diameter.value, plan, partial(step, "fitting"))
    chosen = _choose(near, plan)
    translator = Translator(fit_group(sums.outside(None), chosen), options.normalize, x.d, y.d)
    certificate = _certify(sums, chosen, translator, diameter.value, plan, inputs.labels, step)
    finding, headlines, notes = judge_retrieval(near[chosen], certificate, options.require)
    return Translation(
        translator=translator,
        n_old=y.n,
        n_new=x.n,
        finding=finding,
        headlines=headlines,
        notes=(*notes, *inputs.notes, *sampling_notes(max(x.d, y.d), plan), *diameter_notes([target])),
        settings={"group": options.group, "require": options.require, **settings, **recorded(inputs.files)},
        diameter=diameter.value,
        candidates=near,
        certificate=certificate,
    )


def _check_options(options: TranslateOptions) -> None:
    """Check the values, and refuse options of the other way to translate."""
    defaults = {field.name: field.default for field in fields(TranslateOptions)}
    for name in NEED_PAIRS if options.unpaired else NEED_NO_PAIRS:
        value = getattr(options, name)
        if not (value is None or (isinstance(value, str | int | float) and value == defaults[name])):
            if options.unpaired:
                raise InputError(f"{name} needs rows that both models embedded, so it cannot be used with unpaired")
            raise InputError(f"{name} can be used with unpaired only")
    check_choice("group", options.group, GROUPS)
    check_number("require", options.require, 0, 1, open_low=True)


def _fit(group: str, paired: PairScatter, fold: int | None) -> Map:
    """The map as it is applied: for wider new vectors, dimensions beyond the old ones are cut off and not scored."""
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
    translated = _held_out_translations(sums, group, translator, plan, index)
    retrieval = measure_retrieval(old, translated, new, plan.unit[index], plan)
    step("measuring retrieval")
    probe = None if labels is None else measure_probe(old, translated, new, labels[index], plan.fold_of[index])
    step("training probes")
    curve = learning_curve(x, y, partial(_fit, group), diameter, plan)
    step("learning curve")
    drift = measure_drift(x, y, plan)
    step("measuring drift")
    return Certificate(retrieval=retrieval, probe=probe, curve=curve, drift=drift)


def _held_out_translations(sums: PairSums, group: str, translator: Translator, plan: Protocol, index: Array) -> Float:
    """Every chosen row translated by a map that was fitted without its fold, shape (m, d_old)."""
    x = sums.source.rows
    translated = np.empty((len(index), translator.d_old))
    fold_of = plan.fold_of[index]
    for k in range(len(plan.folds)):
        mine = np.flatnonzero(fold_of == k)
        h = fit_group(sums.outside(k), group)
        for part in row_chunks(len(mine), h.width):
            translated[mine[part]] = h(_raw(x, index[mine[part]]))[:, : translator.d_old]
    return on_sphere(translated) if translator.normalize else translated


def _raw(rows: Rows, index: Array) -> Float:
    return np.asarray(to_numpy(rows.take(index)) + rows.mean)
