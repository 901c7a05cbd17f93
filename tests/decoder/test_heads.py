"""The map that two heads imply is the true one where they fix it, and is not claimed where they do not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.decoder import roeder_map, sufficient_diversity
from congruence.decoder.heads import compare_with_fitted
from congruence.errors import InputError


def twins(rng, classes, d, wider=0):
    """Two models with the same probabilities: representations x and y and their heads, shifted as softmax allows."""
    A = rng.normal(size=(d, d + wider))  # y = x A + c, which the heads do not know
    x, c = rng.laplace(size=(200, d)), rng.normal(size=d + wider)
    W, b = rng.normal(size=(classes, d)), rng.normal(size=classes)
    W2 = W @ np.linalg.pinv(A).T
    return x, x @ A + c, (W, b), (W2 + rng.normal(size=d + wider), b - W2 @ c + 3.0)


def probabilities(x, head):
    logits = x @ head[0].T + head[1]
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


@pytest.mark.parametrize("use", ["all", "best"])
def test_the_map_is_read_off_the_heads_alone(use, rng):
    x, y, a, b = twins(rng, 12, 5)
    assert_allclose(probabilities(x, a), probabilities(y, b), atol=1e-9)
    result = roeder_map(a, b, use=use)
    assert result.unique
    assert_allclose(result(x), y, atol=1e-8)
    assert_allclose(result.disagreement, 0, atol=1e-10)
    assert len(result.used) == (12 if use == "all" else 6)


def test_torch_heads_are_taken_as_they_are(rng):
    torch = pytest.importorskip("torch")
    x, y, a, b = twins(rng, 9, 4)
    layers = []
    for weights, biases in (a, b):
        layer = torch.nn.Linear(4, 9).double()
        with torch.no_grad():
            layer.weight[:], layer.bias[:] = torch.as_tensor(weights), torch.as_tensor(biases)
        layers.append(layer)
    assert_allclose(roeder_map(*layers)(x), y, atol=1e-8)


def test_single_outputs_need_one_class_less(rng):
    W = rng.normal(size=(4, 4))
    assert sufficient_diversity(W, outputs="sigmoid").diverse
    few = sufficient_diversity(W)
    assert not few.diverse
    assert "4 outputs determine 3 of 4 directions; at least 5 outputs are needed for all" in str(few)
    A = rng.normal(size=(4, 4))
    x = rng.normal(size=(50, 4))
    result = roeder_map(W, W @ np.linalg.inv(A).T, outputs="sigmoid", use="best")
    assert_allclose(result(x), x @ A, atol=1e-8)


def test_rows_that_are_alike_are_not_diverse(rng):
    W = rng.normal(size=(20, 3)) @ rng.normal(size=(3, 6))
    result = sufficient_diversity(W)
    assert (result.diverse, result.rank) == (False, 3)
    assert "too similar: they determine 3 of 6" in result.reason


def test_heads_of_other_widths(rng):
    x, y, a, b = twins(rng, 30, 4, wider=3)
    result = roeder_map(b, a)  # from the wide to the narrow one
    assert result.unique
    assert_allclose(result(y)[:, :4], x, atol=1e-8)
    assert not roeder_map(a, b).unique


def test_the_map_from_heads_is_near_the_fitted_one_where_outputs_agree(rng):
    x, y, a, b = twins(rng, 12, 5)
    near = compare_with_fitted(roeder_map(a, b), x, y, b)
    assert max(near.heads, near.fitted, near.seen_by_heads, near.difference) < 1e-8
    off = compare_with_fitted(roeder_map(a, (b[0] + 0.1 * rng.normal(size=b[0].shape), b[1])), x, y, b)
    assert off.fitted < 1e-8 < 1e-3 < off.heads
    assert off.difference > 1e-3


def test_heads_that_give_other_outputs_disagree(rng):
    result = roeder_map(rng.normal(size=(40, 5)), rng.normal(size=(40, 5)))
    assert result.disagreement > 0.5
    assert "no linear map explains" in str(result)
    assert result.to_dict()["classes_used"] == 40


def test_31_outputs_do_not_determine_300_directions_of_a_real_network(model_pair, data_folder):
    """Readouts of 31 logits from two trainings of a graph network: most directions are left free, and it is said."""
    logits = np.load(data_folder / "modelpairs" / "admet_cls_outputs.npz")["logits"].astype(float)
    heads = []
    for x, out in zip(model_pair, logits, strict=False):
        wide = np.column_stack([x, np.ones(len(x))])
        both = np.linalg.lstsq(wide, out, rcond=1e-6)[0]
        heads.append((both[:-1].T, both[-1]))
    result = roeder_map(*heads, outputs="sigmoid")
    assert not result.unique
    assert (result.target.rank, result.target.dimension) == (31, 300)
    assert "31 outputs determine 31 of 300 directions" in result.target.reason
    measured = compare_with_fitted(result, *model_pair, heads[1], outputs="sigmoid")
    assert measured.fitted < measured.heads
    assert measured.seen_by_heads < measured.heads


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: roeder_map(np.ones((3, 2)), np.ones((4, 2))), "same classes; got 3 and 4"),
        (
            lambda: roeder_map(np.ones((3, 2)), np.ones((3, 2)), use="some"),
            "'all', 'best'; got 'some'",
        ),
        (
            lambda: sufficient_diversity(np.ones((3, 2)), outputs="relu"),
            "outputs must be one of .*; got 'relu'",
        ),
        (lambda: sufficient_diversity(np.ones(3)), r"head must have weights \(classes, D\)"),
        (lambda: sufficient_diversity((np.ones((3, 2)), np.ones(2))), "biases"),
        (lambda: sufficient_diversity((np.ones((3, 2)),) * 3), "got 3 entries"),
        (lambda: sufficient_diversity(np.full((3, 2), np.nan)), "NaN or infinite weights"),
    ],
)
def test_invalid_heads_raise(call, message):
    with pytest.raises(InputError, match=message):
        call()
