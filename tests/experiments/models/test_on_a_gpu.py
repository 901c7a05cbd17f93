"""Trainings on a GPU: near those on a CPU over the first steps, and resumed where they were."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.experiments.training.ensemble import Member, train_ensemble

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")


def test_an_ensemble_ends_where_it_does_on_a_cpu():
    x = np.random.default_rng(0).normal(size=(400, 20)).astype(np.float32)
    members = [Member(leak, seed) for leak in (0.2, 1.0) for seed in (0, 1, 2)]
    how = {"widths": (20, 12, 8, 3), "epochs": 10, "batch": 100, "patience": None}
    here, there = (train_ensemble(x, members, device=device, **how) for device in ("cpu", "cuda"))
    assert_allclose(there.losses, here.losses, rtol=1e-4)
    for weight, other in zip(there.weights, here.weights, strict=True):
        assert_allclose(weight, other, atol=2e-3)
        square = weight.transpose(0, 2, 1) @ weight
        square = square if weight.shape[1] >= weight.shape[2] else weight @ weight.transpose(0, 2, 1)
        assert_allclose(square, np.broadcast_to(np.eye(square.shape[-1]), square.shape), atol=1e-5)
    assert_allclose(there.metric(0, there.encode(x)[0]), here.metric(0, there.encode(x)[0]), atol=1e-2)
