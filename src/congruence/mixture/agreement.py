"""Agreement of several runs with a mixture prior: of the priors up to an affine map, of the codes by MCC.

Pairs are ordered, from a source to a target, since the affine distance is measured in the coordinates of the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, TypedDict

import numpy as np

from congruence.arrays import Array, Float, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.maps.groups import fit_map
from congruence.maps.matching import fit_cca, matched_correlation
from congruence.mixture.affine import AffineDistance, affine_distance
from congruence.mixture.gmm import GaussianMixture
from congruence.rows.engine import Rows
from congruence.rows.sums import sums_of

MOST = 16  # components of a prior for which an affine map is fitted
FEWEST = 20  # rows of a half on which a canonical map is fitted
SPREADS = ("distance", "relative", "strong", "weak", "weak_held_out")


@dataclass(frozen=True, eq=False)
class LatentSpace:
    """The codes of one run, on rows that all runs share, and its prior."""

    name: str
    codes: Float  # (n, m)
    prior: GaussianMixture | None = None  # None where it is unknown, or too large to write out

    def __post_init__(self) -> None:
        codes = to_numpy(as_matrix(self.codes, f"the codes of {self.name}")).astype(np.float64, copy=False)
        if self.prior is not None and self.prior.dimension != codes.shape[1]:
            raise InputError(
                f"the prior of {self.name} has {self.prior.dimension} latents, but its codes have {codes.shape[1]}"
            )
        object.__setattr__(self, "codes", codes)

    @property
    def states(self) -> Array:
        """The most likely component of every row, (n,); all 0 where the prior has no density."""
        if self.prior is None or self.prior.degenerate:
            return np.zeros(len(self.codes), dtype=int)
        return np.asarray(self.prior.log_joint(self.codes).argmax(1))


@dataclass(frozen=True, eq=False)
class PairAgreement:
    """The agreement of two runs."""

    source: str
    target: str
    affine: AffineDistance | None  # of the priors; None where one is unknown, degenerate or has too many components
    strong: float  # MCC of the codes as learned, in sample: from 0 to 1, higher is closer
    weak: float  # MCC of canonical variates, in sample
    weak_held_out: float  # the same, fitted on half of the rows and scored on the other; NaN with few rows
    correlation: Float  # (m, m), |correlation| of every latent of the source with every one of the target

    def to_dict(self) -> PairNumbers:
        """The numbers as plain data."""
        affine = self.affine
        return {
            "source": self.source,
            "target": self.target,
            "distance": None if affine is None else affine.distance,
            "relative": None if affine is None else affine.relative,
            "before": None if affine is None else affine.before.distance,
            "matrix": None if affine is None else affine.matrix.tolist(),
            "shift": None if affine is None else affine.shift.tolist(),
            "mcc": {"strong": self.strong, "weak": self.weak, "weak_held_out": self.weak_held_out},
            "correlation": self.correlation.tolist(),
        }


class PairNumbers(TypedDict):
    """An ordered pair in JSON: affine distance after and before the map, the map, and the MCC of the codes."""

    source: str
    target: str
    distance: float | None
    relative: float | None
    before: float | None
    matrix: list[list[float]] | None
    shift: list[float] | None
    mcc: dict[str, float]
    correlation: list[list[float]]


class AgreementNumbers(TypedDict):
    """The agreement of several runs in JSON."""

    runs: list[dict[str, Any]]
    pairs: list[PairNumbers]
    over_pairs: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over ordered pairs, and the number of pairs."""

    mean: float
    deviation: float
    pairs: int

    def __str__(self) -> str:
        deviation = self.deviation if self.deviation > 1e-9 * abs(self.mean) else 0.0  # less is rounding
        return f"{self.mean:.3g} ± {deviation:.2g}"


@dataclass(frozen=True, eq=False)
class Agreement:
    """All ordered pairs of several runs."""

    spaces: tuple[LatentSpace, ...]
    pairs: tuple[PairAgreement, ...]

    def __getitem__(self, names: tuple[str, str]) -> PairAgreement:
        return next(pair for pair in self.pairs if (pair.source, pair.target) == names)

    def spread(self, what: str) -> Spread:
        """Mean and standard deviation over pairs of "distance", "relative", "strong", "weak" or "weak_held_out"."""
        if what in ("distance", "relative"):
            values = [getattr(pair.affine, what) for pair in self.pairs if pair.affine is not None]
        else:
            values = [getattr(pair, what) for pair in self.pairs]
        kept = [value for value in values if math.isfinite(value)]
        if not kept:
            return Spread(math.nan, math.nan, 0)
        return Spread(float(np.mean(kept)), float(np.std(kept)), len(kept))

    def aligned(self, name: str, onto: str) -> Float:
        """Codes of one run mapped onto another by the affine map of their priors, (n, m).

        Where the priors have no such map, by the linear map fitted to the paired codes.
        """
        codes = next(one.codes for one in self.spaces if one.name == name)
        if name == onto:
            return codes
        affine = self[name, onto].affine
        if affine is not None:
            return np.asarray(codes @ affine.matrix.T + affine.shift)
        target = next(one.codes for one in self.spaces if one.name == onto)
        return np.asarray(fit_map(codes, target, "linear")(codes))

    @property
    def verdict(self) -> str:
        """The MCC of the codes and the distance of the priors, in one or two sentences."""
        distance, strong, weak, held_out = (self.spread(n) for n in ("distance", "strong", "weak", "weak_held_out"))
        over = f"Over {len(self.pairs)} ordered pairs of {len(self.spaces)} runs"
        if strong.pairs < len(self.pairs):
            over = f"Over the {strong.pairs} of {len(self.pairs)} ordered pairs whose codes vary"
        said = f"{over}, the MCC of the codes is {strong} as learned (strong) and {weak} up to a linear map (weak"
        said += f"; held out {held_out})." if held_out.pairs else ")."
        if not strong.pairs:
            said = "The codes do not vary, so they have no MCC."
        return f"{said} The affine distance of the priors is at most {distance}." if distance.pairs else said

    def to_dict(self) -> AgreementNumbers:
        """Runs, pairs and means over pairs as plain data."""
        spreads = {name: self.spread(name) for name in SPREADS}
        return {
            "runs": [
                {
                    "name": one.name,
                    "n": len(one.codes),
                    "d": one.codes.shape[1],
                    "components": None if one.prior is None else one.prior.components,
                }
                for one in self.spaces
            ],
            "pairs": [pair.to_dict() for pair in self.pairs],
            "over_pairs": {
                name: {"mean": one.mean, "deviation": one.deviation, "pairs": one.pairs}
                for name, one in spreads.items()
            },
        }


def compare_spaces(
    spaces: Sequence[LatentSpace] | Mapping[str, LatentSpace],
    *,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Agreement:
    """Compare the latent spaces of runs pair by pair, in both directions.

    Parameters
    ----------
    spaces : sequence of LatentSpace
        At least two, with the same rows and the same number of latents; row i is the same sample in all.
    seed : int
        Of the random halves of rows, and of the matchings of components where there are too many to try all.

    Returns
    -------
    Agreement
        MCC is in sample, as in the paper, and the weak one also held out; affine distances are upper bounds.

    References
    ----------
    Kivva et al. 2022, section 4; Khemakhem et al. 2020 (MCC).
    """
    given = tuple(spaces.values()) if isinstance(spaces, Mapping) else tuple(spaces)
    if len(given) < 2:
        raise InputError(f"comparing takes at least 2 runs, not {len(given)}")
    names = [one.name for one in given]
    if len(set(names)) < len(names):
        raise InputError(f"runs must have different names, not {', '.join(names)}")
    shapes = {one.codes.shape for one in given}
    if len(shapes) > 1:
        raise InputError(f"codes of all runs must have the same shape, not {sorted(shapes)}")
    both = list(permutations(given, 2))
    pairs = []
    for i, (source, target) in enumerate(both):
        if progress is not None:
            progress("comparing pairs", i, len(both))
        pairs.append(_pair(source, target, seed))
    return Agreement(given, tuple(pairs))


def _pair(source: LatentSpace, target: LatentSpace, seed: int) -> PairAgreement:
    x, y = source.codes, target.codes
    whole = sums_of(Rows(x), Rows(y))
    return PairAgreement(
        source.name,
        target.name,
        _affine(source.prior, target.prior, seed),
        matched_correlation(whole),
        matched_correlation(whole, fit_cca(whole)),
        _held_out(x, y, seed),
        _sizes(x, y),
    )


def _affine(p: GaussianMixture | None, q: GaussianMixture | None, seed: int) -> AffineDistance | None:
    if p is None or q is None or max(p.components, q.components) > MOST or p.degenerate or q.degenerate:
        return None
    return affine_distance(p, q, seed=seed)


def can_hold_out(codes: Float) -> bool:
    """Whether half of the rows of codes, (n, m), suffice to fit a canonical map."""
    return bool(len(codes) // 2 >= max(FEWEST, 2 * codes.shape[1]))


def _held_out(x: Float, y: Float, seed: int) -> float:
    """The weak MCC of one half of the rows, with the canonical map and the matching fitted on the other."""
    if not can_hold_out(x):
        return math.nan
    order = np.random.default_rng(seed).permutation(len(x))
    half = len(x) // 2
    fitted, scored = (sums_of(Rows(x[rows]), Rows(y[rows])) for rows in (order[:half], order[half:]))
    return matched_correlation(scored, fit_cca(fitted), fitted)


def _sizes(x: Float, y: Float) -> Float:
    """|correlation| of every column of x with every column of y; 0 where one is constant."""
    x, y = x - x.mean(0), y - y.mean(0)
    scale = np.outer(np.sqrt((x * x).sum(0)), np.sqrt((y * y).sum(0)))
    return np.asarray(np.abs(x.T @ y) / np.where(scale > 0, scale, 1.0))
