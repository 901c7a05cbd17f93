"""Consequences of a bi-Lipschitz constant: Theorems 1 and 3 of Nelson et al. 2026, and dynamical isometry (A.4).

Lambda >= 1 is a bi-Lipschitz constant: lengths are multiplied by a factor between 1 / Lambda and Lambda. The paper
writes Lambda = 1 + L, so its sqrt(2 L + L^2) is sqrt(Lambda^2 - 1).

The paper takes its constant c_D from a recursion of Alestalo, Trotsenko and Vaisala, whose formulas our copy lacks. The
c_D of this package is derived independently (Kiefer-Wolfowitz weights and the Powers-Stormer inequality), holds for
every compact set, and is loose. Bounds that are vacuous are marked.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from congruence.checks import check_choice, check_integer, check_number
from congruence.errors import InputError
from congruence.result import Record

_ROUNDING = 1e-12  # sqrt(2) squared is a little more than 2
UpTo = Literal["rigid", "similarity"]
_GROUPS = {"rigid": "a rigid motion", "similarity": "a similarity"}
_BASIS = {"certified": "certified", "given": "as given", "sampled": "sampled: a lower estimate, no certificate"}


def isometry_factor(n: int) -> float:
    """The factor k_n = 1 + sqrt(n + 1) + (2 n)^(1/4) sqrt(n) of the general bound, for sets in n dimensions.

    A map f of a set of diameter 1 that changes squared distances by at most eta is within sqrt(eta / 2) k_n of an
    isometry.
    """
    return 1 + math.sqrt(n + 1) + math.pow(2 * n, 0.25) * math.sqrt(n)


def isometric_constant(n: int) -> float:
    """The constant c_n = sqrt(3/2) k_n of Lemma A.4, as derived in this package.

    A map that changes distances by at most epsilon <= 1 is within c_n sqrt(epsilon) of an isometry.
    """
    return math.sqrt(1.5) * isometry_factor(n)


@dataclass(frozen=True)
class Bound:
    """A bound on how far two representations can be from a map of a group onto each other, in units of the latents.

    `paper` is the form of the paper and is None where it does not apply; `general` and `trivial` always hold. Up to a
    similarity all constants are those after the best rescaling of the latents.
    """

    theorem: int
    constant: float  # Lambda of the decoder
    generator: float | None  # Lambda of the map that generates the data (Theorem 3)
    other: float | None  # Lambda of the other training's decoder (Theorem 1); None: it is taken to be the same
    up_to: UpTo  # the group of the map between the representations
    dimension: int
    diameter: float
    basis: str  # of Lambda: "certified", "sampled" or "given"
    isometric_constant: float  # c_D
    isometric_constant_from: str  # "ours" or "yours"
    near_isometry: float  # the largest change of a distance, relative to the diameter
    paper: float | None
    sharp: float | None  # the same form for the composition of both maps; equal to `paper` in Theorem 1
    general: float
    trivial: float  # Jung: holds for any two sets of this size
    applies: bool  # whether the form of the paper applies
    reason: str  # why it applies, or does not

    @property
    def epsilon(self) -> float:
        """The smallest of the bounds that hold."""
        return min(value for value in (self.paper, self.sharp, self.general, self.trivial) if value is not None)

    @property
    def vacuous(self) -> bool:
        """Whether it is no better than the trivial bound."""
        return not self.epsilon < self.trivial

    @property
    def certified(self) -> bool:
        """Whether Lambda is certified; with a sampled one, epsilon is an estimate and not a bound."""
        return self.basis == "certified"

    def to_dict(self) -> dict[str, Any]:
        """The fields and what follows from them, as in the JSON."""
        return asdict(self) | {name: getattr(self, name) for name in ("epsilon", "vacuous", "certified")}

    def __str__(self) -> str:
        vacuous = " (vacuous: no better than the trivial bound)" if self.vacuous else ""
        others = {"generator": self.generator, "other decoder": self.other}
        more = "".join(f", of the {name} {value:.6g}" for name, value in others.items() if value is not None)
        paper = f"{self.paper:.4g}" if self.paper is not None else "none"
        constant = f"c_{self.dimension} = {self.isometric_constant:.4g}, {self.isometric_constant_from}"
        return (
            f"Theorem {self.theorem}: epsilon = {self.epsilon:.4g}{vacuous}\n"
            f"  Lambda = {self.constant:.6g} ({_BASIS[self.basis]}){more}; {self.dimension} latents, diameter "
            f"{self.diameter:.4g}; up to {_GROUPS[self.up_to]}\n"
            f"  form of the paper: {paper} ({constant}); {self.reason}\n"
            f"  general form: {self.general:.4g}; trivial: {self.trivial:.4g}"
        )


def theorem1(
    b: Any,
    diameter: Any,
    dimension: int | None = None,
    constant: float | None = None,
    *,
    other: Any = None,
    up_to: UpTo = "rigid",
) -> Bound:
    """Bound the distance of two trainings from a rigid motion of each other, from the stretch of their decoders.

    It applies to models whose reconstructions agree, whose codes fill convex sets, and whose decoders are smooth and
    injective with these local bi-Lipschitz constants. None of this is checked here.

    Parameters
    ----------
    b : result of `bilipschitz`, certificate, or float
        Lambda, at least 1. A result records whether it is certified; a number is used as it is.
    diameter : float or `Diameter`
        Diameter of the codes; the upper end of an inexact `Diameter`.
    dimension : int, optional
        Number of latents; by default that of the result.
    constant : float, optional
        c_D in the form of the paper; by default `isometric_constant` of this package.
    other : result of `bilipschitz`, certificate, or float, optional
        Lambda of the decoder of the other training. By default it is taken to be at most that of b.
    up_to : {"rigid", "similarity"}
        "similarity" rescales the codes of each training by the factor that minimises its constant: Theorem 1 for the
        rescaled models, whose codes differ by a rigid motion. Numbers are used as they are.

    Returns
    -------
    Bound
        Lower is closer. With Lambda' of the other decoder, `epsilon` is the least of the form of the paper
        c_D sqrt(max(Lambda, Lambda')^2 - 1) Delta (only up to sqrt(2)), the same form with Lambda Lambda' - 1 under the
        root, the general form sqrt(((Lambda Lambda')^2 - 1) / 2) k_D Delta, and the trivial one by Jung's theorem.

    References
    ----------
    Nelson et al. 2026, Theorem 1 and Lemma A.4; c_D, k_D, the general form and the forms for two constants and up to a
    similarity were derived in this package.
    """
    check_choice("up_to", up_to, tuple(_GROUPS))
    return _bound(1, b, other, dimension, diameter, constant, up_to)


def theorem3(
    b: Any, generator: Any, diameter: Any, dimension: int | None = None, constant: float | None = None
) -> Bound:
    """Bound the distance of codes from a rigid motion of the true factors, where reconstruction is perfect.

    Parameters
    ----------
    b : result of `bilipschitz`, certificate, or float
        Lambda of the decoder.
    generator : result of `bilipschitz`, certificate, or float
        Lambda of the map that generates the data from its factors: independent, white and not Gaussian.
    diameter : float or `Diameter`
        Diameter of the codes or of the factors, whichever is larger.
    dimension : as in `theorem1`
    constant : as in `theorem1`

    Returns
    -------
    Bound
        `paper` uses the larger of both constants twice, as the paper does; `near_isometry` and `sharp` use the
        product of both, which is at most as large.

    References
    ----------
    Nelson et al. 2026, Theorem 3; the sharper form was derived in this package.
    """
    return _bound(3, b, generator, dimension, diameter, constant, "rigid")


def _bound(
    theorem: int, b: Any, other: Any, dimension: int | None, diameter: Any, constant: float | None, up_to: UpTo
) -> Bound:
    """All forms of the bound for the composition of a decoder with another one, or with the generator."""
    stretch, latents, basis = _read_constant(b, "b", up_to)
    second = None
    if other is not None or theorem == 3:
        second, factors, source = _read_constant(other, "other" if theorem == 1 else "generator", up_to)
        basis = basis if basis == source else "sampled" if "sampled" in (basis, source) else "given"
        latents = latents if latents is not None or theorem == 1 else factors
    dimension = latents if dimension is None else dimension
    if dimension is None:
        raise InputError("dimension, the number of latents, must be set if b is a number")
    dimension = check_integer("dimension", dimension)
    diameter = check_number("diameter", getattr(diameter, "high", diameter), 0, open_low=True)
    chain = stretch * (stretch if second is None else second)
    largest = stretch if second is None else max(stretch, second)
    change = (largest - 1) * (largest + 1)  # 2 L + L^2
    near = change if second is None else chain - 1
    c_d = isometric_constant(dimension) if constant is None else check_number("constant", constant, 0, open_low=True)
    applies = change <= 1 + _ROUNDING
    reason = "it does not apply, since Lemma A.4 needs Λ ≤ √2"
    if applies:
        reason = f"it applies, since distances change by at most {change:.4g} of the diameter, and 1 is the limit"
    return Bound(
        theorem=theorem,
        constant=stretch,
        generator=second if theorem == 3 else None,
        other=second if theorem == 1 else None,
        up_to=up_to,
        dimension=dimension,
        diameter=diameter,
        basis=basis,
        isometric_constant=c_d,
        isometric_constant_from="ours" if constant is None else "yours",
        near_isometry=near,
        paper=c_d * math.sqrt(change) * diameter if applies else None,
        sharp=c_d * math.sqrt(near) * diameter if near <= 1 + _ROUNDING else None,
        general=math.sqrt((chain - 1) * (chain + 1) / 2) * isometry_factor(dimension) * diameter,
        # A similarity may shrink one of both sets, so only the circumscribed ball of the other one counts.
        trivial=math.sqrt(dimension / (2 * (dimension + 1))) * (1 + chain if up_to == "rigid" else 1) * diameter,
        applies=applies,
        reason=f"{reason}; the map loses a direction somewhere" if math.isinf(chain) else reason,
    )


@dataclass(frozen=True)
class DynamicalIsometry(Record):
    """Bi-Lipschitz constants of a map whose singular values are everywhere within `deviation` of 1."""

    deviation: float
    paper: float  # (1 + d) / (1 - d), a bound on the condition number
    tight: float  # 1 / (1 - d), the smallest constant that holds

    def __str__(self) -> str:
        return (
            f"singular values in [{1 - self.deviation:.4g}, {1 + self.deviation:.4g}]: Lambda <= {self.tight:.6g} "
            f"(in the paper: {self.paper:.6g})"
        )


def dynamical_isometry(deviation: float) -> DynamicalIsometry:
    """Convert singular values in [1 - d, 1 + d], with a deviation d below 1, into a bi-Lipschitz constant.

    Nelson et al. 2026, appendix A.4, use (1 + d) / (1 - d); max(1 + d, 1 / (1 - d)) = 1 / (1 - d) suffices.
    """
    if not 0 <= deviation < 1:
        raise InputError(f"deviation must be at least 0 and below 1; got {deviation!r}")
    d = float(deviation)
    return DynamicalIsometry(d, (1 + d) / (1 - d), 1 / (1 - d))


def _read_constant(b: Any, name: str, up_to: UpTo) -> tuple[float, int | None, str]:
    """Lambda, the number of latents where it is known, and the basis of Lambda."""
    if hasattr(b, "constant"):
        value = b.constant if up_to == "rigid" else b.scale_free
        return float(value), b.dimension, "certified" if b.certified else "sampled"
    try:
        value = float(b)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number or a result of bilipschitz; got {type(b).__name__}") from None
    if not value >= 1:
        raise InputError(f"{name}, a bi-Lipschitz constant, must be at least 1; got {value!r}")
    return value, None, "given"
