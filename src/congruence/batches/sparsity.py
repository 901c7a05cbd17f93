"""How few features the trees use, and how much of their AUROC is due to the most used features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError

READINGS = ("difference", "ratio")


def hoyer(weights: Any) -> float:
    """Sparsity of weights (d,), from 0 (all equal) to 1 (a single one is not 0).

    (sqrt(d) - |w|_1 / |w|_2) / (sqrt(d) - 1), Hoyer 2004. Invariant to scale, signs and order. NaN for one weight, or
    if all are 0.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or not np.isfinite(w).all():
        raise InputError(f"weights must be finite numbers of shape (d,), but have shape {w.shape}")
    largest = np.abs(w).max(initial=0.0)
    if len(w) < 2 or largest == 0:
        return float("nan")
    w = w / largest  # so that no square overflows or vanishes
    root = np.sqrt(len(w))
    return float(np.clip((root - np.abs(w).sum() / np.sqrt(np.square(w).sum())) / (root - 1), 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class Concentration:
    """AUROC of trees that see only the top features, and of trees that see only the rest, on the same rows."""

    share: float
    top: Float  # (m,)
    rest: Float  # (m,)

    @property
    def difference(self) -> Float:
        """Top minus rest, (m,); 0 where the top features are no better."""
        return self.top - self.rest

    @property
    def ratio(self) -> Float:
        """The same relative to the rest, top / rest - 1, (m,)."""
        return self.top / self.rest - 1.0


def top_features(splits: Array, gain: Array, share: float) -> Array:
    """Which features are among the top `share` by the number of splits (ties by gain), (d,) of bool; never all."""
    d = len(splits)
    count = int(np.clip(round(share * d), 1, max(1, d - 1)))
    top = np.zeros(d, dtype=bool)
    top[np.lexsort((np.arange(d), -np.asarray(gain), -np.asarray(splits)))[:count]] = True
    return top


def concentrations(
    splits: Array, gain: Array, shares: Sequence[float], score: Callable[[Array], float]
) -> tuple[list[float], list[float]]:
    """AUROC of the top features and of the rest for each share; `score` trains and scores on chosen features."""
    top, rest = [], []
    for share in shares:
        chosen = top_features(splits, gain, share)
        single = len(chosen) < 2  # one feature leaves no rest
        top.append(float("nan") if single else score(chosen))
        rest.append(float("nan") if single else score(~chosen))
    return top, rest


def check_shares(shares: Any) -> tuple[float, ...]:
    """Shares of features as numbers; "none" means no share."""
    values = [shares] if isinstance(shares, str) or not isinstance(shares, Iterable) else list(shares)
    if values == ["none"]:
        return ()
    for share in values:
        try:
            fits = 0 < float(share) < 1
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise InputError(f"concentration must hold shares between 0 and 1, such as 0.25, or be 'none'; got {share}")
    return tuple(map(float, values))
