"""Trainings of models with a mixture: on rows and images, resumed, loaded back, and collapsed."""

import math
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import CollapsedWarning, InputError
from congruence.experiments.data import pinwheel
from congruence.experiments.runs import open_run

torch = pytest.importorskip("torch")

from congruence.experiments.models import IVAE, MFCVAE, MixtureVAE, VaDE  # noqa: E402
from congruence.experiments.training import load_model, posterior_collapse, train_model  # noqa: E402
from congruence.experiments.training.collapse import Collapse  # noqa: E402
from congruence.experiments.training.pretraining import pretrain, start_mixtures  # noqa: E402
from congruence.experiments.training.settings import Training  # noqa: E402

SHORT = {"steps": 8, "batch": 32, "device": "cpu", "deterministic": True}
HIDDEN = {"hidden": (16, 16)}


@pytest.fixture(scope="module")
def arms():
    return pinwheel(400, arms=3)


def accuracy(found, true):
    """The share of rows whose cluster is right, after the best matching of clusters."""
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((found.max() + 1, true.max() + 1))
    np.add.at(counts, (found, true), 1)
    return counts[linear_sum_assignment(-counts)].sum() / len(found)


def test_a_vade_finds_the_arms_of_a_pinwheel():
    data = pinwheel(2000, arms=3)
    model = VaDE(2, clusters=3, pretraining=300, **HIDDEN)
    run = train_model(model, data, steps=400, batch=200, learning_rate=5e-3, device="cpu", deterministic=True)
    lines = [line for line in run.metrics() if "elbo" in line]
    assert lines[-1]["active_latents"] == 2
    assert lines[-1]["states"] > 2.8
    codes = model.encode(data.rows).detach()
    assert accuracy(model.responsibilities(codes).argmax(1).numpy(), data.columns["arm"]) > 0.97
    assert_allclose(model.mixture_prior()[0], 1 / 3, atol=0.05)
    latents = run.latents()
    assert_allclose(latents.values, codes, atol=1e-5)
    assert_array_equal(latents.metadata["arm"], data.columns["arm"])
    assert run.examples() is None
    assert run.config["data"]["factors"] == ["arm", "along", "across"]


def test_pretraining_brings_the_autoencoder_near_and_the_mixture_where_its_codes_are(arms):
    model = VaDE(2, clusters=3, **HIDDEN)
    how = Training(steps=1, batch=50, learning_rate=1e-2, deterministic=True)
    before = float((model.decode(model.encode(arms.rows)) - torch.from_numpy(arms.rows)).square().mean().detach())
    pretrain(model, [arms.rows], how, 150, device="cpu")
    after = float((model.decode(model.encode(arms.rows)) - torch.from_numpy(arms.rows)).square().mean().detach())
    assert after < before / 10
    shown = model.decode(model.encode(arms.rows)).detach()
    start_mixtures(model, [arms.rows], seed=0, device="cpu")
    check_start(model, arms.rows, shown)
    assert_allclose(model.mixture_prior()[0], 1 / 3, atol=0.1)
    with pytest.raises(InputError, match="a mixture of 3 clusters needs .*; got 2"):
        start_mixtures(model, [arms.rows[:2]], seed=0, device="cpu")


def test_more_clusters_than_rows_are_refused_before_there_is_a_folder(arms, tmp_path):
    model = VaDE(2, clusters=3, hidden=(4,), pretraining=0)
    with pytest.raises(InputError, match="a mixture of 3 clusters needs .*; got 2"):
        train_model(model, arms.rows[:2], steps=1, out=tmp_path / "run")
    with pytest.raises(InputError, match="needs as many rows, and at least 2; got 1"):
        train_model(VaDE(2, clusters=1, hidden=(4,), pretraining=0), arms.rows[:1], steps=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def check_start(model, rows, shown):
    """Codes have mean 0 and spread 1, stand for what they stood for, and the mixture has their moments."""
    codes = model.encode(rows).detach().numpy().astype(float)
    assert_allclose(codes.mean(0), 0, atol=1e-4)
    assert_allclose(codes.std(0), 1, rtol=1e-4)
    assert_allclose(model.decode(model.encode(rows)).detach(), shown, atol=1e-4)
    weights, means, covariances = model.mixture_prior()
    assert_allclose(weights @ means, 0, atol=1e-3)
    assert_allclose(np.einsum("j,jaa->a", weights, covariances) + weights @ means**2, 1, rtol=1e-3)
    assert_allclose(model.posterior(torch.from_numpy(rows))[1].detach(), 0.1, rtol=1e-4)


@pytest.mark.parametrize("ladder", [True, False])
def test_every_facet_starts_where_its_codes_are(arms, ladder):
    model = MFCVAE(3, facets=2, clusters=2, ladder=ladder, **HIDDEN)
    shown = model.decode(model.encode(arms.rows)).detach()
    start_mixtures(model, [arms.rows], seed=0, device="cpu")
    check_start(model, arms.rows, shown)


MAKE = {
    "mixvae": lambda: MixtureVAE(2, prior=None, **HIDDEN),
    "vade": lambda: VaDE(2, clusters=3, pretraining=5, **HIDDEN),
    "mfcvae": lambda: MFCVAE(2, clusters=2, fade=5, pretraining=5, **HIDDEN),
    "ivae": lambda: IVAE(2, classes=3, auxiliary="arm", **HIDDEN),
}


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.filterwarnings("ignore::congruence.errors.CollapsedWarning")  # 8 steps do not make a model
def test_an_interrupted_training_goes_on_and_its_folder_gives_the_model_back(name, arms, tmp_path):
    whole = train_model(MAKE[name](), arms, **SHORT, out=tmp_path / "whole")

    def stop():
        return (tmp_path / "parts/metrics.jsonl").exists()  # the loop has begun: pretraining leaves no log

    with pytest.raises(KeyboardInterrupt):
        train_model(MAKE[name](), arms, **SHORT, out=tmp_path / "parts", stop=stop)
    assert not open_run(tmp_path / "parts").finished
    assert (tmp_path / "parts/checkpoint.safetensors").exists()
    parts = train_model(MAKE[name](), arms, **SHORT, out=tmp_path / "parts")
    for key, value in whole.weights().items():
        assert_array_equal(parts.weights()[key], value, err_msg=key)
    loaded = load_model(tmp_path / "whole")
    beside = [arms.columns["arm"]] if name == "ivae" else []
    assert_allclose(loaded.encode(arms.rows, *beside).detach(), whole.latents().values, atol=1e-6)
    for one, other in zip(loaded.mixture_prior(), whole.model.mixture_prior(), strict=True):
        assert_array_equal(one, other)


def test_an_ivae_counts_the_classes_and_wants_to_be_told_of_levels(arms):
    model = IVAE(2, classes=3, auxiliary="arm", **HIDDEN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapsedWarning)
        train_model(model, arms, **SHORT)
    assert_allclose(model.mixture_prior()[0], np.bincount(arms.columns["arm"]) / 400, rtol=1e-5)
    for model, data, message in (
        (IVAE(2, auxiliary="leg"), arms, r"must be a factor of the data \(arm, along, across\); got 'leg'"),
        (IVAE(2, auxiliary="arm"), arms.rows, r"must be a factor of the data \(it has none\); got 'arm'"),
        (IVAE(2, auxiliary="along"), arms, "must have levels; along is continuous"),
        (IVAE(2, classes=2, auxiliary="arm"), arms, "must be below classes=2; got 2"),
    ):
        with pytest.raises(InputError, match=message):
            train_model(model, data, **SHORT)


@pytest.mark.filterwarnings("ignore::congruence.errors.CollapsedWarning")
def test_images_and_bare_rows_are_taken_as_they_are():
    images = np.random.default_rng(0).integers(0, 256, size=(40, 1, 4, 4), dtype=np.uint8)
    run = train_model(VaDE(2, clusters=2, pretraining=2, shape=(1, 4, 4), **HIDDEN), images, **SHORT)
    assert run.examples().shape == (8, 1, 4, 4)
    assert math.isfinite(run.metrics()[0]["psnr"])
    rows = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    run = train_model(MixtureVAE(2, **HIDDEN), rows, **SHORT)
    assert run.config["data"]["name"] == "rows"
    assert run.metrics()[0]["mse"] > 0
    with pytest.raises(InputError, match=r"or rows \(n, p\)"):
        train_model(MixtureVAE(2, **HIDDEN), rows[0], **SHORT)


def given(model, mean, sigma):
    """Make the posterior of a model what is given, whatever the rows."""
    model.posterior = lambda x: (torch.from_numpy(mean).float(), torch.from_numpy(sigma).float())
    return model


def test_latents_without_information_and_components_without_distinction_are_found():
    rng = np.random.default_rng(0)
    mean = np.column_stack([rng.normal(size=300), np.full(300, 0.2), 5 * rng.choice([-1.0, 1.0], 300)])
    sigma = np.column_stack([np.full(300, 0.5), np.ones(300), np.full(300, 0.1)])
    model = given(VaDE(3, clusters=2, shape=(2,), **HIDDEN), mean, sigma)
    x = np.zeros((300, 2), np.float32)
    found = posterior_collapse(model, x)  # all components are still N(0, I)
    assert_allclose(found.shares[0], mean[:, 0].var() / (mean[:, 0].var() + 0.25), rtol=1e-5)
    assert found.collapsed == (1,)
    assert found.effective_states == pytest.approx((1.0,))
    assert found.merged == (0,)
    assert found.sentence == (
        "posterior collapse: 1 of 3 latents do not depend on the data (1); the 2 components have 1.00 effective states"
    )
    assert found.numbers() == {"active_latents": 2.0, "states": pytest.approx(1.0)}
    model.prior.start_at(np.full(2, 0.5), np.array([[0, 0, -5.0], [0, 0, 5.0]]), np.ones((2, 3)))
    found = posterior_collapse(model, x)
    assert found.effective_states == pytest.approx((2.0,), abs=0.01)
    assert found.merged == ()
    whole = Collapse(np.array([0.9]), (2.0, 1.0), (2, 3))
    assert whole.sentence == "posterior collapse: the 3 components of facet 1 have 1.00 effective states"
    assert whole.numbers() == {"active_latents": 1.0, "states_0": 2.0, "states_1": 1.0}
    assert Collapse(np.array([0.9]), (1.0,), (1,)).sentence == ""


def test_a_training_that_collapsed_says_so():
    """With so much noise in the likelihood, nothing is worth telling."""
    model = MixtureVAE(2, noise=30.0, **HIDDEN)
    how = {"steps": 300, "batch": 100, "learning_rate": 2e-2, "device": "cpu", "deterministic": True}
    with pytest.warns(CollapsedWarning, match=r"2 of 2 latents do not depend on the data \(0, 1\); try fewer latents"):
        run = train_model(model, pinwheel(300), **how)
    assert [line for line in run.metrics() if "elbo" in line][-1]["active_latents"] == 0
