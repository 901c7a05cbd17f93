"""Apply a trained model: codes in batches, reconstruction errors, reconstructed images and latent traversals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy

BATCH = 500  # images at a time
LEAST = 1e-12  # smallest mean squared error, so that its logarithm is finite
STEPS = 7  # images of each latent
RANGE = (0.05, 0.95)  # of the values of a latent, as quantiles


def evaluated_rows(n: int, count: int = 10_000) -> Array:
    """The rows that a model is evaluated on, in order: all of n, or `count` that are drawn with a fixed seed.

    They are the same for every training, so that the codes of two runs are of the same images.
    """
    return np.arange(n) if n <= count else np.sort(np.random.default_rng(0).permutation(n)[:count])


def apply_in_batches(work: Callable[..., Any], images: Any, device: Any, *others: Any) -> Any:
    """Apply `work` to batches of images and of other arrays with as many rows; one tensor on the CPU."""
    import torch

    with torch.no_grad():
        parts = [
            work(*(torch.as_tensor(one[start : start + BATCH]).to(device) for one in (images, *others))).cpu()
            for start in range(0, len(images), BATCH)
        ]
    return torch.cat(parts)


def mean_psnr(model: Any, images: Any, *others: Any) -> float:
    """The mean over images of the peak signal-to-noise ratio, -10 log10(mean squared error), in decibels.

    The error is that of decode(encode(image)) on a scale from 0 to 1; images are uint8 or floats in [0, 1].
    """
    import torch

    errors = _errors(model, images, *others)
    return float((-10 * torch.log10(errors.double().clamp_min(LEAST))).mean())


def mean_squared_error(model: Any, rows: Any, *others: Any) -> float:
    """The squared error of decode(encode(row)), the mean over rows and their values."""
    return float(_errors(model, rows, *others).double().mean())


def _errors(model: Any, images: Any, *others: Any) -> Any:
    """The mean squared error of each image or row, (n,)."""
    import torch

    def one(x: Any, *more: Any) -> Any:
        pixels = x.float() / 255 if x.dtype == torch.uint8 else x.float()
        return (model.decode(model.encode(x, *more)).float() - pixels).square().flatten(1).mean(1)

    return apply_in_batches(one, images, next(model.parameters()).device, *others)


@dataclass(frozen=True, eq=False)
class Traversals:
    """Images, their reconstructions, and traversals: decoded codes with one latent changed. Pixels are uint8."""

    originals: Array  # (m, channels, height, width)
    reconstructions: Array  # the same shape
    traversals: tuple[Array, ...]  # for each latent (steps, channels, height, width)
    values: tuple[Array, ...]  # for each latent (steps,): its values


def traverse_latents(
    model: Any, images: Any, codes: Array, *, steps: int = STEPS, components: Any = None
) -> Traversals:
    """Reconstruct images, and change one latent, or one component of the latents, of the first image at a time.

    Parameters
    ----------
    model : torch.nn.Module
        With `encode` and `decode`.
    images : (m, channels, height, width)
        uint8, or floats in [0, 1].
    codes : (n, latents)
        Of many images, as `evaluated` returns them: a latent goes from the 5 % to the 95 % quantile of its column in
        equal steps or, if codes are discrete, through its most frequent values.
    steps : int
        Images of each latent.
    components : optional
        Of such codes, with `transform` and `mixing` (see `congruence.ica.latents`): these are changed instead of
        latents, in the same way. Directions outside their span do not change.
    """
    import torch

    device = next(model.parameters()).device
    x = torch.as_tensor(np.ascontiguousarray(to_numpy(images))).to(device)
    with torch.no_grad():
        code = getattr(model, "evaluated", model.encode)(x[:1])  # (1, latents)
        reconstructed = model.decode(model.encode(x))
        discrete = components is None and bool(getattr(model, "discrete", False))
        columns = (codes if components is None else components.transform(codes)).T
        values = tuple(_values(column, discrete, steps) for column in columns)
        shown = []
        for j, column in enumerate(values):
            changed = _with_latent(code, j, column) if components is None else _moved(code, components, j, column)
            decodable = changed if changed.is_floating_point() else model.values_of(changed)  # of a codebook
            shown.append(_pixels(model.decode(decodable)))
    return Traversals(_pixels(x), _pixels(reconstructed), tuple(shown), values)


def _with_latent(code: Any, latent: int, values: Array) -> Any:
    """The code (1, latents) with other values of one latent, (values, latents)."""
    import torch

    changed = code.repeat(len(values), 1)
    changed[:, latent] = torch.as_tensor(values, dtype=code.dtype, device=code.device)
    return changed


def _moved(code: Any, components: Any, number: int, values: Array) -> Any:
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


def _pixels(images: Any) -> Array:
    if images.is_floating_point():
        images = (images.float().clamp(0, 1) * 255).round()
    return to_numpy(images).astype(np.uint8)
