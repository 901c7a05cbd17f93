"""SAP: how much better the best single code predicts a factor than the second best does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.errors import InputError
from congruence.metrics.factors import Factor, paired
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note, note_if
from congruence.metrics.varying import NO_FACTORS, constant_codes, many_classes, split_rows, varying

ROUTES = ("auto", "discrete", "continuous")
FLAT = 1e-12  # variance up to which a code counts as constant, as in the reference
LARGEST = 1e30  # size of codes for which support vector machines converge
UNIT = 1e3  # how many times larger or smaller than 1 the spread of a code may be before it matters


@dataclass(frozen=True, eq=False)
class SAP:
    """The separated attribute predictability of codes, from 0 to 1, higher is better."""

    factors: tuple[str, ...]  # the rows of `matrix`
    matrix: Float  # (K, L) how well each code alone predicts each factor: accuracy, or squared correlation
    per_factor: Float  # (K,) the best score less the second best
    sap: float  # their mean
    routes: tuple[str, ...]  # of each factor: "discrete" or "continuous"
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline number."""
        return {"sap": self.sap}


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
        True factors, paired with the codes row by row.
    route : {"auto", "discrete", "continuous"}
        Discrete: accuracy, on rows held out, of a linear support vector machine (C = 0.01, classes balanced, squared
        hinge) on the one code; factors that are numbers are cut into bins. Continuous: the squared correlation
        cov^2 / (var var), on all rows or those of `train` where given; of a circular factor, the squared multiple
        correlation with its cosine and sine. "auto": discrete for classes, continuous for numbers; the two are
        not on one scale.
    factor_bins : int
        Equal-width bins of a factor that is no class, on the discrete route.
    train, test : row numbers, or a share as `test`
        Training rows and held-out rows; see `split_rows`.
    seed : int
        Of the split.

    References
    ----------
    Kumar et al. 2018.
    """
    if route not in ROUTES:
        raise InputError(f"route must be one of {', '.join(ROUTES)}, not {route!r}")
    z, s = paired(codes, factors, kinds)
    s, notes = varying(s)
    routes = tuple(_route(factor, route) for factor in s)
    matrix = np.empty((len(s), z.shape[1]))
    # A correlation learns nothing that could be wrong on other rows, so it takes all.
    learned_from, held = np.arange(len(z)), np.arange(0)
    if train is not None or "discrete" in routes:
        learned_from, held = split_rows(len(z), train, test, seed)
    correlated = slice(None) if train is None else learned_from
    for i, (factor, way) in enumerate(zip(s, routes, strict=True)):
        if way == "discrete" and np.abs(z).max() > LARGEST:
            matrix[i] = np.nan
        elif way == "discrete":
            matrix[i] = _accuracies(z, factor.labels(factor_bins), learned_from, held)
        else:
            matrix[i] = _squared_correlations(z[correlated], _columns(factor)[correlated])

    reasons = {}
    if not len(s):
        reasons["sap"] = NO_FACTORS
    elif "discrete" in routes and np.abs(z).max() > LARGEST:
        reasons["sap"] = f"Codes reach {np.abs(z).max():.0e}, where support vector machines do not converge."
    elif z.shape[1] < 2:
        reasons["sap"] = "There is only one code; two are needed."
    gaps = np.full(len(s), np.nan) if reasons else np.sort(matrix, 1)[:, -1] - np.sort(matrix, 1)[:, -2]
    binned = [f.name for f, way in zip(s, routes, strict=True) if way == "discrete" and not f.is_discrete]
    cut = note_if(binned, f"cut into {factor_bins} bins of equal width")
    mixed = (Note("Some factors are scored by accuracy, some by squared correlation"),) if len(set(routes)) > 1 else ()
    return SAP(
        factors=s.names,
        matrix=matrix,
        per_factor=gaps,
        sap=float("nan") if reasons else float(gaps.mean()),
        routes=routes,
        reasons=reasons,
        notes=(*s.notes, *notes, *constant_codes(z)[1], *cut, *mixed, *_far_from_unit(z, routes)),
    )


def _far_from_unit(z: Float, routes: tuple[str, ...]) -> tuple[Note, ...]:
    """A note on codes whose scale or mean is too far from 1 and 0 for the penalty, as in the reference."""
    spread = np.std(z, axis=0)
    live = spread > 0
    far = live & ((spread > UNIT) | (spread < 1 / UNIT) | (np.abs(z.mean(0)) > UNIT * spread))
    if "discrete" not in routes or not far.any():
        return ()
    return (Note(f"Codes with an extreme scale or mean score low: code {listing(np.flatnonzero(far))}"),)


def _route(factor: Factor, route: str) -> str:
    if route == "continuous" and factor.levels:
        raise InputError(f"factor {factor.name} is made of words, so it has no correlation; use route='auto'")
    if route == "auto":
        return "discrete" if factor.is_discrete else "continuous"
    return route


def _accuracies(z: Float, labels: Array, train: Array, test: Array) -> Float:
    """The held-out accuracy of each code alone, shape (L,)."""
    from sklearn.svm import LinearSVC

    if not np.ptp(labels[train]):  # one class only: every row is predicted to be of it
        return np.full(z.shape[1], float((labels[test] == labels[train][0]).mean()))
    scores = np.empty(z.shape[1])
    for j, code in enumerate(z.T):
        # The primal problem has the same solution as the reference's dual one, and no random order of rows.
        machine = LinearSVC(C=0.01, class_weight="balanced", dual=False)
        with many_classes():
            machine.fit(code[train, None], labels[train])
        scores[j] = (machine.predict(code[test, None]) == labels[test]).mean()
    return scores


def _columns(factor: Factor) -> Float:
    """The values, or the cosine and sine of a circular factor, shape (n, m)."""
    return factor.coordinates() if factor.kind == "circular" else factor.values[:, None]


def _squared_correlations(z: Float, columns: Float) -> Float:
    """The share of each code's variance that the columns of one factor explain, shape (L,)."""
    if len(z) < 2:
        return np.zeros(z.shape[1])
    centred, columns = z - z.mean(0), columns - columns.mean(0)
    total = np.square(centred).sum(0)  # (L,)
    basis, size, _ = np.linalg.svd(columns, full_matrices=False)
    basis = basis[:, size > size.max() * 1e-12] if size.max() > 0 else basis[:, :0]
    explained = np.square(basis.T @ centred).sum(0)
    live = total / (len(z) - 1) > FLAT
    shares: Float = np.where(live, explained / np.where(live, total, 1.0), 0.0)
    return shares


DECLARED = Metric(
    name="sap",
    function=sap,
    scores=("sap",),
    range=(0.0, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"permutation", "sign", "factor order", "relabelling"}),
    cost="fast",
    reference="Kumar et al. 2018",
)
