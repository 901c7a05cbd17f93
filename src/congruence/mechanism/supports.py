"""Which outputs a latent reaches: supports of Jacobians, and how much they depend on what counts as zero.

A trained decoder has no exact zeros, so a support depends on the tolerance. It can be trusted where it stays the
same over a wide interval of tolerances.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError

RTOL = 1e-6
SCALES = ("global", "column")
GRID = 10.0 ** np.arange(-8.0, -0.75, 0.5)  # tolerances of the sweep
DECADE = 1.0  # of tolerances over which a support must stay the same to be trusted
BINS = 200  # of a decade: how finely the interval without entries is known


def relative(j: Float, scale: str = "global") -> Float:
    """Sizes of the entries of a Jacobian (..., m, d) relative to its largest, from 0 to 1.

    Parameters
    ----------
    j : (..., m, d)
        Each Jacobian of a stack is on its own.
    scale : {"global", "column"}
        "column" divides each column by its length first, which is right where latents have different units.
    """
    if scale not in SCALES:
        raise InputError(f"scale must be one of {', '.join(SCALES)}, not {scale!r}")
    size = np.abs(j)
    if scale == "column":
        lengths = np.linalg.norm(j, axis=-2, keepdims=True)
        dead = lengths <= np.finfo(np.float64).eps * lengths.max(axis=-1, keepdims=True)  # only rounding
        size = np.where(dead, 0.0, size / np.where(dead, 1.0, lengths))
    largest = size.max(axis=(-2, -1), keepdims=True)
    shares: Float = size / np.where(largest > 0, largest, 1.0)
    return shares


def supports(j: Float, *, rtol: float = RTOL, atol: float = 0.0, scale: str = "global") -> Array:
    """Which outputs each latent reaches, bool, of the shape of j: entries above rtol of the largest, and above atol."""
    kept: Array = (relative(j, scale) > rtol) & (np.abs(j) > atol)
    return kept


def without_small(j: Float, *, rtol: float = RTOL, atol: float = 0.0, scale: str = "global") -> Float:
    """The Jacobian with exact zeros outside of its support."""
    return np.where(supports(j, rtol=rtol, atol=atol, scale=scale), j, 0.0)


@dataclass
class Sizes:
    """A histogram of the relative sizes of all entries seen, fine enough to find the widest interval without any."""

    counts: Array = field(default_factory=lambda: np.zeros(round(_decades() * BINS), dtype=np.int64))

    def add(self, shares: Float) -> None:
        """Take in the relative sizes of one Jacobian."""
        inside = shares[(shares > GRID[0]) & (shares < GRID[-1])]
        places = np.floor((np.log10(inside) - np.log10(GRID[0])) * BINS).astype(int)
        self.counts += np.bincount(np.clip(places, 0, len(self.counts) - 1), minlength=len(self.counts))

    def widest(self) -> tuple[float, float]:
        """The widest interval of tolerances, within that of the sweep, over which no support changes."""
        filled = np.concatenate([[-1], np.flatnonzero(self.counts), [len(self.counts)]])
        gap = int(np.diff(filled).argmax())
        ends = np.log10(GRID[0]) + np.array([filled[gap] + 1, filled[gap + 1]]) / BINS
        return float(10.0 ** ends[0]), float(10.0 ** ends[1])


def _decades() -> float:
    return float(np.log10(GRID[-1]) - np.log10(GRID[0]))


@dataclass(frozen=True)
class Tolerance:
    """What counts as zero in a Jacobian, and how far that could be moved without changing any support."""

    rtol: float
    atol: float
    scale: str
    low: float  # the widest interval of relative tolerances over which all supports stay the same ...
    high: float  # ... ends here

    @property
    def decades(self) -> float:
        """The width of that interval."""
        return float(np.log10(self.high) - np.log10(self.low)) if self.high > self.low else 0.0

    @property
    def stable(self) -> float | None:
        """The tolerance in the middle of it, where it is at least a decade wide."""
        return float(np.sqrt(self.low * self.high)) if self.decades >= DECADE else None

    @property
    def nearby(self) -> tuple[float, ...]:
        """Tolerances at which a verdict must be the same to be trusted, rtol first.

        A decade about it, and the stable one; where there is none, the ends of the sweep.
        """
        around = (self.rtol, self.rtol * 10 ** (-DECADE / 2), self.rtol * 10 ** (DECADE / 2))
        return (*around, float(GRID[0]), float(GRID[-1])) if self.stable is None else (*around, self.stable)

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as in the JSON contract."""
        return {
            "rtol": self.rtol,
            "atol": self.atol,
            "scale": self.scale,
            "stable_low": self.low,
            "stable_high": self.high,
            "stable_decades": self.decades,
        }
