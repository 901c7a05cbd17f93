"""What `component_stability` returns: one line for each component, and one for each number of components tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.ica.components import Components
from congruence.ica.icasso import Clusters
from congruence.ica.profile import ComponentProfile
from congruence.result import json_text

STABLE = 0.9  # correlation from which on a component counts as come back
INTERVAL = (0.05, 0.95)


@dataclass(frozen=True, eq=False)
class Agreement:
    """The |correlation| over all rows of every component with its partner in other fits: 0 to 1, higher is stabler."""

    restarts: Float  # (restarts, k) same rows, other starts
    bootstrap: Float  # (bootstrap, k) rows or clusters drawn anew, other starts

    @property
    def restarts_min(self) -> Float:
        """The smallest over restarts, (k,); NaN without restarts."""
        return self.restarts.min(0) if len(self.restarts) else np.full(self.restarts.shape[1], np.nan)

    @property
    def restarts_mean(self) -> Float:
        """The mean over restarts, (k,); NaN without restarts."""
        return self.restarts.mean(0) if len(self.restarts) else np.full(self.restarts.shape[1], np.nan)

    @property
    def median(self) -> Float:
        """The median over the bootstrap, (k,); NaN without one."""
        return self._quantile(0.5)

    @property
    def low(self) -> Float:
        """The lower end of the 90 % percentile interval of the bootstrap, (k,)."""
        return self._quantile(INTERVAL[0])

    @property
    def high(self) -> Float:
        """The upper end of the 90 % percentile interval of the bootstrap, (k,)."""
        return self._quantile(INTERVAL[1])

    def holds(self) -> Array:
        """Whether a component comes back from every restart, and from nineteen in twenty draws of the rows, (k,)."""
        never = (self.restarts_min < STABLE) | (self.low < STABLE)  # NaN is not below
        return np.asarray(~never)

    def _quantile(self, share: float) -> Float:
        if not len(self.bootstrap):
            return np.full(self.bootstrap.shape[1], np.nan)
        return np.asarray(np.quantile(self.bootstrap, share, axis=0))


@dataclass(frozen=True)
class CurvePoint:
    """How stable the components are when so many are asked for."""

    n_components: int
    variance_share: float  # of the rows, in the directions retained
    identified: int  # components that can be told from noise
    stable: int  # components with the verdict "stable"
    restarts: float  # mean |correlation| over components and restarts
    bootstrap: float  # median over the bootstrap, mean over components
    chance: float  # mean |correlation| with a random rotation; few components agree well by chance


@dataclass(frozen=True, eq=False)
class ComponentStability:
    """Which independent components come back, from other starts and on other rows.

    `verdict` is "noise" for components that cannot be told from Gaussian noise. These may well come back on rows drawn
    anew, since draws share rows and with them what the noise was fitted to; on fresh rows they would not. Of the
    others, "stable" are those whose matched |correlation| is at least 0.9 in every restart and at the lower end of the
    bootstrap's 90 % interval, and the rest is "unstable".
    """

    components: Components
    agreement: Agreement
    clusters: Clusters | None  # None where there are too many components to cluster, or fewer than two other fits
    chance: float  # mean matched |correlation| with a random rotation
    variance_share: Float  # (k,) of the variance of the rows, per component
    curve: tuple[CurvePoint, ...]
    profile: ComponentProfile = field(repr=False)
    ids: Array | None = field(repr=False)  # (n,) of the rows, where they have any
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def k(self) -> int:
        """The number of components."""
        return self.components.unmixing.k

    @property
    def names(self) -> list[str]:
        """``ica0``, ``ica1``, ..., as `ICA.get_feature_names_out` has them."""
        return [f"ica{i}" for i in range(self.k)]

    @property
    def verdict(self) -> Array:
        """Of every component: "stable", "unstable" or "noise", (k,)."""
        known = np.where(self.agreement.holds(), "stable", "unstable")
        return np.where(self.components.unmixing.noise, "noise", known)

    @property
    def quality(self) -> Float | None:
        """The quality index of each component's cluster (Himberg et al. 2004), (k,): 1 is compact and isolated."""
        return None if self.clusters is None else self.clusters.quality

    def table(self) -> list[dict[str, Any]]:
        """A tidy table: one row per component."""
        found, agreement, clusters = self.components.unmixing, self.agreement, self.clusters
        columns: dict[str, Any] = {
            "component": self.names,
            "verdict": self.verdict,
            "identified": found.identified,
            "restarts_min": agreement.restarts_min,
            "restarts_mean": agreement.restarts_mean,
            "bootstrap_median": agreement.median,
            "low": agreement.low,
            "high": agreement.high,
            "quality": [None] * self.k if clusters is None else clusters.quality,
            "cluster_size": [None] * self.k if clusters is None else clusters.size,
            "cluster_shared": [None] * self.k if clusters is None else clusters.shared,
            "sampling_error": found.sampling_error,
            "negentropy": found.negentropy,
            "skewness": found.skewness,
            "kurtosis": found.kurtosis,
            "variance_share": self.variance_share,
        }
        plain = {name: np.asarray(column, dtype=object).tolist() for name, column in columns.items()}
        return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """The whole result as plain numbers, lists and strings."""
        clusters = self.clusters
        return {
            "components": self.table(),
            "chance": self.chance,
            "clusters": None if clusters is None else {"runs": clusters.runs, "strays": clusters.strays},
            "curve": [asdict(point) for point in self.curve],
            "verdict": self.sentence,
            "notes": list(self.notes),
            "settings": dict(self.settings),
            "profile": self.profile.to_dict(),
        }

    def to_json(self) -> str:
        """The result as JSON text. The same rows and seed give the same bytes; undefined numbers are null."""
        return json_text(self.to_dict())

    @property
    def sentence(self) -> str:
        """The verdicts, counted."""
        count = Counter(self.verdict.tolist())
        return (
            f"{count['stable']} of {self.k} components are stable, {count['unstable']} are not, and {count['noise']} "
            "cannot be told from noise."
        )

    def __str__(self) -> str:
        lines = [
            self.sentence,
            "",
            f"{'component':<10} {'verdict':<9} {'restarts':>8} {'bootstrap':>9} {'90 % interval':>15}",
        ]
        for row in self.table():
            interval = f"{row['low']:.3f}..{row['high']:.3f}"
            lines.append(
                f"{row['component']:<10} {row['verdict']:<9} {row['restarts_min']:8.3f} {row['bootstrap_median']:9.3f}"
                f" {interval:>15}"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])
