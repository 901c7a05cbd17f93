"""A member of an ensemble is the model that it would be alone."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.experiments.data.digits import digits
from congruence.experiments.training.ensemble import (
    Ensemble,
    Member,
    draw_orthogonal,
    start_at,
    tangent,
    train_ensemble,
)
from congruence.experiments.training.loop import optimise
from congruence.experiments.training.settings import Training

torch = pytest.importorskip("torch")
WIDTHS = [64, 16, 8, 4]


class Alone(torch.nn.Module):
    """The same autoencoder in plain torch: linear layers, Adam of torch, and a retraction by singular values."""

    def __init__(self, leak, seed):
        super().__init__()
        stack = draw_orthogonal([*WIDTHS, *WIDTHS[-2::-1]], seed)
        layers = []
        for i, weight in enumerate(stack):
            layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            layer.weight = torch.nn.Parameter(torch.from_numpy(weight.copy()))
            layer.weight.register_hook(lambda g, layer=layer: tangent(layer.weight.detach(), g))
            layers += [layer] if i in (2, 5) else [layer, torch.nn.LeakyReLU(leak)]
        self.layers = torch.nn.Sequential(*layers)

    def loss(self, x):
        return torch.nn.functional.mse_loss(self.layers(x), x)

    def after_step(self):
        for weight in self.parameters():
            u, _, vt = torch.linalg.svd(weight.double(), full_matrices=False)
            weight.copy_(u @ vt)


@pytest.fixture(scope="module")
def images():
    return digits()[0][:300]


@pytest.fixture(scope="module")
def small(images):
    members = [Member(leak, seed) for leak, seed in ((0.1, 0), (0.5, 1), (1.0, 1))]
    return train_ensemble(images, members, widths=WIDTHS, epochs=3, batch=64, learning_rate=0.01, device="cpu")


def weights_of(ensemble, member):
    return [weight[member] for weight in ensemble.weights]


def test_each_member_equals_the_same_model_trained_alone(images):
    members = [Member(0.1, 0), Member(0.1, 5), Member(0.6, 0), Member(1.0, 2)]
    options = {"widths": WIDTHS, "batch": 32, "learning_rate": 1e-3, "device": "cpu"}
    together = train_ensemble(images, members, epochs=5, **options)  # 50 steps
    for i, member in enumerate(members):
        alone = Alone(member.leak, member.seed)
        done = optimise(alone, [images], Training(steps=50, batch=32, clip=1.0, seed=member.seed), device="cpu")
        for ours, theirs in zip(weights_of(together, i), alone.parameters(), strict=True):
            assert_allclose(ours, theirs.detach(), atol=1e-5)
        assert together.losses[i] == pytest.approx(done.loss, abs=1e-6)
        assert np.abs(weights_of(together, i)[0] - draw_orthogonal(WIDTHS, member.seed)[0]).max() > 0.01


def test_weights_are_orthogonal_after_every_step_however_long(images):
    options = {"widths": WIDTHS, "batch": 300, "learning_rate": 0.05, "device": "cpu"}
    for epochs in (1, 2, 3, 60):
        found = train_ensemble(images, [Member(0.2, 0), Member(1.0, 1)], epochs=epochs, **options)
        for weight in found.weights:
            tall = weight if weight.shape[1] >= weight.shape[2] else weight.swapaxes(1, 2)
            gram = tall.swapaxes(1, 2).astype(np.float64) @ tall
            assert np.abs(gram - np.eye(gram.shape[-1])).max() < 1e-5


def test_a_linear_member_finds_the_principal_components(images):
    members = [Member(1.0, 0), Member(1.0, 1)]
    options = {"widths": WIDTHS, "batch": 300, "learning_rate": 0.05, "cosine": True, "device": "cpu"}
    found = train_ensemble(images, members, epochs=200, patience=None, **options)
    left = np.linalg.svd(images, compute_uv=False)[WIDTHS[-1] :]
    assert_allclose(found.reconstruction_error(images), (left**2).sum() / images.size, rtol=1e-3)


@pytest.mark.parametrize("widths", [WIDTHS, [64, 8, 4], [64, 4]])
def test_a_linear_member_can_start_at_given_directions(widths, images):
    directions = np.linalg.svd(images, full_matrices=False)[2][:4]
    stack = start_at(draw_orthogonal([*widths, *widths[-2::-1]], 3), directions)
    for layer in stack:
        short = layer if len(layer) < layer.shape[1] else layer.T
        assert_allclose(short @ short.T, np.eye(len(short)), atol=1e-6)
    whole = np.linalg.multi_dot(stack[::-1])
    assert_allclose(whole, directions.T @ directions, atol=1e-6)


def test_a_member_that_stops_is_frozen_and_the_others_go_on_as_if_alone(images):
    members = [Member(0.3, 0), Member(0.9, 1), Member(0.3, 2)]
    options = {"widths": WIDTHS, "batch": 100, "learning_rate": 0.03, "patience": 2, "threshold": 2e-4, "device": "cpu"}
    together = train_ensemble(images, members, epochs=60, **options)
    assert len(set(together.epochs)) > 1
    assert together.epochs.max() < 60
    for i, member in enumerate(members):
        alone = train_ensemble(images, [member], epochs=60, **options)
        assert alone.epochs[0] == together.epochs[i]
        for ours, theirs in zip(weights_of(together, i), weights_of(alone, 0), strict=True):
            assert_allclose(ours, theirs, atol=1e-4)


def test_the_jacobian_is_that_of_autograd_and_the_metric_its_square(small, images):
    codes = small.encode(images[:20])
    for member in range(len(small)):
        jacobian = small.jacobian(member, codes[member])

        def decode(code, member=member):
            for layer in (3, 4, 5):
                code = torch.from_numpy(small.weights[layer][member]).double() @ code
                code = code if layer == 5 else torch.nn.functional.leaky_relu(code, small.leaks[member])
            return code

        expected = torch.func.vmap(torch.func.jacrev(decode))(torch.from_numpy(codes[member]).double())
        assert_allclose(jacobian, expected, atol=1e-12)
        assert_allclose(small.metric(member, codes[member]), jacobian.swapaxes(1, 2) @ jacobian, atol=1e-12)
        singular = np.linalg.svd(jacobian, compute_uv=False)
        assert singular.max() <= 1 + 1e-5
        assert singular.min() >= small.leaks[member] ** 2 - 1e-5  # two kinks in a decoder of three layers
        if small.leaks[member] == 1:
            assert_allclose(singular, 1, atol=1e-5)


def test_codes_pictures_and_errors_are_those_of_the_weights(small, images):
    codes = small.encode(images)
    assert codes.shape == (3, 300, 4)
    out = small.decode(codes)
    assert_allclose(small.reconstruction_error(images), ((out - images) ** 2).mean((1, 2)), rtol=1e-5)
    assert_array_equal(small.encode(np.stack([images] * 3)), codes)
    value = images.astype(np.float64)
    for layer in range(3):
        value = value @ small.weights[layer][0].T
        value = value if layer == 2 else np.where(value > 0, value, 0.1 * value)
    assert_allclose(codes[0], value, atol=1e-5)


def test_members_may_see_different_rows(images):
    rows = [np.arange(100), np.arange(100, 200)]
    options = {"widths": WIDTHS, "epochs": 2, "batch": 50, "device": "cpu"}
    both = train_ensemble(images, [Member(0.5, 0, one) for one in rows], **options)
    for i, one in enumerate(rows):
        alone = train_ensemble(images[one], [Member(0.5, 0)], **options)
        assert_allclose(weights_of(both, i)[0], weights_of(alone, 0)[0], atol=1e-5)


def test_progress_is_told_and_training_ends_when_no_member_is_left(images):
    told = []
    found = train_ensemble(
        images, [Member(1.0, 0)], widths=WIDTHS, epochs=50, batch=300, patience=1, threshold=10.0, device="cpu",
        progress=lambda *one: told.append(one),
    )  # fmt: skip
    assert found.epochs.tolist() == [2]
    assert [one[:2] for one in told] == [(1, 50), (2, 50)]
    assert isinstance(found, Ensemble)


@pytest.mark.parametrize(
    ("members", "widths", "message"),
    [
        ([], WIDTHS, "members must have at least one member"),
        ([Member(1.0, 0)], [63, 4], r"widths must start with the 64 columns of x; got \[63, 4\]"),
        ([Member(1.5, 0)], WIDTHS, "leak must be a number at least 0 and at most 1; got 1.5"),
        ([Member(1, 0), Member(1, 0, np.arange(5))], WIDTHS, "must have the same number of rows; got 5 to"),
    ],
)
def test_ensembles_that_cannot_be_trained_are_refused(members, widths, message, images):
    with pytest.raises(InputError, match=message):
        train_ensemble(images, members, widths=widths, device="cpu")
