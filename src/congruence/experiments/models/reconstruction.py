"""What a model makes of images or rows: codes, and how near it comes to them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from congruence.arrays import Array

BATCH = 500  # images at a time
LEAST = 1e-12  # mean squared error of a perfect picture, which has no logarithm


def evaluated_rows(n: int, count: int = 10_000) -> Array:
    """The rows that a model is evaluated on, in their order: all of n, or `count` that are drawn once and for all.

    They are the same for every training, whatever its seed, so that the codes of two runs are of the same images.
    """
    return np.arange(n) if n <= count else np.sort(np.random.default_rng(0).permutation(n)[:count])


def through(work: Callable[..., Any], images: Any, device: Any, *beside: Any) -> Any:
    """What `work` gives for images and for what is beside them, some at a time on a device; one tensor on the CPU."""
    import torch

    with torch.no_grad():
        parts = [
            work(*(torch.as_tensor(one[start : start + BATCH]).to(device) for one in (images, *beside))).cpu()
            for start in range(0, len(images), BATCH)
        ]
    return torch.cat(parts)


def mean_psnr(model: Any, images: Any, *beside: Any) -> float:
    """The peak signal-to-noise ratio, -10 log10(mean squared error) of each image, in decibels, and their mean.

    The error is that of decode(encode(image)) on a scale from 0 to 1; images are uint8 or floats from 0 to 1.
    """
    import torch

    errors = _errors(model, images, *beside)
    return float((-10 * torch.log10(errors.double().clamp_min(LEAST))).mean())


def mean_square(model: Any, rows: Any, *beside: Any) -> float:
    """The squared error of decode(encode(row)), the mean over rows and their numbers."""
    return float(_errors(model, rows, *beside).double().mean())


def _errors(model: Any, images: Any, *beside: Any) -> Any:
    """The mean squared error of each image or row, (n,)."""
    import torch

    def one(x: Any, *more: Any) -> Any:
        pixels = x.float() / 255 if x.dtype == torch.uint8 else x.float()
        return (model.decode(model.encode(x, *more)).float() - pixels).square().flatten(1).mean(1)

    return through(one, images, next(model.parameters()).device, *beside)
