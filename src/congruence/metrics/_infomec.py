"""InfoMEC: modularity, explicitness and compactness of codes against factors, by shared information (Hsu et al. 2023).

The order of the functions is that of the method: the information of every code about every factor, which codes count,
how the information is spread over codes and factors, and how well a linear readout finds it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.errors import InputError
from congruence.metrics.binning import as_classes
from congruence.metrics.factors import hold_integers, paired
from congruence.metrics.metric import HIGHER, Metric
from congruence.metrics.neighbours import standardised
from congruence.metrics.notes import Note, note_if
from congruence.metrics.readout import linear_r2, log_loss, one_hot
from congruence.metrics.shares import Target, shares_by_bins, shares_by_counts, shares_by_neighbours, usable

VERSIONS = ("standalone", "training", "tripod")
CONTINUOUS = (
    "continuous, an extension of the published metric: information I becomes 1 - exp(-2 I), explicitness is the R2 of "
    "least squares"
)
NOTHING_LEFT = "No factor can be measured; see the notes."
NEIGHBOURS = {"standalone": 10, "training": 3, "tripod": 10}


@dataclass(frozen=True, eq=False)
class InfoMEC:
    """How codes and factors share information; K factors, L codes."""

    modularity: float  # InfoM: whether each code is informative about one factor only
    explicitness: float  # InfoE: whether a linear readout of all codes gives the factors
    compactness: float  # InfoC: whether each factor is encoded by one code only
    nmi: Float  # (K, L) information of each code about each factor, as a share; NaN for a factor that was left out
    active: Array  # (L,) which codes vary enough to count
    modularity_per_code: Float  # (L,) largest share of a code's information that one factor has; NaN if not active
    explicitness_per_factor: Float  # (K,)
    compactness_per_factor: Float  # (K,) largest share of a factor's information that one code has
    modularity_gap: float  # mean over active codes of the largest less the second share in a column of `nmi`
    compactness_gap: float  # mean over factors of the largest less the second share in a row, over all codes
    reasons: dict[str, str]  # why a score is NaN
    notes: tuple[Note, ...]

    def __repr__(self) -> str:
        found = ", ".join(f"{name} {value:.3g}" for name, value in self.scores.items())
        return f"<InfoMEC {found}; {self.nmi.shape[0]} factors, {self.nmi.shape[1]} codes>"

    @property
    def scores(self) -> dict[str, float]:
        """The three headline numbers."""
        return {"infom": self.modularity, "infoe": self.explicitness, "infoc": self.compactness}


def infomec(
    codes: Any,
    factors: Any,
    *,
    kinds: Any = "auto",
    discrete_codes: bool = False,
    version: str = "standalone",
    bins: int | str | None = None,
    factor_bins: int | None = None,
    seed: int = 0,
) -> InfoMEC:
    """Measure whether codes encode one factor each, factors are in one code each, and a linear readout gives them.

    InfoM, InfoE and InfoC are 1 at best; InfoM and InfoC are 0 where information is spread evenly, InfoE where a
    readout is no better than a guess (it may be negative for unbalanced classes). All are in sample. They ignore
    order, sign and shift of codes, one scale for all, order of factors and names of classes, but for the noise that
    breaks ties: that moves InfoM and InfoC by 1e-5 or less, and by 0.01 where codes repeat their values.

    Parameters
    ----------
    codes : (n, L) array, data frame, table or path
        Learned codes.
    factors : (n, K) or (n,) array, data frame, table, path, or mapping from name to column
        True factors, joined with the codes by id where both have ids; `kinds` as in `read_factors`.
    discrete_codes : bool
        Whether the distinct values of each code are classes (quantised codes).
    version : "standalone", "training" or "tripod"
        Three published variants, which differ in which codes are active and in how many neighbours are used:
        "standalone" (range above a 20th of the largest, k = 10), "training" (an 8th, k = 3; uninformative codes are
        skipped), "tripod" (interquartile range above a 10th of the largest, k = 10; 0 where no code is active).
    bins : int, or a rule of numpy such as "auto"
        Cut codes into so many bins of equal width and count, in place of looking at near neighbours.
    factor_bins : int
        Cut continuous factors into so many classes of equal width, as a comparison with published numbers needs. By
        default they stay numbers; this is an extension and marked in `notes`. Information I in nats then becomes the
        share 1 - exp(-2 I), the squared informational correlation (Linfoot 1957): R2 for Gaussian variables, 0 for
        independent ones, below 1 always. Dividing by an entropy, as for classes, would not do: that of a continuous
        variable may be 0 or negative. Explicitness is R2 of least squares.
    seed : int
        Of the noise that breaks ties between values of a code.

    References
    ----------
    Hsu et al. 2023, Disentanglement via Latent Quantization; Hsu et al. 2024 (Tripod). Information by near neighbours:
    Ross 2014 (classes), Kraskov et al. 2004 (numbers).
    """
    if version not in VERSIONS:
        raise InputError(f"version must be one of {', '.join(VERSIONS)}, not {version!r}")
    z, s = paired(codes, factors, kinds)
    found, notes = usable(s, factor_bins, by_counts=discrete_codes or bins is not None)
    used, targets = list(found), list(found.values())
    share, explicit, compact = (np.full((len(s), *width), math.nan) for width in ((z.shape[1],), (), ()))
    active = active_codes(z, discrete_codes=discrete_codes, version=version)
    share[used] = _shares(z, targets, discrete_codes, bins, version, seed)
    spreading = spread(share[used], active, skip=version == "training")
    is_hot = discrete_codes and (version != "training" or hold_integers(codes))
    explicit[used] = _explicitness(z, targets, is_hot)
    compact[used] = spreading.per_factor
    scores = [spreading.modularity, float(explicit[used].mean()) if targets else math.nan, spreading.compactness]
    if version == "tripod" and targets and not active.any():
        scores = [0.0, 0.0, 0.0]
    return InfoMEC(
        modularity=scores[0],
        explicitness=scores[1],
        compactness=scores[2],
        nmi=share,
        active=active,
        modularity_per_code=spreading.per_code,
        explicitness_per_factor=explicit,
        compactness_per_factor=compact,
        modularity_gap=_gap(share[used][:, active].T),
        compactness_gap=_gap(share[used]),
        reasons=_reasons(scores, targets, share[used], active),
        notes=(*s.notes, *notes, *_notes(targets, z, active)),
    )


@dataclass(frozen=True, eq=False)
class Spread:
    """How the information of active codes is spread."""

    modularity: float
    compactness: float
    per_code: Float  # (L,)
    per_factor: Float  # (factors in use,)


def _shares(
    z: Float, targets: list[Target], discrete_codes: bool, bins: int | str | None, version: str, seed: int
) -> Float:
    k = NEIGHBOURS[version]
    if discrete_codes:
        return shares_by_counts(as_classes(z), targets, k, seed)
    if bins is not None:
        return shares_by_bins(z, targets, bins, k, seed)
    return shares_by_neighbours(z, targets, k, seed, codes_first=version == "training")


def active_codes(z: Float, *, discrete_codes: bool, version: str) -> Array:
    """Which codes vary enough to count, shape (L,)."""
    if version == "tripod":
        low, high = np.percentile(z, [25, 75], axis=0)
        size = high - low
        least = 0.1 if discrete_codes else size.max() / 10
    else:
        size = np.ptp(z, axis=0)
        least = size.max() / (8 if version == "training" else 20)
        if discrete_codes and version == "standalone":
            least = 0.0
    active: Array = size > least
    return active


def spread(share: Float, active: Array, *, skip: bool = False) -> Spread:
    """InfoM and InfoC from the shares (K, L) of the factors in use; `skip` leaves out codes without information."""
    k, count = len(share), int(active.sum())
    counted = share[:, active]
    with np.errstate(invalid="ignore"):
        column = counted.max(0, initial=0.0) / counted.sum(0)
        per_factor = counted.max(1, initial=0.0) / counted.sum(1)
    per_code = np.full(len(active), math.nan)
    per_code[active] = column
    return Spread(
        _above_even(column[np.isfinite(column)] if skip else column, k),
        _above_even(per_factor, count),
        per_code,
        per_factor,
    )


def _above_even(ratios: Float, ways: int) -> float:
    """The mean of ratios, moved so that an even spread over `ways` gives 0."""
    if ways < 2 or ratios.size == 0:
        return math.nan
    return float((ratios.mean() - 1 / ways) / (1 - 1 / ways))


def _gap(rows: Float) -> float:
    """Mean over rows of the largest less the second largest."""
    if rows.shape[0] == 0 or rows.shape[1] < 2:
        return math.nan
    ordered = np.sort(rows, axis=1)
    return float((ordered[:, -1] - ordered[:, -2]).mean())


def _explicitness(z: Float, targets: list[Target], is_hot: bool) -> Float:
    """How well a linear readout of all codes gives each factor, shape (K,)."""
    x = one_hot(as_classes(z)) if is_hot else standardised(z)
    return np.array([_read_out(x, target) for target in targets])


def _read_out(x: Any, target: Target) -> float:
    if not target.is_classes:
        whole = x.toarray() if hasattr(x, "toarray") else x
        return float(linear_r2(whole, standardised(target.factor.coordinates())).mean())
    classes = target.classes
    return 1 - log_loss(x, classes) / math.log(classes.max() + 1)


def _reasons(scores: list[float], targets: list[Target], share: Float, active: Array) -> dict[str, str]:
    """A sentence for each score that is NaN."""
    sentences = {
        "infom": _why_no_modularity(targets, share, active),
        "infoe": NOTHING_LEFT,
        "infoc": _why_no_compactness(targets, share, active),
    }
    return {name: sentences[name] for name, score in zip(sentences, scores, strict=True) if math.isnan(score)}


def _why_no_modularity(targets: list[Target], share: Float, active: Array) -> str:
    if not targets:
        return NOTHING_LEFT
    if not active.any():
        return "No code varies."
    if len(targets) == 1:
        return f"{targets[0].name} is the only factor; two are needed."
    silent = np.flatnonzero(active & (share.sum(0) == 0))
    return (
        f"Codes with no information about any factor (code {listing(silent)}) have no share to compare; "
        "version='training' skips them."
    )


def _why_no_compactness(targets: list[Target], share: Float, active: Array) -> str:
    if not targets:
        return NOTHING_LEFT
    if active.sum() < 2:
        return f"{'Only one' if active.any() else 'No'} code varies enough to count; two are needed."
    names = [targets[i].name for i in np.flatnonzero(share[:, active].sum(1) == 0)]
    return f"No active code is informative about {listing(names)}."


def _notes(targets: list[Target], z: Float, active: Array) -> list[Note]:
    notes = [Note(f"cut into {t.bins} bins of equal width", [t.name]) for t in targets if t.is_cut]
    notes += note_if((t.name for t in targets if not t.is_classes), CONTINUOUS)
    idle = np.flatnonzero(~active)
    if idle.size:
        notes.append(Note(f"Inactive and left out of InfoM and InfoC: code {listing(idle)}"))
    if z.shape[1] >= len(z):
        notes.append(
            Note(f"InfoE is uninformative: with {len(z)} rows and {z.shape[1]} codes, a readout fits any factor")
        )
    return notes


DECLARED = Metric(
    name="infomec",
    function=infomec,
    scores=("infom", "infoe", "infoc"),
    range=(-math.inf, 1.0),
    direction=HIGHER,
    invariant_to=frozenset({"permutation", "sign", "scale", "shift", "factor order", "relabelling"}),
    cost="fast",
    reference="Hsu et al. 2023",
)
