"""What is done on a GPU equals what is done on a CPU; without a GPU only the way around it is tested."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence import ICA
from congruence.ica._contrasts import contrast_named
from congruence.ica._passes import Passes

torch = pytest.importorskip("torch")
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")


def mixture(n, d, rng):
    sources = np.column_stack([[rng.laplace, rng.exponential][j % 2](size=n) for j in range(d)])
    return ((sources - sources.mean(0)) / sources.std(0) @ rng.normal(size=(d, d))).astype(np.float32)


def test_passes_go_on_without_a_compiler_for_kernels(monkeypatch):
    x = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    monkeypatch.setattr("congruence.ica._passes.WORTH_A_KERNEL", 0)
    found = []
    for rounds in (False, True):
        passes = Passes(x, np.zeros(4), np.eye(4), contrast_named("logcosh"), device="cpu:0")
        passes.rounds = rounds  # as on a GPU, but a kernel cannot be made for tensors of the CPU
        found.append(passes.averages(rotation))
    assert_allclose(found[1].cross.numpy(), found[0].cross.numpy())
    assert_allclose(found[1].power.numpy(), found[0].power.numpy())


def test_shapes_are_summed_in_float64():
    x = np.random.default_rng(0).uniform(-1.7, 1.7, size=(400_000, 3)).astype(np.float32)
    found = Passes(x, np.zeros(3), np.eye(3), contrast_named("logcosh"), device="cpu:0").shape(np.eye(3))
    wide = x.astype(np.float64)
    assert_allclose(found.contrast, np.log(np.cosh(wide)).mean(0), rtol=0, atol=1e-8)  # float32: 3e-8
    assert_allclose(found.kurtosis, (wide**4).mean(0) - 3, rtol=0, atol=1e-8)


@on_a_gpu
@pytest.mark.parametrize("shape", [(1, 1), (1023, 5), (1025, 64), (70_001, 384)])
def test_the_kernel_does_what_torch_does(shape):
    fused = pytest.importorskip("congruence.ica._fused")
    s = torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    expected = torch.tanh(s.double())
    power, again = fused.tanh_and_power(s.clone()), fused.tanh_and_power(s)
    assert_allclose(s.cpu(), expected.cpu(), atol=2e-7)
    assert_allclose(power.cpu(), expected.square().sum(0).cpu(), rtol=1e-5)
    assert torch.equal(power, again)


@on_a_gpu
@pytest.mark.parametrize("worth", [0, 2**28], ids=["one kernel", "several"])
@pytest.mark.parametrize(("n", "d"), [(20_000, 16), (50_000, 64), (60_000, 256)])
def test_components_are_those_of_the_cpu(n, d, worth, monkeypatch):
    monkeypatch.setattr("congruence.ica._passes.WORTH_A_KERNEL", worth)
    x = mixture(n, d, np.random.default_rng(d))
    here, there = (ICA(device=device, random_state=0).fit(x) for device in ("cpu", "cuda"))
    both = here.identified_ & there.identified_
    assert both.all()
    apart = there.transform(x) - here.transform(x)  # components have unit variance, so this is the angle in radians
    assert np.sqrt(np.square(apart).mean(0)).max() < 1e-4


@on_a_gpu
def test_the_same_seed_gives_the_same_components():
    x = torch.as_tensor(mixture(30_000, 32, np.random.default_rng(0)), device="cuda")
    first, second = (ICA(random_state=3).fit(x).components_ for _ in range(2))
    assert np.array_equal(first, second)


@on_a_gpu
def test_rows_larger_than_the_card_are_streamed(monkeypatch):
    x = mixture(50_000, 16, np.random.default_rng(2))
    whole = ICA(device="cuda", random_state=0).fit(x)
    monkeypatch.setattr("congruence.ica._passes.DEVICE_SHARE", 0.0)
    assert_allclose(ICA(device="cuda", random_state=0).fit(x).components_, whole.components_, atol=1e-4)
