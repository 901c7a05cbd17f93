"""Pairs of models on a GPU, where every step is a CUDA graph."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", reason="transformers is not installed")
from congruence.experiments.recipes import reproduce  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_a_gpu_trains_and_compares_all_pairs(tmp_path):
    done = reproduce("model-pairs", tmp_path, scale="smoke", device="cuda")
    result = json.loads((tmp_path / "result.json").read_text())
    assert len(result["findings"]) == 9
    for family in ("gpt", "mae", "resnet"):
        first, *_, last = done.ours[family]["steps"]
        assert np.isfinite(last["similarity"])
        assert last["loss"] < first["loss"]
