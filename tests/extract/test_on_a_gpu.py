"""On a GPU: what a CPU gives, nearly, and the same bits again."""

import numpy as np
import pytest

from congruence.extract import array_inputs, extract
from congruence.tables import read_table

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def test_a_gpu_gives_what_a_cpu_gives_and_the_same_again(pictures, tmp_path):
    x = array_inputs(np.random.default_rng(0).normal(size=(20, 3, 8, 8)).astype(np.float32))
    found = {}
    for name, device, precision in [
        ("cpu", "cpu", "float32"), ("a", "cuda", "float32"), ("b", "cuda", "float32"), ("half", "cuda", "bfloat16"),
    ]:  # fmt: skip
        out = tmp_path / f"{name}.parquet"
        extract(pictures.cpu(), x, "head", out, batch=8, device=device, precision=precision)
        found[name] = read_table(out).values
    assert np.array_equal(found["a"], found["b"])
    np.testing.assert_allclose(found["a"], found["cpu"], atol=1e-5)
    assert 0 < abs(found["half"] - found["cpu"]).max() < 0.05
