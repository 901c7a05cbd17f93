"""`translate`: map the vectors of a new model into the space of the old one, and measure the loss.

A team that replaces its embedding model need not embed everything again if the new model is the old one up to a
map: a few thousand rows embedded by both are enough to fit it, and held-out rows measure its quality.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from congruence.align._notes import sampling_notes
from congruence.align._run_statistics import read_paired, sum_run
from congruence.checks import check_choice, check_number
from congruence.errors import InputError
from congruence.maps.groups import Map, fit_group
from congruence.maps.nearness import measure
from congruence.options import takes
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.rows.sums import PairScatter, pair_sums
from congruence.tables.inputs import files_of
from congruence.translation._certify import Task, certify, describe_inputs
from congruence.translation._choice import choose_group
from congruence.translation._far import fit_region
from congruence.translation._measures import check_labels
from congruence.translation._options import CANDIDATES, GROUPS, NEED_NO_PAIRS, NEED_PAIRS, TranslateOptions
from congruence.translation._unpaired import translate_unpaired
from congruence.translation._verdict import judge_retrieval
from congruence.translation.result import Translation
from congruence.translation.translator import Translator


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
    group : {"auto", "identity", "rigid", "similarity", "ridge", "ridge_similarity", "permutation", "linear"}
        The kind of map. "auto" chooses among identity, rigid, similarity, ridge and ridge towards the similarity by
        the recall@10 of held-out rows, inside the rows that each held-out map is fitted on.
    index : table, array or path, optional
        The old vectors that will be searched, of any number: they are read in blocks and searched exactly. Without it,
        the old vectors of the paired rows are searched, and the recall in larger indexes is extrapolated.
    queries : pair of tables, arrays or paths, optional
        The same queries embedded by the old and by the new model. The map is fitted on `old` and `new` and certified
        on the queries.
    qrels : data frame, table or path, optional
        Relevance judgements, with the columns query id, document id and relevance in this order. They need ids.

    Returns
    -------
    Translation
        ``result.translator(x)`` translates; `status` and `verdict` are the decision whether to use it.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import ortho_group
    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(300, 4))
    >>> new = old @ ortho_group.rvs(4, random_state=0)
    >>> result = translate(old, new)
    >>> result.status, bool(np.allclose(result.translator(new), old))
    ('holds', True)
    """
    _check_options(options)
    if options.unpaired:
        return translate_unpaired(old, new, options, progress)
    more = files_of(options.index, *(options.queries if isinstance(options.queries, tuple | list) else ()))
    inputs, (y, x), plan, settings = read_paired({"old": old, "new": new}, options, options.labels)
    if inputs.labels is not None:
        check_labels(inputs.labels)
    target, source = sum_run("old", y, plan), sum_run("new", x, plan)
    if target.dead == y.d:
        raise InputError("all rows of old are equal, so there are no neighbours to find")
    step = Steps(progress, {"fitting": 1 + options.nulls, "": 5})
    sums = pair_sums(source.sums, target.sums)
    tried = CANDIDATES if options.group == "auto" else (options.group,)
    near, _ = measure(sums, {name: partial(_fit, name) for name in tried}, 1.0, plan, partial(step, "fitting"))
    choice = choose_group(sums, tried, plan)
    step("choosing the map")
    region = fit_region(x, plan.fold_of)
    h, (columns_old, columns_new) = fit_group(sums.outside(None), choice.group), inputs.features
    translator = Translator(h, options.normalize, x.d, y.d, region, columns_new, columns_old)
    task = Task(sums, plan, choice, translator, near[choice.group], inputs, options, settings["device"])
    certificate = certify(task, partial(_fit, choice.group), step)
    finding, headlines, notes = judge_retrieval(near[choice.group], certificate, options)
    searched = describe_inputs(options)
    for file in more:
        file.check()
    return Translation(
        translator=translator,
        n_old=y.n,
        n_new=x.n,
        finding=finding,
        headlines=headlines,
        notes=(*notes, *inputs.notes, *sampling_notes(0, plan)),
        settings={"group": options.group, "require": options.require, **searched, **settings, **recorded(inputs.files)},
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
