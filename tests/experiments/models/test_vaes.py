import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from congruence.errors import InputError

torch = pytest.importorskip("torch")
from congruence.experiments.models import TCVAE, VAE  # noqa: E402
from congruence.experiments.models.autoencoders import divergence_parts, kl_to_standard  # noqa: E402

SMALL = {"net": "small", "shape": (1, 8, 8)}


def give(model, mean, sigma):
    """Make the encoder give one Gaussian for any image, and the decoder no logit for any code."""
    rest = np.log(np.expm1(sigma))  # the inverse of softplus
    with torch.no_grad():
        model.encoder.head.weight.zero_()
        model.encoder.head.bias.copy_(torch.tensor([*mean, *rest]))
        model.decoder[-1].weight.zero_()
        model.decoder[-1].bias.zero_()
    return model


def numbers(parts):
    return {name: float(value.detach()) for name, value in parts.items()}


def test_the_divergence_to_the_standard_gaussian():
    found = kl_to_standard(torch.tensor([0.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 2.0]))
    assert_allclose(found, [0, 0.5, 1.5 - math.log(2)], atol=1e-7)


def test_the_divergence_is_an_integral():
    z = np.linspace(-20, 20, 200_001)
    q = stats.norm(0.7, 0.6)
    integral = np.sum(q.pdf(z) * (q.logpdf(z) - stats.norm.logpdf(z))) * (z[1] - z[0])
    assert float(kl_to_standard(torch.tensor(0.7), torch.tensor(0.6))) == pytest.approx(integral, rel=1e-5)


def test_the_loss_is_the_bound_divided_by_the_number_of_pixels():
    model = give(VAE(2, beta=4.0, **SMALL), [1.0, 0.0], [1.0, 2.0])
    parts = numbers(model.loss(torch.rand(3, 1, 8, 8)))
    kl = (0.5 + 1.5 - math.log(2)) / 2  # the mean over two latents
    assert parts["kl"] == pytest.approx(kl, rel=1e-6)
    assert parts["loss"] == pytest.approx(math.log(2) + (2 / 64) * 4 * kl, rel=1e-6)
    # which is (64 pixels of cross-entropy + beta times the sum of both divergences) / 64
    assert parts["loss"] == pytest.approx((64 * math.log(2) + 4 * 2 * kl) / 64, rel=1e-6)


def test_codes_are_means_and_the_decoder_sees_draws_only_while_training():
    model = give(VAE(2, **SMALL), [0.3, -0.4], [0.5, 2.0])
    x = torch.zeros(20_000, 1, 8, 8)
    assert_allclose(model.encode(x[:2]).detach(), [[0.3, -0.4]] * 2, rtol=1e-6)
    seen = []
    model.decoder.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().numpy()))
    torch.manual_seed(0)
    with torch.no_grad():
        model.train().loss(x)
        model.eval().loss(x)
    assert_allclose(seen[0].mean(0), [0.3, -0.4], atol=0.04)
    assert_allclose(seen[0].std(0), [0.5, 2.0], rtol=0.02)
    assert_allclose(seen[1], np.tile([[0.3, -0.4]], (20_000, 1)), rtol=1e-6)


def naive_parts(z, mean, sigma, dataset_size):
    """Minibatch-weighted sampling as in equation 10 of Chen et al., one density after the other."""
    n, k = z.shape
    found = np.empty((3, n))
    for i in range(n):
        joint, each = 0.0, np.zeros(k)
        for j in range(n):
            densities = [stats.norm.pdf(z[i, a], mean[j, a], sigma[j, a]) for a in range(k)]
            joint += np.prod(densities)
            each += densities
        log_q = np.log(joint / (n * dataset_size))
        log_product = sum(np.log(each[a] / (n * dataset_size)) for a in range(k))
        log_given = stats.norm.logpdf(z[i], mean[i], sigma[i]).sum()
        found[:, i] = log_given - log_q, log_q - log_product, log_product - stats.norm.logpdf(z[i]).sum()
    return found


def test_the_parts_of_the_divergence_are_those_of_a_double_loop():
    rng = np.random.default_rng(0)
    mean, sigma = rng.normal(size=(7, 3)), rng.uniform(0.3, 2, size=(7, 3))
    z = mean + sigma * rng.normal(size=(7, 3))
    found = divergence_parts(*(torch.from_numpy(a) for a in (z, mean, sigma)), 50)
    assert_allclose(np.stack([part.numpy() for part in found]), naive_parts(z, mean, sigma, 50), rtol=1e-10)


def test_the_loss_weighs_the_three_parts():
    model = TCVAE(3, tc=5.0, dataset_size=100, seed=2, **SMALL)
    x = torch.rand(6, 1, 8, 8)
    torch.manual_seed(7)
    parts = numbers(model.loss(x))
    mean, sigma = (part.detach() for part in model.posterior(x))
    torch.manual_seed(7)
    z = mean + sigma * torch.randn_like(mean)
    mi, tc, kl = naive_parts(*(t.double().numpy() for t in (z, mean, sigma)), 100).mean(1)
    assert parts["mutual_information"] == pytest.approx(mi, rel=1e-4)
    assert parts["total_correlation"] == pytest.approx(tc, rel=1e-4)
    assert parts["dimension_kl"] == pytest.approx(kl, rel=1e-4)
    assert parts["loss"] == pytest.approx(parts["bce"] + (mi + 5 * tc + kl) / 64, rel=1e-5)


def test_with_a_weight_of_one_the_parts_add_up_to_the_divergence_of_the_draws():
    rng = np.random.default_rng(1)
    z, mean, sigma = (torch.from_numpy(a) for a in (*rng.normal(size=(2, 9, 2)), rng.uniform(0.5, 1, (9, 2))))
    total = sum(divergence_parts(z, mean, sigma, 10))
    expected = stats.norm.logpdf(z, mean, sigma).sum(1) - stats.norm.logpdf(z).sum(1)
    assert_allclose(total, expected, rtol=1e-10)


def test_the_size_of_the_data_moves_the_loss_but_not_the_gradient():
    x = torch.rand(4, 1, 8, 8)
    found = []
    for size in (10, 10_000):
        model = TCVAE(2, dataset_size=size, **SMALL)
        torch.manual_seed(0)
        loss = model.loss(x)["loss"]
        loss.backward()
        found.append((float(loss.detach()), model.encoder.head.weight.grad))
    assert abs(found[0][0] - found[1][0]) > 0.1
    assert_allclose(found[0][1], found[1][1], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VAE(2, beta=-1, **SMALL), "beta must be a finite number at least 0; got -1"),
        (lambda: TCVAE(2, tc=math.inf, dataset_size=9, **SMALL), "tc must be a finite number at least 0; got inf"),
        (lambda: TCVAE(2, dataset_size=0, **SMALL), "dataset_size must be an integer of at least 1; got 0"),
        (lambda: TCVAE(2, dataset_size=9, beta=2, **SMALL), "a TCVAE has no beta; tc is the weight"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
