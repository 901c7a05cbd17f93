"""Judge an embedding, and what may be done to it, on batches that were never seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Protocol

import numpy as np

from congruence.arrays import Array
from congruence.batches.classify import ROUNDS, require_lightgbm
from congruence.batches.conditions import BY_BATCH, check_conditions
from congruence.batches.folds import PROTOCOLS, Plan, batch_by_batch, hold_out_batches
from congruence.batches.gather import Judged, Parts, levels_of, notes_on, target_of
from congruence.batches.judge import Embeddings, Variant, Work, embed, judge
from congruence.batches.leakage import Carriers, carriers
from congruence.batches.outcome import Outcome, compare_folds
from congruence.batches.rows import Experiment, experiments_of, screen_of
from congruence.batches.sparsity import SHARES, check_shares
from congruence.errors import InputError
from congruence.progress import Progress, Steps

DEFAULT = ("base", "whitened", "ica", "rotated")
ROTATIONS = 3
ON_ALL = ", fitted on all"  # what the name of a condition ends in where it saw the batches it is judged on


class Keeper(Protocol):
    """Where parts are kept that were computed before, such as `congruence.reproduce.parts.Parts`."""

    def get(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> Parts:
        """Return the arrays of the part `name`, or compute and keep them."""


def deconfound(
    x: Any,
    perturbation: Any,
    batch: Any,
    *,
    control: Any,
    targets: Any = None,
    guides: Any = None,
    groups: Any = None,
    images: Any = None,
    conditions: str | Iterable[str] = DEFAULT,
    components: int | float | str | None = None,
    strict: bool | str = True,
    protocol: str = "folds",
    folds: int = 5,
    rounds: int = ROUNDS,
    rotations: int = ROTATIONS,
    concentration: Sequence[float] = SHARES,
    leakage: bool = True,
    retrieval: bool = True,
    portraits: bool = True,
    name: str = "embedding",
    seed: int = 0,
    jobs: int = 1,
    device: str = "auto",
    progress: Progress | None = None,
    parts: Keeper | None = None,
) -> Outcome:
    """Does it help on batches never seen? Tell perturbations from controls by trees, batches held out.

    Each condition prepares the embedding without labels; LightGBM with the paper's settings is trained on some batches
    and judged by AUROC on others. Section 4.4 of Nelson et al. 2026.

    Parameters
    ----------
    x : (n, d)
        Embeddings of wells, images or patches.
    perturbation, batch : (n,)
        What was done to each row, and where (plate, experiment).
    control : label
        The perturbation of control rows.
    targets : labels, optional
        Perturbations to be told from controls; by default all with rows on two batches and five rows or more.
    guides : (n,), optional
        Independent experiments of a target, each judged by itself. Controls need none.
    groups : (n,), optional
        What may not be split, see `folds.hold_out_batches`: sites or experiments that hold several batches, or
        compounds, which are then held out besides batches.
    images : (n,), optional
        Where rows are patches: which image each is of. One random patch of each image is fitted on, and the scores of
        all its patches are averaged.
    conditions : names of `conditions.NAMES`
        Base is always judged.
    components : int, float, "auto" or None
        Directions that whitening keeps: so many, the fewest with this share of the variance, one for each 20 rows, or
        all (the paper).
    strict : bool or "both"
        True fits every condition without the held-out batches, False on all rows as the paper, "both" does both.
    protocol : {"folds", "batch"}
        Batches held out in turn, or one model for each batch, judged on all others.
    folds, rounds : int
        Parts of the batches held out in turn; rounds of boosting.
    rotations : int
        Random rotations of the condition "rotated".
    concentration : shares
        Top shares of features for `Concentration`; each costs two further fits. Empty for none.
    leakage, retrieval, portraits : bool
        Whether to predict the batch, to look for replicates, and to look at each feature by itself.
    name : str
        What the embedding is called.
    seed : int
        Same seed, same result, for any `jobs`.
    jobs : int
        Fits at a time.
    device : {"auto", "cpu", "cuda"}
        Where ICA is computed.
    progress : function (what, done, total), optional
    parts : Keeper, optional
        Keeps what was computed, fold by fold and condition by condition, so that an interrupted run goes on.

    Returns
    -------
    Outcome
    """
    wanted = check_conditions(conditions)
    shares = check_shares(concentration)
    _check(strict, protocol, wanted, rounds=rounds, rotations=rotations, jobs=jobs, seed=seed)
    require_lightgbm()
    apart = any(one in BY_BATCH for one in wanted)
    screen = screen_of(
        x, perturbation, batch, control, guides=guides, groups=groups, images=images, set_apart=apart, seed=seed
    )
    experiments, skipped = experiments_of(screen, targets)
    plan = hold_out_batches(screen, experiments, folds, seed) if protocol == "folds" else None
    plan = batch_by_batch(screen, experiments) if plan is None else plan
    variants = _variants(wanted, strict, rotations)
    work = Work(components, rounds, shares, seed, device, leakage, retrieval)

    told = Steps(progress, len(plan.folds) * len(variants) * len(experiments) + len(variants) * portraits)
    embeddings = Embeddings(screen, work)
    found = _judged(embeddings, plan, variants, experiments, jobs, told, parts)
    shown = _portraits(embeddings, variants, experiments, told, parts) if portraits else {}
    names = tuple(dict.fromkeys(variant.name for variant in variants))
    made = tuple(
        target_of(one, screen, plan, experiments, variants, found, shares, protocol)
        for one in dict.fromkeys(experiment.target for experiment in experiments)
    )
    settings = {
        "conditions": list(wanted),
        "components": components,
        "fitted on": {True: "batches that are not held out", False: "all rows", "both": "both"}[strict],
        "protocol": protocol,
        "folds": len(plan.folds),
        "rounds": rounds,
        "rotations": rotations,
        "concentration": list(shares),
        "seed": seed,
    }
    return Outcome(
        name=name,
        n=len(screen.x),
        d=screen.x.shape[1],
        batches=len(screen.batches),
        controls=int((~screen.treated).sum()),
        conditions=names,
        targets=made,
        skipped=skipped,
        overall={one: compare_folds(made, one, "base", protocol) for one in names if one != "base"},
        leakage=levels_of("leakage", names, variants, found) if leakage else {},
        retrieval=levels_of("retrieval", names, variants, found) if retrieval else {},
        carriers=shown,
        notes=notes_on(screen, plan, made, variants, found),
        settings=settings,
    )


def embedding_of(
    x: Any,
    perturbation: Any,
    batch: Any,
    *,
    control: Any,
    condition: str,
    components: int | float | str | None = None,
    images: Any = None,
    seed: int = 0,
    device: str = "auto",
) -> Array:
    """The embedding under one condition, fitted on all rows: what to go on with once the choice is made; (n, k)."""
    (kind,) = check_conditions(condition)[-1:]
    screen = screen_of(x, perturbation, batch, control, images=images, seed=seed)
    work = Work(components, 1, (), seed, device, False, False)
    return embed(screen, work.condition(Variant(kind, kind, False)), screen.fitted_on)


def _check(strict: Any, protocol: str, wanted: tuple[str, ...], **counts: int) -> None:
    if strict not in (True, False, "both"):
        raise InputError(f"strict must be True, False or 'both', not {strict!r}")
    if protocol not in PROTOCOLS:
        raise InputError(f"protocol must be one of {', '.join(PROTOCOLS)}, not {protocol!r}")
    for key, value in counts.items():
        least = 0 if key == "seed" else 1
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**31:
            raise InputError(f"{key} must be a whole number of at least {least}, not {value!r}")
    if "harmony" in wanted and strict is True:
        raise InputError(
            "condition 'harmony' moves all rows at once, so it cannot be fitted without held-out batches; "
            "fit on all rows (strict=False, --fit-on-all)"
        )


def _variants(wanted: tuple[str, ...], strict: bool | str, rotations: int) -> list[Variant]:
    made = []
    for kind in wanted:
        modes = [True] if kind == "base" else [False] if kind == "harmony" else _MODES[strict]
        for mode in modes:
            shown = kind if mode or strict is False else kind + ON_ALL
            made += [Variant(shown, kind, mode, draw) for draw in range(rotations if kind == "rotated" else 1)]
    return made


_MODES: dict[bool | str, list[bool]] = {True: [True], False: [False], "both": [True, False]}


def _judged(
    embeddings: Embeddings,
    plan: Plan,
    variants: Sequence[Variant],
    experiments: Sequence[Experiment],
    jobs: int,
    told: Steps,
    parts: Keeper | None,
) -> Judged:
    """Judge every variant in every fold, `jobs` at a time; trees leave Python's lock, so threads do."""

    def one(variant: Variant, number: int) -> Parts:
        ticks = [0]

        def tick() -> None:
            ticks[0] += 1
            told(f"fold {number + 1} of {len(plan.folds)}: {variant.name}")

        def compute() -> Mapping[str, Any]:
            return judge(embeddings, plan.folds[number], variant, experiments, tick)

        if parts is None:
            return {key: np.asarray(value) for key, value in compute().items()}
        found = parts.get(f"{variant.key}-fold{number}", compute)
        told(f"fold {number + 1}: kept", len(experiments) - ticks[0])
        return found

    places = [(variant, number) for number in range(len(plan.folds)) for variant in variants]
    if jobs == 1:
        return {(variant.key, number): one(variant, number) for variant, number in places}
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(one, variant, number): (variant.key, number) for variant, number in places}
        try:
            found = {waiting[done]: done.result() for done in as_completed(waiting)}
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return found


def _portraits(
    embeddings: Embeddings,
    variants: Sequence[Variant],
    experiments: Sequence[Experiment],
    told: Steps,
    parts: Keeper | None,
) -> dict[str, Carriers]:
    """What each feature carries, of each condition fitted on all rows; of random rotations, the first."""
    shown = {}
    for variant in variants:
        told(f"features of {variant.kind}")
        if variant.kind in shown or variant.draw:
            continue

        def compute(variant: Variant = variant) -> Mapping[str, Any]:
            found = carriers(variant.kind, embeddings.on_all(variant), embeddings.screen, experiments)
            return {"technical": found.technical, "biological": found.biological, "noise": found.noise}

        part = compute() if parts is None else parts.get(f"features-{variant.kind}", compute)
        shown[variant.kind] = Carriers(variant.kind, part["technical"], part["biological"], part["noise"])
    return shown
