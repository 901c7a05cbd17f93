"""A start for rows that are few for their width: eigenvectors of a fourth-cumulant matrix (Cardoso 1990).

From a random start, a component finds a source with which it has the overlap c by a signal of order c^3, and n rows
hide that below their noise unless n is of order k^3. The operator M -> E[(z' M z) z z'] - 2 M - tr(M) 1 on symmetric
matrices has the eigenmatrix a a' for every source axis a, with its excess kurtosis as the eigenvalue, and needs n of
order k^2 only: the eigenvalues of noise fill the interval 2 (r +- 2 r^0.5), r = k^2 / 2n, and a source whose kurtosis
is outside can be found (Baik, Ben Arous & Péché 2005). Applied often enough to a random M, the operator leaves
sum_j x_j a_j a_j' with random x_j, whose eigenvectors are the axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.ica._passes import AnyPasses
from congruence.rows.algebra import eigh, one_thread

STEPS = 8  # passes: applications of the operator
NARROW = 64  # components below which a random start finds whatever can be found


def rows_needed(k: int) -> int:
    """Return about how many rows a spectral start needs to find k sources such as Laplace; a flat one needs more.

    Twice as many as where their eigenvalues leave the interval of noise, k^2 / 4.5: nearer to that, a random start that
    takes as many passes finds as much.
    """
    return int(0.45 * k**2)


def nearer(source: AnyPasses, begins: list[Float], rng: np.random.Generator) -> list[Float]:
    """Return starts that are nearer to the sources, where the rows are too few for random ones and enough for these."""
    if not rows_needed(source.k) <= source.n < random_start_rows(source.k):
        return begins
    return [spectral_rotation(source, begin, rng) for begin in begins]


def random_start_rows(k: int) -> float:
    """Return about how many rows a random start needs to find k sources such as Laplace in few passes."""
    return 0.48 * k**3 / (2 * np.log(k)) ** 2 if k >= NARROW else 0.0  # its largest c^2 is about 2 log(k) / k


def spectral_rotation(source: AnyPasses, span: Any, rng: np.random.Generator) -> Float:
    """Return axes inside the span of the rows of `span`, orthonormal (m, k), that are near sources; (m, k)."""
    span, m = to_numpy(span), len(span)
    noise = m**2 / (2 * source.n)
    matrix = rng.normal(size=(m, m))
    before, matrix = matrix, (matrix + matrix.T) / np.linalg.norm(matrix + matrix.T)
    with one_thread(source.k):
        for step in range(STEPS):
            # A Chebyshev polynomial is small on the interval of noise and grows fastest outside.
            applied = source.fourth(span.T @ matrix @ span)
            cumulant = span @ to_numpy(applied.product) @ span.T - 2 * matrix - np.trace(matrix) * np.eye(m)
            cumulant = (cumulant - 2 * noise * matrix) / (4 * noise**0.5)
            after = cumulant if step == 0 else 2 * cumulant - before
            size = np.linalg.norm(after)
            before, matrix = matrix / size, after / size
        return np.ascontiguousarray(eigh((matrix + matrix.T) / 2)[1].T @ span)
