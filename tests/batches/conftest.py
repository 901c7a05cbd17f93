from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("lightgbm")


@dataclass
class Wells:
    x: np.ndarray
    gene: np.ndarray
    plate: np.ndarray


def make_wells(n=600, plates=10, effect=2.0, shift=1.5, seed=0):
    """Two genes and controls on some plates: each gene moves a source of its own, each plate two others; mixed."""
    rng = np.random.default_rng(seed)
    plate = rng.integers(0, plates, n)
    gene = rng.choice(["none", "MTOR", "PLK1"], n, p=[0.5, 0.3, 0.2])
    sources = rng.laplace(size=(n, 6))
    sources[:, 0] += effect * (gene == "MTOR")
    sources[:, 1] += effect * (gene == "PLK1")
    sources[:, 2:4] += shift * rng.normal(size=(plates, 2))[plate]
    return Wells(sources @ np.linalg.qr(rng.normal(size=(6, 6)))[0], gene, np.array([f"p{i}" for i in plate]))


@pytest.fixture(scope="session")
def wells():
    return make_wells()
