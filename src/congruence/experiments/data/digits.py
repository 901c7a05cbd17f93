"""scikit-learn's bundled handwritten digits: real images that need no download."""

from __future__ import annotations

import numpy as np

from congruence.arrays import Array


def digits() -> tuple[Array, Array]:
    """Return 1797 images as rows of 64 grey values from 0 to 1 (float32), and the digit each one shows."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return (bunch.data / 16).astype(np.float32), bunch.target
