"""The claims of Matthes et al. about overlapping supports, judged by our numbers, with the notes and the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.document import Cell, Table
from congruence.experiments.recipes.claims import Claim, Estimate, not_judged, over_seeds, read_claims
from congruence.experiments.recipes.mechanistic_overlap.trainings import Densities, OverlapGrid
from congruence.experiments.recipes.result import number_table
from congruence.formatting import count, number, percent
from congruence.result import Finding

TRAINED = 0.05  # of the variance of x left unexplained at most: what leaves more is not judged
SHORT = 0.1  # below the score of the true latents: such a run is not identified
KEPT = 0.9  # of the score of the true latents: a method that finds the slots
STRONGEST = 0.9  # correlation between slots: beyond, scores are off the distribution that was trained on
FEW = 3  # runs at least
NORMAL = 1.959964  # quantile of a 95 % interval
CLEARLY = 0.05  # relative difference of losses that is not chance
PUBLISHED_STEPS = 115_000  # Brady et al. 2023
SHORT_TRAINING = f"Not judged: trainings leave more than {TRAINED:.0%} of the variance of x unexplained."
CLAIMS = read_claims("mechanistic-overlap")


def judge(grids: Sequence[OverlapGrid], densities: Densities | None, steps: Mapping[str, int]) -> tuple[Finding, ...]:
    """Judge identification and its decrease for each number of slots, then causes, then densities.

    `steps` of each training, by number of slots: with fewer than published, the published protocol is not judged.
    """
    turned = [grid for grid in grids if grid.turned]
    plain = {grid.slots: grid for grid in grids if not grid.turned}
    judged = (*turned, *plain.values())
    checks = (judge_identification, judge_overlap)
    findings = [_at_full_length(check(grid), grid, steps) for grid in judged for check in checks]
    if not turned:  # the published protocol
        return (*findings, judge_type_d(grids))
    findings += [judge_minima(some, grids) for some in (list(plain.values()), turned) if some]
    findings.append(judge_type_d(turned))
    findings += [judge_type_s(grid) for grid in turned]
    findings += [judge_rotations(grid, plain[grid.slots]) for grid in turned if grid.slots in plain]
    return tuple(findings) + (judge_densities(densities) if densities is not None else ())


def _at_full_length(finding: Finding, grid: OverlapGrid, steps: Mapping[str, int]) -> Finding:
    made = steps[str(grid.slots)]
    if not grid.published or made >= PUBLISHED_STEPS:
        return finding
    return not_judged(finding, f"Not judged: {made:,} of the {PUBLISHED_STEPS:,} published steps.")


def judge_identification(grid: OverlapGrid) -> Finding:
    """At overlap 0 the selected runs are identified."""
    chosen, left = grid.selected(grid.sis)[0], grid.selected(grid.unexplained)[0]  # (strengths, data seeds)
    weakest = int(np.argmin(grid.strengths))
    restarts = grid.sis.shape[-1] > 1
    parts = [
        f"λ = {strength:g}: {over_seeds(chosen[j])}{' selected' if restarts else ''}, lowest data seed "
        f"{number(chosen[j].min())}, "
        + (f"{number(grid.sis[0, j].mean())} on average over restarts, " if restarts else "")
        + f"R2 of x {number(1 - left[j].max())} or more."
        for j, strength in enumerate(grid.strengths)
    ]
    claim = _claim_of("{slots}-slots-are-identified", grid)
    return claim.judge(
        over_seeds(chosen[weakest]),
        unless="" if left[weakest].max() <= TRAINED else SHORT_TRAINING,
        evidence=" ".join(parts) + f" The true latents themselves reach {number(grid.ceiling[0].mean())}.",
    )


def judge_overlap(grid: OverlapGrid) -> Finding:
    """The selected SIS at the largest overlap is below that without, for every strength."""
    chosen = grid.selected(grid.sis)  # (overlaps, strengths, data seeds)
    parts: list[str] = []
    for j, strength in enumerate(grid.strengths):
        means = chosen[:, j].mean(1)
        monotone = "decreasing at every step" if (np.diff(means) < 0).all() else "not at every step"
        parts.append(f"λ = {strength:g}: {', '.join(number(value, 2) for value in means)} ({monotone}).")
    losses = [over_seeds(chosen[0, j] - chosen[-1, j]) for j in range(len(grid.strengths))]
    claim = _claim_of("{slots}-slots-get-worse-with-overlap", grid)
    return claim.each(len(losses)).judge(
        *losses,
        null=0.0,
        unless="" if grid.selected(grid.unexplained)[0].max() <= TRAINED else SHORT_TRAINING,
        evidence=f"Selected SIS at overlaps {', '.join(f'{one:g}' for one in grid.overlaps)}: " + " ".join(parts),
    )


def _claim_of(name: str, grid: OverlapGrid) -> Claim:
    suffix = "" if grid.turned else "-as-published" if grid.published else "-without-rotations"
    return CLAIMS[name + suffix].about(slots=grid.slots)


def judge_minima(grids: Sequence[OverlapGrid], every: Sequence[OverlapGrid]) -> Finding:
    """Selected runs that are not identified have a larger loss than the identified ones with the same data.

    Known are the true generator and all trainings of `every`. If a run that is not identified has a lower loss than
    all trainings that identify the slots of the same data, the objective itself prefers it. The generator cannot show
    that: with overlap, runs that identify the slots have a lower loss than it, too.
    """
    counts = []  # by number of slots and data seed: losses above what is known, below it, and runs that fail
    for grid in grids:
        same = [one for one in every if one.slots == grid.slots]
        truth = np.array(grid.strengths)[:, None] * grid.truth[:, None]  # (overlaps, strengths, data seeds)
        limit = grid.ceiling[:, None] - SHORT
        right = [np.where(one.sis >= limit[..., None], one.loss, np.inf).min(-1) for one in same]
        known = np.minimum.reduce([truth, *(one.loss.min(-1) for one in same)])
        best = np.minimum.reduce(right)  # infinite where no training identifies the slots
        bad, loss = grid.selected(grid.sis) < limit, grid.selected(grid.loss)
        over, under = loss > (1 + CLEARLY) * known, np.isfinite(best) & ((1 + CLEARLY) * loss < best)
        counts.append(np.array([(bad & some).sum((0, 1)) for some in (over, under, bad)]))
    each = np.hstack(counts)  # (3, slots and data seeds)
    above, below, short = map(int, each.sum(1))
    turned = "with" if grids[0].turned else "without"
    low, high = (_share(count, each[2]) for count in (above, short - below))
    claim = CLAIMS["failures-are-local-minima-{turned}-rotations"].about(turned=turned, Turned=turned.capitalize())
    return claim.judge(
        Estimate(low.value, low.low, high.high),
        unless="" if short >= FEW else f"Fewer than {FEW} selected runs miss the slots.",
        evidence=f"{short} selected runs have an SIS more than {SHORT} below that of the true latents. For {above} of "
        f"them a loss is known that is lower by more than {CLEARLY:.0%}: that of the true generator, or of another "
        f"training with the same data and λ. For {below} the loss is lower by as much than that of every training "
        "with the same data and λ that identifies the slots, and there is one. The others cannot be judged. The "
        "interval takes runs with the same data as one.",
    )


def _share(count: int, totals: Array) -> Estimate:
    """A share of all cases with its 95 % interval (Wilson 1927), with cases in clusters of these sizes.

    It takes as many cases as independent as there would be if those of a cluster were all the same (Kish 1965): the
    widest interval that clusters can require.
    """
    if not (total := int(totals.sum())):
        return Estimate(*[np.nan] * 3)
    share, units = count / total, total**2 / float((totals**2).sum())
    weight = NORMAL**2 / units
    middle = (share + weight / 2) / (1 + weight)
    half = NORMAL * float(np.sqrt(share * (1 - share) / units + weight / (4 * units))) / (1 + weight)
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half))


def judge_type_d(grids: Sequence[OverlapGrid]) -> Finding:
    """The generators are Type D at overlap 0 alone."""
    rows = [pair for g in grids for pair in zip(g.overlaps, g.margin, strict=True)]
    apart = float(np.max([row for overlap, row in rows if overlap == 0] or np.nan))
    least = float(np.min([row for overlap, row in rows if overlap > 0] or np.nan))
    return CLAIMS["only-disjoint-is-type-d"].judge(
        apart,
        least,
        evidence=f"Largest product of two slots in a row of the Jacobian, divided by the largest sum of squares: "
        f"{number(apart)} without overlap, at least {number(least, 2)} with.",
    )


def judge_type_s(grid: OverlapGrid) -> Finding:
    """The generators are Type S at every overlap, less and less clearly."""
    claim = CLAIMS["{slots}-slots-are-type-s"].about(slots=grid.slots)
    shown = ", ".join(f"{gap} at {overlap:g}" for overlap, gap in zip(grid.overlaps, grid.gaps, strict=True))
    return claim.judge(
        float(min(grid.gaps)),
        float(grid.gaps[0] - grid.gaps[-1]) if len(grid.gaps) > 1 else np.nan,
        null=0.0,
        evidence=f"Sparsity gap by overlap: {shown}. For almost all weights it depends only on which rows slots share.",
    )


def judge_rotations(turned: OverlapGrid, plain: OverlapGrid) -> Finding:
    """Searching for the best rotation during training lets more restarts identify the slots; ours, not the paper's."""
    ends = [grid.sis.mean((1, 2, 3)) for grid in (turned, plain)]
    gain = (turned.sis - plain.sis).mean((0, 1, 3))
    shown = [", ".join(number(value, 2) for value in end) for end in ends]
    claim = CLAIMS["rotations-help-{slots}-slots"].about(slots=turned.slots)
    return claim.judge(
        over_seeds(gain),
        null=0.0,
        evidence=f"SIS on average over restarts and λ, by overlap: {shown[0]} with rotations and {shown[1]} without.",
    )


def judge_densities(densities: Densities) -> tuple[Finding, ...]:
    """The slots' supports do not depend on the density of the latents, but the result of ICA does."""
    scores = (densities.selected, densities.ica_mixture, densities.ica_observed)
    mine, mixture, observed = (densities.share(one) for one in scores)  # (degrees, data seeds)
    correlation = densities.dependence.mean(1)
    judged = correlation <= STRONGEST
    at = int(mine.mean(1)[judged].argmin())
    trained = mine[0].mean() >= KEPT and densities.error[0].min(-1).max() <= TRAINED  # x has unit variance
    return (
        CLAIMS["contrast-does-not-need-independence"].judge(
            over_seeds(mine[judged][at]),
            float(densities.margin.max()),
            unless="" if trained else SHORT_TRAINING,
            evidence=f"Largest canonical correlation between the slots {', '.join(number(v, 2) for v in correlation)}. "
            f"Selected SIS divided by that of the true latents: {', '.join(number(v, 2) for v in mine.mean(1))}. "
            f"Latents with a correlation above {STRONGEST:g} are not judged: there scores are for latents far from "
            "those trained on.",
        ),
        CLAIMS["ica-needs-independence"].judge(
            over_seeds(mixture[-1]),
            over_seeds(mixture[0]),
            evidence=f"The same share for ICA on a linear mixture of the latents: "
            f"{', '.join(number(v, 2) for v in mixture.mean(1))}; on the observations, which are nonlinear: "
            f"{', '.join(number(v, 2) for v in observed.mean(1))}.",
        ),
    )


def make_tables(grids: Sequence[OverlapGrid], densities: Densities | None) -> tuple[Table, ...]:
    """One table for each number of slots, with and without rotations, and one of densities."""
    tables = [_grid_table(grid) for grid in grids]
    return (*tables, *([] if densities is None else [_density_table(densities)]))


def _grid_table(grid: OverlapGrid) -> Table:
    chosen, left, loss = (grid.selected(values) for values in (grid.sis, grid.unexplained, grid.loss))
    rows = []
    for i, overlap in enumerate(grid.overlaps):
        for j, strength in enumerate(grid.strengths):
            _, low, high = over_seeds(chosen[i, j])
            scores = [chosen[i, j].min(), grid.sis[i, j].mean(), grid.ceiling[i].mean()]
            scores += [1 - left[i, j].mean(), loss[i, j].mean()]
            scores += [] if grid.published else [strength * grid.truth[i].mean(), grid.gaps[i]]
            first: tuple[Any, ...] = (overlap, strength, "not known to us", float(chosen[i, j].mean()))
            shown = "–" if np.isnan(low) else f"{number(low)} to {number(high)}"
            rows.append((*first, Cell(shown, low), *(float(value) for value in scores)))
    measured: tuple[str, ...] = ("SIS, mean of restarts", "SIS of the truth", "R2 of x", "loss")
    measured += () if grid.published else ("loss of the truth", "sparsity gap")
    head = ("overlap", "λ", "SIS, paper", "SIS, selected", "95 % interval", "lowest data seed", *measured)
    seeds, restarts = grid.sis.shape[2:]
    return number_table(
        grid.title, head, rows, f"{count(seeds, 'data seed')}, {count(restarts, 'restart')} each; held out."
    )


def _density_table(densities: Densities) -> Table:
    names = ("dependence", "margin", "ceiling", "selected", "ica_mixture", "ica_observed")
    means = zip(*(getattr(densities, name).mean(1).tolist() for name in names), strict=True)
    degrees = ("infinitely many" if np.isinf(one) else f"{one:g}" for one in densities.degrees)
    rows = [(one, *values) for one, values in zip(degrees, means, strict=True)]
    head = ("degrees of freedom", "largest correlation", "margin of Type D", "SIS of the truth", "SIS, selected")
    return number_table(
        "Dependent latents", (*head, "SIS, ICA of a mixture", "SIS, ICA of x"), rows, "Means over data seeds."
    )


def headlines(grids: Sequence[OverlapGrid]) -> tuple[str, ...]:
    """The sentences of the verdict."""
    parts = []
    shown = [grid for grid in grids if grid.turned or grid.published]
    for grid in shown:
        means = grid.selected(grid.sis)[:, int(np.argmin(grid.strengths))].mean(1)
        parts.append(f"{number(means[0], 2)} to {number(means[-1], 2)} ({grid.slots} slots)")
    left = max(float(grid.selected(grid.unexplained)[0].max()) for grid in shown)
    headline = f"From no overlap to the largest, SIS changes from {', '.join(parts)}."
    if left <= TRAINED:
        return (headline,)
    return headline, f"Trainings were short: up to {percent(left)} of the variance of x is unexplained."
