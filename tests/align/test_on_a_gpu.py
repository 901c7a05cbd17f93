"""`compare` on a CUDA device gives the numbers of the CPU."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence import compare, compare_layers
from congruence.maps._diameter import diameter

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def runs(n=6000, d=250):
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(n, d)) @ rng.normal(size=(d, d)) + 3
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return x.astype(np.float32), (2 * x @ turn + 0.5 * rng.normal(size=(n, d))).astype(np.float32)


@pytest.mark.parametrize("options", [{}, {"normalize": "cosine"}, {"cluster": np.arange(6000) % 40}])
def test_a_gpu_gives_the_numbers_of_the_cpu(options):
    x, y = runs()
    here, there = (
        compare(x, y, groups="auto", nulls=6, bootstrap=20, similarities="all", device=device, **options).pairs[0]
        for device in ("cpu", "cuda")
    )
    for group, near in here.groups.items():
        for name in ("mean", "rms", "q95", "sup", "null"):
            assert_allclose(getattr(there.groups[group], name), getattr(near, name), rtol=1e-4, err_msg=group)
        assert_allclose(there.groups[group].errors, near.errors, rtol=1e-4, atol=1e-6)
    for name, value in here.similarities.items():
        assert_allclose(there.similarities[name].value, value.value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert_allclose(there.diameter, here.diameter, rtol=1e-12)
    assert_allclose(there.mcc.weak, here.mcc.weak, rtol=1e-4)


def test_ica_on_a_gpu_reaches_the_error_of_the_cpu():
    x, y = runs(20_000, 40)
    here, there = (
        compare(x, y, groups=["permutation", "similarity", "ica"], nulls=0, bootstrap=0, device=device).pairs[0]
        for device in ("cpu", "cuda")
    )
    for name in ("mean", "rms"):
        assert_allclose(getattr(there.groups["ica"], name), getattr(here.groups["ica"], name), rtol=0, atol=1e-4)
    assert_allclose(there.groups["ica"].held_out.mean, here.groups["ica"].held_out.mean, rtol=0, atol=2e-4)


def test_rows_that_do_not_fit_stay_where_they_are(monkeypatch):
    x, y = runs(3000, 60)
    monkeypatch.setattr("congruence.rows.engine.DEVICE_SHARE", 0.0)
    here, there = (compare(x, y, groups=["similarity"], nulls=2, device=device).pairs[0] for device in ("cpu", "cuda"))
    assert_allclose(there.groups["similarity"].errors, here.groups["similarity"].errors, rtol=1e-6)


@pytest.mark.parametrize("kind", ["gaussian", "heavy", "far"])
def test_the_diameter_is_exact_on_a_gpu(kind):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40_000, 60))
    if kind == "heavy":
        x *= 1 + rng.standard_t(3, size=(len(x), 1)) ** 2
    if kind == "far":
        x += 1e6
    assert diameter(x, device="cuda").value == pytest.approx(diameter(x, device="cpu").value, rel=1e-12)


def test_layers_on_a_gpu_give_the_numbers_of_the_cpu():
    x, y = runs(2500, 220)
    here, there = (compare_layers({"a": x, "b": x**2}, {"c": y}, device=device) for device in ("cpu", "cuda"))
    assert_allclose(there.nearness, here.nearness, rtol=1e-6)
    assert_allclose(there.null, here.null, rtol=1e-4)
