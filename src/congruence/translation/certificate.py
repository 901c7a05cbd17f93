"""What a translation costs, measured on held-out rows: retrieval, probes, a learning curve, drift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing, to_numpy
from congruence.errors import InputError
from congruence.maps.groups import Map
from congruence.maps.nearness import HeldOut, Protocol, row_errors
from congruence.rows.engine import Rows
from congruence.rows.sums import Paired, sums_of
from congruence.stats.intervals import bootstrap_mean

RANKED_QUERIES = 500  # whole rankings are compared for this many rows
CURVE_POINTS, CURVE_DRAWS = 8, 3
DRIFT_ROWS, DRIFT_COMPONENTS, DRIFT_LANDMARKS = 5000, 30, 300
DRIFT = 0.05  # a nonlinear map that predicts this share of the residual is drift
FALLING = 0.05  # the fall of the error over the last step of the curve that makes more rows worthwhile
ENOUGH = 1.1  # times the last error of the learning curve: fewer rows than its point will do
ROUNDING = 1e-5  # errors below this share of the diameter are all the same
_BLOCK = 512


@dataclass(frozen=True)
class Retrieval:
    """How well translated vectors query an index of old vectors; every share from 0 to 1, higher is better.

    `recall_k`: the share of a row's k true nearest old vectors (found by its old vector) that its translated vector
    finds, any of equally near ones; `itself`: how often the nearest old vector is the row's own; `rank_agreement`: the
    mean Spearman correlation of the two rankings of the whole index; `before`: recall_10 of untranslated vectors;
    `chance`: recall_10 of random ones.
    """

    recall_1: HeldOut
    recall_10: HeldOut
    itself: float
    rank_agreement: float
    before: float
    chance: float


@dataclass(frozen=True)
class Probe:
    """A linear probe trained on old vectors, tested on held-out rows: accuracy of classes, or R squared of numbers.

    `ideal` uses the true old vectors, `after` the translated ones, `before` the untranslated ones, and `baseline` none.
    """

    score: str
    ideal: float
    after: float
    before: float
    baseline: float


@dataclass(frozen=True)
class CurvePoint:
    """The held-out error (a share of the diameter) of maps fitted on this many paired rows, over several draws."""

    rows: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Drift:
    """The share of the linear map's held-out residual that a nonlinear map predicts; `found` if it is more than 5 %."""

    share: float
    found: bool


@dataclass(frozen=True)
class Certificate:
    """Everything measured about a translation on rows its maps had not seen."""

    retrieval: Retrieval
    probe: Probe | None
    curve: list[CurvePoint]
    drift: Drift

    @property
    def still_falling(self) -> bool:
        """Whether the learning curve falls at its end, so that more paired rows would help."""
        if len(self.curve) < 2:
            return False
        before, last = self.curve[-2:]
        return last.mean < (1 - FALLING) * before.mean

    @property
    def rows_enough(self) -> int | None:
        """The smallest number of paired rows from which on the error stays within 10 % of the last."""
        curve = [point for point in self.curve if np.isfinite(point.mean)]
        if len(curve) < 2:
            return None
        small = max(ENOUGH * curve[-1].mean, ROUNDING)
        above = [i for i, point in enumerate(curve) if point.mean > small]  # the error may rise again, near n = d
        return curve[max(above, default=-1) + 1].rows


def measure_retrieval(old: Float, carried: Float, new: Float, unit: Array, plan: Protocol) -> Retrieval:
    """Query the old vectors with translated ones, and compare with what the true old vectors find."""
    k = min(10, len(old) - 1)
    # Distances are differences of squares, which would drown in the square of a large mean.
    old, carried, padded = (z - old.mean(0) for z in (old, carried, _fitted_to(new, old.shape[1])))
    squares = (old * old).sum(1)
    hits = {name: np.empty(len(old)) for name in ("one", "ten", "itself", "before")}
    for start in range(0, len(old), _BLOCK):
        part = np.arange(start, min(start + _BLOCK, len(old)))
        truth, found, raw = (squares - 2 * z[part] @ old.T for z in (old, carried, padded))
        hits["itself"][part] = (old[found.argmin(1)] == old[part]).all(1)
        for distances in (truth, found, raw):
            distances[np.arange(len(part)), part] = np.inf
        hits["one"][part] = _recall(truth, found, 1, squares[part])
        hits["ten"][part], hits["before"][part] = (_recall(truth, z, k, squares[part]) for z in (found, raw))
    return Retrieval(
        recall_1=_with_interval(hits["one"], unit, plan),
        recall_10=_with_interval(hits["ten"], unit, plan),
        itself=float(hits["itself"].mean()),
        rank_agreement=_rank_agreement(old, carried, plan.seed),
        before=float(hits["before"].mean()),
        chance=k / (len(old) - 1),
    )


def _recall(truth: Float, found: Float, k: int, squares: Float) -> Float:
    """The share of the k nearest by `found` that are no farther than the k-th nearest by `truth`, shape (m,).

    Both are squared distances less the query's own square. Rows as far as the k-th are as good as it: where vectors
    repeat, which of them comes first is rounding.
    """
    nearest = np.argpartition(found, k - 1, axis=1)[:, :k]
    reach = np.partition(truth, k - 1, axis=1)[:, k - 1]
    reach = reach + 1e-12 * (2 * squares + reach)  # the rounding of a difference of squares
    return np.asarray((np.take_along_axis(truth, nearest, axis=1) <= reach[:, None]).mean(1))


def _with_interval(values: Float, unit: Array, plan: Protocol) -> HeldOut:
    clusters = np.unique(unit, return_inverse=True)[1]
    return HeldOut(float(values.mean()), *bootstrap_mean(values, clusters, plan.bootstrap, plan.seed))


def _rank_agreement(old: Float, carried: Float, seed: int) -> float:
    from scipy.stats import rankdata

    queries = np.random.default_rng(seed).permutation(len(old))[:RANKED_QUERIES]
    squares = (old * old).sum(1)
    ranks = [rankdata(squares - 2 * z[queries] @ old.T, axis=1) for z in (old, carried)]
    centred = [r - r.mean(1, keepdims=True) for r in ranks]
    norms = [np.sqrt((r * r).sum(1)) for r in centred]
    return float(np.mean((centred[0] * centred[1]).sum(1) / np.maximum(norms[0] * norms[1], 1e-300)))


def check_labels(labels: Array) -> None:
    """Refuse, before any work, labels from which no probe can learn."""
    kind = labels.dtype.kind
    if kind in "cMm" or (labels.ndim == 2 and kind not in "biuf"):
        raise InputError(f"labels must be text or numbers (or a matrix of numbers), but their dtype is {labels.dtype}")
    if kind == "f":
        bad = np.flatnonzero(~np.isfinite(labels.reshape(len(labels), -1)).all(1))
        if bad.size:
            raise InputError(f"labels has NaN or infinite values (row {listing(bad)})")
    if not _are_classes(labels):
        if (labels == labels[:1]).all(0).any():
            raise InputError("labels never change, or have a column that never does, so there is nothing to predict")
        return
    classes = len(np.unique(labels))
    if classes < 2:
        raise InputError("labels have a single class, so no probe can be trained")
    if classes > len(labels) / 2:
        raise InputError(
            f"labels have {classes} classes in {len(labels)} rows, too many to learn; to regress numbers give floats"
        )


def _are_classes(labels: Array) -> bool:
    return labels.ndim == 1 and labels.dtype.kind != "f"


def measure_probe(old: Float, carried: Float, new: Float, labels: Array, fold: Array) -> Probe:
    """Train linear probes on old vectors of some folds; score old, translated and new vectors of the other."""
    classes = _are_classes(labels)
    inputs = {"ideal": old, "after": carried, "before": _fitted_to(new, old.shape[1])}
    scores: dict[str, list[float]] = {name: [] for name in (*inputs, "baseline")}
    for k in np.unique(fold):
        train, test = fold != k, fold == k
        if classes and len(np.unique(labels[train])) < 2:
            raise InputError("labels have a single class in some fold, so no probe can be trained")
        probe = _probe(classes).fit(old[train], labels[train])
        for name, vectors in inputs.items():
            scores[name].append(float(probe.score(vectors[test], labels[test])))
        scores["baseline"].append(_baseline(labels[train], labels[test], classes))
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    return Probe(score="accuracy" if classes else "R squared", **means)


def _probe(classes: bool) -> Any:
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    head = LogisticRegression(max_iter=2000) if classes else RidgeCV(alphas=np.logspace(-1, 4, 6))
    return make_pipeline(StandardScaler(), head)


def _baseline(train: Array, test: Array, classes: bool) -> float:
    if not classes:
        return 0.0
    values, counts = np.unique(train, return_counts=True)
    return float((test == values[counts.argmax()]).mean())


def learning_curve(
    x: Rows, y: Rows, fit: Callable[[Paired, int | None], Map], diameter: float, plan: Protocol
) -> list[CurvePoint]:
    """The held-out error against the number of paired rows the map is fitted on; the first fold is held out."""
    test = plan.folds[0]
    pool = np.sort(np.concatenate(plan.folds[1:]))
    rng = np.random.default_rng(plan.seed)
    if len(test) > DRIFT_ROWS:
        test = np.sort(rng.choice(test, DRIFT_ROWS, replace=False))
    sizes = np.unique(np.geomspace(min(10, len(pool)), len(pool), CURVE_POINTS).astype(int))
    points = []
    for size in sizes:
        draws = [np.sort(rng.choice(pool, size, replace=False)) for _ in range(CURVE_DRAWS if size < len(pool) else 1)]
        means = [_error_of(x, y, draw, test, fit) / diameter for draw in draws]
        points.append(CurvePoint(int(size), float(np.mean(means)), float(min(means)), float(max(means))))
    return points


def _error_of(x: Rows, y: Rows, rows: Array, test: Array, fit: Callable[[Paired, int | None], Map]) -> float:
    few = (Rows(to_numpy(r.data[rows]), "cpu", r.scale_rows) for r in (x, y))
    return float(row_errors({"map": fit(sums_of(*few), None)}, x, y, test)["map"].mean())


def measure_drift(x: Rows, y: Rows, plan: Protocol) -> Drift:
    """Ask whether a nonlinear map (kernel ridge on the leading components) predicts what the best linear one leaves.

    Fitted on the rows outside the first fold, scored on that fold; both are sampled where there are many rows.
    """
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(plan.seed)
    train, test = (
        np.sort(rng.permutation(rows)[:DRIFT_ROWS]) for rows in (np.concatenate(plan.folds[1:]), plan.folds[0])
    )
    few = [Rows(to_numpy(r.data[train]), "cpu", r.scale_rows) for r in (x, y)]
    paired = sums_of(*few)
    axes, singular = paired.source.axes
    k = min(DRIFT_COMPONENTS, axes.shape[1])
    if k == 0 or len(test) < 2 or axes.shape[1] >= len(train) - 1:  # a map through all rows leaves nothing to see
        return Drift(float("nan"), False)
    whiten = axes[:, :k] / singular[:k] * np.sqrt(len(train) / k)
    solution = paired.source.solve(paired.cross)
    left, inputs = {}, {}
    for name, rows in (("train", train), ("test", test)):
        centred = [to_numpy(r.take(rows)) + r.mean - f.mean for r, f in zip((x, y), few, strict=True)]
        left[name], inputs[name] = centred[1] - centred[0] @ solution, centred[0] @ whiten
    landmarks = min(DRIFT_LANDMARKS, len(train) // 2)
    model = make_pipeline(
        Nystroem(gamma=0.5, n_components=max(landmarks, 1), random_state=plan.seed),
        RidgeCV(alphas=np.logspace(-3, 3, 7)),
    )
    predicted = model.fit(inputs["train"], left["train"]).predict(inputs["test"])
    share = 1 - np.square(left["test"] - predicted).sum() / max(np.square(left["test"]).sum(), 1e-300)
    return Drift(float(max(share, 0.0)), bool(share > DRIFT and not _negligible(left["test"], y, test)))


def _negligible(residual: Float, y: Rows, test: Array) -> bool:
    """Whether the linear map leaves no more than rounding, so that predicting it means nothing."""
    return bool(np.sqrt(np.square(residual).sum()) <= 1e-5 * np.sqrt(np.square(to_numpy(y.take(test))).sum()))


def _fitted_to(new: Float, width: int) -> Float:
    """The new vectors cut or zero-padded to the old width, for a comparison with doing nothing."""
    return new[:, :width] if new.shape[1] >= width else np.pad(new, ((0, 0), (0, width - new.shape[1])))
