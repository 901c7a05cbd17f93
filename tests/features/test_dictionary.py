"""Dictionaries are read from the layouts that SAE libraries write, and encoders compute their codes."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import save_file

from congruence import ICA, match_features
from congruence.features import Encoder, read_dictionary


@pytest.fixture
def weights(rng):
    w = rng.normal(size=(10, 6)).astype(np.float32)
    return {"W_dec": w, "W_enc": w.T.copy(), "b_enc": np.full(10, -0.5, np.float32), "b_dec": np.ones(6, np.float32)}


def saelens(folder, weights, **config):
    folder.mkdir()
    save_file(weights, folder / "sae_weights.safetensors")
    (folder / "cfg.json").write_text(json.dumps({"architecture": "standard", "d_in": 6, "d_sae": 10} | config))
    return folder


def test_a_matrix_is_read_from_every_format(tmp_path, rng):
    torch = pytest.importorskip("torch")
    w = rng.normal(size=(10, 6)).astype(np.float32)
    np.save(tmp_path / "a.npy", w)
    np.savez(tmp_path / "a.npz", W_dec=w, other=np.ones((3, 3)))
    save_file({"W_dec": w, "W_enc": w.T.copy()}, tmp_path / "a.safetensors")
    torch.save({"decoder.weight": torch.from_numpy(w.T.copy()), "encoder.weight": torch.ones(10, 6)}, tmp_path / "a.pt")
    torch.save({"W_dec": torch.from_numpy(w)}, tmp_path / "b.pt")
    expected = w / np.linalg.norm(w, axis=1, keepdims=True)
    for name in ("a.npy", "a.npz", "a.safetensors", "a.pt", "b.pt"):
        read = read_dictionary(tmp_path / name)
        assert_allclose(read.directions, expected, atol=1e-6, err_msg=name)
        assert read.name == name[0]
    np.save(tmp_path / "t.npy", w.T)
    assert_allclose(read_dictionary(tmp_path / "t.npy", transpose=True).directions, expected, atol=1e-6)
    assert_allclose(read_dictionary(torch.from_numpy(w)).directions, expected, atol=1e-6)


def test_features_of_length_zero_are_left_out(rng):
    w = rng.normal(size=(10, 6))
    w[[2, 7]] = 0
    read = read_dictionary(w)
    assert (read.m, read.size) == (8, 10)
    assert_array_equal(read.number, [0, 1, 3, 4, 5, 6, 8, 9])
    with pytest.raises(ValueError, match="all 3 features are zero"):
        read_dictionary(np.zeros((3, 4)))


def test_codes_of_saelens_folders_follow_their_configuration(tmp_path, weights, rng):
    x = rng.normal(size=(50, 6)).astype(np.float32)
    pre = (x - 1) @ weights["W_enc"] - 0.5
    relu = read_dictionary(saelens(tmp_path / "relu", weights)).encoder
    assert_allclose(relu(x), np.maximum(pre, 0), atol=1e-5)
    raw = read_dictionary(saelens(tmp_path / "raw", weights, apply_b_dec_to_input=False)).encoder
    assert_allclose(raw(x), np.maximum(x @ weights["W_enc"] - 0.5, 0), atol=1e-5)
    topk = read_dictionary(saelens(tmp_path / "topk", weights, architecture="topk", k=2)).encoder
    assert ((topk(x) != 0).sum(1) <= 2).all()
    assert_allclose(topk(x).max(1), np.maximum(pre, 0).max(1), atol=1e-5)
    more = weights | {"threshold": np.linspace(-0.5, 0.5, 10, dtype=np.float32)}
    jump = read_dictionary(saelens(tmp_path / "jump", more, architecture="jumprelu")).encoder
    assert_allclose(jump(x), np.where(pre > more["threshold"], np.maximum(pre, 0), 0), atol=1e-5)
    for config in (
        {"architecture": "gated"},
        {"normalize_activations": "layer_norm"},
        {"architecture": "topk"},
        {"architecture": []},
    ):
        read = read_dictionary(saelens(tmp_path / str(len(list(tmp_path.iterdir()))), weights, **config))
        assert read.encoder is None
        assert read.encoder_note


def test_codes_of_sparsify_folders(tmp_path, rng):
    w = rng.normal(size=(10, 6)).astype(np.float32)
    bias = rng.normal(size=10).astype(np.float32)
    folder = tmp_path / "layers.3"
    folder.mkdir()
    tensors = {"encoder.weight": w, "encoder.bias": bias, "W_dec": w, "b_dec": np.ones(6, np.float32)}
    save_file(tensors, folder / "sae.safetensors")
    (folder / "cfg.json").write_text(json.dumps({"activation": "topk", "k": 3, "d_in": 6, "num_latents": 10}))
    read = read_dictionary(folder)
    x = rng.normal(size=(40, 6)).astype(np.float32)
    pre = (x - 1) @ w.T + bias
    expected = np.where(pre >= np.sort(pre, 1)[:, -3, None], np.maximum(pre, 0), 0)
    assert_allclose(read.encoder(x), expected, atol=1e-5)
    assert read.name == "layers.3"


def test_bfloat16_weights_are_read(tmp_path, rng):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_tensors

    w = torch.from_numpy(rng.normal(size=(10, 6)).astype(np.float32)).to(torch.bfloat16)
    (tmp_path / "sae").mkdir()
    save_tensors({"W_dec": w, "W_enc": w.T.contiguous()}, tmp_path / "sae" / "sae_weights.safetensors")
    (tmp_path / "sae" / "cfg.json").write_text("{}")
    read = read_dictionary(tmp_path / "sae")
    assert_allclose(np.linalg.norm(read.directions, axis=1), 1, atol=1e-5)


def test_components_of_ica_are_features_without_a_sign(tmp_path, rng):
    x = rng.laplace(size=(4000, 5)) @ rng.normal(size=(5, 5))
    ica = ICA(random_state=0).fit(x)
    ica.save(tmp_path / "ica.safetensors")
    saved, direct = read_dictionary(tmp_path / "ica.safetensors"), read_dictionary(ica)
    assert_allclose(saved.directions, direct.directions, atol=1e-6)
    assert not saved.signed
    assert_allclose(saved.encoder(x), ica.transform(x), atol=1e-3)
    other = ICA(random_state=1).fit(x[rng.permutation(4000)])
    result = match_features(ica, other, activations=x, similarity=0.9)
    assert result.share == 1.0
    assert result.settings["signs"] == "unsigned"
    assert result.codes.correlation.min() > 0.99


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p / "none.npy", "none.npy does not exist"),
        (lambda p: p, "is a folder without embedding files"),
        (lambda p: (p / "x.safetensors").write_bytes(b"nonsense") and p / "x.safetensors", "cannot read"),
    ],
)
def test_what_holds_no_dictionary_is_refused(tmp_path, make, message):
    with pytest.raises(ValueError, match=message):
        read_dictionary(make(tmp_path))


def test_a_folder_of_several_layers_names_them(tmp_path, weights):
    saelens(tmp_path / "layers.3", weights)
    with pytest.raises(ValueError, match=r"give one of the folders in it: layers\.3"):
        read_dictionary(tmp_path)


def test_a_key_is_for_the_files_that_have_names(tmp_path, rng):
    w = rng.normal(size=(40, 16)).astype(np.float32)
    np.save(tmp_path / "a.npy", w)
    save_file({"features": w, "other": w}, tmp_path / "b.safetensors")
    files = tmp_path / "a.npy", tmp_path / "b.safetensors"
    assert match_features(*files, key="features").share == match_features(w, files[1], key="features").share == 1.0
    with pytest.raises(ValueError, match="holds one array and no names"):
        match_features(files[0], files[0], key="features")
    with pytest.raises(ValueError, match="an array was given"):
        match_features(w, w, key="features")


def test_damaged_folders_are_refused(tmp_path, weights):
    folder = saelens(tmp_path / "a", weights)
    (folder / "cfg.json").write_text("[1]")
    with pytest.raises(ValueError, match="must hold a JSON object"):
        read_dictionary(folder)
    (folder / "cfg.json").write_text("{")
    with pytest.raises(ValueError, match="cannot read"):
        read_dictionary(folder)
    wrong = saelens(tmp_path / "b", weights | {"b_enc": np.ones(3, np.float32)})
    with pytest.raises(ValueError, match="b_enc must hold 10 numbers"):
        read_dictionary(wrong)
    short = saelens(tmp_path / "c", weights | {"W_enc": np.ones((2, 2), np.float32)})
    with pytest.raises(ValueError, match="the encoder has shape"):
        read_dictionary(short)


def test_a_linear_encoder_is_a_product(rng):
    w, x = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    assert_allclose(Encoder("linear", w, np.zeros(4), np.zeros(3))(x), x @ w.T, atol=1e-5)
