"""Instance norm with LeakyReLU before or after it, as one GPU kernel forward and one backward.

torch.compile makes five or six kernels of it, each of which reads whole images again; the nets of images are limited by
memory bandwidth. Here one program has some channels of one image: it reads them to sum and, from the cache, to write.
Sums are float32 and always in the same order. The kernels need triton, which is part of torch builds for CUDA.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

MANY = 256  # programs that occupy a GPU


@triton.jit  # type: ignore[untyped-decorator]
def _forward_kernel(  # type: ignore[no-untyped-def]
    x, scale, shift, y, mean, inverse, size, channels, scale_step, shift_step, leak, epsilon,
    before: tl.constexpr, after: tl.constexpr, pixels: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    image, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * columns + tl.arange(0, columns)
    known, start = c < channels, image * size * channels
    # The first pixel is subtracted, so that a mean far from 0 costs no digits of the variance.
    first = tl.load(x + start + c, mask=known, other=0.0).to(tl.float32)
    if before:
        first = tl.where(first > 0, first, leak * first)
    total = tl.zeros((pixels, columns), dtype=tl.float32)
    squares = tl.zeros((pixels, columns), dtype=tl.float32)
    for begin in range(0, size, pixels):
        pixel = begin + tl.arange(0, pixels)
        inside = (pixel[:, None] < size) & known[None, :]
        v = tl.load(x + start + pixel[:, None] * channels + c[None, :], mask=inside, other=0.0).to(tl.float32)
        if before:
            v = tl.where(v > 0, v, leak * v)
        v = tl.where(inside, v - first[None, :], 0.0)
        total += v
        squares += v * v
    middle = tl.sum(total, axis=0) / size
    spread = tl.maximum(tl.sum(squares, axis=0) / size - middle * middle, 0.0)
    r = 1 / tl.sqrt(spread + epsilon)
    middle += first
    tl.store(mean + image * channels + c, middle, mask=known)
    tl.store(inverse + image * channels + c, r, mask=known)
    a = r * tl.load(scale + image * scale_step + c, mask=known, other=0.0).to(tl.float32)
    b = tl.load(shift + image * shift_step + c, mask=known, other=0.0).to(tl.float32)
    for begin in range(0, size, pixels):
        pixel = begin + tl.arange(0, pixels)
        inside = (pixel[:, None] < size) & known[None, :]
        place = start + pixel[:, None] * channels + c[None, :]
        v = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        if before:
            v = tl.where(v > 0, v, leak * v)
        v = (v - middle[None, :]) * a[None, :] + b[None, :]
        if after:
            v = tl.where(v > 0, v, leak * v)
        tl.store(y + place, v.to(y.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_kernel(  # type: ignore[no-untyped-def]
    g, x, scale, shift, mean, inverse, dx, dscale, dshift, size, channels, scale_step, shift_step, leak,
    before: tl.constexpr, after: tl.constexpr, pixels: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    image, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * columns + tl.arange(0, columns)
    known, start = c < channels, image * size * channels
    middle = tl.load(mean + image * channels + c, mask=known, other=0.0)
    r = tl.load(inverse + image * channels + c, mask=known, other=0.0)
    s = tl.load(scale + image * scale_step + c, mask=known, other=0.0).to(tl.float32)
    b = tl.load(shift + image * shift_step + c, mask=known, other=0.0).to(tl.float32)
    total = tl.zeros((pixels, columns), dtype=tl.float32)
    product = tl.zeros((pixels, columns), dtype=tl.float32)
    for begin in range(0, size, pixels):
        pixel = begin + tl.arange(0, pixels)
        inside = (pixel[:, None] < size) & known[None, :]
        place = start + pixel[:, None] * channels + c[None, :]
        v = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        d = tl.load(g + place, mask=inside, other=0.0).to(tl.float32)
        if before:
            v = tl.where(v > 0, v, leak * v)
        v = (v - middle[None, :]) * r[None, :]
        if after:
            d = tl.where(v * s[None, :] + b[None, :] > 0, d, leak * d)
        total += d
        product += d * v
    sums, products = tl.sum(total, axis=0), tl.sum(product, axis=0)
    tl.store(dshift + image * channels + c, sums, mask=known)
    tl.store(dscale + image * channels + c, products, mask=known)
    sums, products, a = sums / size, products / size, r * s
    for begin in range(0, size, pixels):
        pixel = begin + tl.arange(0, pixels)
        inside = (pixel[:, None] < size) & known[None, :]
        place = start + pixel[:, None] * channels + c[None, :]
        raw = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        d = tl.load(g + place, mask=inside, other=0.0).to(tl.float32)
        v = raw
        if before:
            v = tl.where(v > 0, v, leak * v)
        v = (v - middle[None, :]) * r[None, :]
        if after:
            d = tl.where(v * s[None, :] + b[None, :] > 0, d, leak * d)
        d = (d - sums[None, :] - v * products[None, :]) * a[None, :]
        if before:
            d = tl.where(raw > 0, d, leak * d)
        tl.store(dx + place, d.to(dx.dtype.element_ty), mask=inside)


def fused_norm(x: Any, scale: Any, shift: Any, epsilon: float, leak: float, *, before: bool, after: bool) -> Any:
    """Instance norm of x (n, channels, height, width), times scale, plus shift; LeakyReLU before or after it, or both.

    x is on a GPU; scale and shift are (channels,) or (n, channels). The result has the dtype of x and channels last. It
    can be differentiated once.
    """
    return _fused(x, scale, shift, epsilon, leak, before, after)[0]


@torch.library.custom_op("congruence::fused_norm", mutates_args=())  # type: ignore[untyped-decorator]
def _fused(
    x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, epsilon: float, leak: float, before: bool, after: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x, scale, shift = _last(x), _rows(scale), _rows(shift)
    y = torch.empty_like(x)
    mean = torch.empty(x.shape[:2], dtype=torch.float32, device=x.device)
    inverse = torch.empty_like(mean)
    size, channels = x.shape[2] * x.shape[3], x.shape[1]
    grid, tile = _cut(len(x), channels, size)
    with torch.cuda.device_of(x):  # triton would use the current device
        _forward_kernel[grid](
            x, scale, shift, y, mean, inverse, size, channels, _step(scale), _step(shift), leak, epsilon, before, after,
            **tile,
        )  # fmt: skip
    return y, mean, inverse


@_fused.register_fake
def _(x, scale, shift, epsilon, leak, before, after):  # type: ignore[no-untyped-def]
    rows = torch.empty(x.shape[:2], dtype=torch.float32, device=x.device)
    return torch.empty_like(x, memory_format=torch.channels_last), rows, torch.empty_like(rows)


@torch.library.custom_op("congruence::fused_norm_backward", mutates_args=())  # type: ignore[untyped-decorator]
def _backward(
    g: torch.Tensor, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, mean: torch.Tensor,
    inverse: torch.Tensor, leak: float, before: bool, after: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    g, x, scale, shift = _last(g), _last(x), _rows(scale), _rows(shift)
    dx, dscale, dshift = torch.empty_like(x), torch.empty_like(mean), torch.empty_like(mean)
    size, channels = x.shape[2] * x.shape[3], x.shape[1]
    grid, tile = _cut(len(x), channels, size)
    with torch.cuda.device_of(x):
        _backward_kernel[grid](
            g, x, scale, shift, mean, inverse, dx, dscale, dshift, size, channels, _step(scale), _step(shift), leak,
            before, after, **tile,
        )  # fmt: skip
    return dx, dscale, dshift


@_backward.register_fake
def _(g, x, scale, shift, mean, inverse, leak, before, after):  # type: ignore[no-untyped-def]
    return torch.empty_like(x, memory_format=torch.channels_last), torch.empty_like(mean), torch.empty_like(mean)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, scale, shift, _, *ctx.how = inputs
    ctx.save_for_backward(x, scale, shift, *output[1:])


def _gradients(ctx: Any, g: Any, *_: Any) -> tuple[Any, ...]:
    x, scale, shift, mean, inverse = ctx.saved_tensors
    dx, dscale, dshift = _backward(g, x, scale, shift, mean, inverse, *ctx.how)
    back = [(d.sum(0) if of.ndim == 1 else d).to(of.dtype) for d, of in ((dscale, scale), (dshift, shift))]
    return dx, *back, None, None, None, None


_fused.register_autograd(_gradients, setup_context=_keep)


def _last(x: Any) -> Any:
    return x.contiguous(memory_format=torch.channels_last)


def _rows(x: Any) -> Any:
    return x if x.stride(-1) == 1 else x.contiguous()


def _step(x: Any) -> int:
    """The stride from one image to the next in scales or shifts; 0 if all share them."""
    return int(x.stride(0)) if x.ndim == 2 else 0


def _cut(n: int, channels: int, size: int) -> tuple[tuple[int, int], dict[str, int]]:
    """The number of programs, and the tile that each processes at a time: the fastest for batches of 128 on an H200."""
    columns = 16 if n * channels < MANY * 32 else 64 if size <= 64 and channels >= 256 else 32
    columns = min(columns, triton.next_power_of_2(channels))
    pixels = min(triton.next_power_of_2(size), 8192 // columns)
    warps = max(2, min(4, pixels * columns // 2048))
    return (n, triton.cdiv(channels, columns)), {"pixels": pixels, "columns": columns, "num_warps": warps}
