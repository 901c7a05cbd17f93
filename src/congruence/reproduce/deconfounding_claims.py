"""What section 4.4 and appendix A.7.4 claim, and what Theorem 3 predicts, judged on a screen whose truth is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from congruence.arrays import Float
from congruence.batches.screen import GENES
from congruence.formatting import number
from congruence.reproduce.deconfounding_screen import CONDITIONS, Interval, Measured, interval_of
from congruence.reproduce.deconfounding_tables import LABELS, TABLE_3, Findings
from congruence.reproduce.recipe import Claim

RECOVERED = 0.9  # a factor that an axis matches by more counts as found


def claims_of(found: Findings) -> tuple[Claim, ...]:
    """Judge what the paper says of its tables, then what the theory says of the dial."""
    return (
        _better(found.table, "whitened", "base", "Whitening alone often improves AUROC on plates never seen."),
        _better(found.table, "ica", "whitened", "ICA improves it further, consistently."),
        _better(found.table, "ica", "rotated", "It is the axes that matter: a random rotation does not do as well."),
        _sparser(found.table),
        _concentrated(found),
        _recovered(found),
        _gain_is_lost(found),
        _deconfounded(found),
    )


def _better(one: Measured, condition: str, reference: str, statement: str) -> Claim:
    gain = interval_of(one.ahead(condition, reference))
    ahead = [gene for gene in GENES if np.nanmean(one.of_gene(one.auroc[condition] - one.auroc[reference], gene)) > 0]
    theirs = np.mean(
        [values[0][CONDITIONS.index(condition)] - values[0][CONDITIONS.index(reference)] for values in TABLE_3.values()]
    )
    return Claim(
        statement,
        _sign(gain),
        f"{LABELS[condition]} − {LABELS[reference]}: {gain} on average over genes, ahead in {len(ahead)} of "
        f"{len(GENES)} (the paper's table: {theirs:+.3f}).",
    )


def _sparser(one: Measured) -> Claim:
    steps = [
        interval_of(one.by_fold(one.sparsity[b] - one.sparsity[a]))
        for a, b in (("base", "whitened"), ("whitened", "ica"))
    ]
    return Claim(
        "Sparsity increases markedly with both whitening and ICA.",
        _all(map(_sign, steps)),
        f"PCA − Base: {steps[0]}; PCA + ICA − PCA: {steps[1]}.",
    )


def _concentrated(found: Findings) -> Claim:
    told, judged = [], []
    for i, share in enumerate(found.shares):
        values = {name: found.near.top[name][i] - found.near.rest[name][i] for name in CONDITIONS}
        steps = [
            interval_of(found.near.by_fold(values[b] - values[a]))
            for a, b in (("base", "whitened"), ("whitened", "ica"))
        ]
        judged += [_sign(step) for step in steps]
        told.append(f"top {100 * share:g} %: {steps[0]}, then {steps[1]}")
    return Claim(
        "Concentration increases uniformly with whitening and with ICA, whatever the cut-off.",
        _all(judged),
        "PCA − Base, then PCA + ICA − PCA. " + "; ".join(told) + ".",
    )


def _recovered(found: Findings) -> Claim:
    means = [float(one.match["ica"].mean()) for one in found.curve]
    first, last = found.curve[0].match["ica"], found.curve[-1].match["ica"]
    change = interval_of_factors(first - last)
    return Claim(
        "Near an isometry, independent components are the true biology factors, and less so away from it (Theorem 3).",
        _all((_sign(change), bool(np.median(first) > RECOVERED))),
        f"Mean match over biology factors: {_along(found, means)}. It holds if the median at dial "
        f"{found.curve[0].dial:g}, {number(float(np.median(first)))}, is above {RECOVERED:g}, and the fall to the "
        f"last, {change}, is no chance.",
    )


def _gain_is_lost(found: Findings) -> Claim:
    first, last = found.curve[0], found.curve[-1]
    told, judged = [], []
    for reference in ("base", "rotated"):
        near, far = first.ahead("ica", reference), last.ahead("ica", reference)
        judged += [_sign(interval_of(near)), _sign(interval_of(near - far))]
        told.append(
            f"over {LABELS[reference]}: {interval_of(near)} at dial {first.dial:g}, {interval_of(far)} at "
            f"{last.dial:g}, a loss of {interval_of(near - far)}"
        )
    return Claim(
        "The gain of ICA is there near an isometry and is lost as the mixing moves away from one.",
        _all(judged),
        "AUROC of PCA + ICA, " + "; ".join(told) + ".",
    )


def _deconfounded(found: Findings) -> Claim:
    first, last = found.curve[0], found.curve[-1]
    change = interval_of_factors(last.taint["ica"] - first.taint["ica"])
    gap = interval_of_factors(first.taint["base"] - first.taint["ica"])
    means = [float(one.taint["ica"].mean()) for one in found.curve]
    return Claim(
        "Near an isometry, ICA separates biology from plates; away from it plates leak in.",
        _all((_sign(gap), _sign(change))),
        f"Technical share of the axes matched to biology: {_along(found, means)}; in the base, "
        f"{number(float(first.taint['base'].mean()))} at dial {first.dial:g}. "
        f"Base − ICA there: {gap}; rise of ICA's: {change}.",
    )


def interval_of_factors(values: Float) -> Interval:
    """A t interval of the mean over factors, (b,), taken for independent."""
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / np.sqrt(len(values))
    mean = float(np.mean(values))
    return Interval(mean, mean - half, mean + half)


def _sign(gain: Interval) -> bool | None:
    """True above zero, False below, None where the interval holds both or there is none."""
    return True if gain.low > 0 else False if gain.high < 0 else None


def _all(judged: Iterable[bool | None]) -> bool | None:
    """False where one is, else None where one is unknown, else True."""
    verdicts = list(judged)
    return False if False in verdicts else None if None in verdicts else True


def _along(found: Findings, values: Sequence[float]) -> str:
    return ", ".join(f"{number(v)} at {one.dial:g}" for one, v in zip(found.curve, values, strict=True))
