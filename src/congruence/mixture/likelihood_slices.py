"""Slices of the likelihood: one parameter of a `ReluModel` moves, the others stay where they are.

On the grid of a `Surface` every model with the same noise is a law that sums to 1 up to rounding, so that the truth is
a minimiser on the grid too, and a small margin is not an error of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.errors import InputError
from congruence.mixture.likelihood import Parameters, ReluModel, Surface

VALUES = 121  # of a parameter; the truth is one of them
SPAN = 3.0  # a mean, slope or bias goes so far to either side, a scale from a fifth to five times the truth
FIFTH = np.log(5.0)
SHARE = 0.01  # weights stay between this and 1 minus this
NEAR = 2  # values next to the truth that belong to its valley
RESOLUTION = 1e-9  # expected log-likelihoods that differ by less cannot be told apart


@dataclass(frozen=True, eq=False)
class Slice:
    """The expected negative log-likelihood, minus its value at the truth, along one parameter.

    The centre is the truth unless the slices were taken about another model.
    """

    parameter: str  # "means", ...
    index: int
    truth: float
    values: Float  # (k,), increasing, the truth among them
    excess: Float  # (k,), at least 0 up to rounding

    @property
    def name(self) -> str:
        """The parameter as one would write it: "mean 2"; numbers start at 1."""
        return f"{self.parameter.removesuffix('s') if self.parameter != 'biases' else 'bias'} {self.index + 1}"

    @property
    def at_truth(self) -> int:
        """The place of the truth among the values."""
        return int(np.argmin(np.abs(self.values - self.truth)))

    @property
    def margin(self) -> float:
        """The least excess away from the truth: 0 where another value is as good, below 0 where one is better."""
        away = np.abs(np.arange(len(self.values)) - self.at_truth) > NEAR
        return float(self.excess[away].min())

    @property
    def rival(self) -> float:
        """The value away from the truth that comes nearest to it in likelihood."""
        away = np.flatnonzero(np.abs(np.arange(len(self.values)) - self.at_truth) > NEAR)
        return float(self.values[away[self.excess[away].argmin()]])

    @property
    def valleys(self) -> int:
        """How many local minima there are inside the range; more than one: the slice is not convex."""
        fall, rise = np.diff(self.excess)[:-1] < -RESOLUTION, np.diff(self.excess)[1:] > RESOLUTION
        return int((fall & rise).sum())

    @property
    def verdict(self) -> str:
        """Whether the truth is the only minimiser: "holds", "fails", or "ambiguous" where numbers cannot tell."""
        if self.excess.min() < -RESOLUTION:
            return "fails"
        return "holds" if self.margin > RESOLUTION else "ambiguous"

    def to_dict(self) -> dict[str, Any]:
        """What is said of the slice, without its values."""
        return {
            "parameter": self.name,
            "truth": self.truth,
            "margin": self.margin,
            "rival": self.rival,
            "valleys": self.valleys,
            "verdict": self.verdict,
        }


def slices(model: ReluModel, *, surface: Surface | None = None, values: int = VALUES) -> list[Slice]:
    """Slices along every parameter of a model: weights, means, scales, slopes and biases.

    When a weight moves, the others keep their ratios; of two weights only the first is moved.

    Parameters
    ----------
    model : ReluModel
        The centre.
    surface : Surface, optional
        That of the truth; the model is the truth unless it is given.
    values : int
        Points of each slice.
    """
    surface = model.surface() if surface is None else surface
    count = model.prior.components
    weights = [] if count == 1 else [("weights", j) for j in range(1 if count == 2 else count)]
    others = [(name, j) for name in ("means", "scales") for j in range(count)]
    units = [(name, i) for name in ("slopes", "biases") for i in range(len(model.slopes))]
    return [slice_along(surface, name, i, centre=model, values=values) for name, i in (*weights, *others, *units)]


def slice_along(
    surface: Surface, parameter: str, index: int, *, centre: ReluModel | None = None, values: int = VALUES
) -> Slice:
    """The slice along one parameter, about the truth of the surface or another centre."""
    truth = (surface.truth if centre is None else centre).parameters()
    if parameter not in truth or not 0 <= index < len(truth[parameter]):
        known = ", ".join(f"{name} 0 to {len(some) - 1}" for name, some in truth.items())
        raise InputError(f"parameter must be one of {known}, not {parameter} {index}")
    if values < 2 * NEAR + 3:
        raise InputError(f"values must be at least {2 * NEAR + 3}, not {values}")
    at = float(truth[parameter][index])
    grid = _values(parameter, at, values)
    excess = surface(_moved(truth, parameter, index, grid)).numpy() - float(surface(truth))
    return Slice(parameter, index, at, grid, excess)


def _values(parameter: str, at: float, count: int) -> Float:
    """Values around the truth, half of them on either side, and the truth itself."""
    half = (count - 1) // 2
    if parameter == "weights":
        low, high = min(SHARE, at / 2), max(1 - SHARE, (1 + at) / 2)
        return np.concatenate([np.linspace(low, at, half, endpoint=False), np.linspace(at, high, half + 1)])
    steps = np.linspace(-1, 1, 2 * half + 1)
    return np.asarray(at * np.exp(FIFTH * steps) if parameter == "scales" else at + SPAN * steps)


def _moved(truth: Parameters, parameter: str, index: int, grid: Float) -> Parameters:
    """A batch of parameters, one for each value."""
    import torch

    batch = {name: some.expand(len(grid), -1).clone() for name, some in truth.items()}
    values = torch.as_tensor(grid)
    if parameter == "weights":
        batch["weights"] *= ((1 - values) / (1 - truth["weights"][index]))[:, None]
    batch[parameter][:, index] = values
    return batch
