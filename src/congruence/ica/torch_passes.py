"""Passes over rows on a torch device, with everything of size k x k there, too: only single numbers are copied back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, is_tensor
from congruence.ica.contrasts import Contrast
from congruence.ica.passes import Averages, Shape, is_far_from_round

CHUNK = 2**24  # numbers in a chunk of rows: enough to keep a GPU busy, few enough for float32 sums
COARSE = 1000  # rows per component of a rough answer
SHARE = 0.4  # of the free memory of the device that a copy of the rows may take
WORTH_A_KERNEL = 2**28  # numbers in all rows from which on compiling one (a second) is soon made up for
HOST_BYTES = 2**33  # the same, where the device is the CPU


class TorchPasses:
    """The same passes as `passes.Passes`, with rows multiplied on a torch device.

    Rows that are a tensor there are used where they lie; others are brought over once where they fit, and chunk by
    chunk in every pass where they do not. Products are float32 (float64 on request), rough ones tf32, with factors
    rounded to 10 bits; sums over chunks are float64.
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
        self.rounds = precision == "float32" and torch.device(device).type == "cuda"
        self.index = index if index is None or not is_tensor(data) else torch.as_tensor(index, device=data.device)
        self.count = 0
        self._mean, self._whitening = self.lift(mean), self.lift(whitening)
        self._white = is_far_from_round(whitening) or index is not None or 2 * self.k < self.d
        self._folded = self.lift(np.eye(self.k)) if self._white else self._whitening

    @property
    def few(self) -> int | None:
        """How many rows to begin with, where a rough answer on a few rows saves passes over many.

        A GPU is through with rows it holds as soon as with the k x k algebra; only bringing them over is dear.
        """
        few = COARSE * self.k
        return few if self._kept is None and self.n >= 4 * few else None

    def lift(self, matrix: Any) -> Any:
        """A matrix in float64 on the device."""
        import torch

        return torch.as_tensor(matrix, dtype=torch.float64, device=self.device)

    def averages(self, rotation: Any, *, rough: bool = False) -> Averages:
        """The averages at the components s = z @ rotation.T of the whitened rows z."""
        with _rounded() if rough else nullcontext():
            return self._averages(rotation)

    def _averages(self, rotation: Any) -> Averages:
        import torch

        self.count += 1
        matrix = self.lift(rotation) @ self._folded  # (k, r)
        there = matrix.T.to(self.dtype)
        cross, slope = torch.zeros_like(matrix), torch.zeros_like(matrix[:, 0])
        power = torch.zeros_like(slope)
        for rows in self._chunks():
            g = rows @ there  # (m, k): s, then g(s)
            slopes, powers = self._apply(g)
            cross += g.T @ rows
            slope += slopes
            power += powers
        return Averages(cross @ matrix.T / self.n, slope / self.n, power / self.n)

    @cached_property
    def _apply(self) -> Callable[[Any], tuple[Any, Any]]:
        """Turns components into g(s) in place and gives the sums of the contrast: in one kernel, where there is one."""
        import torch

        if self.rounds and self.contrast.name == "logcosh" and self.n * self.k >= WORTH_A_KERNEL:
            try:
                from congruence.ica.fused import tanh_and_power

                tanh_and_power(torch.zeros((1, 1), device=self.device))
            except Exception:  # no triton, or no compiler for it to call: what it raises then is of many kinds
                return lambda s: self.contrast.apply(s, torch)
            return lambda s: (len(s) - (power := tanh_and_power(s)), power)
        return lambda s: self.contrast.apply(s, torch)

    def shape(self, rotation: Float) -> Shape:
        """How the components at this rotation are distributed."""
        there = (self.lift(rotation) @ self._folded).T.to(self.dtype)
        total = self.lift(np.zeros((3, self.k)))
        for rows in self._chunks():
            s = rows @ there  # (m, k)
            square = s * s
            # In float64: components come in the order of these, and float32 makes ties of what a CPU tells apart.
            for i, values in enumerate((self.contrast.value(s), square * s, square * square)):
                total[i] += values.sum(0, dtype=total.dtype)
        contrast, third, fourth = total.cpu().numpy() / self.n
        return Shape(contrast, third, fourth - 3)

    def _chunks(self) -> Iterator[Any]:
        """The rows as they are multiplied, chunk by chunk."""
        if self._kept is None:
            yield from map(self._read, self._parts())
        else:
            yield from (self._kept[part] for part in self._parts())

    @cached_property
    def _kept(self) -> Any:
        """A copy of the rows as they are multiplied, on the device, where it fits."""
        import torch

        width = self.k if self._white else self.d
        if self.n * width * self.dtype.itemsize > self._room():
            return None
        kept = torch.empty((self.n, width), dtype=self.dtype, device=self.device)
        for part in self._parts():
            kept[part] = self._read(part)
        return kept

    def _room(self) -> float:
        import torch

        if torch.device(self.device).type != "cuda":
            return HOST_BYTES
        return SHARE * float(torch.cuda.mem_get_info(self.device)[0])

    def _parts(self) -> list[slice]:
        step = max(1, CHUNK // max(self.k, self.d))
        return [slice(start, min(start + step, self.n)) for start in range(0, self.n, step)]

    def _read(self, part: slice) -> Any:
        """A chunk of rows, centred or whitened, on the device."""
        import torch

        rows = self.data[part if self.index is None else self.index[part]]
        if not is_tensor(rows):
            rows = torch.from_numpy(np.array(rows))  # a copy: maps are read-only
        centred = rows.detach().to(self.device).double() - self._mean  # float32 would round a mean far from the origin
        return (centred @ self._whitening.T if self._white else centred).to(self.dtype)


@contextmanager
def _rounded() -> Iterator[None]:
    """Multiply float32 matrices as tf32 inside the block, where the device can."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
