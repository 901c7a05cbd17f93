"""Encoders and decoders of images: those that Hsu et al. published, and small ones for a CPU.

An encoder maps images (n, channels, height, width) to (n, out), a decoder maps codes (n, inputs) to logits of images.

Initial weights of the published nets are uniform within 1 / sqrt(fan_in), the default of the library they were written
in. For a transposed convolution its fan_in is in_channels * kernel^2; torch itself would count out_channels. The small
nets have no norms that would rescale activations, so their weights start within sqrt(6 / (1.04 fan_in)) (He et al.
2015, for a slope of 0.2), where fan_in counts the terms of one output, a quarter as many for a transposed convolution
of stride 2; biases start at 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.rows.devices import can_compile

if can_compile():
    from congruence.experiments.models._fused_norm import fused_norm

NETS = ("published", "small")
FUSED = can_compile()  # whether training on a GPU uses the fused kernel for instance norm
LEAK, EPSILON = 0.2, 1e-6  # of LeakyReLU, and of instance norm
WIDTHS, SIDE, DENSE = (32, 64, 128, 256), 64, 256
LAYERS = ((3, 1), (3, 1), (4, 2))  # kernel and stride of the three convolutions of each width
CONSTANT = 0.1  # initial value of the learned input of the style decoder
SMALL_WIDTHS, SMALL_DENSE, SMALLEST = (16, 32, 32, 64), 128, 4


def make_nets(net: str, shape: Sequence[int], out: int, inputs: int) -> tuple[Any, Any]:
    """An encoder of images of a shape (channels, height, width) to `out` numbers, and a decoder of `inputs` numbers.

    "published" is for images of 64 x 64. "small" halves the sides up to four times, as long as they are even and
    above 4: 64 to 4, 32 to 4, 28 to 7.
    """
    check_choice("net", net, NETS)
    if len(shape) != 3 or min(shape) < 1:
        raise InputError(f"shape must be (channels, height, width); got {tuple(shape)}")
    channels, height, width = shape
    if net == "published":
        if (height, width) != (SIDE, SIDE):
            raise InputError(
                f"net='published' takes images of {SIDE} x {SIDE}, net='small' others; got {height} x {width}"
            )
        return published_encoder(channels, out), StyleDecoder(inputs, channels)
    return small_encoder(shape, out), small_decoder(shape, inputs)


def published_encoder(channels: int, out: int) -> ImageEncoder:
    """Twelve convolutions, each with instance norm and LeakyReLU, to 256 x 4 x 4; two dense layers; a head.

    Convolutions have no bias, since the norm has one.

    References
    ----------
    Hsu et al. 2023, as in their published code.
    """
    layers: list[Any] = []
    for before, width, kernel, stride in _published_layers(channels, WIDTHS):
        convolution = (
            nn.Conv2d(before, width, kernel, stride, padding=1, bias=False) if layers else FewChannels(before, width)
        )
        layers += [convolution, NormLeaky(width)]
    left = SIDE // 2 ** len(WIDTHS)
    return ImageEncoder(nn.Sequential(*layers), (WIDTHS[-1] * left * left, DENSE, DENSE), out)


def small_encoder(shape: Sequence[int], out: int) -> ImageEncoder:
    """Up to four convolutions (4 x 4, stride 2) of 16, 32, 32 and 64 channels, one dense layer of 128, and a head."""
    widths, (height, width) = _small_widths(shape)
    layers: list[Any] = []
    for before, after in pairwise((shape[0], *widths)):
        layers += [nn.Conv2d(before, after, 4, 2, padding=1), nn.LeakyReLU(LEAK)]
    encoder = ImageEncoder(nn.Sequential(*layers), (widths[-1] * height * width, SMALL_DENSE), out)
    _start_at_size(encoder)
    return encoder


def small_decoder(shape: Sequence[int], inputs: int) -> Any:
    """The layers of `small_encoder` in reverse order, with transposed convolutions."""
    widths, (height, width) = _small_widths(shape)
    layers: list[Any] = [nn.Linear(inputs, SMALL_DENSE), nn.ReLU()]
    layers += [nn.Linear(SMALL_DENSE, widths[-1] * height * width), nn.LeakyReLU(LEAK)]
    layers.append(nn.Unflatten(1, (widths[-1], height, width)))
    for before, after in pairwise((*reversed(widths), shape[0])):
        layers += [transposed(before, after, bias=True), nn.LeakyReLU(LEAK)]
    decoder = nn.Sequential(*layers[:-1])
    _start_at_size(decoder)
    return decoder


class ImageEncoder(nn.Module):  # type: ignore[misc]
    """Convolutions, dense layers with ReLU, and a linear head."""

    def __init__(self, convolutions: Any, dense: Sequence[int], out: int) -> None:
        super().__init__()
        self.convolutions, self.dense = convolutions, _dense(dense)
        self.head = nn.Linear(dense[-1], out)

    def forward(self, x: Any) -> Any:
        """Map images (n, channels, height, width) to (n, out)."""
        features = self.dense(self.convolutions(x).flatten(1))
        # Codes are compared with codebooks and with each other; bfloat16 has only two to three digits.
        with torch.autocast(x.device.type, enabled=False):
            return self.head(as_float32(features))


class StyleDecoder(nn.Module):  # type: ignore[misc]
    """Transposed convolutions of a learned constant 256 x 4 x 4; the code sets the scale and shift of each channel.

    Two dense layers with ReLU map a code to w. Twelve transposed convolutions without bias follow, each with
    LeakyReLU, instance norm, and x * scale + shift, where (scale, shift) = ReLU(linear(w)), so both are at least 0. A
    last convolution (3 x 3, no bias) outputs the logits.

    Two things are stored differently from the published code; functions, initial weights and gradients are the same.
    The twelve linear layers of w are one, `style`, whose rows are scale and shift of the first layer, of the second,
    and so on. A transposed convolution of stride 1 is a convolution; the published library stores it as one (out, in,
    3, 3), so the weights are the published ones. Those of stride 2 are stored as torch does: (in, out, 4, 4), with the
    kernel flipped.

    References
    ----------
    Hsu et al. 2023, as in their published code; Karras et al. 2019.
    """

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        widths, left = WIDTHS[::-1], SIDE // 2 ** len(WIDTHS)
        self.constant = nn.Parameter(torch.full((widths[0], left, left), CONSTANT))
        self.dense = _dense((inputs, DENSE, DENSE))
        plan = list(_published_layers(widths[0], widths))
        self.widths = [width for _, width, _, _ in plan]
        self.style = nn.Linear(DENSE, 2 * sum(self.widths))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, width, kernel, padding=1, bias=False) if stride == 1 else transposed(before, width)
            for before, width, kernel, stride in plan
        )
        self.last = FewChannels(self.widths[-1], channels)

    def forward(self, codes: Any) -> Any:
        """Map codes (n, inputs) to logits (n, channels, 64, 64)."""
        styles = nn.functional.relu(self.style(self.dense(codes)))
        x = self.constant[None]  # shared by all codes until the first style is applied
        for convolution, style in zip(self.convolutions, styles.split([2 * w for w in self.widths], 1), strict=True):
            scale, shift = style.chunk(2, 1)
            x = normalise(convolution(x), scale, shift, leaky="before")
        return self.last(x)


class FewChannels(nn.Conv2d):  # type: ignore[misc]
    """A convolution (3 x 3, no bias) from or to few channels, as images have.

    Compiled for a GPU it is one matrix product; cuDNN is slow there, because it pads few channels or has no kernel.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, 3, padding=1, bias=False)

    def forward(self, x: Any) -> Any:
        """Map images (n, before, height, width) to (n, after, height, width)."""
        if not (torch.compiler.is_compiling() and x.is_cuda):
            return super().forward(x)
        return (gather_convolution if self.in_channels < self.out_channels else scatter_convolution)(x, self.weight)


def gather_convolution(x: Any, weight: Any) -> Any:
    """Convolve x (n, c, height, width) with `weight` (out, c, 3, 3): gather the neighbours, then multiply."""
    few = 9 * x.shape[1]
    near = nn.functional.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1).permute(0, 2, 3, 1, 4, 5).flatten(3)
    matrix = nn.functional.pad(weight.flatten(1).T, (0, 0, 0, -few % 8))  # products are fast in multiples of 8
    return (nn.functional.pad(near, (0, -few % 8)) @ matrix).permute(0, 3, 1, 2)


def scatter_convolution(x: Any, weight: Any) -> Any:
    """Convolve x (n, c, height, width) with `weight` (out, c, 3, 3): multiply, then sum over the neighbours."""
    few = len(weight)
    matrix = weight.permute(1, 2, 3, 0).reshape(x.shape[1], -1)
    product = x.permute(0, 2, 3, 1) @ nn.functional.pad(matrix, (0, -matrix.shape[1] % 8))
    near = as_float32(nn.functional.pad(product, (0, 0, 1, 1, 1, 1)))
    parts = [
        near[:, i : i + x.shape[2], j : j + x.shape[3], (3 * i + j) * few : (3 * i + j + 1) * few]
        for i in range(3)
        for j in range(3)
    ]
    return sum(parts[1:], parts[0]).to(product.dtype).permute(0, 3, 1, 2)


class NormLeaky(nn.Module):  # type: ignore[misc]
    """Instance norm with a learned scale and shift, then LeakyReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Any) -> Any:
        """Map images (n, channels, height, width) to images of the same shape."""
        return normalise(x, self.weight, self.bias, leaky="after")


def normalise(x: Any, scale: Any, shift: Any, *, leaky: str) -> Any:
    """Instance norm of x (n, channels, height, width), times scale, plus shift, with LeakyReLU "before" or "after" it.

    scale and shift are (channels,) or (images, channels); one image x is broadcast to many of these. Sums are float32
    or better, whatever x is. In bfloat16 on a GPU, as in training, one kernel does all of it.
    """
    one_each = scale.ndim == 1 or len(scale) == len(x)
    if FUSED and x.is_cuda and x.dtype == torch.bfloat16 and one_each:
        return fused_norm(x, scale, shift, EPSILON, LEAK, before=leaky == "before", after=leaky == "after")
    full = as_float32(nn.functional.leaky_relu(x, LEAK) if leaky == "before" else x)
    variance, mean = torch.var_mean(full, dim=(2, 3), correction=0, keepdim=True)
    scale, shift = scale[..., None, None], shift[..., None, None]
    full = ((full - mean) * (torch.rsqrt(variance + EPSILON) * scale) + shift).to(x.dtype)
    return nn.functional.leaky_relu(full, LEAK) if leaky == "after" else full


def as_float32(x: Any) -> Any:
    """X as float32, or unchanged if it is float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def transposed(before: int, after: int, *, bias: bool = False) -> Any:
    """A transposed convolution, 4 x 4 with stride 2, that doubles the sides; see the module for its initial weights."""
    layer = nn.ConvTranspose2d(before, after, 4, 2, padding=1, bias=bias)
    limit = 1 / math.sqrt(before * 4 * 4)
    for weight in layer.parameters():
        nn.init.uniform_(weight, -limit, limit)
    return layer


def _start_at_size(net: Any) -> None:
    """Draw the initial weights of a net without norms, so that activations keep their variance; see the module."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            doubled = isinstance(layer, nn.ConvTranspose2d)
            fan_in = layer.weight.shape[0] * 4 if doubled else layer.weight[0].numel()
            limit = math.sqrt(6 / ((1 + LEAK**2) * fan_in))
            nn.init.uniform_(layer.weight, -limit, limit)
            nn.init.zeros_(layer.bias)


def _dense(widths: Sequence[int]) -> Any:
    layers: list[Any] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


def _published_layers(channels: int, widths: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Channels before and after, kernel and stride of twelve convolutions."""
    before = channels
    for width in widths:
        for kernel, stride in LAYERS:
            yield before, width, kernel, stride
            before = width


def _small_widths(shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, int]]:
    """The widths of the convolutions of the small net, and the sides of their output."""
    _, height, width = shape
    halvings = 0
    while halvings < len(SMALL_WIDTHS) and height % 2 == width % 2 == 0 and min(height, width) > SMALLEST:
        height, width, halvings = height // 2, width // 2, halvings + 1
    if not halvings:
        raise InputError(f"net='small' takes images with even sides above {SMALLEST}; got {shape[1]} x {shape[2]}")
    return SMALL_WIDTHS[:halvings], (height, width)
