"""`deconfound`: does an embedding generalise to unseen batches, and do whitening, ICA or corrections help?"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.batches._folds import (
    PROTOCOLS,
    Experiment,
    FoldPlan,
    Screen,
    batch_by_batch,
    experiments_of,
    hold_out_batches,
    screen_of,
)
from congruence.batches._inference import compare_conditions, correct_targets
from congruence.batches._inputs import LABELS, LabelledRows, read_rows
from congruence.batches._options import FITTED_ON, DeconfoundOptions
from congruence.batches._scoring import (
    Embeddings,
    FoldScores,
    PartArrays,
    Variant,
    Work,
    embed,
    levels_of,
    notes_on,
    score_variant,
    target_of,
    with_precision,
)
from congruence.batches.conditions import BY_BATCH, WHITENING, check_components, check_conditions, count_components
from congruence.batches.deconfounding import ON_ALL, Deconfounding, Embedding
from congruence.batches.leakage import FeatureProfile, find_nesting, mean_between_batches, profile_features
from congruence.batches.sparsity import READINGS, check_shares
from congruence.checks import check_choice, check_integer, require
from congruence.errors import InputError
from congruence.files import alone
from congruence.options import takes
from congruence.parts import Parts
from congruence.progress import Progress, Steps
from congruence.tables.columns import PREFIX
from congruence.tables.table import missing_labels

FORMAT = 3  # of stored parts


@takes(DeconfoundOptions)
def deconfound(x: Any, *, options: DeconfoundOptions, progress: Progress | None = None) -> Deconfounding:
    """Classify targets against controls on held-out batches, before and after the embedding is transformed.

    Each condition transforms the embedding without seeing targets; LightGBM with the settings of the paper is trained
    on some batches and scored by AUROC on the others. Section 4.4 of Nelson et al. 2026.

    Parameters
    ----------
    x : array of shape (n, d), table, frame or path
        Embeddings of wells, images or patches. Several paths, or a pattern, are read as one table. `batch`, `target`,
        `guide`, `cluster` and `image` are names of its columns, or labels of shape (n,).
    progress : callable, optional
        Called as progress(what, done, total) while working.

    Returns
    -------
    Deconfounding
        ``result["GENE"]`` is one target; AUROC is 0.5 by chance and 1 at best.
    """
    wanted = check_conditions(options.conditions)
    embedded = None if options.embedding is None else check_conditions(options.embedding)[-1]
    shares, components = check_shares(options.concentration), check_components(options.components)
    _check(options, wanted)
    require("lightgbm", "deconfound", "lightgbm")
    rows = read_rows(x, options)
    values, seed, protocol = rows.values, options.seed, options.protocol
    set_apart = any(one in BY_BATCH for one in wanted)
    labels = {"guide": rows.guide, "cluster": rows.cluster, "image": rows.image}
    screen = screen_of(values, rows.target, rows.batch, rows.control, **labels, set_apart=set_apart, seed=seed)
    experiments, skipped = experiments_of(screen, options.positive)
    if protocol == "folds":
        plan = hold_out_batches(screen, experiments, options.folds, seed)
    else:
        plan = batch_by_batch(screen, experiments)
    variants = _variants(wanted, options.fit_on, options.rotations)
    work = Work(components, options.rounds, shares, seed, options.device, options.leakage, options.retrieval)
    settings = _settings(options, wanted, components, shares, len(plan.folds))
    steps = Steps(progress, len(plan.folds) * len(variants) * len(experiments) + len(variants) * options.profiles)
    embeddings = Embeddings(screen, work)
    with _part_store(options, rows, settings) as store:
        scores = _score_variants(embeddings, plan, variants, experiments, options.jobs, steps, store)
        profiles = _profiles(embeddings, variants, experiments, steps, store) if options.profiles else {}
    names = tuple(dict.fromkeys(variant.name for variant in variants))
    of_targets = dict.fromkeys(experiment.target for experiment in experiments)
    scored = [target_of(one, screen, plan, experiments, variants, scores, shares, protocol) for one in of_targets]
    targets = correct_targets(scored)
    targets = with_precision(targets, variants, scores) if options.retrieval else targets
    controls = screen.control & screen.fitted_on
    return Deconfounding(
        name=rows.table.name,
        n=len(screen.x),
        d=screen.x.shape[1],
        batches=len(screen.batches),
        controls=int((~screen.treated).sum()),
        conditions=names,
        targets=targets,
        skipped=skipped,
        overall=compare_conditions(targets, names, protocol)[0],
        leakage=levels_of("leakage", variants, scores) if options.leakage else {},
        retrieval=levels_of("retrieval", variants, scores) if options.retrieval else {},
        profiles=profiles,
        notes=(*rows.notes, *_few_rows(components, screen, wanted), *notes_on(screen, plan, targets, variants, scores)),
        settings=settings | ({"inputs": files} if (files := rows.files()) else {}),
        embedding=None if embedded is None else _embedding(rows, embedded, components, options),
        variance={"base": mean_between_batches(screen.x[controls], screen.batch[controls])}
        | {name: one.variance for name, one in profiles.items()},
        nesting=find_nesting(screen, _other_columns(rows, options)) if rows.cluster is None else None,
    )


def _few_rows(components: int | float | str | None, screen: Screen, wanted: Sequence[str]) -> Iterator[str]:
    """A note where whitening keeps directions that few rows determine."""
    n, d = int(screen.fitted_on.sum()), screen.x.shape[1]
    kept = min(count if isinstance(count := count_components(components, n, d), int) else d, n - 1)
    if isinstance(components, int) and components > kept:
        yield f"{components} components were asked for; there are {kept} directions, and all are kept."
    if kept == 1:
        yield "One direction is kept, so there is no rotation to undo: ICA and whitening give the same axis."
    if set(wanted) & set(WHITENING) and components != "auto" and not isinstance(components, float) and n < 5 * kept:
        yield (
            f"Whitening keeps {kept} directions of {n} rows and scales each to unit variance; those that few rows "
            f"determine are noise. components 'auto' keeps {count_components('auto', n, d)}."
        )


def _other_columns(rows: LabelledRows, options: DeconfoundOptions) -> dict[str, Array]:
    """Columns of the table that are not labels and have no missing values."""
    used = {name for label in LABELS if isinstance(name := getattr(options, label), str)}
    kept = slice(None) if rows.kept is None else rows.kept
    columns = {name.removeprefix(PREFIX): column[kept] for name, column in rows.table.metadata.items()}
    return {name: one for name, one in columns.items() if name not in used and not missing_labels(one).any()}


@takes(DeconfoundOptions)
def apply_condition(x: Any, condition: str = "ica", *, options: DeconfoundOptions) -> Embedding:
    """Return the embedding under one condition, fitted on all rows, without scoring it.

    Parameters
    ----------
    x : array of shape (n, d), table, frame or path
        As in `deconfound`.
    condition : str, default "ica"
        The condition; options about scoring are ignored.
    """
    (kind,) = check_conditions(condition)[-1:]
    rows = read_rows(x, options)
    return _embedding(rows, kind, check_components(options.components), options)


def _embedding(
    rows: LabelledRows, condition: str, components: int | float | str | None, options: DeconfoundOptions
) -> Embedding:
    screen = screen_of(rows.values, rows.target, rows.batch, rows.control, image=rows.image, seed=options.seed)
    work = Work(components, 1, (), options.seed, options.device, False, False)
    z = embed(screen, work.condition(Variant(condition, condition, False)), screen.fitted_on)
    table, rows_kept = rows.table, slice(None) if rows.kept is None else rows.kept
    names = table.features if condition == "base" else tuple(f"{condition}{i}" for i in range(z.shape[1]))
    metadata = {name: column[rows_kept] for name, column in table.metadata.items()}
    ids = None if table.ids is None else table.ids[rows_kept]
    embedded = replace(table, values=z, ids=ids, metadata=metadata, features=names)
    return Embedding(condition, embedded, rows.kept, table.n)


def _check(options: DeconfoundOptions, wanted: tuple[str, ...]) -> None:
    for name, known in (("fit_on", FITTED_ON), ("protocol", PROTOCOLS), ("reading", READINGS)):
        check_choice(name, getattr(options, name), known)
    for name in ("rounds", "rotations", "jobs"):
        check_integer(name, getattr(options, name))
    check_integer("seed", options.seed, 0, 2**31 - 1)  # the largest that LightGBM takes
    if "harmony" in wanted and options.fit_on == "training":
        raise InputError(
            "condition 'harmony' moves all rows at once, so it cannot be fitted on training batches only; "
            "use fit_on 'all' (--fit-on all)"
        )
    if isinstance(options.parts, str | Path) and Path(options.parts).is_file():
        raise InputError(f"parts must be a folder, but {options.parts} is a file")


def _settings(
    options: DeconfoundOptions, wanted: tuple[str, ...], components: Any, shares: tuple[float, ...], folds: int
) -> dict[str, Any]:
    """The labels by the name of their column, and the method."""
    labels = {name: getattr(options, name) for name in (*LABELS, "control")}
    named: dict[str, Any] = {
        name: one if isinstance(one, str) else "labels" for name, one in labels.items() if one is not None
    }
    if options.control is not None:
        named["control"] = str(options.control)
    if (positive := options.positive) is not None:
        named["positive"] = [positive] if isinstance(positive, str) else list(map(str, positive))
    names = ("fit_on", "protocol", "folds", "rounds", "rotations", "concentration", "reading", "seed")
    chosen = {name: getattr(options, name) for name in names} | {"folds": folds, "concentration": list(shares)}
    return named | {"conditions": list(wanted), "components": "all" if components is None else components} | chosen


@contextlib.contextmanager
def _part_store(options: DeconfoundOptions, rows: LabelledRows, settings: Mapping[str, Any]) -> Iterator[Parts | None]:
    """The store of finished parts; other rows, labels or settings invalidate the files of a folder, which is locked."""
    if not isinstance(options.parts, str | Path):
        yield options.parts
        return
    digest = hashlib.sha256(np.ascontiguousarray(rows.values).tobytes())
    for labels in (rows.target, rows.batch, rows.guide, rows.cluster, rows.image):
        digest.update(b"-" if labels is None else "\0".join(map(str, labels)).encode())
    method = {name: value for name, value in settings.items() if name not in (*LABELS, "reading")}
    settings = {**method, "control": rows.control, "rows": digest.hexdigest(), "format": FORMAT}
    with alone(options.parts, folder=True):
        yield Parts(Path(options.parts), settings)


def _variants(wanted: tuple[str, ...], fit_on: str, rotations: int) -> list[Variant]:
    variants = []
    for kind in wanted:
        modes = [True] if kind == "base" else [False] if kind == "harmony" else _MODES[fit_on]
        for mode in modes:
            name = kind if mode or fit_on == "all" else kind + ON_ALL
            variants += [Variant(name, kind, mode, draw) for draw in range(rotations if kind == "rotated" else 1)]
    return variants


_MODES = {"training": [True], "all": [False], "both": [True, False]}


def _score_variants(
    embeddings: Embeddings,
    plan: FoldPlan,
    variants: Sequence[Variant],
    experiments: Sequence[Experiment],
    jobs: int,
    steps: Steps,
    store: Parts | None,
) -> FoldScores:
    """Score every variant in every fold, `jobs` at a time in threads; LightGBM releases the GIL."""

    def score(variant: Variant, number: int) -> PartArrays:
        ticks = [0]

        def tick() -> None:
            ticks[0] += 1
            steps(f"fold {number + 1} of {len(plan.folds)}: {variant.name}")

        def compute() -> Mapping[str, Any]:
            return score_variant(embeddings, plan.folds[number], variant, experiments, tick)

        if store is None:
            return {key: np.asarray(value) for key, value in compute().items()}
        arrays = store.get(f"{variant.key}-fold{number}", compute)
        steps(f"fold {number + 1}: read from parts", len(experiments) - ticks[0])
        return arrays

    places = [(variant, number) for number in range(len(plan.folds)) for variant in variants]
    if jobs == 1:
        return {(variant.key, number): score(variant, number) for variant, number in places}
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(score, variant, number): (variant.key, number) for variant, number in places}
        try:
            return {waiting[done]: done.result() for done in as_completed(waiting)}
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _profiles(
    embeddings: Embeddings,
    variants: Sequence[Variant],
    experiments: Sequence[Experiment],
    steps: Steps,
    store: Parts | None,
) -> dict[str, FeatureProfile]:
    """The feature profiles of each condition, fitted on all rows; for random rotations, of the first."""
    profiles = {}
    for variant in variants:
        if variant.kind in profiles or variant.draw:
            steps(f"features of {variant.kind}")
            continue

        def compute(variant: Variant = variant) -> Mapping[str, Any]:
            profile = profile_features(variant.kind, embeddings.on_all(variant), embeddings.screen, experiments)
            numbers = np.array([profile.level, profile.variance])
            arrays = {"technical": profile.technical, "biological": profile.biological, "noise": profile.noise}
            return arrays | {"numbers": numbers}

        part = compute() if store is None else store.get(f"features-{variant.kind}", compute)
        arrays = (part["technical"], part["biological"], part["noise"])
        profiles[variant.kind] = FeatureProfile(variant.kind, *arrays, *map(float, part["numbers"]))
        steps(f"features of {variant.kind}")
    return profiles
