"""Models whose prior is a mixture: each term of the bound by hand, and what the models promise."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from congruence.errors import InputError

torch = pytest.importorskip("torch")


from congruence.experiments.models import IVAE, MFCVAE, MixtureVAE, VaDE, build_model  # noqa: E402
from congruence.experiments.models.autoencoders import kl_to_standard  # noqa: E402
from congruence.experiments.models.mixture_priors import (  # noqa: E402
    LearnedMixture,
    SoftplusMixture,
    given_mixture,
    product,
)
from congruence.experiments.models.mixture_vaes import (  # noqa: E402
    dense,
    mixture_divergences,
    sampled_divergences,
)

PRIOR = {"weights": [0.25, 0.75], "means": [[0.0, 0.0], [2.0, -1.0]], "covariances": [[[1, 0.5], [0.5, 2]], np.eye(2)]}
SMALL = {"hidden": (6, 5), "shape": (3,)}


def learned(seed=0, components=3, latents=2):
    rng = np.random.default_rng(seed)
    prior = LearnedMixture(components, latents)
    weights = rng.dirichlet(np.ones(components))
    prior.start_at(weights, rng.normal(size=(components, latents)), rng.uniform(0.3, 2, size=(components, latents)))
    return prior.double()


def posteriors(n=5, latents=2, seed=1):
    rng = np.random.default_rng(seed)
    return tuple(torch.from_numpy(a) for a in (rng.normal(size=(n, latents)), rng.uniform(0.2, 1.5, size=(n, latents))))


def give(model, mean, sigma, out):
    """Make the encoder give one Gaussian for any row, and the decoder one row for any code."""
    for net, bias in ((model.encoder, [*mean, *np.log(np.expm1(np.array(sigma) - 1e-6))]), (model.decoder, out)):
        with torch.no_grad():
            net[-1].weight.zero_()
            net[-1].bias.copy_(torch.tensor(bias))
    return model


def numbers(parts):
    return {name: float(value.detach()) for name, value in parts.items()}


def test_the_divergence_to_a_component_is_the_one_in_the_books():
    # KL(N(1, 0.5^2) || N(0, 2^2)) = log 4 + (0.25 + 1) / 8 - 1/2
    prior = LearnedMixture(1, 1)
    prior.start_at(np.ones(1), np.zeros((1, 1)), np.full((1, 1), 4.0))
    found = float(prior.kl(torch.tensor([[1.0]]), torch.tensor([[0.5]])).detach())
    assert found == pytest.approx(math.log(4) + 1.25 / 8 - 0.5, abs=1e-6)


@pytest.mark.parametrize("prior", [learned(), given_mixture(PRIOR, 2).double()], ids=["learned", "given"])
def test_divergences_are_those_of_torch_for_any_covariance(prior):
    mean, sigma = posteriors()
    _, means, covariances = (torch.from_numpy(part) for part in prior.arrays())
    for j in range(len(means)):
        code = torch.distributions.MultivariateNormal(mean, torch.diag_embed(sigma.square()))
        component = torch.distributions.MultivariateNormal(means[j], covariances[j])
        expected = torch.distributions.kl_divergence(code, component)
        assert_allclose(prior.kl(mean, sigma)[:, j].detach(), expected, rtol=1e-6)


@pytest.mark.parametrize("prior", [learned(), given_mixture(PRIOR, 2).double()], ids=["learned", "given"])
def test_responsibilities_follow_from_the_rule_of_bayes(prior):
    z = posteriors()[0]
    weights, means, covariances = prior.arrays()
    parts = zip(weights, means, covariances, strict=True)
    joint = np.column_stack([w * stats.multivariate_normal(m, c).pdf(z) for w, m, c in parts])
    assert_allclose(prior.log_joint(z).exp().detach(), joint, rtol=1e-5)
    assert_allclose(prior.log_joint(z).softmax(1).detach(), joint / joint.sum(1, keepdims=True), rtol=1e-5)


def test_the_two_divergences_weigh_components_by_their_responsibility():
    prior, (mean, sigma) = learned(), posteriors()
    z = mean + sigma
    shares = prior.log_joint(z).softmax(1).detach().numpy()
    latents, states = (part.detach().numpy() for part in mixture_divergences(prior, mean, sigma, z))
    assert_allclose(latents, (shares * prior.kl(mean, sigma).detach().numpy()).sum(1), rtol=1e-10)
    assert_allclose(states, [stats.entropy(row, prior.arrays()[0]) for row in shares], rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_no_responsibilities_make_the_divergences_less_than_the_best_ones_do(seed):
    """sum_c g_c KL_c + sum_c g_c log(g_c / w_c) is least, -log sum_c w_c exp(-KL_c), at g_c ~ w_c exp(-KL_c)."""
    prior, (mean, sigma) = learned(seed), posteriors(50, seed=seed)
    least = -(prior.log_weights() - prior.kl(mean, sigma)).logsumexp(1).detach()
    for z in (mean, mean + sigma, mean - 2 * sigma):
        latents, states = mixture_divergences(prior, mean, sigma, z)
        assert (latents + states >= least - 1e-9).all()


def test_sampled_divergences_sum_to_the_log_ratio_of_the_densities():
    prior, (mean, sigma) = learned(), posteriors()
    z = mean + 0.7 * sigma
    latents, states = (part.detach().numpy() for part in sampled_divergences(prior, mean, sigma, z))
    parts = zip(*prior.arrays(), strict=True)
    density = sum(w * stats.multivariate_normal(m, c).pdf(z) for w, m, c in parts)
    code = stats.norm(mean, sigma).logpdf(z).sum(1)
    assert_allclose(latents + states, code - np.log(density), rtol=1e-6)
    assert_allclose(states, mixture_divergences(prior, mean, sigma, z)[1].detach(), rtol=1e-10)


def test_the_mean_of_sampled_divergences_is_below_that_of_the_others():
    """States that depend on z given x make the bound tighter."""
    prior = learned()
    mean, sigma = (part[:1].expand(20_000, 2) for part in posteriors())
    torch.manual_seed(0)
    z = mean + sigma * torch.randn_like(mean)
    tight, loose = (
        sum(measure(prior, mean, sigma, z)).mean().item() for measure in (sampled_divergences, mixture_divergences)
    )
    assert 0 < tight < loose - 0.1


def test_softplus_variances_are_those_that_were_asked_for():
    prior, variances = SoftplusMixture(3, 2), np.array([[1e-3, 0.01], [1.0, 30.0], [0.5, 2.0]])
    assert_allclose(prior.log_variances.exp().detach(), 1, rtol=1e-6)
    prior.start_at(np.full(3, 1 / 3), np.zeros((3, 2)), variances)
    assert_allclose(prior.log_variances.exp().detach(), variances, rtol=1e-5)
    assert [name for name, _ in prior.named_parameters()] == ["logits", "means", "softplus_variances"]


@pytest.mark.parametrize("ladder", [True, False])
def test_a_start_variance_brings_the_published_parametrisation(ladder):
    model = MFCVAE(4, facets=2, clusters=3, ladder=ladder, start_variance=0.01, activation="leaky_relu", **SMALL)
    x = torch.randn(200, 3)
    mean, sigma = model.posterior(x)
    outs = model.encoder(x) if ladder else [model.encoder(x)]
    rest = torch.cat([out.chunk(2, 1)[1] for out in outs], 1)
    assert_allclose(sigma.detach().square(), rest.detach().exp(), rtol=1e-5)
    slopes = {part.negative_slope for part in model.modules() if isinstance(part, torch.nn.LeakyReLU)}
    assert slopes == {0.01}
    z = mean + sigma
    facets = [(prior, *(part[:, where] for part in (mean, sigma, z))) for where, prior in model.learned_mixtures()]
    for training, measure in ((True, sampled_divergences), (False, mixture_divergences)):
        found = sum(model.train(training).divergences(mean, sigma, z))
        assert_allclose(found.detach(), sum(sum(measure(*facet)) for facet in facets).detach(), rtol=1e-5)


def test_the_bound_is_below_the_log_likelihood_and_reaches_it_where_all_is_exact():
    """Linear decoder, J = 1: the true posterior is Gaussian, and the bound with it is the likelihood."""
    model = MixtureVAE(1, hidden=(1,), activation="leaky_relu", noise=0.5, shape=(1,))
    with torch.no_grad():  # f(z) = 2 z, with no corner: the activation sees 0.001 z + 10, or -(...)
        model.decoder[0].weight.fill_(0.001), model.decoder[0].bias.fill_(10.0)
        model.decoder[2].weight.fill_(2000.0), model.decoder[2].bias.fill_(-20_000.0)
    x = torch.tensor([[0.7]], dtype=torch.float64)
    model = model.double().eval()
    spread = 1 / (1 + 4 / 0.25)  # posterior variance of z
    mean, sigma = 0.7 * 2 / 0.25 * spread, math.sqrt(spread)
    exact = stats.norm(0, math.sqrt(4 + 0.25)).logpdf(0.7)

    def bound(m, s, draws=20_000):
        rng = np.random.default_rng(0)
        z = torch.from_numpy(m + s * rng.normal(size=(draws, 1)))
        one = torch.tensor([[m]], dtype=torch.float64), torch.tensor([[s]], dtype=torch.float64)
        fit = model.log_likelihood(model.decoder(z), x.expand(draws, 1))
        return float((fit.mean() - model.prior.kl(*one)[0, 0]).detach())

    assert bound(mean, sigma) == pytest.approx(exact, abs=0.02)
    assert bound(mean + 0.3, sigma) < exact - 0.3
    assert bound(mean, 2 * sigma) < exact - 0.3


def test_the_loss_of_rows_by_hand():
    model = give(MixtureVAE(2, prior=PRIOR, noise=0.5, **SMALL), [0.5, -1.0], [0.3, 0.6], [1.0, 0.0, -1.0]).eval()
    parts = numbers(model.loss(torch.tensor([[1.0, 0.5, -1.0], [0.0, 0.0, 0.0]])))
    squared = np.array([0.25, 2.0])
    fit = -squared / (2 * 0.25) - 3 * (math.log(0.5) + math.log(2 * math.pi) / 2)
    mean, sigma = torch.tensor([[0.5, -1.0]]), torch.tensor([[0.3, 0.6]])
    latents, states = (float(one) for one in mixture_divergences(model.prior, mean, sigma, mean))
    assert parts["log_likelihood"] == pytest.approx(fit.mean(), rel=1e-5)
    assert parts["kl_latents"] == pytest.approx(latents, rel=1e-5)
    assert parts["kl_states"] == pytest.approx(states, rel=1e-5)
    assert parts["elbo"] == pytest.approx(fit.mean() - latents - states, rel=1e-5)
    assert parts["loss"] == pytest.approx(-parts["elbo"] / 3, rel=1e-6)
    assert parts["mse"] == pytest.approx(squared.sum() / 6, rel=1e-6)


def test_the_loss_of_images_is_a_cross_entropy():
    model = give(VaDE(2, clusters=2, hidden=(4,), shape=(1, 2, 2)), [0, 0], [1, 1], [0.0, 1.0, -1.0, 2.0]).eval()
    images = torch.tensor([0, 255, 51, 255], dtype=torch.uint8).reshape(1, 1, 2, 2)
    y = 1 / (1 + np.exp(-np.array([0.0, 1, -1, 2])))
    x = np.array([0, 1, 0.2, 1])
    expected = (x * np.log(y) + (1 - x) * np.log(1 - y)).sum()
    assert model.likelihood == "bernoulli"
    assert numbers(model.loss(images))["log_likelihood"] == pytest.approx(expected, rel=1e-5)
    assert_allclose(model.decode(torch.zeros(1, 2)).detach().flatten(), y, rtol=1e-5)


def test_with_one_component_it_is_the_usual_vae():
    model = MixtureVAE(2, **SMALL).eval()
    x = torch.randn(7, 3)
    parts = numbers(model.loss(x))
    usual = kl_to_standard(*model.posterior(x)).sum(1).mean()
    assert parts["kl_states"] == 0
    assert parts["kl_latents"] == pytest.approx(float(usual.detach()), rel=1e-5)
    assert_allclose(model.mixture_prior()[2], [np.eye(2)])


def test_the_decoder_sees_draws_only_while_training():
    model = give(MixtureVAE(2, **SMALL), [0.3, -0.4], [0.5, 2.0], [0.0, 0.0, 0.0])
    seen = []
    model.decoder.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().numpy()))
    torch.manual_seed(0)
    x = torch.zeros(20_000, 3)
    model.train().loss(x)
    model.eval().loss(x)
    assert_allclose(seen[0].mean(0), [0.3, -0.4], atol=0.04)
    assert_allclose(seen[0].std(0), [0.5, 2.0], rtol=0.02)
    assert_allclose(seen[1], np.tile([[0.3, -0.4]], (20_000, 1)), rtol=1e-5)


@pytest.mark.parametrize("ladder", [True, False])
def test_facets_add_up_as_mixtures_of_their_own(ladder):
    model = MFCVAE(5, facets=2, clusters=3, ladder=ladder, **SMALL).eval()
    for seed, (where, prior) in enumerate(model.learned_mixtures()):
        prior.load_state_dict(learned(seed, 3, where.stop - where.start).float().state_dict())
    assert [where for where, _ in model.learned_mixtures()] == [slice(0, 3), slice(3, 5)]
    x = torch.randn(4, 3)
    mean, sigma = model.posterior(x)
    found = [
        mixture_divergences(prior, mean[:, where], sigma[:, where], mean[:, where])
        for where, prior in model.learned_mixtures()
    ]
    parts = numbers(model.loss(x))
    assert parts["kl_latents"] == pytest.approx(float(sum(one.mean() for one, _ in found).detach()), rel=1e-5)
    assert parts["kl_states"] == pytest.approx(float(sum(one.mean() for _, one in found).detach()), rel=1e-5)
    # the product of both mixtures gives the same densities, in the order of the responsibilities
    weights, means, covariances = model.mixture_prior()
    assert weights.shape == (9,)
    whole = given_mixture({"weights": weights, "means": means, "covariances": covariances}, 5)
    expected = whole.log_joint(mean).softmax(1)
    assert_allclose(model.responsibilities(mean).detach(), expected.detach(), atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_a_ladder_is_a_chain_of_layers(activation):
    model = MFCVAE(7, facets=3, clusters=2, hidden=(6, 5, 8), shape=(4,), activation=activation, fade=10)
    model.steps.fill_(7)
    model._set_fades()
    z = 3 * torch.randn(50, 7)
    chain = model.decoder.as_chain()
    assert {type(layer).__name__ for layer in chain} == {"Linear", {"relu": "ReLU"}.get(activation, "LeakyReLU")}
    assert_allclose(chain(z).detach(), model.decoder(z).detach(), atol=1e-5)


def test_a_facet_is_held_back_before_it_is_faded_in():
    model = MFCVAE(3, facets=3, clusters=2, hidden=(4, 4, 4), shape=(4,), fade=2, hold=3)
    seen = []
    for _ in range(9):
        seen.append(model.decoder.fades.tolist())
        model.after_step()
    assert [one[1] for one in seen] == [0, 0, 0, 0, 0.5, 1, 1, 1, 1]
    assert [one[0] for one in seen] == [0, 0, 0, 0, 0, 0, 0, 0.5, 1]
    assert {one[2] for one in seen} == {1}
    with pytest.raises(InputError, match="hold must be 0 without fade; got 3"):
        MFCVAE(4, hold=3)


def test_facets_are_faded_in_from_the_last_to_the_first():
    model = MFCVAE(3, facets=3, clusters=2, hidden=(4, 4, 4), shape=(4,), fade=4)
    seen = []
    for _ in range(10):
        seen.append(model.decoder.fades.tolist())
        model.after_step()
    assert seen[0] == [0, 0, 1]
    assert seen[2] == [0, 0.5, 1]
    assert seen[4] == [0, 1, 1]
    assert seen[6] == [0.5, 1, 1]
    assert seen[9] == [1, 1, 1]
    model.steps.zero_()
    model._set_fades()
    z = torch.randn(2, 3)
    other = z.clone()
    other[:, :2] += 5
    assert_allclose(model.decoder(z).detach(), model.decoder(other).detach())  # what is not in yet tells nothing


def test_an_ivae_is_told_the_component():
    model = IVAE(2, classes=3, **SMALL).eval()
    model.prior.load_state_dict(learned().float().state_dict())
    x, u = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    mean, sigma = model.posterior(x, u)
    expected = [float(model.prior.kl(mean[i : i + 1], sigma[i : i + 1])[0, u[i]].detach()) for i in range(6)]
    parts = numbers(model.loss(x, u))
    assert parts["kl_latents"] == pytest.approx(np.mean(expected), rel=1e-5)
    assert parts["kl_states"] == 0
    assert not torch.allclose(model.encode(x, u), model.encode(x, 2 - u))
    # without u it is the one with the highest bound
    bounds = []
    for level in range(3):
        told = torch.full((6,), level)
        mean, sigma = model.posterior(x, told)
        fit = model.log_likelihood(model.decoder(mean), x) - model.prior.kl(mean, sigma)[:, level]
        bounds.append(fit + model.prior.log_weights()[level])
    best = torch.stack(bounds).argmax(0)
    assert_allclose(model.encode(x).detach(), model.encode(x, best).detach())


def test_the_product_of_mixtures_is_refused_where_it_grows_too_large():
    weights, means, covariances = np.full(30, 1 / 30), np.zeros((30, 1)), np.ones((30, 1, 1))
    with pytest.raises(InputError, match="at most 10000 components; got 27000"):
        product([(weights, means, covariances)] * 3)


MODELS = [
    lambda **more: MixtureVAE(2, prior=PRIOR, **SMALL, **more),
    lambda **more: VaDE(2, clusters=4, **SMALL, **more),
    lambda **more: MFCVAE(4, clusters=3, **SMALL, **more),
    lambda **more: MFCVAE(4, clusters=3, ladder=False, **SMALL, **more),
    lambda **more: IVAE(2, classes=2, auxiliary="moon", **SMALL, **more),
]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_a_config_makes_the_same_model_and_seeds_other_weights(make, activation):
    model = make(activation=activation, seed=3)
    again = build_model(model.config())
    assert again.config() == model.config()
    assert model.state_dict().keys() == again.state_dict().keys()
    for name, value in model.state_dict().items():
        assert_allclose(again.state_dict()[name], value, err_msg=name)
    other = make(activation=activation, seed=4)
    assert not torch.equal(next(other.encoder.parameters()), next(model.encoder.parameters()))
    names = {type(layer).__name__ for layer in model.modules()}
    assert ("LeakyReLU" in names, "ReLU" in names) == (activation == "leaky_relu", activation == "relu")
    every = [*model.decayed_parameters(), *model.undecayed_parameters()]
    assert sorted(map(id, every)) == sorted(map(id, model.parameters()))
    weights, means, covariances = model.mixture_prior()
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    assert covariances.shape == (len(weights), model.latents, model.latents)
    assert means.shape == (len(weights), model.latents)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MixtureVAE(0), "latents must be an integer of at least 1; got 0"),
        (lambda: MixtureVAE(2, noise=0), "noise must be a finite number above 0; got 0"),
        (lambda: MixtureVAE(2, shape=(2, 2)), r"shape must be \(p,\) or \(channels, height, width\); got \(2, 2\)"),
        (
            lambda: MixtureVAE(2, likelihood="poisson"),
            "must be one of 'gaussian', 'bernoulli'; got 'poisson'",
        ),
        (lambda: MixtureVAE(2, activation="tanh"), "activation must be one of 'relu', 'leaky_relu'; got 'tanh'"),
        (lambda: MixtureVAE(2, prior={"weights": [1.0]}), "means is missing"),
        (lambda: MixtureVAE(2, prior=PRIOR | {"weights": [0.5, 0.6]}), "must be positive and sum to 1"),
        (lambda: MixtureVAE(2, prior=PRIOR | {"weights": [0.5, np.nan]}), "weights of a prior must be finite"),
        (lambda: MixtureVAE(2, prior=PRIOR | {"means": [[0, 0], [np.inf, 0]]}), "means of a prior must be finite"),
        (lambda: MixtureVAE(2, prior=PRIOR | {"weights": [0.5, "a"]}), "weights of a prior must be numbers"),
        (lambda: MixtureVAE(3, prior=PRIOR), r"needs means \(2, 3\) and covariances \(2, 3, 3\); got \(2, 2\)"),
        (lambda: MixtureVAE(2, prior=PRIOR | {"covariances": -np.ones((2, 2, 2))}), "positive definite"),
        (lambda: VaDE(2, clusters=0), "clusters must be an integer of at least 1; got 0"),
        (lambda: VaDE(2, prior=PRIOR), "the prior of a VaDE is learned; clusters is the number"),
        (lambda: VaDE(2, pretraining=-1), "pretraining must be an integer of at least 0; got -1"),
        (lambda: MFCVAE(2, facets=3), "facets must be an integer from 1 to 2; got 3"),
        (lambda: MFCVAE(4, facets=2, hidden=(5,)), r"hidden must have one width for each of the 2 facets; got \[5\]"),
        (lambda: MFCVAE(4, ladder=False, fade=3), "fade must be 0 without ladder; got 3"),
        (lambda: IVAE(2, prior=PRIOR), "the prior of an iVAE is learned; classes is the number"),
        (lambda: IVAE(2).loss(torch.zeros(1, 2), torch.zeros(1)), "the auxiliary variable must be integers"),
        (lambda: MixtureVAE(2).encode(torch.zeros(3, 4)), r"inputs must have shape \(n, 2\); got \(3, 4\)"),
        (lambda: dense((1, 2), "gelu"), "activation must be one of 'relu', 'leaky_relu'; got 'gelu'"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
