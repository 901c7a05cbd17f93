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


def noisy_twins(rng, classes=40, d=5):
    """Heads that no linear map relates exactly, so that weights matter."""
    x, _, (W, b), (W2, b2) = twins(rng, classes, d)
    return x, (W + 0.3 * rng.normal(size=W.shape), b), (W2, b2 + 0.3 * rng.normal(size=classes))


@pytest.mark.parametrize("outputs", ["softmax", "sigmoid"])
def test_equal_weights_change_nothing(outputs, rng):
    x, a, b = noisy_twins(rng)
    plain, weighted = (roeder_map(a, b, outputs=outputs, weights=one) for one in (None, np.full(40, 7)))
    assert_allclose(weighted(x), plain(x), rtol=1e-10)
    assert_allclose(weighted.disagreement, plain.disagreement)
    assert weighted.target.condition == pytest.approx(plain.target.condition)


@pytest.mark.parametrize("outputs", ["softmax", "sigmoid"])
def test_classes_of_weight_zero_have_no_influence(outputs, rng):
    x, (W, b), second = noisy_twins(rng)
    weights = rng.uniform(0.1, 1, 40)
    weights[:9] = 0
    result = roeder_map((W, b), second, outputs=outputs, weights=weights)
    other = (np.vstack([1e3 * rng.normal(size=(9, 5)), W[9:]]), np.append(1e3 * rng.normal(size=9), b[9:]))
    assert_allclose(roeder_map(other, second, outputs=outputs, weights=weights)(x), result(x), rtol=1e-10)
    without = roeder_map((W[9:], b[9:]), (second[0][9:], second[1][9:]), outputs=outputs, weights=weights[9:])
    assert_allclose(without(x), result(x), rtol=1e-10)
    assert (result.classes_used, result.target.classes) == (31, 31)
    assert without.disagreement == pytest.approx(result.disagreement)
    assert without.target.condition == pytest.approx(result.target.condition)


def test_weights_are_those_of_least_squares(rng):
    """For each row of x, the map gives the y that minimises the weighted squared difference of logits.

    A softmax leaves one constant for each row free, the last unknown here.
    """
    from sklearn.linear_model import LinearRegression

    x, (W, b), (W2, b2) = noisy_twins(rng)
    weights = rng.uniform(0, 3, 40)
    result = roeder_map((W, b), (W2, b2), weights=weights)
    fit = LinearRegression().fit(W2, (x @ W.T + b - b2).T, sample_weight=weights)
    assert_allclose(result(x), fit.coef_, rtol=1e-8)
    assert np.abs(result(x) - roeder_map((W, b), (W2, b2))(x)).max() > 0.01


def test_weights_trust_the_rows_that_were_trained(rng):
    x, y, a, (W2, b2) = twins(rng, 60, 5)
    counts = np.where(np.arange(60) < 20, 10**5, 1)
    W2 = np.where(counts[:, None] > 1, W2, rng.normal(size=W2.shape))  # rare rows are those of the start
    errors = [compare_with_fitted(roeder_map(a, (W2, b2), weights=one), x, y, (W2, b2)).heads for one in (None, counts)]
    assert errors[1] < errors[0] / 50


def test_directions_of_classes_of_weight_zero_are_not_determined(rng):
    x, y, a, b = twins(rng, 12, 5)
    weights = np.array([1.0] * 4 + [0] * 8)
    result = roeder_map(a, b, weights=weights)
    assert (result.unique, result.target.rank) == (False, 3)
    measured = compare_with_fitted(result, x, y, b)
    assert measured.seen_by_heads < 1e-8 < measured.heads


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
        (lambda: roeder_map(np.eye(3), np.eye(3), weights=np.ones(2)), r"each of the 3 classes; got shape \(2,\)"),
        (lambda: roeder_map(np.eye(3), np.eye(3), weights=[1, -1, 1]), "not negative"),
        (lambda: roeder_map(np.eye(3), np.eye(3), weights=np.zeros(3)), "some must be positive"),
        (lambda: roeder_map(np.eye(3), np.eye(3), use="best", weights=np.ones(3)), "weights need use='all'"),
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
