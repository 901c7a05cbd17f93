"""Conditions: transformations of embeddings before classification. The only label they see is control or not.

A condition has ``fit(x, batch, control)`` and ``transform(x, batch, control)``, with rows x (n, d), the number of the
batch of each row (n,) and whether it is a control (n,). With ``fit_on="training"``, `fit` sees no row of a held-out
batch. Corrections by batch (`Standardised`, `TypicalVariation`) use the controls of each batch in `transform`, also of
held-out batches. Those controls are then near the origin by construction, which trees would learn. They are therefore
excluded from training and scoring: half of the controls of each batch are set apart for this (`BY_BATCH`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from congruence.arrays import Array, Float
from congruence.errors import InputError, MissingDependencyError
from congruence.ica._point import random_rotation
from congruence.ica.components import advice, independent_components
from congruence.ica.whitener import Whitener
from congruence.rows.engine import map_rows

FEWEST_CONTROLS = 3  # of a batch; below that, all controls of the fit are used instead
ROWS_EACH = 20  # rows for each component that "auto" keeps


@dataclass
class Condition:
    """A way to prepare embeddings; by default they are left unchanged."""

    notes: list[str] = field(default_factory=list, kw_only=True)  # warnings about the fit

    def fit(self, x: Array, batch: Array, control: Array) -> Self:
        """Learn from rows (n, d), their batches (n,) and whether they are controls (n,)."""
        return self

    def transform(self, x: Array, batch: Array, control: Array) -> Array:
        """Prepare rows, (n, d) to (n, k)."""
        return x


@dataclass
class Base(Condition):
    """The embedding unchanged."""


@dataclass
class Whitened(Condition):
    """Principal components of unit variance; `components` as in `Whitener`, or "auto"."""

    components: int | float | str | None = None

    def fit(self, x: Array, batch: Array, control: Array) -> Self:
        """Whiten by all rows."""
        self.whitener = Whitener(n_components=count_components(self.components, *x.shape)).fit(x)
        return self

    def transform(self, x: Array, batch: Array, control: Array) -> Array:
        """Whiten the rows."""
        return np.asarray(self.whitener.transform(x))


@dataclass
class Rotated(Whitened):
    """Principal components of unit variance, rotated at random, so that the axes are arbitrary."""

    seed: int = 0

    def transform(self, x: Array, batch: Array, control: Array) -> Array:
        """Whiten the rows and rotate them."""
        white = super().transform(x, batch, control)
        rotation = random_rotation(white.shape[1], np.random.default_rng([self.seed, 21]))
        return np.asarray(map_rows(white, np.zeros(len(rotation)), rotation, np.zeros(len(rotation))))


@dataclass
class Independent(Condition):
    """Independent components (whitening and ICA, Section 4.4 of Nelson et al. 2026)."""

    components: int | float | str | None = None
    seed: int = 0
    device: str = "auto"

    def fit(self, x: Array, batch: Array, control: Array) -> Self:
        """Find the components of all rows."""
        count = count_components(self.components, *x.shape)
        options: dict[str, Any] = {"starts": 1, "check": False, "seed": self.seed, "device": self.device}
        self.unmixing = independent_components(x, n_components=count, **options).unmixing
        if not self.unmixing.converged:
            self.notes.append(advice(self.unmixing))
        return self

    def transform(self, x: Array, batch: Array, control: Array) -> Array:
        """The components of the rows."""
        return np.asarray(map_rows(x, self.unmixing.mean, self.unmixing.unmixing.T, np.zeros(self.unmixing.k)))


@dataclass
class Standardised(Condition):
    """Each batch minus the mean of its controls, over their standard deviation (Caicedo et al. 2017)."""

    def fit(self, x: Array, batch: Array, control: Array) -> Self:
        """Keep the moments of all controls, used for batches that have too few."""
        _check_controls(control, "standardised")
        self.mean, self.deviation = _moments(x[control])
        return self

    def transform(self, x: Array, batch: Array, control: Array) -> Array:
        """Standardise every batch on its own controls."""
        out = np.empty(x.shape, x.dtype if np.issubdtype(x.dtype, np.floating) else np.float64)
        for rows, controls in _by_batch(batch, control, self.notes):
            mean, deviation = (self.mean, self.deviation) if controls is None else _moments(x[controls])
            # A column that hardly varies among few controls would be inflated: use the deviation of all controls.
            deviation = np.where(deviation > 1e-3 * self.deviation, deviation, self.deviation)
            out[rows] = (x[rows] - mean) / np.where(deviation > 0, deviation, 1.0)
        return out


@dataclass
class TypicalVariation(Condition):
    """Typical variation normalisation: whitened by the controls, then each batch aligned on its own controls.

    Variation among controls is not biological, so directions with much of it are shrunk. Then the mean of
    each batch's controls is subtracted and their covariance is mapped onto that of all controls, the identity, by CORAL
    (Sun et al. 2016), with 1 added to the variances because controls are few.

    References
    ----------
    Ando, McLean & Berndl 2017, Improving phenotypic measurements in high-content imaging screens, bioRxiv 161422.
    """

    components: int | float | str | None = None

    def fit(self, x: Array, batch: Array, control: Array) -> Self:
        """Whiten by the controls of all rows."""
        _check_controls(control, "tvn")
        count = count_components(self.components, int(control.sum()), x.shape[1])
        self.whitener = Whitener(n_components=count).fit(x[control])
        return self

    def transform(self, x: Array, batch: Array, control: Array) -> Array:
        """Whiten the rows and align every batch on its own controls."""
        white = np.asarray(self.whitener.transform(x))
        for rows, controls in _by_batch(batch, control, self.notes):
            if controls is None:
                continue
            here = white[controls].astype(np.float64)
            mean = here.mean(0)
            variances, axes = np.linalg.eigh(np.cov(here, rowvar=False, bias=True).reshape(len(mean), -1))
            matrix = (axes * np.sqrt(2.0 / (1.0 + np.maximum(variances, 0.0)))) @ axes.T
            white[rows] = map_rows(white[rows], mean, matrix, np.zeros(len(mean)))
        return white


@dataclass
class Harmonised(Condition):
    """Harmony (Korsunsky et al. 2019) on principal components, through `harmonypy`.

    It moves all rows at once and cannot transform new rows, so it cannot be fitted on training batches only.
    """

    components: int | float | str | None = None
    seed: int = 0

    def fit(self, x: Array, batch: Array, control: Array) -> Self:
        """Harmonise the batches of all rows."""
        import pandas as pd

        white = Whitener(n_components=count_components(self.components, *x.shape)).fit(x)
        deviations = np.sqrt(white.variances_[: len(white.whitening_)])
        principal = np.asarray(white.transform(x), dtype=np.float64) * deviations
        frame = pd.DataFrame({"batch": np.asarray(batch).astype(str)})
        found = _harmonypy().run_harmony(principal, frame, "batch", random_state=self.seed, verbose=False)
        moved = np.asarray(found.Z_corr)
        self.rows, self.moved = len(x), moved if moved.shape == principal.shape else moved.T
        return self

    def transform(self, x: Array, batch: Array, control: Array) -> Array:
        """Return the harmonised rows of the fit; other rows are refused."""
        if len(x) != self.rows:
            raise InputError(
                f"harmony cannot transform new rows: it was fitted on {self.rows} rows, but {len(x)} are given"
            )
        return self.moved


BY_BATCH = ("standardised", "tvn")  # use the controls of each batch
WHITENING = ("whitened", "ica", "rotated", "tvn")
NAMES = ("base", "whitened", "ica", "rotated", "standardised", "tvn", "harmony")


def condition_named(name: str, components: int | float | str | None, seed: int, draw: int, device: str) -> Condition:
    """An unfitted condition; `draw` is the number of a random rotation."""
    conditions: dict[str, Any] = {
        "base": Base,
        "whitened": lambda: Whitened(components),
        "ica": lambda: Independent(components, seed, device),
        "rotated": lambda: Rotated(components, seed=1000 * seed + draw),
        "standardised": Standardised,
        "tvn": lambda: TypicalVariation(components),
        "harmony": lambda: Harmonised(components, seed),
    }
    condition: Condition = conditions[name]()
    return condition


def check_conditions(names: Any) -> tuple[str, ...]:
    """The requested conditions, base first; refuse unknown and uninstalled ones before any work."""
    if not isinstance(names, Iterable):
        raise InputError(f"conditions must be some of {', '.join(NAMES)}, not {names!r}")
    wanted = tuple(dict.fromkeys(("base", *([names] if isinstance(names, str) else names))))
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        raise InputError(f"conditions must be some of {', '.join(NAMES)}, not {unknown[0]!r}")
    if "harmony" in wanted:
        _harmonypy()
    return wanted


def check_components(components: Any) -> int | float | str | None:
    """The number of components, a share of the variance, "auto" (also for None) or None for "all"."""
    if components is None or components in ("auto", "all"):
        return None if components == "all" else "auto"
    try:
        number = float(components)
    except (TypeError, ValueError):
        number = 0.0
    whole = number.is_integer() and "." not in str(components)  # 1.0 may mean one component or all the variance
    if isinstance(components, bool) or not (whole if number >= 1 else 0 < number < 1):
        raise InputError(
            f"components must be a number such as 64, a share such as 0.95, 'auto' or 'all', not {components!r}"
        )
    return int(number) if number >= 1 else number


def count_components(components: int | float | str | None, n: int, d: int) -> int | float | None:
    """How many components to keep for n rows in d dimensions: "auto" keeps one for 20 rows."""
    if components == "auto":
        return max(1, min(d, n // ROWS_EACH))
    if isinstance(components, str):
        raise InputError(f"components must be a number, a share below 1, 'auto' or None, not {components!r}")
    if isinstance(components, int) and not isinstance(components, bool) and components > 0:
        return min(components, d, n - 1)
    return components


def _harmonypy() -> Any:
    try:
        import harmonypy
    except ImportError as error:
        raise MissingDependencyError("condition 'harmony' needs harmonypy: pip install harmonypy") from error
    return harmonypy


def _check_controls(control: Array, name: str) -> None:
    if control.sum() < FEWEST_CONTROLS:
        raise InputError(f"condition {name!r} needs at least {FEWEST_CONTROLS} controls to fit on, not {control.sum()}")


def _by_batch(batch: Array, control: Array, notes: list[str]) -> Iterator[tuple[Array, Array | None]]:
    """The rows of each batch and its controls; None if those are too few."""
    few = 0
    for number in np.unique(batch):
        rows = np.flatnonzero(batch == number)
        controls = rows[control[rows]]
        few += len(controls) < FEWEST_CONTROLS
        yield rows, controls if len(controls) >= FEWEST_CONTROLS else None
    if few:
        notes.append(f"{few} batches have fewer than {FEWEST_CONTROLS} controls, so all controls are used for them.")


def _moments(x: Array) -> tuple[Float, Float]:
    rows = x.astype(np.float64)
    return rows.mean(0), rows.std(0)
