"""The quality of a translation on held-out rows: retrieval, probes, a learning curve, drift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array, Float, listing, to_numpy
from congruence.errors import InputError
from congruence.maps.groups import Map
from congruence.maps.nearness import HeldOut, Protocol, row_errors
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, sums_of
from congruence.stats.intervals import bootstrap_mean, rank_correlation

RANKED_QUERIES = 500  # whole rankings are compared for this many rows
CURVE_POINTS, CURVE_DRAWS = 8, 3
DRIFT_ROWS, DRIFT_COMPONENTS, DRIFT_LANDMARKS = 5000, 30, 300
DRIFT = 0.05  # a nonlinear map that predicts this share of the residual is drift
FALLING = 0.05  # relative decrease of the error over the last step of the curve from which more rows would help
ENOUGH = 1.1  # times the last error of the learning curve: a point below this has enough rows
ROUNDING = 1e-5  # errors below this share of the diameter are rounding
_BLOCK = 512


@dataclass(frozen=True)
class Retrieval:
    """How well translated vectors query an index of old vectors; every share from 0 to 1, higher is better.

    `recall_k`: the share of a row's k true nearest old vectors (those of its old vector) that its translated vector
    finds; vectors at equal distance are exchangeable. `itself`: how often the nearest old vector is the row's own;
    `rank_agreement`: the mean Spearman correlation of the two rankings of the whole index; `before`: recall_10 of
    untranslated vectors; `chance`: recall_10 of random ones.
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
    """The share of the linear map's held-out residual that a nonlinear map predicts; `found` if more than 5 %."""

    share: float
    found: bool


@dataclass(frozen=True)
class Certificate:
    """The quality of a translation, measured on rows that its maps were not fitted on."""

    retrieval: Retrieval
    probe: Probe | None
    curve: list[CurvePoint]
    drift: Drift

    @property
    def still_falling(self) -> bool:
        """Whether the learning curve still decreases at its end, so that more paired rows would help."""
        return len(self.curve) > 1 and self.curve[-1].mean < (1 - FALLING) * self.curve[-2].mean

    @property
    def rows_enough(self) -> int | None:
        """The smallest number of paired rows from which on the error stays within 10 % of the last."""
        curve = [point for point in self.curve if np.isfinite(point.mean)]
        if len(curve) < 2:
            return None
        limit = max(ENOUGH * curve[-1].mean, ROUNDING)
        above = [i for i, point in enumerate(curve) if point.mean > limit]  # the error may increase again near n = d
        return curve[max(above, default=-1) + 1].rows


def measure_retrieval(old: Float, translated: Float, new: Float, unit: Array, plan: Protocol) -> Retrieval:
    """Query the old vectors with translated ones, and compare the results with those of the true old vectors."""
    k = min(10, len(old) - 1)
    # Distances are differences of squares, which lose precision next to the square of a large mean.
    old, translated, padded = (z - old.mean(0) for z in (old, translated, _pad(new, old.shape[1])))
    squares = (old * old).sum(1)
    clusters = np.unique(unit, return_inverse=True)[1]
    hits = {name: np.empty(len(old)) for name in ("one", "ten", "itself", "before")}
    for start in range(0, len(old), _BLOCK):
        part = np.arange(start, min(start + _BLOCK, len(old)))
        truth, guess, raw = (squares - 2 * z[part] @ old.T for z in (old, translated, padded))
        hits["itself"][part] = (old[guess.argmin(1)] == old[part]).all(1)
        for distances in (truth, guess, raw):
            distances[np.arange(len(part)), part] = np.inf
        hits["one"][part] = _recall(truth, guess, 1, squares[part])
        hits["ten"][part], hits["before"][part] = (_recall(truth, z, k, squares[part]) for z in (guess, raw))
    recall_1, recall_10 = (
        HeldOut(float(values.mean()), *bootstrap_mean(values, clusters, plan.bootstrap, plan.seed))
        for values in (hits["one"], hits["ten"])
    )
    return Retrieval(
        recall_1=recall_1,
        recall_10=recall_10,
        itself=float(hits["itself"].mean()),
        rank_agreement=_rank_agreement(old, translated, plan.seed),
        before=float(hits["before"].mean()),
        chance=k / (len(old) - 1),
    )


def _recall(truth: Float, guess: Float, k: int, squares: Float) -> Float:
    """The share of the k nearest by `guess` that are no farther than the k-th nearest by `truth`, shape (m,).

    Both are squared distances minus the query's own square. Rows at the distance of the k-th count as well: among
    equal vectors, the order is decided by rounding.
    """
    nearest = np.argpartition(guess, k - 1, axis=1)[:, :k]
    reach = np.partition(truth, k - 1, axis=1)[:, k - 1]
    reach = reach + 1e-12 * (2 * squares + reach)  # the rounding of a difference of squares
    return np.asarray((np.take_along_axis(truth, nearest, axis=1) <= reach[:, None]).mean(1))


def _rank_agreement(old: Float, translated: Float, seed: int) -> float:
    queries = np.random.default_rng(seed).permutation(len(old))[:RANKED_QUERIES]
    squares = (old * old).sum(1)
    distances = [squares - 2 * z[queries] @ old.T for z in (old, translated)]
    return float(np.nan_to_num(rank_correlation(*distances)).mean())  # 0 where all distances are equal


def check_labels(labels: Array) -> None:
    """Refuse, before any work, labels that no probe can learn."""
    kind = labels.dtype.kind
    if kind in "cMm" or (labels.ndim == 2 and kind not in "biuf"):
        raise InputError(f"labels must be text, numbers or a matrix of numbers; got dtype {labels.dtype}")
    if kind == "f":
        bad = np.flatnonzero(~np.isfinite(labels.reshape(len(labels), -1)).all(1))
        if bad.size:
            raise InputError(f"labels has NaN or infinite values (row {listing(bad)})")
    if not _are_classes(labels):
        if (labels == labels[:1]).all(0).any():
            raise InputError("labels must vary in every column; got a constant column")
        return
    classes = len(np.unique(labels))
    if classes < 2:
        raise InputError("labels must have at least 2 classes; got 1")
    if classes > len(labels) / 2:
        raise InputError(
            f"labels must have at most one class per two rows; got {classes} classes in {len(labels)} rows (floats are "
            "regressed)"
        )


def _are_classes(labels: Array) -> bool:
    return labels.ndim == 1 and labels.dtype.kind != "f"


def measure_probe(old: Float, translated: Float, new: Float, labels: Array, fold: Array) -> Probe:
    """Train linear probes on old vectors of some folds; score old, translated and new vectors of the other."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes = _are_classes(labels)
    inputs = {"ideal": old, "after": translated, "before": _pad(new, old.shape[1])}
    scores: dict[str, list[float]] = {name: [] for name in (*inputs, "baseline")}
    for k in np.unique(fold):
        train, test = fold != k, fold == k
        if classes and len(np.unique(labels[train])) < 2:
            raise InputError("labels must have at least 2 classes outside every fold; got 1")
        head = LogisticRegression(max_iter=2000) if classes else RidgeCV(alphas=np.logspace(-1, 4, 6))
        probe = make_pipeline(StandardScaler(), head).fit(old[train], labels[train])
        for name, vectors in inputs.items():
            scores[name].append(float(probe.score(vectors[test], labels[test])))
        values, counts = np.unique(labels[train], return_counts=True)
        scores["baseline"].append(float((labels[test] == values[counts.argmax()]).mean()) if classes else 0.0)
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    return Probe(score="accuracy" if classes else "R squared", **means)


def learning_curve(
    x: Rows, y: Rows, fit: Callable[[PairScatter, int | None], Map], diameter: float, plan: Protocol
) -> list[CurvePoint]:
    """The held-out error by the number of paired rows the map is fitted on; the first fold is held out."""
    test = plan.folds[0]
    pool = np.sort(np.concatenate(plan.folds[1:]))
    rng = np.random.default_rng(plan.seed)
    if len(test) > DRIFT_ROWS:
        test = np.sort(rng.choice(test, DRIFT_ROWS, replace=False))
    sizes = np.unique(np.geomspace(min(10, len(pool)), len(pool), CURVE_POINTS).astype(int))
    points = []
    for size in sizes:
        draws = [np.sort(rng.choice(pool, size, replace=False)) for _ in range(CURVE_DRAWS if size < len(pool) else 1)]
        maps = [fit(sums_of(*_select(x, y, draw)), None) for draw in draws]
        means = [float(row_errors({"map": h}, x, y, test)["map"].mean()) / diameter for h in maps]
        points.append(CurvePoint(int(size), float(np.mean(means)), float(min(means)), float(max(means))))
    return points


def _select(x: Rows, y: Rows, index: Array) -> tuple[Rows, Rows]:
    """Some of the rows of both models, centred on their own."""
    few = [Rows(to_numpy(rows.data[index]), "cpu", rows.scale_rows) for rows in (x, y)]
    return few[0], few[1]


def measure_drift(x: Rows, y: Rows, plan: Protocol) -> Drift:
    """Measure the share of the best linear map's residual that a nonlinear map (kernel ridge on components) predicts.

    Fitted on the rows outside the first fold, scored on that fold; both are sampled where there are many rows.
    """
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(plan.seed)
    train, test = (
        np.sort(rng.permutation(rows)[:DRIFT_ROWS]) for rows in (np.concatenate(plan.folds[1:]), plan.folds[0])
    )
    few = _select(x, y, train)
    paired = sums_of(*few)
    axes, singular = paired.source.axes
    k = min(DRIFT_COMPONENTS, axes.shape[1])
    if k == 0 or len(test) < 2 or axes.shape[1] >= len(train) - 1:  # a map through all rows has no residual
        return Drift(float("nan"), False)
    whiten = axes[:, :k] / singular[:k] * np.sqrt(len(train) / k)
    solution = paired.source.solve(paired.cross)
    residual, inputs = {}, {}
    for name, rows in (("train", train), ("test", test)):
        centred = [to_numpy(r.take(rows)) + r.mean - f.mean for r, f in zip((x, y), few, strict=True)]
        residual[name], inputs[name] = centred[1] - centred[0] @ solution, centred[0] @ whiten
    landmarks = min(DRIFT_LANDMARKS, len(train) // 2)
    model = make_pipeline(
        Nystroem(gamma=0.5, n_components=max(landmarks, 1), random_state=plan.seed),
        RidgeCV(alphas=np.logspace(-3, 3, 7)),
    )
    predicted = model.fit(inputs["train"], residual["train"]).predict(inputs["test"])
    total = np.square(residual["test"]).sum()
    share = 1 - np.square(residual["test"] - predicted).sum() / max(total, 1e-300)
    rounding = np.sqrt(total) <= 1e-5 * np.sqrt(np.square(to_numpy(y.take(test))).sum())
    return Drift(float(max(share, 0.0)), bool(share > DRIFT and not rounding))


def _pad(new: Float, width: int) -> Float:
    """The new vectors cut or zero-padded to the old width, for a comparison with no translation."""
    return new[:, :width] if new.shape[1] >= width else np.pad(new, ((0, 0), (0, width - new.shape[1])))
