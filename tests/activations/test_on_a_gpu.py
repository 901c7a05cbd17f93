"""On a GPU: what a CPU gives, nearly, and the same bits again."""

import numpy as np
import pytest

from congruence.activations import array_inputs, extract, load_pretrained
from congruence.tables import read_table

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
RUNS = [("cpu", "cpu", "float32"), ("a", "cuda", "float32"), ("b", "cuda", "float32"), ("half", "cuda", "bfloat16")]


def test_a_gpu_gives_what_a_cpu_gives_and_the_same_again(pictures, tmp_path):
    x = array_inputs(np.random.default_rng(0).normal(size=(20, 3, 8, 8)).astype(np.float32))
    found = {}
    for name, device, precision in RUNS:
        out = tmp_path / f"{name}.parquet"
        extract(pictures.cpu(), x, "head", out, batch=8, device=device, precision=precision)
        found[name] = read_table(out).values
    assert np.array_equal(found["a"], found["b"])
    np.testing.assert_allclose(found["a"], found["cpu"], atol=1e-5)
    assert 0 < abs(found["half"] - found["cpu"]).max() < 0.05


def test_so_do_all_layers_of_a_language_model(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    size = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    torch.manual_seed(0)
    transformers.GPTNeoXModel(transformers.GPTNeoXConfig(vocab_size=100, **size)).save_pretrained(tmp_path / "neox")
    tokens = array_inputs(np.random.default_rng(0).integers(0, 100, size=(50, 12)))
    layers, found = ["layers.0", "layers.1"], {}
    for name, device, precision in RUNS:
        model = load_pretrained(tmp_path / "neox")
        out, how = tmp_path / (name + "{layer}.parquet"), {"device": device, "precision": precision, "batch": 16}
        written = extract(model.model, tokens, layers, out, pool="mean", prepare=model.prepare, **how)
        found[name] = np.hstack([written[layer].table().values for layer in layers])
    assert found["cpu"].shape == (50, 128)
    assert np.array_equal(found["a"], found["b"])
    np.testing.assert_allclose(found["a"], found["cpu"], atol=2e-5)
    scale = found["cpu"].std()
    assert 0 < abs(found["half"] - found["cpu"]).max() < 0.1 * scale
