"""What section 4.4 and appendix A.7.4 claim, and what Theorem 3 predicts, judged on a screen with known truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from congruence.arrays import Float
from congruence.experiments.data.screen import GENES
from congruence.experiments.recipes.deconfounding_screen import CONDITIONS, Interval, Measured, interval_of
from congruence.experiments.recipes.deconfounding_tables import LABELS, TABLE_3, Experiment
from congruence.experiments.recipes.result import interval_or_none, status_above, status_of
from congruence.formatting import number
from congruence.result import Finding, Status, combine

RECOVERED = 0.9  # an axis that matches a factor by more recovers it


def findings_of(found: Experiment) -> tuple[Finding, ...]:
    """Judge what the paper says of its tables, then what the theory says of the dial."""
    return (
        _better(
            found.table,
            "whitened",
            "base",
            "whitening-improves-auroc",
            "Whitening alone often improves AUROC on unseen plates.",
        ),
        _better(found.table, "ica", "whitened", "ica-improves-auroc", "ICA improves it further, consistently."),
        _better(
            found.table,
            "ica",
            "rotated",
            "axes-matter",
            "The axes matter: a random rotation does not do as well.",
        ),
        _sparser(found.table),
        _concentrated(found),
        _recovered(found),
        _gain_is_lost(found),
        _deconfounded(found),
    )


def _better(one: Measured, condition: str, reference: str, name: str, claim: str) -> Finding:
    gain = interval_of(one.ahead(condition, reference))
    ahead = [gene for gene in GENES if np.nanmean(one.of_gene(one.auroc[condition] - one.auroc[reference], gene)) > 0]
    theirs = np.mean(
        [values[0][CONDITIONS.index(condition)] - values[0][CONDITIONS.index(reference)] for values in TABLE_3.values()]
    )
    return Finding(
        name,
        claim,
        _sign(gain),
        number=gain.mean,
        interval=interval_or_none(gain.low, gain.high),
        null=0.0,
        evidence=f"{LABELS[condition]} − {LABELS[reference]}: {gain} on average over genes, better in {len(ahead)} of "
        f"{len(GENES)} (the paper's table: {theirs:+.3f}).",
    )


def _sparser(one: Measured) -> Finding:
    steps = [
        interval_of(one.by_fold(one.sparsity[b] - one.sparsity[a]))
        for a, b in (("base", "whitened"), ("whitened", "ica"))
    ]
    return Finding(
        "sparsity-increases",
        "Sparsity increases markedly with both whitening and ICA.",
        combine(map(_sign, steps)),
        number=min(step.mean for step in steps),
        null=0.0,
        evidence=f"PCA − Base: {steps[0]}; PCA + ICA − PCA: {steps[1]}.",
    )


def _concentrated(found: Experiment) -> Finding:
    parts, judged = [], []
    for i, share in enumerate(found.shares):
        values = {name: found.near.top[name][i] - found.near.rest[name][i] for name in CONDITIONS}
        steps = [
            interval_of(found.near.by_fold(values[b] - values[a]))
            for a, b in (("base", "whitened"), ("whitened", "ica"))
        ]
        judged += [_sign(step) for step in steps]
        parts.append(f"top {100 * share:g} %: {steps[0]}, then {steps[1]}")
    return Finding(
        "concentration-increases",
        "Concentration increases with whitening and with ICA, for every cut-off.",
        combine(judged),
        evidence="PCA − Base, then PCA + ICA − PCA. " + "; ".join(parts) + ".",
    )


def _recovered(found: Experiment) -> Finding:
    means = [float(one.match["ica"].mean()) for one in found.curve]
    first, last = found.curve[0].match["ica"], found.curve[-1].match["ica"]
    change = interval_of_factors(first - last)
    median = float(np.median(first))
    return Finding(
        "ica-recovers-biology",
        "Near an isometry, independent components are the true biology factors, and less so away from it (Theorem 3).",
        combine((_sign(change), status_of(median > RECOVERED))),
        number=median,
        evidence=f"Mean match over biology factors: {_along(found, means)}. The claim holds if the median at dial "
        f"{found.curve[0].dial:g}, {number(median)}, is above {RECOVERED:g}, and the interval of the decrease to the "
        f"last dial, {change}, is above 0.",
    )


def _gain_is_lost(found: Experiment) -> Finding:
    first, last = found.curve[0], found.curve[-1]
    parts: list[str] = []
    judged: list[Status] = []
    for reference in ("base", "rotated"):
        near, far = first.ahead("ica", reference), last.ahead("ica", reference)
        judged += [_sign(interval_of(near)), _sign(interval_of(near - far))]
        parts.append(
            f"over {LABELS[reference]}: {interval_of(near)} at dial {first.dial:g}, {interval_of(far)} at "
            f"{last.dial:g}, a loss of {interval_of(near - far)}"
        )
    return Finding(
        "gain-needs-isometry",
        "ICA gains near an isometry, and loses this gain as the mixing moves away from one.",
        combine(judged),
        evidence="AUROC of PCA + ICA, " + "; ".join(parts) + ".",
    )


def _deconfounded(found: Experiment) -> Finding:
    first, last = found.curve[0], found.curve[-1]
    change = interval_of_factors(last.taint["ica"] - first.taint["ica"])
    gap = interval_of_factors(first.taint["base"] - first.taint["ica"])
    means = [float(one.taint["ica"].mean()) for one in found.curve]
    return Finding(
        "ica-separates-plates",
        "Near an isometry, ICA separates biology from plate effects; away from it plate effects leak in.",
        combine((_sign(gap), _sign(change))),
        number=gap.mean,
        interval=interval_or_none(gap.low, gap.high),
        null=0.0,
        evidence=f"Technical share of the axes matched to biology: {_along(found, means)}; in the base, "
        f"{number(float(first.taint['base'].mean()))} at dial {first.dial:g}. "
        f"Base − ICA there: {gap}; increase of ICA's share: {change}.",
    )


def interval_of_factors(values: Float) -> Interval:
    """A t interval of the mean over factors, (b,), which are assumed to be independent."""
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / np.sqrt(len(values))
    mean = float(np.mean(values))
    return Interval(mean, mean - half, mean + half)


def _sign(gain: Interval) -> Status:
    return status_above(gain.low, gain.high)


def _along(found: Experiment, values: Sequence[float]) -> str:
    return ", ".join(f"{number(v)} at {one.dial:g}" for one, v in zip(found.curve, values, strict=True))
