"""InfoMEC: modularity, explicitness and compactness of codes against factors, from shared information.

The order of the functions is that of the method: the information of every code about every factor, which codes count,
how the information is distributed over codes and factors, and how well a linear readout predicts the factors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, listing, to_numpy
from congruence.checks import check_choice
from congruence.metrics._estimators import linear_r2, log_loss, one_hot, standardise
from congruence.metrics._information import (
    bin_columns,
    class_information,
    entropy,
    group_by_class,
    jitter,
    kraskov_information,
    lead,
    number_values,
    ross_information,
)
from congruence.metrics._results import MetricResult, Note, note_if
from congruence.metrics.factors import Factor, read_pair
from congruence.tables import as_table, is_table

CONTINUOUS = (
    "continuous, an extension of the published metric: information I becomes 1 - exp(-2 I), explicitness is the R2 of "
    "least squares"
)
NOTHING_LEFT = "No factor can be measured; see the notes."
NOT_ASKED = "The information was not asked for."
NEIGHBOURS = {"standalone": 10, "training": 3, "tripod": 10}  # of each version


@dataclass(frozen=True, eq=False)
class InfoMEC(MetricResult):
    """How codes and factors share information; K factors, L codes."""

    modularity: float  # InfoM: whether each code is informative about one factor only
    explicitness: float  # InfoE: whether a linear readout of all codes predicts the factors
    compactness: float  # InfoC: whether each factor is encoded by one code only
    nmi: Float  # (K, L) information of each code about each factor, as a share; NaN for a factor that was left out
    active: Array  # (L,) which codes vary enough to count
    modularity_per_code: Float  # (L,) largest share of a code's information that one factor has; NaN if not active
    explicitness_per_factor: Float  # (K,)
    compactness_per_factor: Float  # (K,) largest share of a factor's information that one code has
    modularity_gap: float  # mean over active codes of the largest less the second share in a column of `nmi`
    compactness_gap: float  # mean over factors of the largest less the second share in a row, over all codes

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.3g}" for name, value in self.scores.items())
        return f"<InfoMEC {scores}; {self.nmi.shape[0]} factors, {self.nmi.shape[1]} codes>"

    @property
    def scores(self) -> dict[str, float]:
        """The three headline scores."""
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
    information: bool = True,
    seed: int = 0,
) -> InfoMEC:
    """Measure whether codes encode one factor each, factors are in one code each, and a linear readout predicts them.

    InfoM, InfoE and InfoC are 1 at best; InfoM and InfoC are 0 if information is spread evenly, InfoE if a readout is
    no better than a guess (it may be negative for unbalanced classes). All are in sample. They ignore order, sign and
    shift of codes, one scale for all, order of factors and names of classes, except for the noise that breaks ties: it
    changes InfoM and InfoC by 1e-5 or less, and by 0.01 if codes repeat their values.

    Parameters
    ----------
    codes : (n, L) array, data frame, table or path
    factors : (n, K) or (n,) array, data frame, table, path, or mapping from name to column
        True factors, joined with the codes by id if both have ids.
    kinds : str, list or dict as of `read_factors`, default "auto"
    discrete_codes : bool, default False
        Whether the distinct values of each code are classes (quantised codes).
    version : {"standalone", "training", "tripod"}, default "standalone"
        Three published variants, which differ in which codes are active and in the number of neighbours: "standalone"
        (range above a 20th of the largest, k = 10), "training" (an 8th, k = 3; uninformative codes are skipped),
        "tripod" (interquartile range above a 10th of the largest, k = 10; 0 if no code is active).
    bins : int or str, optional
        Cut codes into so many bins of equal width (or by a rule of `numpy.histogram_bin_edges`) and count, instead of
        using near neighbours.
    factor_bins : int, optional
        Cut continuous factors into so many classes of equal width, to compare with published numbers. By default they
        stay numbers; this is an extension and marked in `notes`. Information I in nats then becomes the share
        1 - exp(-2 I), the squared informational correlation (Linfoot 1957): R2 for Gaussian variables, 0 for
        independent ones, always below 1. Explicitness is the R2 of least squares.
    information : bool, default True
        Whether to measure the information of every code about every factor. Without it, which takes most of the time,
        only InfoE is measured.
    seed : int, default 0
        Of the noise that breaks ties between values of a code.

    References
    ----------
    Hsu et al. 2023, Disentanglement via Latent Quantization; Hsu et al. 2024 (Tripod). Information by near neighbours:
    Ross 2014 (classes), Kraskov et al. 2004 (numbers).

    Examples
    --------
    >>> import numpy as np
    >>> factors = np.random.default_rng(0).uniform(size=(500, 2))
    >>> infomec(-factors[:, ::-1], factors)
    <InfoMEC infom 0.937, infoe 1, infoc 0.937; 2 factors, 2 codes>
    """
    check_choice("version", version, tuple(NEIGHBOURS))
    z, s = read_pair(codes, factors, kinds)
    notes = [*s.notes, *s.exclusions]
    used, targets, cut = [], [], []
    for i, factor in enumerate(s):
        target = factor if factor_bins is None else factor.cut(factor_bins)
        needs_neighbours = target.is_discrete and not discrete_codes and bins is None
        if needs_neighbours and not factor.left_out and target.distinct == s.n:
            notes.append(Note("left out, because each class has one row and so no neighbours", [factor.name]))
        elif not factor.left_out:
            used.append(i)
            targets.append(target)
            cut += [factor.name] if target is not factor else []

    k = NEIGHBOURS[version]
    share, explicit, compact = (np.full((len(s), *width), math.nan) for width in ((z.shape[1],), (), ()))
    if not information:
        pass
    elif discrete_codes or bins is not None:
        classes = number_values(z) if bins is None or discrete_codes else bin_columns(z, bins)
        share[used] = count_shares(classes, targets, k, seed)
    else:
        share[used] = neighbour_shares(z, targets, k, seed, codes_first=version == "training")
    active = active_codes(z, discrete_codes=discrete_codes, version=version)
    infom, infoc, per_code, compact[used] = distribution(share[used], active, skip=version == "training")
    by_class = discrete_codes and (version != "training" or _are_integers(codes))
    x = one_hot(number_values(z)) if by_class else _scale(z)
    explicit[used] = [_explicitness(x, target) for target in targets]
    infoe = float(explicit[used].mean()) if targets else math.nan
    if version == "tripod" and targets and not active.any():
        infom, infoe, infoc = 0.0, 0.0, 0.0

    notes += note_if(cut, f"cut into {factor_bins} bins of equal width")
    notes += note_if([factor.name for factor in targets if not factor.is_discrete], CONTINUOUS)
    if not active.all():
        notes.append(Note(f"Inactive and left out of InfoM and InfoC: code {listing(np.flatnonzero(~active))}"))
    if z.shape[1] >= len(z):
        text = f"InfoE is uninformative: with {len(z)} rows and {z.shape[1]} codes, a readout fits any factor"
        notes.append(Note(text))
    reasons = {
        "infom": (infom, _why_no_modularity(targets, share[used], active) if information else NOT_ASKED),
        "infoe": (infoe, NOTHING_LEFT),
        "infoc": (infoc, _why_no_compactness(targets, share[used], active) if information else NOT_ASKED),
    }
    return InfoMEC(
        modularity=infom,
        explicitness=infoe,
        compactness=infoc,
        nmi=share,
        active=active,
        modularity_per_code=per_code,
        explicitness_per_factor=explicit,
        compactness_per_factor=compact,
        modularity_gap=_mean_lead(share[used][:, active].T),
        compactness_gap=_mean_lead(share[used]),
        reasons={name: reason for name, (score, reason) in reasons.items() if math.isnan(score)},
        notes=tuple(notes),
    )


def _are_integers(codes: Any) -> bool:
    """Whether codes are stored as integers."""
    return to_numpy(as_table(codes).values if is_table(codes) else codes).dtype.kind in "iu"


def count_shares(classes: Array, targets: Sequence[Factor], k: int, seed: int) -> Float:
    """Shares (K, L) of codes that are classes (n, L): from counts, or for continuous factors from near neighbours."""
    random = np.random.RandomState(seed)
    share = np.empty((len(targets), classes.shape[1]))
    for i, target in enumerate(targets):
        if target.is_discrete:
            labels = target.labels()[:, None]
            share[i] = class_information(classes, labels)[0] / entropy(labels)
        else:  # here the factor is the number and the code is the class
            values = jitter(target.values, random)
            information = [ross_information(values, group_by_class(code, k), k) for code in classes.T]
            share[i] = _squared_correlation(np.nan_to_num(information))  # a code with only distinct values has none
    return share


def neighbour_shares(z: Float, targets: Sequence[Factor], k: int, seed: int, *, codes_first: bool = False) -> Float:
    """Shares (K, L) of codes (n, L), from the k nearest neighbours of each row.

    Two reference implementations draw the noise that breaks ties in different orders: all codes of the first factor
    first, for standardised codes; or, with `codes_first`, all factors of the first code, after the entropy of each code
    was estimated, which uses up 2n numbers.
    """
    count, random = z.shape[1], np.random.RandomState(seed)
    pairs: Iterable[tuple[int, int]] = np.ndindex(len(targets), count)
    if codes_first:
        random.standard_normal(2 * z.size)
        pairs = ((i, j) for j, i in np.ndindex(count, len(targets)))
    else:
        z = standardise(z)
    labels = [target.labels() if target.is_discrete else None for target in targets]
    groups = [None if one is None else group_by_class(one, k) for one in labels]
    share = np.empty((len(targets), count))
    for i, j in pairs:
        column, group = jitter(z[:, j], random), groups[i]
        if group is not None:
            share[i, j] = ross_information(column, group, k)
        else:
            share[i, j] = kraskov_information(column, jitter(targets[i].values, random), k)
    for i, one in enumerate(labels):
        share[i] = _squared_correlation(share[i]) if one is None else share[i] / entropy(one[:, None])
    return share


def _squared_correlation(information: Float) -> Float:
    """Information in nats as a share from 0 to 1: the R2 of Gaussian variables that share as much (Linfoot 1957).

    The entropy of a continuous variable may be 0 or negative, so it cannot be a divisor. The square is taken because
    estimates for independent variables are small but not 0, and the root of a small number is not small.
    """
    return -np.expm1(-2 * information)


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


def distribution(share: Float, active: Array, *, skip: bool = False) -> tuple[float, float, Float, Float]:
    """InfoM and InfoC from the shares (K, L), and the largest share of each code (L,) and of each factor (K,).

    `skip` leaves out codes without information.
    """
    counted = share[:, active]
    with np.errstate(invalid="ignore"):
        column = counted.max(0, initial=0.0) / counted.sum(0)
        per_factor = counted.max(1, initial=0.0) / counted.sum(1)
    per_code = np.full(len(active), math.nan)
    per_code[active] = column
    modularity = _above_even(column[np.isfinite(column)] if skip else column, len(share))
    return modularity, _above_even(per_factor, int(active.sum())), per_code, per_factor


def _above_even(ratios: Float, ways: int) -> float:
    """The mean of ratios, rescaled so that an even distribution over `ways` gives 0."""
    if ways < 2 or ratios.size == 0:
        return math.nan
    return float((ratios.mean() - 1 / ways) / (1 - 1 / ways))


def _mean_lead(rows: Float) -> float:
    return float(lead(rows).mean()) if len(rows) else math.nan


def _scale(z: Float) -> Float:
    """Standardised codes, rounded as in the reference: readouts that have not converged amplify the rounding."""
    live = standardise(z).any(0)
    scaled: Float = np.where(live, (z - z.mean(0)) / np.where(live, z.std(0), 1.0), 0.0)
    return scaled


def _explicitness(x: Any, target: Factor) -> float:
    """How well a linear readout of all codes predicts a factor."""
    if not target.is_discrete:
        whole = x.toarray() if hasattr(x, "toarray") else x
        return float(linear_r2(whole, standardise(target.coordinates())).mean())
    classes = target.labels()
    return 1 - log_loss(x, classes) / math.log(classes.max() + 1)


def _why_no_modularity(targets: Sequence[Factor], share: Float, active: Array) -> str:
    if not targets:
        return NOTHING_LEFT
    if not active.any():
        return "No code varies."
    if len(targets) == 1:
        return f"{targets[0].name} is the only factor; two are needed."
    silent = np.flatnonzero(active & (share.sum(0) == 0))
    return (
        f"Codes without information about any factor (code {listing(silent)}) have no share to compare. "
        "The version 'training' of InfoMEC leaves them out."
    )


def _why_no_compactness(targets: Sequence[Factor], share: Float, active: Array) -> str:
    if not targets:
        return NOTHING_LEFT
    if active.sum() < 2:
        return f"{'Only one' if active.any() else 'No'} code varies enough to count; two are needed."
    empty = share[:, active].sum(1) == 0
    names = [target.name for target, none in zip(targets, empty, strict=True) if none]
    return f"No active code is informative about {listing(names)}."
