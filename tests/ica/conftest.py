import numpy as np
import pytest


def sources(n, d, seed=0):
    """Laplace, uniform and exponential columns of unit variance: above, below and to one side of the Gaussian."""
    rng = np.random.default_rng(seed)
    draw = [rng.laplace, lambda size: rng.uniform(-1, 1, size), lambda size: rng.exponential(size=size)]
    s = np.column_stack([draw[j % 3](size=n) for j in range(d)])
    return (s - s.mean(0)) / s.std(0)


def mixed(s, seed=1):
    """The sources mixed by a random matrix, and that matrix."""
    mixing = np.random.default_rng(seed).normal(size=(s.shape[1], s.shape[1]))
    return s @ mixing.T, mixing


def amari(matrix):
    """Amari's distance from a scaled permutation: 0 is perfect separation."""
    size, k = np.abs(matrix), len(matrix)
    rows, columns = size.sum(1) / size.max(1) - 1, size.sum(0) / size.max(0) - 1
    return float((rows.sum() + columns.sum()) / (2 * k * (k - 1)))


def network_features(n, d, seed=0):
    """Features of a random network, which are no mixture of anything."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n, d))
    for width in (2 * d, d):
        hidden = hidden @ rng.normal(size=(hidden.shape[1], width)) / np.sqrt(hidden.shape[1])
        hidden = np.maximum(hidden, 0.1 * hidden)
    return hidden


@pytest.fixture
def mixtures():
    """Makers of test data: sources, mixed, amari, network_features."""
    return type("Mixtures", (), {f.__name__: staticmethod(f) for f in (sources, mixed, amari, network_features)})
