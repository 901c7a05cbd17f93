"""DCI: does each code serve one factor, is each factor in one code, and can the factors be predicted at all?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.metrics.factors import Factor, paired
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.notes import Note, note_if
from congruence.metrics.trees import Learned, check_model, learn_classes, learn_numbers
from congruence.metrics.varying import NO_FACTORS, constant_codes, split_rows, standardised, varying

FOREST_TEST, FOREST_SPLIT = 0.1, 42  # share held out and seed of the split, as in the reference of the forest
FLOOR = 1e-11  # added to importances before their entropy, as in the reference


@dataclass(frozen=True, eq=False)
class DCI:
    """Disentanglement, completeness and informativeness, from 0 to 1, higher is better."""

    factors: tuple[str, ...]  # the rows of `importance`
    importance: Float  # (K, L) how much each code was used for each factor; rows sum to 1, or to 0
    disentanglement: float  # codes that serve one factor only, weighted by how much they are used
    completeness: float  # factors that one code alone serves
    informativeness_train: float  # mean over factors of accuracy (classes) or R2 (numbers)
    informativeness_test: float  # the same on rows held out
    per_code: Float  # (L,) disentanglement of each code
    per_factor: Float  # (K,) completeness of each factor
    train: Float  # (K,) accuracy or R2 of each factor
    test: Float  # (K,) the same on rows held out
    reasons: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The headline numbers."""
        return {
            "dci_disentanglement": self.disentanglement,
            "dci_completeness": self.completeness,
            "dci_informativeness": self.informativeness_test,
        }


def dci(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    model: str = "boosting",
    train: Any = None,
    test: Any = None,
    seed: int = 0,
) -> DCI:
    """Predict each factor from all codes with trees, and ask how the use of codes is spread.

    Invariant to order, sign, scale and shift of the codes and to the names of classes, as far as ties between splits
    allow. It depends on the model: compare only values of the same one. A forest tries a random part of the codes at
    each split, so that even codes that are the factors stay well below 1.

    Parameters
    ----------
    codes : (n, L)
        Learned codes.
    factors : (n, K) array, data frame, mapping of columns, or `Factors`
        True factors, paired with the codes row by row.
    kinds : see `read_factors`
        Classes are predicted by classifiers and scored by accuracy. Numbers are predicted by regressors and scored by
        R2, 0 where it is negative (a circular one through its cosine and sine): an extension, the reference has none.
    model : {"boosting", "forest", "lightgbm"}
        Gradient boosting with scikit-learn's defaults (the reference; slow), a random forest of 100 trees of depth 10
        by entropy (10 % held out by split seed 42), or the boosting of LightGBM (`congruence[lightgbm]`; quick).
    train, test : row numbers, or a share as `test`
        Training rows and held-out rows; by default 30 % are held out (10 % for the forest). See `split_rows`.
    seed : int
        Of the split and of the trees.

    Returns
    -------
    DCI
        Disentanglement is NaN for one factor, completeness for one code.

    References
    ----------
    Eastwood & Williams 2018; boosting as in Locatello et al. 2019, the forest as in Hsu et al. 2024.
    """
    check_model(model)
    z, s = paired(codes, factors, kinds)
    s, notes = varying(s)
    if not len(s):
        return _nothing(z.shape[1], notes)
    forest = model == "forest"
    share = FOREST_TEST if forest else 0.3
    learned_from, held = split_rows(len(z), train, share if test is None else test, FOREST_SPLIT if forest else seed)

    x = standardised(z)  # trees do not ask for it, but scikit-learn's keep only seven digits
    found = [_learn(model, x, factor, learned_from, held, seed) for factor in s]
    importance = np.array([one.importance for one in found])
    per_code, per_factor = _one_minus_entropy(importance.T), _one_minus_entropy(importance)
    use = importance if importance.any() else np.ones_like(importance)
    scores = [np.array([getattr(one, rows) for one in found]) for rows in ("train", "test")]
    means = [float(np.nanmean(score)) if np.isfinite(score).any() else float("nan") for score in scores]
    return DCI(
        factors=s.names,
        importance=importance,
        disentanglement=float(per_code @ use.sum(0) / use.sum()),
        completeness=float(per_factor @ use.sum(1) / use.sum()),
        informativeness_train=means[0],
        informativeness_test=means[1],
        per_code=per_code,
        per_factor=per_factor,
        train=scores[0],
        test=scores[1],
        reasons=_reasons(importance, means[1]),
        notes=(*s.notes, *notes, *constant_codes(z)[1], *_notes(s, scores)),
    )


def _learn(model: str, z: Float, factor: Factor, train: Array, test: Array, seed: int) -> Learned:
    unknown = Learned(np.zeros(z.shape[1]), float("nan"), float("nan"))
    if factor.is_discrete:
        labels = factor.labels()
        return learn_classes(model, z, labels, train, test, seed) if np.ptp(labels[train]) else unknown
    columns = factor.coordinates()
    return learn_numbers(model, z, columns, train, test, seed) if np.ptp(columns[train], 0).any() else unknown


def _one_minus_entropy(importance: Float) -> Float:
    """1 - the entropy of each row (m, k), in units of log k: 1 for all in one place, 0 for evenly spread."""
    k = importance.shape[1]
    if k == 1:
        return np.full(len(importance), np.nan)
    share = importance + FLOOR
    share = share / share.sum(1, keepdims=True)
    even: Float = 1 + (share * np.log(share)).sum(1) / np.log(k)
    return np.maximum(even, 0.0)


def _reasons(importance: Float, informativeness: float) -> dict[str, str]:
    reasons = {}
    if importance.shape[0] == 1:
        reasons["dci_disentanglement"] = "There is only one factor."
    if importance.shape[1] == 1:
        reasons["dci_completeness"] = "There is only one code."
    if np.isnan(informativeness):
        reasons["dci_informativeness"] = "No factor varies in both the training rows and the held-out rows."
    return reasons


def _notes(s: Any, scores: list[Float]) -> tuple[Note, ...]:
    numbers = [factor.name for factor in s if not factor.is_discrete]
    missing = [name for name, score in zip(s.names, scores[1], strict=True) if np.isnan(score)]
    unscored = "not scored, because it is constant in the training or the held-out rows"
    return note_if(numbers, "predicted by regression and scored by R2") + note_if(missing, unscored)


def _nothing(codes: int, notes: tuple[Note, ...]) -> DCI:
    empty, nan = np.zeros((0, codes)), float("nan")
    names = ("dci_disentanglement", "dci_completeness", "dci_informativeness")
    reasons = dict.fromkeys(names, NO_FACTORS)
    none = np.zeros(0)
    return DCI((), empty, nan, nan, nan, nan, np.full(codes, nan), none, none, none, reasons, notes)


DECLARED = Metric(
    name="dci",
    function=dci,
    scores=("dci_disentanglement", "dci_completeness", "dci_informativeness"),
    range=(0.0, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"permutation", "sign", "scale", "scales", "shift", "factor order", "relabelling"}),
    cost="minutes",
    reference="Eastwood & Williams 2018",
)
