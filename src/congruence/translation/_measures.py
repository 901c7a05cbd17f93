"""Further measurements of a translation on held-out rows: linear probes, a learning curve, drift."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from congruence.arrays import Array, Float, listing, to_numpy
from congruence.errors import InputError
from congruence.maps.groups import Map
from congruence.maps.nearness import Protocol
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, sums_of
from congruence.translation._choice import find_nearest, raw_rows
from congruence.translation.certificate import DRIFT, CurvePoint, Drift, Probe

CURVE_POINTS, CURVE_DRAWS = 8, 3
CURVE_QUERIES, CURVE_INDEX = 400, 2000
DRIFT_ROWS, DRIFT_COMPONENTS, DRIFT_LANDMARKS = 5000, 30, 300


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
    inputs = {"ideal": old, "after": translated, "before": pad(new, old.shape[1])}
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
    x: Rows, y: Rows, fit: Callable[[PairScatter, int | None], Map], d_old: int, plan: Protocol
) -> list[CurvePoint]:
    """The recall@10 by the number of paired rows the map is fitted on; queries are rows of the first fold."""
    rng = np.random.default_rng(plan.seed)
    pool = np.sort(np.concatenate(plan.folds[1:]))
    queries = np.sort(rng.permutation(plan.folds[0])[:CURVE_QUERIES])
    others = np.setdiff1d(rng.permutation(x.n)[:CURVE_INDEX], queries)
    index = np.concatenate([queries, others])
    old, new, own = raw_rows(y, index), raw_rows(x, queries), np.arange(len(queries))
    points = []
    for size in np.unique(np.geomspace(min(10, len(pool)), len(pool), CURVE_POINTS).astype(int)):
        draws = [np.sort(rng.choice(pool, size, replace=False)) for _ in range(CURVE_DRAWS if size < len(pool) else 1)]
        maps = [fit(sums_of(*_select(x, y, draw)), None) for draw in draws]
        found = [find_nearest(old, own, h(new)[:, :d_old]).mean() for h in maps]
        points.append(CurvePoint(int(size), float(np.mean(found)), float(min(found)), float(max(found))))
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


def pad(new: Float, width: int) -> Float:
    """The new vectors cut or zero-padded to the old width, for a comparison with no translation."""
    return new[:, :width] if new.shape[1] >= width else np.pad(new, ((0, 0), (0, width - new.shape[1])))
