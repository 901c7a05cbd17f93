"""Do several trainings with a mixture prior agree? Their priors up to an affine map, their codes by MCC.

A pair goes from a source to a target, both ways round, since the affine distance is taken in the frame of the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, Rows, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.maps.groups import fit_map
from congruence.maps.matching import fit_cca, matched_correlation
from congruence.maps.sums import sums_of
from congruence.mixture.affine import AffineDistance, affine_distance
from congruence.mixture.gmm import GaussianMixture

MOST = 16  # components of a prior for which an affine map is looked for
FEWEST = 20  # rows of a half on which a canonical map is fitted


@dataclass(frozen=True, eq=False)
class LatentSpace:
    """What one training learned: codes of rows that all trainings share, and the prior that it assumes of them."""

    name: str
    codes: Float  # (n, m)
    prior: GaussianMixture | None = None  # None where it is not known, or too large to write down

    def __post_init__(self) -> None:
        codes = to_numpy(as_matrix(self.codes, f"the codes of {self.name}")).astype(np.float64, copy=False)
        if self.prior is not None and self.prior.dimension != codes.shape[1]:
            raise InputError(
                f"the prior of {self.name} is of {self.prior.dimension} latents, but its codes have {codes.shape[1]}"
            )
        object.__setattr__(self, "codes", codes)

    @property
    def states(self) -> Array:
        """The most likely component of every row, (n,); all 0 where there is no prior with a density."""
        if self.prior is None or self.prior.degenerate:
            return np.zeros(len(self.codes), dtype=int)
        return np.asarray(self.prior.log_joint(self.codes).argmax(1))


@dataclass(frozen=True, eq=False)
class PairAgreement:
    """How near two trainings are."""

    source: str
    target: str
    affine: AffineDistance | None  # of the priors; None where one is not known or has too many components
    strong: float  # MCC of the codes as they are, in sample: from 0 to 1, higher is closer
    weak: float  # MCC of canonical variates, in sample
    weak_held_out: float  # the same, fitted on half of the rows and scored on the other; NaN with few rows
    correlation: Float  # (m, m), |correlation| of every latent of the source with every one of the target

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as in the JSON contract."""
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


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over ordered pairs, and how many of them there are."""

    mean: float
    deviation: float
    pairs: int

    def __str__(self) -> str:
        deviation = self.deviation if self.deviation > 1e-9 * abs(self.mean) else 0.0  # less is rounding
        return f"{self.mean:.3g} ± {deviation:.2g}"


@dataclass(frozen=True, eq=False)
class Agreement:
    """All ordered pairs of several trainings."""

    spaces: tuple[LatentSpace, ...]
    pairs: tuple[PairAgreement, ...]

    def __getitem__(self, names: tuple[str, str]) -> PairAgreement:
        return next(pair for pair in self.pairs if (pair.source, pair.target) == names)

    def spread(self, what: str) -> Spread:
        """Mean and deviation over pairs of "distance", "relative", "strong", "weak" or "weak_held_out"."""
        if what in ("distance", "relative"):
            values = [getattr(pair.affine, what) for pair in self.pairs if pair.affine is not None]
        else:
            values = [getattr(pair, what) for pair in self.pairs]
        kept = [value for value in values if math.isfinite(value)]
        if not kept:
            return Spread(math.nan, math.nan, 0)
        return Spread(float(np.mean(kept)), float(np.std(kept)), len(kept))

    def aligned(self, name: str, onto: str) -> Float:
        """Codes of one training carried onto another by the map of their priors, (n, m).

        Where the priors have no map, by the linear map that carries codes onto codes, which sees the pairing of rows.
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
        """What was found, in one sentence."""
        runs, weak, strong = len(self.spaces), self.spread("weak"), self.spread("strong")
        distance = self.spread("distance")
        said = f"{runs} trainings, {len(self.pairs)} ordered pairs: "
        if distance.pairs:
            said += f"affine distance of the priors at most {distance} in the mean, "
        if not strong.pairs:
            return said + "no MCC, since codes do not vary."
        some = f", over the {strong.pairs} pairs whose codes vary" if strong.pairs < len(self.pairs) else ""
        return said + f"MCC {strong} as the codes are (strong) and {weak} up to a linear map (weak){some}."

    def to_dict(self) -> dict[str, Any]:
        """The content of the JSON contract."""
        names = ("distance", "relative", "strong", "weak", "weak_held_out")
        spreads = {name: self.spread(name) for name in names}
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


def agreement(
    spaces: Sequence[LatentSpace] | Mapping[str, LatentSpace],
    *,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Agreement:
    """Compare trainings pair by pair, in both directions.

    Parameters
    ----------
    spaces : sequence of LatentSpace
        At least two, of the same rows and as many latents; row i of one belongs to row i of the others.
    seed : int
        Of the halves of rows, and of matchings of components where they are too many to try all.

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
        raise InputError(f"at least two trainings are compared, not {len(given)}")
    names = [one.name for one in given]
    if len(set(names)) < len(names):
        raise InputError(f"trainings must have different names, not {', '.join(names)}")
    shapes = {one.codes.shape for one in given}
    if len(shapes) > 1:
        raise InputError(f"codes must be of the same rows and as many latents, not of shapes {sorted(shapes)}")
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
    """Whether half of the rows of codes, (n, m), are enough to fit a canonical map."""
    return bool(len(codes) // 2 >= max(FEWEST, 2 * codes.shape[1]))


def _held_out(x: Float, y: Float, seed: int) -> float:
    """The weak MCC of one half of the rows with the canonical map and the matching of the other."""
    if not can_hold_out(x):
        return math.nan
    order = np.random.default_rng(seed).permutation(len(x))
    half = len(x) // 2
    fitted, scored = (sums_of(Rows(x[rows]), Rows(y[rows])) for rows in (order[:half], order[half:]))
    return matched_correlation(scored, fit_cca(fitted), fitted)


def _sizes(x: Float, y: Float) -> Float:
    """|correlation| of every column of x with every one of y; 0 where one is constant."""
    x, y = x - x.mean(0), y - y.mean(0)
    scale = np.outer(np.sqrt((x * x).sum(0)), np.sqrt((y * y).sum(0)))
    return np.asarray(np.abs(x.T @ y) / np.where(scale > 0, scale, 1.0))
