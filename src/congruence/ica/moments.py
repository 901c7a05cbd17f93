"""Mean and covariance of rows that arrive in chunks, in float64 whatever the rows are stored in.

`update` takes in a chunk, `merge` joins what two workers have seen, `finish` gives the covariance. Every chunk is
centred at its own mean before it is squared (Chan, Golub & LeVeque 1979): rows far from the origin lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float, as_matrix, check_finite, epsilon, float64_beside, to_numpy
from congruence.errors import InputError


@dataclass(frozen=True, eq=False)
class Moments:
    """What the rows seen so far amount to: their number, mean and scatter sum (x - mean)(x - mean)^T."""

    n: int
    mean: Float  # (d,)
    scatter: Float  # (d, d)
    epsilon: float = 0.0  # relative rounding of the numbers as they were stored, the coarsest of all chunks

    @classmethod
    def empty(cls, d: int) -> Moments:
        """The moments of no rows of width d."""
        return cls(0, np.zeros(d), np.zeros((d, d)))

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return len(self.mean)

    @property
    def rounding(self) -> Float:
        """How far storing a number may have moved it, root mean square per dimension, shape (d,)."""
        return self.epsilon * np.sqrt(np.diag(self.scatter) / max(self.n, 1) + self.mean**2)

    def update(self, chunk: Any, *, before: int = 0) -> Moments:
        """The moments with the rows of `chunk`, (m, d), taken in; messages count its rows from `before + n` on."""
        if chunk.shape[1] != self.d:
            raise InputError(f"a chunk has {chunk.shape[1]} columns, but the rows before it have {self.d}")
        rows = float64_beside(chunk, chunk)  # on the device where they are
        mean = rows.mean(0)
        rows = rows - mean
        scatter = to_numpy(rows.T @ rows)
        if not np.isfinite(scatter).all():
            check_finite(chunk, "x", first=before + self.n)
            raise InputError("the values are too large to be squared; rescale them")
        return self.merge(Moments(len(rows), to_numpy(mean), scatter, epsilon(chunk)))

    def merge(self, other: Moments) -> Moments:
        """The moments of the rows of both."""
        if self.d != other.d:
            raise InputError(f"cannot merge moments of rows with {self.d} and {other.d} columns")
        if self.n == 0 or other.n == 0:
            return other if self.n == 0 else self
        n = self.n + other.n
        apart = other.mean - self.mean
        scatter = self.scatter + other.scatter + np.outer(apart, apart) * (self.n * other.n / n)
        return Moments(n, self.mean + apart * (other.n / n), scatter, max(self.epsilon, other.epsilon))

    def finish(self) -> Float:
        """The population covariance (divided by n), shape (d, d)."""
        if self.n == 0:
            raise InputError("there are no rows to take the covariance of")
        return self.scatter / self.n


def moments_of(chunks: Iterable[Any], *, before: int = 0) -> Moments:
    """The moments of rows that come in chunks, each of shape (m, d); messages count the rows from `before` on."""
    total: Moments | None = None
    for chunk in chunks:
        chunk = as_matrix(chunk, "a chunk", finite=False)
        total = (total or Moments.empty(chunk.shape[1])).update(chunk, before=before)
    if total is None:
        raise InputError("there are no rows: the chunks are empty")
    return total
