"""The claims of the paper that `mechanistic-overlap` judges, each with its numbers, and the tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from congruence.arrays import Float
from congruence.document import Cell, Table
from congruence.experiments.recipes.overlap_densities import Densities
from congruence.experiments.recipes.overlap_runs import SAME, Grid
from congruence.experiments.recipes.result import Value, number_table, status_above, status_of
from congruence.formatting import number, percent
from congruence.result import Finding, Status

IDENTIFIED = 0.95  # SIS, of which the true latents themselves reach about 0.98
TRAINED = 0.05  # of the variance of x left unexplained at most: what leaves more is not judged
SHORT = 0.1  # below what the true latents reach: such a run is not identified
KEPT, LOST = 0.9, 0.8  # shares of what the true latents reach: a method that keeps, and one that loses the slots
FEW, MOST = 3, 2 / 3  # runs at least, and the share of them from which on they speak for a claim
CLEARLY = 0.05  # by which losses differ more than by chance
DRAWS = 2000

PAPER = {
    "small overlap": "the contrast is a reliable proxy for Type S: SIS is high",
    "large overlap": "optimisation falls more easily into bad local minima: SIS decreases",
    "disjoint": "0 % overlap is the only point that satisfies Type D",
    "density": "conclusions are invariant to any re-weighting of the latent density",
    "values of the figure": None,
    "how supports were made to overlap": None,
}
TERMS = (
    (
        "SIS",
        "slot identifiability score: R2 of a true slot from its own slot minus the best from any other; 1 is best.",
    ),
    ("overlap", "share of the rows of a slot that it shares with a neighbour; two slots, or a ring of more."),
    ("selected", "the restart with the lowest held-out loss, for each data seed; no true latent is used."),
    ("contrast", "sum over outputs of products of the lengths of derivatives by two slots (Brady et al. 2023)."),
    ("λ", "the strength of the contrast in the loss."),
    ("Type D", "slots act on disjoint outputs."),
)


def findings_of(grids: Sequence[Grid], densities: Densities | None) -> tuple[Finding, ...]:
    """Judge everything: identification and its decrease for each number of slots, then causes, then densities."""
    turned = [grid for grid in grids if grid.turned]
    findings = [judge(grid) for grid in turned for judge in (identified_when_disjoint, falls_with_overlap)]
    plain = {grid.slots: grid for grid in grids if not grid.turned}
    findings += [in_bad_minima(some, grids) for some in (list(plain.values()), turned) if some]
    findings.append(only_disjoint_is_type_d(turned))
    findings += [turning_helps(grid, plain[grid.slots]) for grid in turned if grid.slots in plain]
    return tuple(findings) + (findings_of_densities(densities) if densities is not None else ())


def identified_when_disjoint(grid: Grid) -> Finding:
    """At overlap 0 the selected runs are identified."""
    chosen, left = grid.selected(grid.sis)[0], grid.selected(grid.unexplained)[0]  # (strengths, data seeds)
    weakest = int(np.argmin(grid.strengths))
    parts = [
        f"λ = {strength:g}: {interval(chosen[j])} selected, lowest data seed {number(chosen[j].min())}, "
        f"{number(grid.sis[0, j].mean())} on average over restarts, R2 of x {number(1 - left[j].max())} or more."
        for j, strength in enumerate(grid.strengths)
    ]
    mean = float(chosen[weakest].mean())
    return Finding(
        f"{grid.slots}-slots-are-identified",
        f"{grid.slots} slots that act on disjoint rows are identified: SIS of at least {IDENTIFIED} at the weaker λ.",
        status_of(mean >= IDENTIFIED if left[weakest].max() <= TRAINED else None),
        number=mean,
        interval=bootstrap(chosen[weakest]),
        evidence=" ".join(parts) + f" The true latents themselves reach {number(grid.ceiling[0].mean())}.",
    )


def falls_with_overlap(grid: Grid) -> Finding:
    """The selected SIS at the largest overlap is below that without."""
    chosen = grid.selected(grid.sis)  # (overlaps, strengths, data seeds)
    parts: list[str] = []
    verdicts: list[Status] = []
    for j, strength in enumerate(grid.strengths):
        means = chosen[:, j].mean(1)
        monotone = "decreasing at every step" if (np.diff(means) < 0).all() else "not at every step"
        verdicts.append(status_above(*bootstrap(chosen[0, j] - chosen[-1, j])))
        parts.append(f"λ = {strength:g}: {', '.join(number(value, 2) for value in means)} ({monotone}).")
    trained = grid.selected(grid.unexplained)[0].max() <= TRAINED
    agreed: Status = verdicts[0] if len(set(verdicts)) == 1 else "ambiguous"
    shown = ", ".join(f"{overlap:g}" for overlap in grid.overlaps)
    loss = chosen[0, 0] - chosen[-1, 0]
    return Finding(
        f"{grid.slots}-slots-get-worse-with-overlap",
        f"With {grid.slots} slots, identification gets worse as more rows are shared.",
        agreed if trained else "unknown",
        number=float(loss.mean()),
        interval=bootstrap(loss),
        null=0.0,
        evidence=f"Selected SIS at overlaps {shown}: " + " ".join(parts),
    )


def in_bad_minima(grids: Sequence[Grid], every: Sequence[Grid]) -> Finding:
    """Selected runs that are not identified have a larger loss than is known to be possible with the same data.

    Known are the true generator and all trainings of `every`. A loss that is not larger decides nothing: a lower one
    may exist.
    """
    above, short = 0, 0
    for grid in grids:
        truth = np.array(grid.strengths)[:, None] * grid.truth[:, None]  # (overlaps, strengths, data seeds)
        known = np.minimum.reduce([truth, *(one.loss.min(-1) for one in every if one.slots == grid.slots)])
        bad = grid.selected(grid.sis) < grid.ceiling[:, None] - SHORT
        worse = grid.selected(grid.loss) > (1 + CLEARLY) * known
        above, short = above + int((bad & worse).sum()), short + int(bad.sum())
    turned = grids[0].turned
    return Finding(
        f"failures-are-local-minima-{'with' if turned else 'without'}-rotations",
        f"{'With' if turned else 'Without'} rotations, selected runs that do not identify the slots are in local "
        "minima.",
        status_of(True if short >= FEW and above >= MOST * short else None),
        number=above / short if short else None,
        evidence=f"{short} selected runs have an SIS more than {SHORT} below that of the true latents. For {above} of "
        f"them a loss is known that is lower by more than {CLEARLY:.0%}: that of the true generator, or of another "
        "training with the same data and λ. The others cannot be judged.",
    )


def only_disjoint_is_type_d(grids: Sequence[Grid]) -> Finding:
    """The generators are Type D at overlap 0 alone."""
    flat = [
        (overlap, float(margin))
        for g in grids
        for overlap, row in zip(g.overlaps, g.margin, strict=True)
        for margin in row
    ]
    right = all((margin < SAME) == (overlap == 0) for overlap, margin in flat)
    least = min((margin for overlap, margin in flat if overlap > 0), default=float("nan"))
    return Finding(
        "only-disjoint-is-type-d",
        "Without overlap the generators are Type D, with any overlap they are not.",
        status_of(right),
        number=least,
        evidence=f"Largest product of two slots in a row of the Jacobian, divided by the largest sum of squares: "
        f"{number(max((margin for overlap, margin in flat if overlap == 0), default=float('nan')))} without overlap, "
        f"at least {number(least, 2)} with.",
    )


def turning_helps(turned: Grid, plain: Grid) -> Finding:
    """Searching for the best rotation during training lets more restarts identify the slots; ours, not the paper's."""
    ends = [grid.sis.mean((1, 2, 3)) for grid in (turned, plain)]
    gain = (turned.sis - plain.sis).mean((0, 1, 3))
    shown = [", ".join(number(value, 2) for value in end) for end in ends]
    return Finding(
        f"rotations-help-{turned.slots}-slots",
        f"With {turned.slots} slots, rotating the latents during training improves the restarts (our addition).",
        status_above(*bootstrap(gain)),
        number=float(gain.mean()),
        interval=bootstrap(gain),
        null=0.0,
        evidence=f"SIS on average over restarts and λ, by overlap: {shown[0]} with rotations and {shown[1]} without.",
    )


def findings_of_densities(found: Densities) -> tuple[Finding, ...]:
    """The slots' supports do not depend on the density of the latents, but the result of ICA does."""
    mine, mixture = found.share(found.selected).mean(1), found.share(found.ica_mixture).mean(1)
    observed = found.share(found.ica_observed).mean(1)
    shown = ", ".join(number(value, 2) for value in found.dependence.mean(1))
    judged = mine[0] >= KEPT and found.error[0].min(-1).max() <= TRAINED  # x has unit variance
    return (
        Finding(
            "contrast-does-not-need-independence",
            "Dependent latents change neither the type of the mechanism nor what the contrast identifies.",
            status_of(bool((found.margin < SAME).all() and (mine >= KEPT).all()) if judged else None),
            number=float(mine.min()),
            evidence=f"Largest canonical correlation between the slots {shown}. The generator is Type D at latents of "
            f"each. Selected SIS divided by that of the true latents: {', '.join(number(v, 2) for v in mine)}.",
        ),
        Finding(
            "ica-needs-independence",
            "ICA finds the slots if latents are independent and mixed linearly, and loses them if they are dependent.",
            status_of(bool(mixture[0] >= KEPT and mixture[-1] <= LOST)),
            number=float(mixture[-1]),
            evidence=f"The same share for ICA on a linear mixture of the latents: "
            f"{', '.join(number(v, 2) for v in mixture)}; on the observations, which are nonlinear: "
            f"{', '.join(number(v, 2) for v in observed)}.",
        ),
    )


def tables_of(grids: Sequence[Grid], densities: Densities | None) -> tuple[Table, ...]:
    """One table for each number of slots, with and without rotations, and one of densities."""
    tables = [_table(grid) for grid in grids]
    return tuple(tables) + ((_table_of_densities(densities),) if densities is not None else ())


def _table(grid: Grid) -> Table:
    chosen, left, loss = (grid.selected(values) for values in (grid.sis, grid.unexplained, grid.loss))
    rows: list[tuple[Value, ...]] = []
    for i, overlap in enumerate(grid.overlaps):
        for j, strength in enumerate(grid.strengths):
            low, high = bootstrap(chosen[i, j])
            found = [chosen[i, j].min(), grid.sis[i, j].mean(), grid.ceiling[i].mean()]
            found += [1 - left[i, j].mean(), loss[i, j].mean(), strength * grid.truth[i].mean()]
            first: tuple[Value, ...] = (overlap, strength, "not known to us", float(chosen[i, j].mean()))
            rows.append((*first, Cell(f"{number(low)} to {number(high)}", low), *(float(value) for value in found)))
    measured = ("SIS, mean of restarts", "SIS of the truth", "R2 of x", "loss", "loss of the truth")
    head = ("overlap", "λ", "SIS, paper", "SIS, selected", "95 % interval", "lowest data seed", *measured)
    seeds, restarts = grid.sis.shape[2:]
    title = f"{grid.slots} slots" + ("" if grid.turned else ", without rotations")
    return number_table(title, head, tuple(rows), f"{seeds} data seeds, {restarts} restarts each; held out.")


def _table_of_densities(found: Densities) -> Table:
    series = (found.dependence, found.margin, found.ceiling, found.selected, found.ica_mixture, found.ica_observed)
    rows: tuple[tuple[Value, ...], ...] = tuple(
        ("infinitely many" if np.isinf(degrees) else f"{degrees:g}", *(float(values[i].mean()) for values in series))
        for i, degrees in enumerate(found.degrees)
    )
    head = ("degrees of freedom", "largest correlation", "margin of Type D", "SIS of the truth", "SIS, selected")
    return number_table(
        "Dependent latents", (*head, "SIS, ICA of a mixture", "SIS, ICA of x"), rows, "Means over data seeds."
    )


def bootstrap(values: Float) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean over data seeds."""
    flat = np.asarray(values, dtype=float).ravel()
    draws = np.random.default_rng(0).integers(len(flat), size=(DRAWS, len(flat)))
    low, high = np.quantile(flat[draws].mean(1), [0.025, 0.975])
    return float(low), float(high)


def interval(values: Float) -> str:
    """The mean with its interval, in words."""
    low, high = bootstrap(values)
    return f"{number(float(np.mean(values)))} ({number(low)} to {number(high)})"


def answer_of(grids: Sequence[Grid]) -> tuple[str, ...]:
    """The sentences of the verdict, from the numbers."""
    parts = []
    for grid in (grid for grid in grids if grid.turned):
        means = grid.selected(grid.sis)[:, int(np.argmin(grid.strengths))].mean(1)
        parts.append(f"{number(means[0], 2)} to {number(means[-1], 2)} ({grid.slots} slots)")
    left = max(float(grid.selected(grid.unexplained)[0].max()) for grid in grids if grid.turned)
    headline = f"From no overlap to the largest, SIS changes from {', '.join(parts)}."
    if left <= TRAINED:
        return (headline,)
    return headline, f"Trainings were short: up to {percent(left)} of the variance of x is unexplained."
