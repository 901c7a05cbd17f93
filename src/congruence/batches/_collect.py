"""Collect the scores of all folds by target and condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.batches._numbers import mean_of
from congruence.batches.classify import PAPER
from congruence.batches.deconfounding import Levels, Score, Target, compare_folds
from congruence.batches.folds import Plan, scored_rows
from congruence.batches.judge import Variant
from congruence.batches.rows import Experiment, Screen
from congruence.batches.sparsity import Concentration

KeptParts = dict[str, Array]
Judged = dict[tuple[str, int], KeptParts]  # by the key of a variant and the number of a fold


def target_of(
    name: str,
    screen: Screen,
    plan: Plan,
    experiments: Sequence[Experiment],
    variants: Sequence[Variant],
    found: Judged,
    shares: tuple[float, ...],
    protocol: str,
) -> Target:
    """One target under all conditions; its experiments are its guides in every fold."""
    mine = [i for i, one in enumerate(experiments) if one.target == name]
    units = [(i, number) for i in mine for number in range(len(plan.folds))]
    reasons = [scored_rows(plan.folds[number], screen, experiments[i])[1] for i, number in units]

    def values(variant: Variant, key: str, *place: int) -> Float:
        return np.array([found[variant.key, number][key][(i, *place)] for i, number in units])

    def score(shown: str) -> Score:
        draws = [variant for variant in variants if variant.name == shown]

        def mean(key: str, *place: int) -> Float:
            return np.asarray(np.mean([values(variant, key, *place) for variant in draws], axis=0))

        return Score(
            shown,
            mean("auroc"),
            mean("within"),
            mean("sparsity"),
            tuple(Concentration(share, mean("top", j), mean("rest", j)) for j, share in enumerate(shares)),
            np.array([mean_of(values(variant, "auroc")) for variant in draws]),
        )

    positive = np.any([experiments[i].positive for i in mine], axis=0)
    with_positives = len(np.unique(screen.batch[positive]))
    target = Target(
        name=name,
        guides=tuple(experiments[i].guide for i in mine if experiments[i].guide),
        positives=int(positive.sum()),
        experiments=tuple((experiments[i].guide, number) for i, number in units),
        reasons=tuple(reasons),
        batches=with_positives,
        left_out=len(screen.batches) - with_positives,
        scores={shown: score(shown) for shown in dict.fromkeys(variant.name for variant in variants)},
        paired={},
    )
    paired = {one: compare_folds((target,), one, "base", protocol) for one in target.scores if one != "base"}
    return replace(target, paired=paired)


def levels_of(key: str, names: tuple[str, ...], variants: Sequence[Variant], found: Judged) -> dict[str, Levels]:
    """Scores of whole folds (leakage, retrieval) by condition; for random rotations, their mean."""
    many = 1 + max(number for _, number in found)
    levels = {}
    for name in names:
        draws = [variant.key for variant in variants if variant.name == name]
        table = np.array([[found[draw, number][key] for number in range(many)] for draw in draws]).mean(0)
        levels[name] = Levels(name, table[:, 0], table[:, 1])
    return levels


def notes_on(
    screen: Screen, plan: Plan, targets: Sequence[Target], variants: Sequence[Variant], found: Judged
) -> tuple[str, ...]:
    """What was left out, and warnings of the conditions."""
    notes = list(plan.notes)
    apart = int((screen.reference & ~screen.control).sum())
    if apart:
        notes.append(
            f"{apart} of {apart + int(screen.control.sum())} controls are set apart as the reference of their batch: a "
            "correction by batch puts these near the origin, so they are excluded from training and scoring."
        )
    lacking = [one for one in targets if one.left_out]
    if lacking:
        few = ", ".join(f"{one.name} {one.left_out} of {len(screen.batches)}" for one in lacking[:8])
        more = f" and {len(lacking) - 8} more targets" if len(lacking) > 8 else ""
        notes.append(f"Batches without positives are used for training, but not for scoring: {few}{more}.")
    for one in targets:
        bare = _without_controls(screen, one.name)
        if len(bare):
            notes.append(
                f"{one.name}: {len(bare)} of {one.batches} batches with positives have no controls ({listing(bare)}), "
                "so its AUROC compares batches there; the AUROC within batches does not."
            )
        missing = sorted({reason for reason in one.reasons if reason})
        if missing:
            many = len(one.reasons) - one.judged
            notes.append(
                f"{one.name}: {many} of {len(one.reasons)} experiments were not judged ({'; '.join(missing)})."
            )
        base = one.scores["base"]
        blank = int((np.isfinite(base.auroc) & np.isnan(base.sparsity)).sum())
        if blank:
            notes.append(
                f"{one.name}: {blank} of {one.judged} models made no split and have AUROC 0.5, because a leaf needs "
                f"{PAPER['min_data_in_leaf']} rows and there are too few training rows."
            )
    if screen.image is not None:
        count = int(screen.fitted_on.sum())
        notes.append(f"Models are fitted on one random row of each of {count} images; scores are averaged by image.")
    for variant in variants:
        said = [bytes(part["notes"]).decode() for (key, _), part in found.items() if key == variant.key]
        for text in dict.fromkeys(line for lines in said for line in lines.split("\n") if line):
            notes.append(f"{variant.name}: {text}")
    return tuple(dict.fromkeys(notes))


def _without_controls(screen: Screen, target: str) -> Array:
    """The names of batches that have positives of a target, but no controls."""
    positive = screen.treated & (screen.target.astype(str) == target)
    bare: Array = screen.batches[np.setdiff1d(screen.batch[positive], screen.batch[screen.control])]
    return bare
