"""The linear map between two representations that the last layers of two classifiers imply (appendix A.3.1).

If two models softmax(W f + b) have the same probabilities, their W f + b are equal up to a constant that all
classes share. If the rows of W differ in enough directions (sufficient diversity), this determines f: the two
representations are linear maps of each other, and the map follows from both heads (Roeder et al. 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.maps._diameter import diameter
from congruence.maps.groups import Map, fit_map
from congruence.result import Record
from congruence.rows.algebra import svd
from congruence.tables import as_paired


@dataclass(frozen=True)
class Diversity(Record):
    """Whether the rows of a head span the representation, so that the outputs determine it."""

    diverse: bool
    rank: int  # directions of the representation that the outputs determine
    dimension: int
    classes: int
    condition: float  # of the head on these directions; 1 is best; the larger, the more sensitive the map
    reason: str

    def __str__(self) -> str:
        return f"{'sufficiently diverse' if self.diverse else 'not sufficiently diverse'}: {self.reason}"


@dataclass(frozen=True, eq=False)
class RoederMap(Record):
    """The linear map between two representations that their heads imply, from that of a to that of b.

    It is unique only if the head of b is sufficiently diverse; otherwise it is the map of least norm, determined on
    `rank` directions only.
    """

    map: Map
    unique: bool
    source: Diversity
    target: Diversity
    used: Array  # classes, at most D + 1 with use="best"
    disagreement: float  # share of the source's head that no linear map explains; 0 if outputs can be equal
    weights: Float  # of all classes, relative to the largest

    NAMES = ("unique", "source", "target", "classes_used", "disagreement")

    @property
    def classes_used(self) -> int:
        """The number of classes from which the map was derived."""
        return len(self.used)

    def __call__(self, x: Any) -> Any:
        """Map rows of the representation of a, (n, D), to that of b."""
        return self.map(x)

    def __str__(self) -> str:
        unique = "unique" if self.unique else "not unique: the heads leave directions undetermined"
        return (
            f"map from {len(self.used)} of {self.source.classes} classes, {unique}\n"
            f"  source {self.source}\n  target {self.target}\n"
            f"  share of the source's head that no linear map explains: {self.disagreement:.3g}"
        )


@dataclass(frozen=True)
class HeadsAgainstData(Record):
    """Errors of the map from heads and of the map fitted to the data, relative to the diameter of the target."""

    heads: float  # mean error of the map from heads; it is not fitted to these rows
    fitted: float  # mean error of the least-squares map, in sample
    seen_by_heads: float  # mean error of the map from heads on the directions that the head of the target determines
    difference: float  # root mean square difference of both maps, relative to the spread of the target
    diameter: float


def sufficient_diversity(head: Any, *, outputs: str = "softmax") -> Diversity:
    """Check that the rows of a last layer span the representation; `head` and `outputs` are as in `roeder_map`.

    With a softmax only differences between classes count, so D + 1 classes are needed; otherwise D.

    References
    ----------
    Nelson et al. 2026, Definition A.3 and Lemma A.1; Roeder et al. 2021.
    """
    weights, biases = _read_head(head, "head")
    return _measure_diversity(_centre(weights, biases, outputs, np.ones(len(weights)))[0], outputs)


def roeder_map(
    head_a: Any, head_b: Any, *, outputs: str = "softmax", use: str = "all", weights: Array | None = None
) -> RoederMap:
    """Derive the linear map from representation a to representation b from the two heads alone.

    Parameters
    ----------
    head_a, head_b : torch `Linear`, (classes, D) array, or pair of weights and biases
        Last layers with the same classes in the same order; the representations may differ in width.
    outputs : {"softmax", "sigmoid", "linear"}
        What is equal in both models: the probabilities of a softmax, or every single output.
    use : {"all", "best"}
        All classes by least squares, or only the D + 1 classes (D without softmax) that are best conditioned, which is
        the construction of the paper.
    weights : (classes,) array, optional
        Weights of the classes in the least squares, such as their frequency in the data: the rows of rare classes are
        hardly trained. A class of weight 0 has no influence. By default all classes count the same.

    Returns
    -------
    RoederMap
        Exact if both models have the same outputs and the head of b is diverse; `disagreement` measures the
        deviation from that.
    """
    check_choice("use", use, ("all", "best"))
    first, second = _read_head(head_a, "head_a"), _read_head(head_b, "head_b")
    if len(first[0]) != len(second[0]):
        raise InputError(f"both heads must have the same classes; got {len(first[0])} and {len(second[0])}")
    if weights is not None and use != "all":
        raise InputError("weights need use='all': with use='best' all equations are met, whatever their weights")
    shares = _read_weights(weights, len(first[0]))
    (wa, _), (wb, _) = (_centre(*head, outputs, shares) for head in (first, second))
    used = np.flatnonzero(shares) if use == "all" else _best_classes(second[0], outputs)
    (pa, ca), (pb, cb) = (_centre(w[used], b[used], outputs, shares[used]) for w, b in (first, second))
    u, values, vt = svd(pb)
    rank = _rank(values, pb.shape)
    inverse = (vt[:rank].T / values[:rank]) @ u[:, :rank].T  # (D_b, classes)
    matrix, shift = inverse @ pa, inverse @ (ca - cb)  # f_b = matrix f_a + shift
    width, source = max(matrix.shape), matrix.shape[1]
    padded = np.zeros((width, width))  # acts on rows; the narrower side is zero-padded
    padded[:source, : len(matrix)] = matrix.T
    target = _measure_diversity(wb[shares > 0], outputs)
    left = np.linalg.norm(wa - wb @ matrix)
    size = float(np.linalg.norm(wa))
    return RoederMap(
        map=Map("linear", padded, np.zeros(width), np.pad(shift, (0, width - len(shift)))),
        unique=target.diverse,
        source=_measure_diversity(wa[shares > 0], outputs),
        target=target,
        used=used,
        disagreement=float(left / size) if size > 0 else 0.0,
        weights=shares,
    )


def compare_with_fitted(found: RoederMap, x: Any, y: Any, head_b: Any, *, outputs: str = "softmax") -> HeadsAgainstData:
    """Measure the map from heads, and the linear map fitted to the data, on paired representations x, y.

    Parameters
    ----------
    found : RoederMap
        From the head of x to that of y.
    x, y : (n, D) each
        Representations of the same inputs.
    head_b : as in `roeder_map`
        The head of y, which determines the map on some directions only.
    outputs : {"softmax", "sigmoid", "linear"}
        As in `roeder_map`.
    """
    x, y = as_paired(x, y)
    target = to_numpy(y).astype(np.float64)
    d = target.shape[1]
    ours, best = to_numpy(found(x))[:, :d], to_numpy(fit_map(x, y, "linear")(x))[:, :d]
    size = diameter(target).value
    rows = _centre(*_read_head(head_b, "head_b"), outputs, found.weights)[0]
    directions = svd(rows)[2][: found.target.rank]  # (rank, D)
    seen = target @ directions.T

    def mean_length(rows: Float) -> float:
        return float(np.linalg.norm(rows, axis=1).mean())

    spread = float(np.linalg.norm(target - target.mean(0)))
    return HeadsAgainstData(
        heads=mean_length(ours - target) / size,
        fitted=mean_length(best - target) / size,
        seen_by_heads=mean_length(ours @ directions.T - seen) / diameter(seen).value,
        difference=float(np.linalg.norm(ours - best)) / spread,
        diameter=size,
    )


def _read_head(head: Any, name: str) -> tuple[Float, Float]:
    """Weights (classes, D) and biases (classes,) in float64."""
    if isinstance(head, tuple) and len(head) != 2:
        raise InputError(f"{name} must be weights, or a pair of weights and biases; got {len(head)} entries")
    parts = head if isinstance(head, tuple) else (getattr(head, "weight", head), getattr(head, "bias", None))
    w = to_numpy(parts[0]).astype(np.float64)
    b = np.zeros(len(w)) if parts[1] is None else to_numpy(parts[1]).astype(np.float64)
    if w.ndim != 2 or 0 in w.shape or b.shape != (len(w),):
        raise InputError(f"{name} must have weights (classes, D) and biases (classes,); got {w.shape} and {b.shape}")
    if not (np.isfinite(w).all() and np.isfinite(b).all()):
        raise InputError(f"{name} must be finite; got NaN or infinite weights")
    return w, b


def _read_weights(weights: Array | None, classes: int) -> Float:
    """Weights of the classes, relative to the largest."""
    if weights is None:
        return np.ones(classes)
    shares = to_numpy(weights).astype(np.float64)
    if shares.shape != (classes,):
        raise InputError(f"weights must have one entry for each of the {classes} classes; got shape {shares.shape}")
    if not (np.isfinite(shares).all() and shares.min() >= 0 < shares.max()):
        raise InputError("weights must be finite and not negative, and some must be positive")
    return np.asarray(shares / shares.max())


def _centre(weights: Float, biases: Float, outputs: str, shares: Float) -> tuple[Float, Float]:
    """What the outputs determine: with a softmax, only differences between classes. Rows times the root of shares."""
    check_choice("outputs", outputs, ("softmax", "sigmoid", "linear"))
    if outputs == "softmax":
        weights, biases = (one - np.average(one, axis=0, weights=shares) for one in (weights, biases))
    root = np.sqrt(shares)
    return root[:, None] * weights, root * biases


def _measure_diversity(weights: Float, outputs: str) -> Diversity:
    classes, d = weights.shape
    values = svd(weights)[1]
    rank = _rank(values, weights.shape)
    free = "differences of " if outputs == "softmax" else ""
    needed = d + 1 if outputs == "softmax" else d
    condition = float(values[0] / values[rank - 1]) if rank else float("inf")
    if rank == d:
        reason = f"{free}{classes} outputs determine all {d} directions (condition {condition:.3g})"
    elif classes < needed:
        reason = f"{classes} outputs determine {rank} of {d} directions; at least {needed} outputs are needed for all"
    else:
        reason = f"the {classes} outputs are too similar: they determine {rank} of {d} directions"
    return Diversity(rank == d, rank, d, classes, condition, reason)


def _rank(values: Float, shape: tuple[int, ...]) -> int:
    rounding = math.sqrt(min(shape)) * np.finfo(np.float32).eps  # of weights, which are usually float32
    return int((values > 10 * rounding * values[0]).sum()) if values[0] > 0 else 0


def _best_classes(weights: Float, outputs: str) -> Array:
    """Greedily choose classes whose rows are far from the span of those before: pivoted QR."""
    from scipy.linalg import qr

    classes, d = weights.shape
    if outputs != "softmax":
        return np.sort(qr(weights.T, mode="r", pivoting=True)[1][: min(classes, d)])
    first = int(np.linalg.norm(weights - weights.mean(0), axis=1).argmax())  # the reference of the differences
    others = np.delete(np.arange(classes), first)
    order = qr((weights[others] - weights[first]).T, mode="r", pivoting=True)[1]
    return np.sort(np.append(others[order[: min(classes - 1, d)]], first))
