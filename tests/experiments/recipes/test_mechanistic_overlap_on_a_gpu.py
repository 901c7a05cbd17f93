"""Slots on a GPU, where a step is a CUDA graph: the same training as on a CPU."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")
from congruence.experiments.data.overlap import overlap_generator  # noqa: E402
from congruence.experiments.recipes.mechanistic_overlap.slots import (  # noqa: E402
    RotationSearch,
    SlotMember,
    SlotPlan,
    train_slots,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("turns", [(), (0.5,)], ids=["plain", "turned"])
def test_a_gpu_trains_as_a_cpu_does(turns):
    generator = overlap_generator(3, 0.2, seed=1)
    x = generator(np.random.default_rng(0).normal(size=(600, 9)))[None]
    members = [SlotMember(0, 0.01, seed) for seed in range(3)]
    plan = SlotPlan(steps=40, rotate_at=turns, search=RotationSearch(points=8, steps=10), short=False)
    told = []
    cpu, gpu = (
        train_slots(x[:, :400], [x[:, 400:]], [x.shape[2]], members, 3, plan, device=device, progress=progress)[0]
        for device, progress in (("cpu", None), ("cuda", lambda *said: told.append(said)))
    )
    assert_allclose(gpu.error, cpu.error, rtol=0.01)
    assert_allclose(gpu.contrast, cpu.contrast, rtol=0.02)
    for one, other in zip(gpu.codes, cpu.codes, strict=True):
        # Which of several equally good rotations a turn takes, such as the order of slots, is a matter of rounding.
        near = one @ np.linalg.lstsq(one, other, rcond=None)[0] if turns else one
        assert np.abs(near - other).mean() < 0.02
    assert told[-1][:2] == (40, 40)
