"""Unmixing one run on its own: whiten, then rotate to independent components (Theorem 2 of the paper).

`unmix` is the interface the rest of the package relies on; the rotation inside it is scikit-learn's FastICA in
float64, since its float32 decorrelation is known to lose the answer on wide data.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.maps.algebra import one_thread
from congruence.maps.sums import Spread

MAX_ITERATIONS = 200
TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Unmixing:
    """Components s = (x - mean) @ unmixing.T of unit variance, and the way back x = s @ mixing.T + mean."""

    mean: Float  # (d,) in the run's centred coordinates
    unmixing: Float  # (k, d)
    mixing: Float  # (d, k)
    converged: bool
    iterations: int

    @property
    def k(self) -> int:
        """The number of components: the numerical rank of the rows."""
        return len(self.unmixing)


def unmix(spread: Spread, *, seed: int = 0) -> Unmixing:
    """Whiten the rows of `spread` on their numerical rank and rotate them to independent components.

    The rotation starts at random, from `seed`.
    """
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    axes, singular = spread.axes  # (d, k), (k,)
    deviation = singular / np.sqrt(spread.n)
    white = (to_numpy(spread.rows.take(spread.index)) - spread.mean) @ (axes / deviation)  # (n, k)
    rotation, iterations, converged = np.eye(len(singular)), 0, True
    if len(singular) > 1:
        ica = FastICA(whiten=False, max_iter=MAX_ITERATIONS, tol=TOLERANCE, random_state=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with one_thread(len(singular)):
                ica.fit(white)
        rotation, iterations = ica.components_, int(ica.n_iter_)
        converged = not any(issubclass(w.category, ConvergenceWarning) for w in caught)
    return Unmixing(
        mean=spread.mean,
        unmixing=rotation @ (axes / deviation).T,
        mixing=(axes * deviation) @ rotation.T,
        converged=converged,
        iterations=iterations,
    )
