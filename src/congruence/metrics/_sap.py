"""SAP: how much better the best single code predicts a factor than the second best does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.metrics._estimators import ignore_many_classes, linear_r2
from congruence.metrics._information import lead
from congruence.metrics._resampling import split_rows
from congruence.metrics._results import MetricResult, Note, note_if
from congruence.metrics.factors import NO_FACTORS, read_usable

ROUTES = ("auto", "discrete", "continuous")
FLAT = 1e-12  # variance up to which a code counts as constant, as in the reference
LARGEST = 1e30  # size of codes for which support vector machines converge
UNIT = 1e3  # how many times larger or smaller than 1 the spread of a code may be before it matters


@dataclass(frozen=True, eq=False)
class SAP(MetricResult):
    """The separated attribute predictability of codes, from 0 to 1, higher is better."""

    factors: tuple[str, ...]  # the rows of `matrix`
    matrix: Float  # (K, L) how well each code alone predicts each factor: accuracy, or squared correlation
    per_factor: Float  # (K,) the best score less the second best
    sap: float  # their mean
    routes: tuple[str, ...]  # of each factor: "discrete" or "continuous"

    headline = ("sap",)


def sap(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    route: str = "auto",
    factor_bins: int = 10,
    train: Any = None,
    test: Any = 0.3,
    seed: int = 0,
) -> SAP:
    """Score each code alone against each factor, and take the gap between the best code and the next.

    Invariant to order and sign of the codes. The continuous route also ignores scale and shift of each code; the
    discrete one does not, because its classifier is penalised.

    Parameters
    ----------
    codes : (n, L)
        Learned codes, L at least 2.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
    kinds : str, list or dict as of `read_factors`, default "auto"
    route : {"auto", "discrete", "continuous"}, default "auto"
        Discrete: held-out accuracy of a linear support vector machine (C = 0.01, classes balanced, squared hinge) on
        the one code; continuous factors are cut into bins. Continuous: the squared correlation cov^2 / (var var), on
        all rows or those of `train` if given; of a circular factor, the squared multiple correlation with its cosine
        and sine. "auto": discrete for classes, continuous for numbers; the two are not on one scale.
    factor_bins : int, default 10
        Equal-width bins of a continuous factor, on the discrete route.
    train : row numbers or mask; all that are not held out if None, optional
    test : row numbers, mask or share, default 0.3
        Held-out rows; a share is drawn at random.
    seed : int, default 0
        Of the split.

    References
    ----------
    Kumar et al. 2018.
    """
    check_choice("route", route, ROUTES)
    z, s, notes = read_usable(codes, factors, kinds)
    words = [factor.name for factor in s if factor.levels]
    if route == "continuous" and words:
        raise InputError(f"factor {words[0]} is made of words, so it has no correlation; use route='auto'")
    auto = ["discrete" if factor.is_discrete else "continuous" for factor in s]
    routes = tuple(auto if route == "auto" else [route] * len(s))

    reason = "" if len(s) else NO_FACTORS
    largest = np.abs(z).max()
    if "discrete" in routes and largest > LARGEST:
        reason = f"Codes reach {largest:.0e}, where support vector machines do not converge."
    elif len(s) and z.shape[1] < 2:
        reason = "There is only one code; two are needed."
    # A correlation is not fitted, so it takes all rows.
    fitted, held = np.arange(len(z)), np.arange(0)
    if train is not None or "discrete" in routes:
        fitted, held = split_rows(len(z), train, test, seed)
    correlated = slice(None) if train is None else fitted
    matrix = np.full((len(s), z.shape[1]), np.nan)
    for i, factor in enumerate(s):
        if routes[i] == "continuous":
            columns = factor.coordinates() if factor.kind == "circular" else factor.values[:, None]
            matrix[i] = _squared_correlations(z[correlated], columns[correlated])
        elif largest <= LARGEST:
            matrix[i] = _accuracies(z, factor.labels(factor_bins), fitted, held)

    gaps = np.full(len(s), np.nan) if reason else lead(matrix)
    cut = [f.name for f, way in zip(s, routes, strict=True) if way == "discrete" and not f.is_discrete]
    mixed = (Note("Some factors are scored by accuracy, some by squared correlation"),) if len(set(routes)) > 1 else ()
    return SAP(
        factors=s.names,
        matrix=matrix,
        per_factor=gaps,
        sap=float("nan") if reason else float(gaps.mean()),
        routes=routes,
        reasons={"sap": reason} if reason else {},
        notes=(
            *notes,
            *note_if(cut, f"cut into {factor_bins} bins of equal width"),
            *mixed,
            *(_note_scale(z) if "discrete" in routes else ()),
        ),
    )


def _note_scale(z: Float) -> tuple[Note, ...]:
    """A note on codes whose scale or mean is too far from 1 and 0 for the penalty, as in the reference."""
    spread = np.std(z, axis=0)
    far = (spread > 0) & ((spread > UNIT) | (spread < 1 / UNIT) | (np.abs(z.mean(0)) > UNIT * spread))
    if not far.any():
        return ()
    return (Note(f"Codes with an extreme scale or mean score low: code {listing(np.flatnonzero(far))}"),)


def _accuracies(z: Float, labels: Array, train: Array, test: Array) -> Float:
    """The held-out accuracy of each code alone, shape (L,)."""
    from sklearn.svm import LinearSVC

    if not np.ptp(labels[train]):  # one class only, which is predicted for every row
        return np.full(z.shape[1], float((labels[test] == labels[train][0]).mean()))
    scores = np.empty(z.shape[1])
    for j, code in enumerate(z.T):
        # The primal problem has the same solution as the reference's dual one, and no random order of rows.
        machine = LinearSVC(C=0.01, class_weight="balanced", dual=False)
        with ignore_many_classes():
            machine.fit(code[train, None], labels[train])
        scores[j] = (machine.predict(code[test, None]) == labels[test]).mean()
    return scores


def _squared_correlations(z: Float, columns: Float) -> Float:
    """The share of each code's variance that the columns of one factor explain, shape (L,); 0 for a constant code."""
    live = z.var(0) * len(z) > FLAT * (len(z) - 1)
    shares = np.zeros(z.shape[1])
    shares[live] = linear_r2(columns, z[:, live])
    return shares
