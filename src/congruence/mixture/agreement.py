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
from congruence.mixture.distances import AffineDistance, affine_distance
from congruence.mixture.priors import GaussianMixture
from congruence.result import Record
from congruence.rows.engine import Rows
from congruence.rows.sums import sums_of

_MOST_COMPONENTS = 16  # of priors between which an affine map is fitted
_FEWEST = 20  # rows of a half on which a canonical map is fitted
_SPREADS = ("distance", "standardised", "relative", "strong", "weak", "weak_held_out")


@dataclass(frozen=True, eq=False)
class LatentSpace:
    """The codes of one run, on rows that all runs share, and its prior."""

    name: str
    codes: Float  # (n, m)
    prior: GaussianMixture | None = None  # None if it is unknown, or has too many components

    def __post_init__(self) -> None:
        codes = to_numpy(as_matrix(self.codes, f"the codes of {self.name}")).astype(np.float64, copy=False)
        if self.prior is not None and self.prior.dimension != codes.shape[1]:
            raise InputError(
                f"codes of {self.name} must have {self.prior.dimension} columns, one for each latent of its prior; got "
                f"{codes.shape[1]}"
            )
        object.__setattr__(self, "codes", codes)

    @property
    def states(self) -> Array:
        """The most likely component of every row, (n,); all 0 if the prior has no density."""
        if self.prior is None or self.prior.degenerate:
            return np.zeros(len(self.codes), dtype=int)
        return np.asarray(self.prior.log_joint(self.codes).argmax(1))


@dataclass(frozen=True, eq=False)
class PairAgreement:
    """The agreement of two runs."""

    source: str
    target: str
    affine: AffineDistance | None  # of the priors; None if one is unknown, degenerate or has too many components
    strong: float  # MCC of the codes as learned, in sample: from 0 to 1, higher is closer
    weak: float  # MCC of canonical variates, in sample
    weak_held_out: float  # fitted on one half of the rows and scored on the other; NaN with too few rows
    correlation: Float  # (m, m), |correlation| of every latent of the source with every one of the target

    def to_dict(self) -> Any:
        """The numbers as plain data."""
        names = ("distance", "standardised", "relative", "before", "matrix", "shift")
        affine = dict.fromkeys(names)
        if self.affine is not None:
            numbers = self.affine.to_dict()
            affine = {name: numbers[name] for name in names} | {"before": numbers["before"]["distance"]}
        return {
            "source": self.source,
            "target": self.target,
            **affine,
            "mcc": {"strong": self.strong, "weak": self.weak, "weak_held_out": self.weak_held_out},
            "correlation": self.correlation.tolist(),
        }


class SpacePairNumbers(TypedDict):
    """An ordered pair in JSON: affine distance after and before the map, the map, and the MCC of the codes."""

    source: str
    target: str
    distance: float | None
    standardised: float | None
    relative: float | None
    before: float | None
    matrix: list[list[float]] | None
    shift: list[float] | None
    mcc: dict[str, float]
    correlation: list[list[float]]


class AgreementNumbers(TypedDict):
    """The agreement of several runs in JSON."""

    runs: list[dict[str, Any]]
    pairs: list[SpacePairNumbers]
    over_pairs: dict[str, dict[str, float]]


@dataclass(frozen=True)
class PairSpread(Record):
    """Mean and standard deviation over ordered pairs, and the number of pairs."""

    mean: float
    deviation: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.deviation if self.varies else 0.0:.2g}"

    @property
    def varies(self) -> bool:
        """Whether the pairs differ by more than rounding: an MCC of two runs is the same in both directions."""
        return self.deviation > 1e-9 * abs(self.mean)

    @property
    def text(self) -> str:
        """The mean, with the deviation where pairs differ."""
        return str(self) if self.varies else f"{self.mean:.3g}"


@dataclass(frozen=True, eq=False)
class SpaceAgreement:
    """All ordered pairs of several runs."""

    spaces: tuple[LatentSpace, ...]
    pairs: tuple[PairAgreement, ...]

    def __getitem__(self, names: tuple[str, str]) -> PairAgreement:
        return next(pair for pair in self.pairs if (pair.source, pair.target) == names)

    def spread(self, what: str) -> PairSpread:
        """Mean and standard deviation over pairs of a distance or an MCC.

        One of "distance", "standardised", "relative", "strong", "weak" and "weak_held_out".
        """
        if what in ("distance", "standardised", "relative"):
            values = [getattr(pair.affine, what) for pair in self.pairs if pair.affine is not None]
        else:
            values = [getattr(pair, what) for pair in self.pairs]
        finite = [value for value in values if math.isfinite(value)]
        if not finite:
            return PairSpread(math.nan, math.nan, 0)
        return PairSpread(float(np.mean(finite)), float(np.std(finite)), len(finite))

    def aligned(self, name: str, onto: str) -> Float:
        """Codes of one run, (n, m), mapped onto another by the affine map of their priors.

        Without an affine map, use the linear map fitted to the paired codes.
        """
        codes = {one.name: one.codes for one in self.spaces}
        if name == onto:
            return codes[name]
        affine = self[name, onto].affine
        if affine is not None:
            return affine(codes[name])
        return np.asarray(fit_map(codes[name], codes[onto], "linear")(codes[name]))

    @property
    def verdict(self) -> str:
        """The MCC of the codes and the distance of the priors, in one or two sentences."""
        _, distance, _, strong, weak, held_out = map(self.spread, _SPREADS)
        over = f"Over {len(self.pairs)} ordered pairs of {len(self.spaces)} runs"
        if strong.pairs < len(self.pairs):
            over = f"Over the {strong.pairs} of {len(self.pairs)} ordered pairs whose codes vary"
        text = f"{over}, the MCC of the codes is {strong.text} as learned (strong) and {weak.text} up to a linear map "
        text += "(weak" + (f"; held out {held_out.text})." if held_out.pairs else ").")
        if not strong.pairs:
            text = "The codes do not vary, so they have no MCC."
        if not distance.pairs:
            return text
        return f"{text} The affine distance of the priors is at most {distance.text}, in units of the target's spread."

    @property
    def notes(self) -> list[str]:
        """The limits of the comparison."""
        notes = []
        if any(pair.affine is None for pair in self.pairs):
            notes.append("Affine maps are not fitted between priors with many components or without a density.")
        n, m = self.spaces[0].codes.shape
        for space in self.spaces:
            constant = int((np.ptp(space.codes, axis=0) == 0).sum())
            if constant:
                notes.append(f"{space.name}: {constant} of {m} latents are constant, and the MCC leaves them out.")
        if not _can_hold_out(n, m):
            notes.append(f"With {n} rows the MCC is high by chance, and there are too few rows for a held-out MCC.")
        return notes

    def to_dict(self) -> AgreementNumbers:
        """Runs, pairs and means over pairs as plain data."""
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
            "over_pairs": {name: self.spread(name).to_dict() for name in _SPREADS},
        }


def compare_spaces(
    spaces: Sequence[LatentSpace] | Mapping[str, LatentSpace],
    *,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> SpaceAgreement:
    """Compare the latent spaces of two or more runs pair by pair, in both directions.

    All runs have the same rows and the same number of latents; row i is the same sample in all. `seed` draws random
    halves of the rows and matchings of components. `progress` is called as progress(what, done, total) before each
    pair. MCC is in sample, as in the paper, and the weak one also held out; affine distances are upper bounds.

    References
    ----------
    Kivva et al. 2022, section 4; Khemakhem et al. 2020 (MCC).
    """
    runs = tuple(spaces.values()) if isinstance(spaces, Mapping) else tuple(spaces)
    if len(runs) < 2:
        raise InputError(f"spaces must hold at least 2 runs; got {len(runs)}")
    names = [one.name for one in runs]
    if len(set(names)) < len(names):
        raise InputError(f"runs must have different names; got {', '.join(names)}")
    shapes = {one.codes.shape for one in runs}
    if len(shapes) > 1:
        raise InputError(f"codes of all runs must have the same shape; got {sorted(shapes)}")
    both = list(permutations(runs, 2))
    pairs = []
    for i, (source, target) in enumerate(both):
        if progress is not None:
            progress("comparing pairs", i, len(both))
        pairs.append(_compare_pair(source, target, seed))
    return SpaceAgreement(runs, tuple(pairs))


def _compare_pair(source: LatentSpace, target: LatentSpace, seed: int) -> PairAgreement:
    x, y, p, q = source.codes, target.codes, source.prior, target.prior
    affine = None
    if p is not None and q is not None and max(p.components, q.components) <= _MOST_COMPONENTS:
        affine = None if p.degenerate or q.degenerate else affine_distance(p, q, seed=seed)
    sums = sums_of(Rows(x), Rows(y))
    strong, weak = matched_correlation(sums), matched_correlation(sums, fit_cca(sums))
    left, right = x - x.mean(0), y - y.mean(0)
    scale = np.outer(np.linalg.norm(left, axis=0), np.linalg.norm(right, axis=0))  # 0 if a latent is constant
    correlation = np.abs(left.T @ right) / np.where(scale > 0, scale, 1.0)
    return PairAgreement(source.name, target.name, affine, strong, weak, _held_out_mcc(x, y, seed), correlation)


def _can_hold_out(n: int, m: int) -> bool:
    return n // 2 >= max(_FEWEST, 2 * m)


def _held_out_mcc(x: Float, y: Float, seed: int) -> float:
    """The weak MCC of one half of the rows, with the canonical map and the matching fitted on the other."""
    if not _can_hold_out(*x.shape):
        return math.nan
    order = np.random.default_rng(seed).permutation(len(x))
    half = len(x) // 2
    fitted, scored = (sums_of(Rows(x[rows]), Rows(y[rows])) for rows in (order[:half], order[half:]))
    return matched_correlation(scored, fit_cca(fitted), fitted)
