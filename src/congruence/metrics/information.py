"""Entropy and mutual information of classes, from counts; natural logarithms."""

from __future__ import annotations

import numpy as np

from congruence.arrays import Array, Float

ROUNDING = 1e-14  # of a sum of entropies: less information is none


def entropy(classes: Array) -> Float:
    """Entropy of each column of class numbers (n, K) in nats, from the share of rows in each class; shape (K,)."""
    return np.array([_entropy(np.bincount(column)) for column in classes.T])


def class_information(codes: Array, factors: Array) -> Float:
    """Mutual information of classes with classes in nats, from their counts.

    The plug-in estimate: it is biased upwards by about (classes of one - 1)(classes of the other - 1) / 2n.

    Parameters
    ----------
    codes, factors : (n, L) and (n, K)
        Class numbers from 0.

    Returns
    -------
    (K, L)
        From 0 to the smaller of the two entropies.
    """
    own, other = entropy(codes), entropy(factors)
    shared = np.empty((len(other), len(own)))
    width = codes.max(0) + 1
    for i, factor in enumerate(factors.T):
        for j, code in enumerate(codes.T):
            shared[i, j] = own[j] + other[i] - _entropy(np.bincount(factor * width[j] + code))
    most = np.add.outer(other, own)
    return np.where(shared > ROUNDING * most, shared, 0.0)


def _entropy(counts: Array) -> float:
    counts = counts[counts > 0]
    n = counts.sum()
    return float(np.log(n) - counts @ np.log(counts) / n)
