"""Passes over rows that live in torch, on whatever device; what they return is numpy, of size k x k."""

from __future__ import annotations

from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_tensor
from congruence.resolve.contrasts import Contrast
from congruence.resolve.passes import Averages, Shape

CHUNK = 2**26  # numbers in a chunk of rows: enough to keep a GPU busy


class TorchPasses:
    """The same passes as `passes.Passes`, with rows multiplied on a torch device.

    Rows that are already a tensor there are used where they lie; others are brought over chunk by chunk. Products are
    float32 (float64 on request); sums over chunks, and everything of size k x k, are float64.
    """

    def __init__(
        self,
        data: Any,
        mean: Float,
        whitening: Float,
        contrast: Contrast,
        *,
        device: str,
        index: Array | None = None,
        precision: str = "float32",
    ):
        import torch

        self.data, self.mean, self.whitening, self.contrast, self.device = data, mean, whitening, contrast, device
        self.n = len(data) if index is None else len(index)
        self.k, self.d = whitening.shape
        self.dtype = getattr(torch, precision)
        self.index = index if index is None or not is_tensor(data) else torch.as_tensor(index, device=data.device)
        self.count = 0
        self._mean = torch.as_tensor(mean, device=device)

    def averages(self, rotation: Float) -> Averages:
        """The averages at the components s = z @ rotation.T of the whitened rows z."""
        import torch

        self.count += 1
        matrix = rotation @ self.whitening  # (k, d)
        there = self._there(matrix.T)
        cross = torch.zeros((self.k, self.d), dtype=torch.float64, device=self.device)
        slope = torch.zeros(self.k, dtype=torch.float64, device=self.device)
        power = torch.zeros_like(slope)
        for rows in self._chunks():
            g = rows @ there  # (m, k): s, then g(s)
            slopes, powers = self.contrast.apply(g, torch)
            cross += g.T @ rows
            slope += slopes
            power += powers
        cross, slope, power = (total.cpu().numpy() / self.n for total in (cross, slope, power))
        return Averages(cross @ matrix.T, slope, power)

    def shape(self, rotation: Float) -> Shape:
        """How the components at this rotation are distributed."""
        there = self._there((rotation @ self.whitening).T)
        total = np.zeros((3, self.k))
        for rows in self._chunks():
            s = (rows @ there).double()  # (m, k)
            total[0] += self.contrast.value(s.cpu().numpy()).sum(0)
            total[1] += (s**3).sum(0).cpu().numpy()
            total[2] += (s**4).sum(0).cpu().numpy()
        contrast, third, fourth = total / self.n
        return Shape(contrast, third, fourth - 3)

    def _there(self, matrix: Float) -> Any:
        import torch

        return torch.as_tensor(matrix, dtype=self.dtype, device=self.device)

    def _chunks(self) -> Any:
        import torch

        step = max(1, CHUNK // max(self.k, self.d))
        for start in range(0, self.n, step):
            part = slice(start, min(start + step, self.n))
            rows = self.data[part if self.index is None else self.index[part]]
            if not is_tensor(rows):
                rows = torch.from_numpy(np.array(rows))  # a copy: maps are read-only
            rows = rows.to(self.device)
            wide = rows if rows.dtype in (torch.float32, torch.float64) else rows.double()
            yield (wide - self._mean.to(wide.dtype)).to(self.dtype)
