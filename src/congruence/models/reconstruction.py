"""What a model of images makes of them: codes, and how near its pictures come."""

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


def through(work: Callable[[Any], Any], images: Any, device: Any) -> Any:
    """What `work` gives for images, some at a time on a device; one tensor on the CPU."""
    import torch

    with torch.no_grad():
        parts = [work(torch.as_tensor(part).to(device)).cpu() for part in _parts(images)]
    return torch.cat(parts)


def mean_psnr(model: Any, images: Any) -> float:
    """The peak signal-to-noise ratio, -10 log10(mean squared error) of each image, in decibels, and their mean.

    The error is that of decode(encode(image)) on a scale from 0 to 1; images are uint8 or floats from 0 to 1.
    """
    import torch

    def one(x: Any) -> Any:
        pixels = x.float() / 255 if x.dtype == torch.uint8 else x.float()
        error = (model.decode(model.encode(x)).float() - pixels).square().flatten(1).mean(1)
        return -10 * torch.log10(error.double().clamp_min(LEAST))

    return float(through(one, images, next(model.parameters()).device).mean())


def _parts(images: Any) -> list[Any]:
    return [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
