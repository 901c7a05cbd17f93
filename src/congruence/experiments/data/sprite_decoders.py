"""The worked example of Nelson et al.: images of a square that moves and grows (section 3.3.1 and appendix A.6).

An image is a function on the plane, 1 inside the square of half-side r at p and 0 outside, smoothed with a Gaussian of
standard deviation s so that it is differentiable. The pullback metric has entries g_pp for the position and g_rr for
the size. As s goes to 0 they grow as C = 1 / (2 s sqrt(pi)): g_pp / C goes to 4 r and g_rr / C to 8 r, the length of
the edges that move. In coordinates (p, sqrt(2) r) the metric is 4 r times the identity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.checks import check_number, require
from congruence.errors import InputError

NODES = 40  # of Gauss-Legendre quadrature on every interval of one standard deviation
SIZES = 201  # half-sides at which the stretch of smoothed squares is measured
REACH = 9.0  # standard deviations beyond which a smoothed edge is constant in float64


@dataclass(frozen=True)
class SpriteMetric:
    """The metric of images of a smoothed square at one size, in the coordinates position and half-side."""

    half_side: float
    sigma: float
    position: float  # g_pp
    size: float  # g_rr
    mixed: float  # g_pr

    @property
    def unit(self) -> float:
        """C = 1 / (2 s sqrt(pi)), the rate at which the metric grows as edges become sharp."""
        return 1 / (2 * self.sigma * math.sqrt(math.pi))

    @property
    def speed(self) -> float:
        """The rate of change of the image with the position, over sqrt(C): 2 sqrt(r) for a sharp square."""
        return math.sqrt(self.position / self.unit)

    @property
    def stretch(self) -> tuple[float, float]:
        """Singular values of the map from (p, sqrt(2) r), over sqrt(C): both 2 sqrt(r) for a sharp square."""
        along = np.array([[self.position, self.mixed / math.sqrt(2)], [self.mixed / math.sqrt(2), self.size / 2]])
        low, high = np.sqrt(np.linalg.eigvalsh(along) / self.unit)
        return float(low), float(high)

    def to_dict(self) -> dict[str, float]:
        """The numbers as in result.json."""
        return asdict(self) | {"unit": self.unit, "speed": self.speed}


@dataclass(frozen=True)
class SpriteConstant:
    """Bi-Lipschitz constants of the map from (p, sqrt(2) r) to images, for half-sides in a range."""

    smallest: float
    largest: float
    raw: float  # norms of images in units of sqrt(C)
    rescaled: float  # after the best rescaling by one factor: (largest / smallest)^(1/4) for sharp squares
    sigma: float  # 0 for a sharp square


def sprite_metric(half_side: float, sigma: float) -> SpriteMetric:
    """The metric of a smoothed square in closed form, in a frame without borders.

    With q = exp(-r^2 / s^2) and e = erf(r / s), and E the profile of the smoothed square along one axis:
    the integral of E^2 is 2 r e - (2 s / sqrt(pi)) (1 - q), its edges give (1 - q) / (s sqrt(pi)) when they move and
    (1 + q) / (s sqrt(pi)) when they move apart, and the integral of E times its change with r is e.
    """
    r, s = check_number("half_side", half_side, 0, open_low=True), check_number("sigma", sigma, 0, open_low=True)
    q, e = math.exp(-((r / s) ** 2)), math.erf(r / s)
    area = 2 * r * e - 2 * s / math.sqrt(math.pi) * (1 - q)
    moving, parting = (1 - q) / (s * math.sqrt(math.pi)), (1 + q) / (s * math.sqrt(math.pi))
    return SpriteMetric(r, s, position=moving * area, size=2 * parting * area + 2 * e * e, mixed=0.0)


def sprite_metric_by_quadrature(half_side: float, sigma: float, position: float = 0.0) -> SpriteMetric:
    """The same metric by quadrature of products of derivatives of the image, at any position."""
    r, s = check_number("half_side", half_side, 0, open_low=True), check_number("sigma", sigma, 0, open_low=True)
    x, weight = _quadrature([position - r, position + r], s)
    y, weight_y = _quadrature([-r, r], s)
    right, left = _bell(x - position - r, s), _bell(x - position + r, s)
    along, across = _profile(x - position, r, s), _profile(y, r, s)
    apart = _bell(y - r, s) + _bell(y + r, s)

    def over_x(values: Float) -> float:
        return float(values @ weight)

    def over_y(values: Float) -> float:
        return float(values @ weight_y)

    moved, grown = right - left, right + left  # of the profile along x, when p and when r grow
    area = over_y(across**2)
    both = over_y(across * apart)
    return SpriteMetric(
        r,
        s,
        position=over_x(moved**2) * area,
        size=over_x(grown**2) * area + 2 * over_x(grown * along) * both + over_x(along**2) * over_y(apart**2),
        mixed=over_x(moved * grown) * area + over_x(moved * along) * both,
    )


def sprite_constant(smallest: float, largest: float, sigma: float = 0.0) -> SpriteConstant:
    """The bi-Lipschitz constant of images with half-sides in a range, in the coordinates (p, sqrt(2) r).

    For sharp squares the stretch is 2 sqrt(r) in every direction, so the constant is max(2 sqrt(b), 1 / (2 sqrt(a))),
    and (b / a)^(1/4) after the best rescaling. For sigma > 0 it is that of the smoothed squares.

    References
    ----------
    Nelson et al. 2026, appendix A.6; our copy of the text does not say which of the two constants it prints.
    """
    a, b = check_number("smallest", smallest, 0, open_low=True), check_number("largest", largest, 0, open_low=True)
    if a > b:
        raise InputError(f"smallest must be at most largest; got {smallest!r} and {largest!r}")
    if sigma == 0:
        low, high = 2 * math.sqrt(a), 2 * math.sqrt(b)
    else:
        sizes = np.linspace(a, b, SIZES)
        pairs = [sprite_metric(float(r), sigma).stretch for r in sizes]
        low, high = min(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    return SpriteConstant(a, b, max(high, 1 / low), math.sqrt(high / low), float(sigma))


def sprite_decoder(pixels: int = 64, sigma: float = 0.03, frame: float = 1.0) -> Callable[[Any], Any]:
    """A decoder of squares for `bilipschitz`: latents (position, sqrt(2) half-side) to images (rows, pixels, pixels).

    Images are scaled so that Euclidean norms are those of functions on the plane over sqrt(C). The frame extends from
    -frame to frame.
    """
    torch = require("torch", "a decoder of squares", "torch")
    step = 2 * frame / pixels
    grid = -frame + step * (np.arange(pixels) + 0.5)
    unit = 1 / (2 * sigma * math.sqrt(math.pi))

    def decode(z: Any) -> Any:
        at = torch.as_tensor(grid, dtype=z.dtype, device=z.device)
        p, r = z[:, :1], z[:, 1:2] / math.sqrt(2)

        def profile(x: Any) -> Any:
            return (torch.erf((x + r) / (sigma * math.sqrt(2))) - torch.erf((x - r) / (sigma * math.sqrt(2)))) / 2

        return profile(at - p)[:, None, :] * profile(at + 0 * p)[:, :, None] * (step / math.sqrt(unit))

    return decode


def _bell(x: Float, s: float) -> Float:
    return np.exp(-((x / s) ** 2) / 2) / (s * math.sqrt(2 * math.pi))


def _profile(x: Float, r: float, s: float) -> Float:
    from scipy.special import ndtr

    found: Float = ndtr((x + r) / s) - ndtr((x - r) / s)
    return found


def _quadrature(edges: list[float], s: float) -> tuple[Float, Float]:
    """Nodes and weights from before the first edge to after the last, one standard deviation at a time."""
    low, high = edges[0] - REACH * s, edges[-1] + REACH * s
    near = {low, high}
    for edge in edges:
        near |= {edge + k * s for k in range(-int(REACH), int(REACH) + 1)}
    borders = np.array(sorted(border for border in near if low <= border <= high))
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(borders)[:, None] / 2
    x = borders[:-1, None] + half * (nodes + 1)
    return x.ravel(), (half * weights).ravel()
