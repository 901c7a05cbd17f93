"""Rows and decompositions on another device: "cpu:0" goes the way of a GPU, where torch does the arithmetic."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence import compare
from congruence.align import _compare, _run_statistics
from congruence.rows import algebra

torch = pytest.importorskip("torch", reason="torch is not installed")


def runs(rng, n=900, d=12):
    x = rng.laplace(size=(n, d)) @ rng.normal(size=(d, d)) + 3
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return x.astype(np.float32), (2 * x @ turn + 0.05 * rng.normal(size=(n, d))).astype(np.float32)


@pytest.fixture
def on_torch(monkeypatch):
    """Compute on the CPU, but by torch, and decompose matrices of any width there."""
    monkeypatch.setattr(_run_statistics, "resolve_device", lambda device, *arrays: "cpu:0")
    monkeypatch.setattr(algebra, "FAR", 1)


@pytest.mark.parametrize("normalize", [None, "cosine"])
@pytest.mark.parametrize("shape", ["square", "wider", "deficient", "clustered"])
def test_both_engines_agree(rng, on_torch, monkeypatch, normalize, shape):
    x, y = runs(rng)
    options = {"groups": "all", "normalize": normalize, "nulls": 4, "bootstrap": 20}
    if shape == "wider":
        y = np.hstack([y, 0.1 * rng.normal(size=(len(y), 3)).astype(np.float32)])
    if shape == "deficient":
        y = np.hstack([y, y[:, :1] * 2]).astype(np.float32)
    if shape == "clustered":
        options["cluster"] = np.arange(len(x)) % 30
    there = compare(x, y, **options).pairs[0]
    monkeypatch.undo()
    here = compare(x, y, **options).pairs[0]
    for group, near in here.groups.items():
        other = there.groups[group]
        tolerance = 1e-9
        if group == "ica":  # in float32 there; rows on the sphere are no mixture, and ICA ends within its tolerance
            tolerance = 1e-4 if normalize is None else 0.01
        for name in ("mean", "rms", "q95", "sup", "null"):
            assert_allclose(getattr(other, name), getattr(near, name), rtol=tolerance, atol=tolerance, err_msg=group)
        assert_allclose(other.errors, near.errors, rtol=tolerance, atol=tolerance)
    assert_allclose(there.cka.value, here.cka.value, rtol=1e-9)
    assert_allclose(there.mcc.weak, here.mcc.weak, rtol=1e-6)
    assert_allclose(there.neighbour_overlap.value, here.neighbour_overlap.value, rtol=1e-9)
    assert_allclose(there.components.held_out.mean, here.components.held_out.mean, rtol=1e-3)


def test_rows_go_to_the_device_once(rng, on_torch, monkeypatch):
    copied = []
    from congruence.rows import engine

    plain = engine.to_tensor

    def spy(x, device):
        if not isinstance(x, torch.Tensor):
            copied.append(x.size)
        return plain(x, device)

    monkeypatch.setattr(engine, "to_tensor", spy)
    x, y = runs(rng)
    compare(x, y, groups="all", nulls=4, bootstrap=0)
    assert sum(size == x.size for size in copied) == 2
    assert max(size for size in copied if size != x.size) <= x.shape[1] ** 2


def test_ica_is_fitted_where_the_rows_are(rng, on_torch, monkeypatch):
    devices = []
    from congruence.ica import _unmixing

    plain = _unmixing.Passes
    monkeypatch.setattr(
        _unmixing, "Passes", lambda *args, **options: devices.append(options["device"]) or plain(*args, **options)
    )
    compare(*runs(rng), groups=["ica"], nulls=0, bootstrap=0)
    assert devices == ["cpu:0"] * 12  # two runs, all rows and without each of five folds


def test_ica_is_left_out_below_fifty_rows_per_dimension(rng):
    x, y = runs(rng, n=599)
    few = compare(x, y, nulls=0, bootstrap=0)
    assert "ica" not in few.pairs[0].groups
    assert any("--groups all" in note for note in few.notes)
    assert "ica" in compare(x, y, groups="all", nulls=0, bootstrap=0).pairs[0].groups
    enough = compare(*runs(rng, n=600), nulls=0, bootstrap=0)
    assert "ica" in enough.pairs[0].groups
    assert not any("--groups all" in note for note in enough.notes)


def test_ica_of_too_few_rows_does_not_search(rng):
    x = rng.normal(size=(100, 30))
    run = _compare.sum_run("x", _run_statistics.Rows(x), _run_statistics.protocol(100))
    assert run.unmixing(None).reason == "gaussian"
    assert run.unmixing(None).iterations == 0
    assert run.unmixing(2).iterations == 0
