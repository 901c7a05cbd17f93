"""What is caught is what a forward hook written by hand catches, and pooling keeps what it says."""

import numpy as np
import pytest

from congruence.activations import array_inputs, extract, list_layers
from congruence.activations.layers import activations
from congruence.activations.pooling import Pooling, pool
from congruence.errors import InputError

torch = pytest.importorskip("torch")


def by_hand(model, layer, x):
    kept = []
    handle = model.get_submodule(layer).register_forward_hook(lambda module, args, output: kept.append(output.clone()))
    with torch.no_grad():
        model(x)
    handle.remove()
    return kept[0].numpy()


def test_activations_are_those_of_a_hook_written_by_hand(pictures):
    pictures.eval()
    x = torch.randn(5, 3, 8, 8)
    found = activations(pictures, x, ["encoder.0", "encoder.2", "head.1"], Pooling("mean"))
    assert np.array_equal(found["encoder.2"].values, by_hand(pictures, "encoder.2", x))
    assert np.array_equal(found["head.1"].values, by_hand(pictures, "head.1", x))
    before = by_hand(pictures, "encoder.0", x)
    assert np.array_equal(found["encoder.0"].values, torch.tensor(before).mean((2, 3)).numpy())
    assert found["encoder.0"].values.min() < 0  # and not what the activation in place made of it
    assert not pictures.encoder[0]._forward_hooks


def test_every_position_is_a_row_without_pooling(pictures):
    x = torch.randn(2, 3, 8, 8)
    found = activations(pictures, x, ["encoder.0"])["encoder.0"]
    assert found.values.shape == (2 * 36, 4)
    assert np.array_equal(found.values[36 + 7], by_hand(pictures, "encoder.0", x)[1, :, 1, 1])
    assert (found.rows[43], found.positions[43]) == (1, 7)


def test_padding_is_told_from_tokens(words, tokenize):
    batch = tokenize(["abc", "defgh", "x"])
    whole = by_hand(words, "embed", batch["tokens"])

    def pooled(kind, **how):
        return activations(words, batch, ["embed"], Pooling(kind, **how))["embed"]

    lengths = [3, 5, 1]
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(pooled("mean").values[row], whole[row, :length].mean(0), rtol=1e-6)
        assert np.array_equal(pooled("last").values[row], whole[row, length - 1])
        assert np.array_equal(pooled("cls").values[row], whole[row, 0])
        assert (pooled("patch").values[row] == whole[row, :length]).all(1).any()
    assert pooled("none").positions.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0]
    assert pooled("none", skip=1).positions.tolist() == [1, 2, 1, 2, 3, 4]


def test_padding_on_the_left_is_told_too():
    tokens = torch.arange(12.0).reshape(2, 3, 2)
    mask = torch.tensor([[0, 1, 1], [1, 1, 1]])
    assert pool(tokens, Pooling("cls"), mask, 0).values.tolist() == [[2, 3], [6, 7]]
    assert pool(tokens, Pooling("last"), mask, 0).values.tolist() == [[4, 5], [10, 11]]


def test_random_patches_do_not_depend_on_the_batch_but_on_the_seed():
    tokens = torch.arange(40.0).reshape(8, 5, 1)
    whole = pool(tokens, Pooling("patch", seed=1), None, 0).values
    parts = [pool(tokens[a : a + 3], Pooling("patch", seed=1), None, a).values for a in (0, 3, 6)]
    assert torch.equal(whole, torch.cat(parts))
    assert not torch.equal(whole, pool(tokens, Pooling("patch", seed=2), None, 0).values)
    assert (pool(tokens, Pooling("patch", skip=4), None, 0).values[:, 0] == torch.arange(4.0, 40, 5)).all()


def test_mixed_precision_is_near_and_comes_as_float32(pictures):
    pictures.eval()
    x = torch.randn(5, 3, 8, 8)
    half = activations(pictures, x, ["head.1"], precision="bfloat16")["head.1"].values
    full = activations(pictures, x, ["head.1"])["head.1"].values
    assert half.dtype == np.float32
    assert 0 < abs(half - full).max() < 0.05


def test_arrays_of_doubles_are_given_in_the_precision_of_the_weights(pictures):
    pictures.eval()
    x = np.random.default_rng(0).normal(size=(2, 3, 8, 8))
    found = activations(pictures, x, ["head"])["head"].values
    assert np.array_equal(found, activations(pictures, x.astype(np.float32), ["head"])["head"].values)
    assert activations(pictures.double(), x, ["head"])["head"].values.dtype == np.float64


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        (["encoder.fc"], "has no layer 'encoder.fc'; similar names are encoder"),
        (["conv.0"], r"has no layer 'conv.0'; similar names are encoder.0, head.0"),
        ([], "layers must name at least one layer; the model has encoder"),
        (["head", "head"], "'head' is named twice"),
    ],
)
def test_layers_that_are_not_there_are_refused_with_near_names(layers, says, pictures):
    with pytest.raises(InputError, match=says):
        activations(pictures, torch.zeros(1, 3, 8, 8), layers)


def test_what_cannot_be_caught_is_said(words, tokenize, pictures):
    with pytest.raises(InputError, match="'unused' returned nothing"):
        activations(words, tokenize(["ab"]), ["unused"])
    with pytest.raises(InputError, match="the model fails on the batch that starts at row 3: RuntimeError"):
        activations(pictures, torch.zeros(1, 2, 8, 8), ["head"], start=3)
    shared = torch.nn.Linear(2, 2)
    with pytest.raises(InputError, match="'0' runs more than once"):
        activations(torch.nn.Sequential(shared, shared), torch.zeros(1, 2), ["0"])
    with pytest.raises(InputError, match="precision must be one of 'float32'"):
        activations(pictures, torch.zeros(1, 3, 8, 8), ["head"], precision="int8")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"kind": "max"}, "pool must be one of 'none', 'mean', 'cls', 'last', 'patch'; got 'max'"),
        ({"kind": "cls", "skip": 1}, "skip must be 0 with pool 'cls'"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
    ],
)
def test_poolings_that_there_are_not_are_refused(how, says):
    with pytest.raises(InputError, match=says):
        Pooling(**how)


def test_no_position_left_is_refused():
    with pytest.raises(InputError, match="skip is 5, but the layer has only 5 positions"):
        pool(torch.zeros(1, 5, 2), Pooling("mean", skip=5), None, 0)
    with pytest.raises(InputError, match="row 3 has only padding after the first 1"):
        pool(torch.zeros(1, 2, 2), Pooling("patch", skip=1), torch.tensor([[1, 0]]), 3)


@pytest.mark.parametrize("how", [{"kind": "mean", "skip": 1}, {"kind": "mean"}, {"kind": "cls"}, {"kind": "last"}])
def test_a_row_of_padding_alone_is_refused_and_not_made_a_row_of_zeros(how):
    mask = torch.tensor([[1, 1], [0, 0]])
    with pytest.raises(InputError, match="row 6 has only padding.*has no position to use"):
        pool(torch.ones(2, 2, 3), Pooling(**how), mask, 5)


def test_layers_are_listed_with_the_shapes_that_come_out(pictures, words, tokenize):
    found = {layer.name: layer for layer in list_layers(pictures, torch.zeros(2, 3, 8, 8))}
    assert found["encoder.0"].shape == (2, 4, 6, 6)
    assert (found["head.1"].kind, found["head.1"].parameters) == ("Linear", 4 * 36 * 5 + 5)
    assert list_layers(pictures)[0].shape is None
    shapes = {layer.name: layer.shape for layer in list_layers(words, tokenize(["abc"]))}
    assert shapes == {"embed": (1, 3, 6), "recur": (1, 3, 7), "unused": None}


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda rows: 1 / 0, "the function that prepares rows fails: ZeroDivisionError: division by zero"),
        (lambda rows: None, "mapping of these; got a NoneType"),
        (lambda rows: {"x": ["a"]}, "mapping of these; got a list"),
    ],
)
def test_a_function_that_prepares_nothing_a_model_takes_is_told_of(tmp_path, prepare, message):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    with pytest.raises(InputError, match=message):
        extract(model, array_inputs(np.ones((4, 3))), "0", tmp_path / "a.parquet", prepare=prepare)
