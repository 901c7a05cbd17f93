"""Looking at a model of images: what it makes of some, and what each latent changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy

STEPS = 7  # pictures of each latent
RANGE = (0.05, 0.95)  # of the values that a latent takes, as quantiles


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images, their reconstructions, and traversals: one code with one latent changed. Pixels are uint8."""

    originals: Array  # (m, channels, height, width)
    reconstructions: Array  # the same shape
    traversals: tuple[Array, ...]  # for each latent (steps, channels, height, width)
    values: tuple[Array, ...]  # for each latent (steps,): what it was set to


def look(model: Any, images: Any, codes: Array, *, steps: int = STEPS, components: Any = None) -> Pictures:
    """Reconstruct images, and change one latent of the first of them at a time, or one component of its latents.

    Parameters
    ----------
    images : (m, channels, height, width)
        uint8, or floats from 0 to 1.
    codes : (n, latents)
        Of many images, as `evaluated` gives them: a latent goes from the 5 % to the 95 % quantile of its column in
        equal steps or, where codes are discrete, through the values it takes most often.
    components : optional
        Of such codes, with `transform` and `mixing` (see `congruence.ica.latents`): these are changed instead of
        latents, in the same way. Directions that they leave out stay as they are.
    """
    import torch

    device = next(model.parameters()).device
    x = torch.as_tensor(np.ascontiguousarray(to_numpy(images))).to(device)
    with torch.no_grad():
        evaluated = getattr(model, "evaluated", model.encode)(x[:1])  # (1, latents)
        again = model.decode(model.encode(x))
        if components is None:
            discrete = bool(getattr(model, "discrete", False))
            values = tuple(_values(column, discrete, steps) for column in codes.T)
            changed = [_with_latent(evaluated, latent, column) for latent, column in enumerate(values)]
        else:
            values = tuple(_values(column, False, steps) for column in components.transform(codes).T)
            changed = [_with_component(evaluated, components, j, column) for j, column in enumerate(values)]
        shown = tuple(_pixels(model.decode(_decodable(model, one))) for one in changed)
    return Pictures(_pixels(x), _pixels(again), shown, values)


def _with_latent(code: Any, latent: int, values: Array) -> Any:
    """The code (1, latents) with other values of one latent, (values, latents)."""
    import torch

    changed = code.repeat(len(values), 1)
    changed[:, latent] = torch.as_tensor(values, dtype=code.dtype, device=code.device)
    return changed


def _with_component(code: Any, components: Any, number: int, values: Array) -> Any:
    """The code (1, latents) moved so that one component has other values, (values, latents)."""
    import torch

    here = float(components.transform(to_numpy(code).astype(np.float64))[0, number])
    move = np.outer(values - here, components.mixing[:, number])
    return code + torch.as_tensor(move, dtype=code.dtype, device=code.device)


def _values(column: Array, discrete: bool, steps: int) -> Array:
    if not discrete:
        low, high = np.quantile(column, RANGE)
        return np.linspace(float(low), float(high), steps)
    found, counts = np.unique(column, return_counts=True)
    return np.sort(found[np.argsort(-counts, kind="stable")[:steps]])


def _decodable(model: Any, codes: Any) -> Any:
    """What the decoder takes; where codes are numbers of vectors, the vectors."""
    return codes if codes.is_floating_point() else model.values_of(codes)


def _pixels(images: Any) -> Array:
    if images.is_floating_point():
        images = (images.float().clamp(0, 1) * 255).round()
    return to_numpy(images).astype(np.uint8)
