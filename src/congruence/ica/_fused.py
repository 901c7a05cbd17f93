"""The tanh of components and the sums of its squares as one GPU kernel: components are read and written once.

torch alone reads them five times (tanh, square, sum). The kernel needs triton, which comes with torch built for CUDA;
without it `Passes` does the same in several steps.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

ROWS, COLUMNS = 64, 64  # of a tile
TILES = 4  # that one program processes, one below the other


@triton.jit  # type: ignore[untyped-decorator]
def _tanh_kernel(s, power, n, k, tiles: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):  # type: ignore[no-untyped-def]
    block, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * columns + tl.arange(0, columns)
    total = tl.zeros((columns,), dtype=tl.float32)
    for tile in range(tiles):
        row = (block * tiles + tile) * rows + tl.arange(0, rows)
        place = row[:, None] * k + column[None, :]
        inside = (row[:, None] < n) & (column[None, :] < k)
        g = libdevice.tanh(tl.load(s + place, mask=inside, other=0.0))
        tl.store(s + place, g, mask=inside)
        total += tl.sum(g * g, axis=0)
    tl.store(power + block * k + column, total, mask=column < k)


def tanh_and_power(s: Any) -> Any:
    """Replace components s (n, k), contiguous float32 on a GPU, by tanh(s), and return the sums of its squares (k,).

    Each program sums its own rows, and these sums are added in float64 in a fixed order: the result is deterministic.
    """
    import torch

    n, k = s.shape
    blocks = triton.cdiv(n, TILES * ROWS)
    power = torch.empty((blocks, k), dtype=torch.float32, device=s.device)
    with torch.cuda.device(s.device):
        _tanh_kernel[(blocks, triton.cdiv(k, COLUMNS))](s, power, n, k, TILES, ROWS, COLUMNS)
    return power.sum(0, dtype=torch.float64)
