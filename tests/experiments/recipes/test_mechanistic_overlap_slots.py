"""Autoencoders with slots in one batch, and the rotations that lower their contrast."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

torch = pytest.importorskip("torch")
from congruence.experiments.data.overlap import overlap_generator  # noqa: E402
from congruence.experiments.recipes.mechanistic_overlap.slots import (  # noqa: E402
    RotationSearch,
    SlotMember,
    SlotPlan,
    SlotTraining,
    allowed_strength,
    find_rotation,
    rate_share,
    train_slots,
)
from congruence.mechanism.losses import compositional_contrast, decoder_jacobian  # noqa: E402
from congruence.rows.devices import one_thread  # noqa: E402

BLOCKS = [[0, 1, 2], [3, 4, 5]]
MEMBERS = [SlotMember(0, 0.01, 1), SlotMember(1, 0.1, 2), SlotMember(1, 1.0, 3)]
OUTPUTS = [40, 30]


@pytest.fixture(scope="module")
def x():
    """Two data sets, the second with fewer outputs and padded."""
    latents = np.random.default_rng(0).normal(size=(300, 6))
    found = np.zeros((2, 300, 40), np.float32)
    for i, overlap in enumerate((0.0, 0.5)):
        found[i, :, : OUTPUTS[i]] = 3 * overlap_generator(2, overlap)(latents)
    return found


@pytest.fixture
def training(x):
    return SlotTraining(x, OUTPUTS, MEMBERS, 2, SlotPlan(steps=10), "cpu")


def modules(training, member, outputs):
    """Encoder and decoder of one member as torch modules in its own width."""
    layers = []
    for i in range(0, 12, 2):
        weight, bias = (w[member].detach() for w in training.weights[i : i + 2])
        weight = weight[:outputs] if i == 0 else weight[:, :outputs] if i == 10 else weight
        layer = torch.nn.Linear(*weight.shape)
        layer.weight.data, layer.bias.data = weight.T.clone(), bias[0, : weight.shape[1]].clone()
        layers.append(layer)
    a, b, c, d, e, f = layers
    leaky = torch.nn.LeakyReLU(0.2)
    return torch.nn.Sequential(a, leaky, b, leaky, c), torch.nn.Sequential(d, leaky, e, leaky, f)


def test_losses_are_those_of_one_autoencoder_alone(training, x):
    rows = torch.from_numpy(x[:, :50])[training.which]
    error, contrast = training.losses(rows)
    for member, one in enumerate(MEMBERS):
        outputs = OUTPUTS[one.data]
        encoder, decoder = modules(training, member, outputs)
        mine = rows[member, :, :outputs]
        z = encoder(mine)
        z = (z - z.mean(0)) / z.std(0, unbiased=False)
        assert float(error[member].detach()) == pytest.approx(
            float((decoder(z) - mine).square().mean().detach()), rel=1e-4
        )
        alone = compositional_contrast(decoder_jacobian(decoder, z), BLOCKS)
        assert float(contrast[member].detach()) == pytest.approx(float(alone.detach()), rel=1e-4)


def test_latents_that_are_not_standardised_are_decoded_as_they_are(x):
    training = SlotTraining(x, OUTPUTS, MEMBERS, 2, SlotPlan(steps=10, standardised=False), "cpu")
    rows = torch.from_numpy(x[:, :50])[training.which]
    error, contrast = (values.detach()[0] for values in training.losses(rows))
    encoder, decoder = modules(training, 0, OUTPUTS[0])
    z = encoder(rows[0]).detach()
    assert_allclose(error, (decoder(z) - rows[0]).square().mean().detach(), rtol=1e-4)
    assert_allclose(contrast, compositional_contrast(decoder_jacobian(decoder, z), BLOCKS).detach(), rtol=1e-4)
    with torch.no_grad():  # the contrast falls as latents grow
        training.weights[4].mul_(10)
        training.weights[5].mul_(10)
        training.weights[6].div_(10)
    same, smaller = (values.detach()[0] for values in training.losses(rows))
    assert_allclose(same, error, rtol=1e-3)
    assert_allclose(smaller, contrast / 100, rtol=1e-3)  # a product of the lengths of two derivatives


def test_the_published_rate_falls_to_a_tenth_after_half_and_the_strength_is_constant():
    assert [rate_share(done, cosine=False) for done in (0.0, 0.49, 0.5, 1.0)] == [1.0, 1.0, 0.1, 0.1]
    assert rate_share(0.0, cosine=True) == 1
    assert rate_share(1.0, cosine=True) == 0
    assert allowed_strength(0.0, 0.0, 0.0) == np.inf


@pytest.mark.parametrize(("turns", "apart"), [((), 0.005), ((0.3,), 0.03)], ids=["plain", "turned"])
def test_members_end_where_they_would_have_ended_alone(turns, apart, x):
    """To rounding, which Adam enlarges where shifts and rotations change nothing: gradients there are rounding."""
    plan = SlotPlan(steps=30, rotate_at=turns, search=RotationSearch(points=4, steps=5, sweeps=1))
    (together,) = train_slots(x[:, :200], [x[:, 200:]], OUTPUTS, MEMBERS, 2, plan, seed=5)
    (alone,) = train_slots(x[1:, :200, :30], [x[1:, 200:, :30]], [30], [SlotMember(0, 1.0, 3)], 2, plan, seed=5)
    assert together.codes.shape == (3, 100, 6)
    assert_allclose(together.codes[2], alone.codes[0], atol=apart)
    assert together.error[2] == pytest.approx(alone.error[0], rel=apart)
    spread = x[1, 200:, :30].var(0).mean()
    assert together.unexplained[2] == pytest.approx(together.error[2] / spread, rel=1e-4)


def test_turning_leaves_what_is_reconstructed_and_lowers_the_contrast(training, x):
    rows = torch.from_numpy(x)[training.which]
    with torch.no_grad(), one_thread():
        before = training.losses(rows)
        training.rotate(0)
        after = training.losses(rows)
    assert_allclose(after[0], before[0], rtol=1e-4)
    assert (after[1] < 0.9 * before[1]).all()


def test_strengths_grow_by_equal_factors_and_each_stops_at_its_own():
    found = [allowed_strength(done, 0.1, 0.5) for done in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0)]
    assert found == pytest.approx([0, 1e-4, 1e-3, 1e-2, 1e-1, np.inf, np.inf])


def hidden_blocks(slots, seed, outputs=8, points=6):
    """Transposed Jacobians (1, n, d, m) of slots with outputs of their own, seen in turned latents."""
    rng = np.random.default_rng(seed)
    columns = np.zeros((1, points, 3 * slots, outputs * slots))
    for k in range(slots):
        columns[:, :, 3 * k : 3 * k + 3, outputs * k : outputs * (k + 1)] = rng.normal(size=(1, points, 3, outputs))
    turn = ortho_group.rvs(3 * slots, random_state=seed)
    return torch.from_numpy(turn.T @ columns).float()


@pytest.mark.parametrize("slots", [2, 3])
def test_turns_find_blocks_that_were_turned_away(slots):
    columns = hidden_blocks(slots, seed=slots)
    with one_thread():
        rotation = find_rotation(columns, slots, RotationSearch(sweeps=2), seed=0)
    assert_allclose(rotation.mT @ rotation, torch.eye(3 * slots)[None], atol=1e-5)
    blocks = np.arange(3 * slots).reshape(slots, 3).tolist()
    before, after = (compositional_contrast(c.mT, blocks) for c in (columns, rotation.mT[:, None] @ columns))
    assert float(after) < 0.05 * float(before)


def test_a_few_hundred_steps_find_two_slots_that_act_apart():
    generator = overlap_generator(2, 0.0, seed=100)
    latents = np.random.default_rng(1).normal(size=(1500, 6))
    x = generator(latents)[None] / generator(latents).std()
    plan = SlotPlan(steps=250, rotate_at=(0.3,))
    (found,) = train_slots(x[:, :1200], [x[:, 1200:]], [40], [SlotMember(0, 0.01, 0)], 2, plan)
    assert found.unexplained[0] < 0.15
    assert cross_talk(found.codes[0].reshape(300, 2, 3), latents[1200:].reshape(300, 2, 3)) < 0.1


def cross_talk(codes, slots):
    """R2 of linear readouts from the wrong slot, for the better of both assignments."""

    def r2(a, b):
        rest = b - a @ np.linalg.lstsq(a, b, rcond=None)[0]
        return 1 - rest.var() / b.var()

    scores = np.array([[r2(codes[:, i], slots[:, j]) for j in (0, 1)] for i in (0, 1)])
    return min(np.mean([scores[0, 1], scores[1, 0]]), np.mean([scores[0, 0], scores[1, 1]]))
