import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError

torch = pytest.importorskip("torch")
from congruence.experiments.models._nets import (  # noqa: E402
    FewChannels,
    NormLeaky,
    StyleDecoder,
    gather_convolution,
    make_nets,
    normalise,
    published_encoder,
    scatter_convolution,
)


@pytest.fixture(scope="module")
def published():
    torch.manual_seed(0)
    return make_nets("published", (3, 64, 64), 12, 12)


def sizes(net):
    return {name: weight.numel() for name, weight in net.named_parameters()}


def test_the_published_encoder_has_twelve_convolutions_and_three_dense_layers(published):
    encoder, _ = published
    widths = [3] + [w for w in (32, 64, 128, 256) for _ in range(3)]
    kernels = [3, 3, 4] * 4
    expected = {}
    for i, (before, after, kernel) in enumerate(zip(widths, widths[1:], kernels, strict=False)):
        expected[f"convolutions.{2 * i}.weight"] = before * after * kernel**2
        expected |= {f"convolutions.{2 * i + 1}.{name}": after for name in ("weight", "bias")}
    expected |= {"dense.0.weight": 4096 * 256, "dense.0.bias": 256, "dense.2.weight": 256 * 256, "dense.2.bias": 256}
    expected |= {"head.weight": 256 * 12, "head.bias": 12}
    assert sizes(encoder) == expected
    assert sum(expected.values()) == 3_684_524
    x = torch.rand(2, 3, 64, 64)
    sides = []
    for layer in encoder.convolutions:
        x = layer(x)
        if isinstance(layer, torch.nn.Conv2d):
            sides.append(tuple(x.shape[1:]))
    assert sides[:3] == [(32, 64, 64), (32, 64, 64), (32, 32, 32)]
    assert sides[-3:] == [(256, 8, 8), (256, 8, 8), (256, 4, 4)]
    assert x.shape == (2, 256, 4, 4)


def test_the_style_decoder_has_twelve_styled_convolutions_and_a_last_one(published):
    _, decoder = published
    widths = [256] + [w for w in (256, 128, 64, 32) for _ in range(3)]
    kernels = [3, 3, 4] * 4
    expected = {"constant": 256 * 4 * 4}
    expected |= {"dense.0.weight": 12 * 256, "dense.0.bias": 256, "dense.2.weight": 256 * 256, "dense.2.bias": 256}
    expected |= {"style.weight": 256 * 2 * 1440, "style.bias": 2 * 1440}  # 3 * (256 + 128 + 64 + 32) = 1440
    for i, (before, after, kernel) in enumerate(zip(widths, widths[1:], kernels, strict=False)):
        expected[f"convolutions.{i}.weight"] = before * after * kernel**2
    expected["last.weight"] = 32 * 3 * 9
    assert sizes(decoder) == expected
    assert sum(expected.values()) == 3_967_136
    assert decoder(torch.rand(2, 12)).shape == (2, 3, 64, 64)
    assert (decoder.constant == 0.1).all()


def test_first_weights_are_uniform_within_one_over_the_root_of_fan_in(published):
    for net in published:
        for name, layer in net.named_modules():
            if isinstance(layer, torch.nn.Conv2d | torch.nn.ConvTranspose2d):
                fan_in = layer.in_channels * math.prod(layer.kernel_size)
            elif isinstance(layer, torch.nn.Linear):
                fan_in = layer.in_features
            else:
                continue
            limit = 1 / math.sqrt(fan_in)
            for weight in layer.parameters():
                assert 0.7 * limit < float(weight.detach().abs().max()) <= limit, name
            assert float(layer.weight.detach().std()) == pytest.approx(limit / math.sqrt(3), rel=0.08), name
        for layer in net.modules():
            if isinstance(layer, NormLeaky):
                assert (layer.weight == 1).all()
                assert (layer.bias == 0).all()


def test_the_small_nets_keep_the_size_of_activations():
    torch.manual_seed(0)
    encoder, decoder = make_nets("small", (3, 64, 64), 12, 12)
    first, second = encoder.convolutions[0], decoder[5]
    for layer, fan_in in ((first, 3 * 16), (second, 64 * 4), (encoder.head, 128)):  # 4 of 16 products reach a pixel
        limit = math.sqrt(6 / (1.04 * fan_in))
        assert 0.9 * limit < float(layer.weight.detach().abs().max()) <= limit
        assert (layer.bias == 0).all()
    codes = torch.randn(50, 12)
    assert 0.3 < float(decoder(codes).detach().std()) < 1.5


def test_instance_norm_is_that_of_torch():
    torch.manual_seed(0)
    x = 3 * torch.randn(4, 5, 6, 7) + 2
    norm, leaky = NormLeaky(5), torch.nn.LeakyReLU(0.2)
    with torch.no_grad():
        norm.weight.uniform_()
        norm.bias.uniform_().sub_(0.5)
        options = {"weight": norm.weight, "bias": norm.bias, "eps": 1e-6}
        assert_allclose(norm(x), leaky(torch.nn.functional.instance_norm(x, **options)), atol=2e-6)
        before = normalise(x, norm.weight, norm.bias, leaky="before")
        assert_allclose(before, torch.nn.functional.instance_norm(leaky(x), **options), atol=2e-6)
        for dtype in (torch.bfloat16, torch.float64):
            assert normalise(x.to(dtype), norm.weight, norm.bias, leaky="after").dtype == dtype


@pytest.mark.parametrize(("product", "before", "after"), [
    (gather_convolution, 3, 8), (gather_convolution, 1, 4), (scatter_convolution, 8, 3), (scatter_convolution, 4, 1),
])  # fmt: skip
def test_a_convolution_of_few_channels_is_a_matrix_product(product, before, after):
    torch.manual_seed(before)
    x = torch.randn(2, before, 6, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(after, before, 3, 3, dtype=torch.float64, requires_grad=True)
    found, expected = product(x, weight), torch.nn.functional.conv2d(x, weight, padding=1)
    torch.testing.assert_close(found, expected)
    slope = torch.randn_like(expected)
    for one, other in zip(*(torch.autograd.grad(y, (x, weight), slope) for y in (found, expected)), strict=True):
        torch.testing.assert_close(one, other)


def test_layers_of_few_channels_are_those_at_the_ends(published):
    encoder, decoder = published
    ends = [layer for layer in (*encoder.modules(), *decoder.modules()) if isinstance(layer, FewChannels)]
    assert ends == [encoder.convolutions[0], decoder.last]
    x = torch.randn(1, 3, 4, 4)
    torch.testing.assert_close(ends[0](x), torch.nn.functional.conv2d(x, ends[0].weight, padding=1))


def test_the_style_decoder_is_the_published_one_written_out():
    """The twelve layers as they were published: transposed convolutions, each with its own linear layer of w."""
    torch.manual_seed(0)
    decoder = StyleDecoder(4, 1).double()
    with torch.no_grad():
        decoder.constant.normal_()
        codes = torch.randn(3, 4, dtype=torch.float64)
        w = decoder.dense(codes)
        x, row = decoder.constant.expand(3, -1, -1, -1), 0
        for layer in decoder.convolutions:
            x = torch.nn.functional.leaky_relu(published_transposed(x, layer), 0.2)
            x = torch.nn.functional.instance_norm(x, eps=1e-6)
            width = x.shape[1]
            linear = torch.nn.functional.linear(
                w, decoder.style.weight[row : row + 2 * width], decoder.style.bias[row : row + 2 * width]
            )
            scale, shift = linear.clamp_min(0).split(width, dim=1)
            x, row = x * scale[:, :, None, None] + shift[:, :, None, None], row + 2 * width
        assert_allclose(decoder(codes), decoder.last(x), atol=1e-10)


def published_transposed(x, layer):
    """A transposed convolution as the published library has it: zeros between pixels, padding, then a convolution."""
    if isinstance(layer, torch.nn.Conv2d):  # kernel 3, stride 1, padding 1; weights (out, in, 3, 3)
        return torch.nn.functional.conv_transpose2d(x, layer.weight.transpose(0, 1).flip(2, 3), padding=1)
    n, channels, height, width = x.shape
    spread = torch.zeros(n, channels, 2 * height - 1, 2 * width - 1, dtype=x.dtype)
    spread[:, :, ::2, ::2] = x
    weight = layer.weight.transpose(0, 1).flip(2, 3)  # (out, in, 4, 4)
    return torch.nn.functional.conv2d(spread, weight, padding=4 - 1 - 1)


@pytest.mark.parametrize(
    ("shape", "flat"),
    [((3, 64, 64), 64 * 16), ((1, 32, 32), 32 * 16), ((1, 28, 28), 32 * 49), ((2, 8, 20), 16 * 40)],
)
def test_the_small_nets_take_images_of_other_sizes(shape, flat):
    encoder, decoder = make_nets("small", shape, 5, 3)
    assert encoder.dense[0].in_features == flat
    assert encoder(torch.rand(2, *shape)).shape == (2, 5)
    assert decoder(torch.rand(2, 3)).shape == (2, *shape)


def test_the_head_is_float32_under_autocast():
    encoder, _ = make_nets("small", (1, 16, 16), 3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        codes = encoder(torch.rand(64, 1, 16, 16))
    assert codes.dtype == torch.float32
    assert np.any(codes.detach().bfloat16().float().numpy() != codes.detach().numpy())


def test_no_layer_of_the_encoder_has_a_bias_before_its_norm():
    encoder = published_encoder(1, 2)
    assert all(layer.bias is None for layer in encoder.modules() if isinstance(layer, torch.nn.Conv2d))


@pytest.mark.parametrize(
    ("net", "shape", "message"),
    [
        ("large", (3, 64, 64), "net must be one of 'published', 'small'; got 'large'"),
        ("published", (3, 32, 32), "takes images of 64 x 64, net='small' others; got 32 x 32"),
        ("small", (3, 7, 8), "even sides above 4; got 7 x 8"),
        ("small", (64, 64), r"shape must be \(channels, height, width\); got \(64, 64\)"),
        ("small", (0, 64, 64), r"shape must be \(channels, height, width\); got \(0, 64, 64\)"),
    ],
)
def test_nets_that_cannot_be_are_refused(net, shape, message):
    with pytest.raises(InputError, match=message):
        make_nets(net, shape, 2, 2)
