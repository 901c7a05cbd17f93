"""Instance norm with LeakyReLU as one kernel: the same numbers and gradients as step by step.

Without a GPU the kernels can be run by triton's interpreter: TRITON_INTERPRET=1, where triton is installed.
"""

import os

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="triton is not installed; it comes with torch built for CUDA")
from congruence.experiments.models._fused_norm import fused_norm  # noqa: E402
from congruence.experiments.models._nets import EPSILON, LEAK, normalise  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1", reason="no GPU, and TRITON_INTERPRET is not 1"
)


def drawn(shape, own, dtype):
    """Images far from mean 0, scales and shifts of all images or of each, and a gradient."""
    torch.manual_seed(0)
    x = torch.randn(shape) + 3 * torch.randn(shape[:2])[..., None, None]
    size = shape[:2] if own else shape[1:2]
    both = torch.cat([torch.rand(size), torch.rand(size) - 0.5], -1).to(DEVICE)  # as a style holds them
    scale, shift = both.chunk(2, -1)
    return [one.to(DEVICE, dtype) for one in (x, scale, shift, torch.randn(shape))]


def derived(function, x, scale, shift, g):
    given = [one.clone().requires_grad_() for one in (x, scale, shift)]
    y = function(*given)
    return [y.detach(), *torch.autograd.grad(y, given, g.to(y.dtype))]


@pytest.mark.parametrize("leaky", ["before", "after"])
@pytest.mark.parametrize("own", [False, True], ids=["learned", "style"])
@pytest.mark.parametrize("shape", [(3, 5, 6, 7), (2, 32, 33, 32), (4, 64, 4, 4), (1, 3, 1, 1)])
def test_equals_the_steps_one_by_one(shape, own, leaky):
    given = drawn(shape, own, torch.float32)

    def joined(x, scale, shift):
        return fused_norm(x, scale, shift, EPSILON, LEAK, before=leaky == "before", after=leaky == "after")

    found = derived(joined, *given)
    truth = derived(lambda *inputs: normalise(*inputs, leaky=leaky), *(one.double() for one in given))
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4 * float(other.abs().max() + 1))


def test_bfloat16_is_rounded_once_and_keeps_its_layout():
    given = [one.contiguous(memory_format=torch.channels_last) if one.ndim == 4 else one
             for one in drawn((2, 16, 9, 8), False, torch.bfloat16)]  # fmt: skip
    found = derived(lambda *inputs: fused_norm(*inputs, EPSILON, LEAK, before=True, after=False), *given)
    truth = derived(lambda *inputs: normalise(*inputs, leaky="before"), *(one.double() for one in given))
    assert found[0].dtype == torch.bfloat16
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2**-8, atol=2**-8 * float(other.abs().max()))


def test_the_same_again():
    given = drawn((2, 32, 33, 32), True, torch.float32)
    once, again = (
        derived(lambda *inputs: fused_norm(*inputs, EPSILON, LEAK, before=False, after=True), *given) for _ in range(2)
    )
    for one, other in zip(once, again, strict=True):
        assert torch.equal(one, other)
