"""`examine_mixture` on priors, trained models and several runs: inputs, findings, notes."""

import numpy as np
import pytest

from congruence.errors import InputError
from congruence.mixture import GaussianMixture, MixtureModel, examine_mixture
from congruence.tables import Table

PRIOR = GaussianMixture.from_arrays([0.4, 0.6], [[0.0, 0.0], [6.0, 1.0]], [[1.0, 0.5], [0.3, 2.0]])
MATRIX = np.array([[1.5, 0.3], [-0.4, 0.8]])


class Model:
    """A trained model that knows its prior, as those of `congruence train` do."""

    name, noise, decoder = "toy", 0.1, None

    def mixture_prior(self):
        return PRIOR.weights, PRIOR.means, PRIOR.covariances


@pytest.fixture(scope="module")
def several():
    drawn = PRIOR.draw(300, seed=1)
    ids = np.arange(300)
    order = np.random.default_rng(0).permutation(300)
    first = Table(drawn.latents, "a", ids, {"arm": drawn.states})
    second = Table((drawn.latents @ MATRIX.T)[order], "b", ids[order], {"arm": drawn.states[order]})
    models = {"a": MixtureModel(PRIOR, codes=first, kind="toy"), "b": MixtureModel(PRIOR.pushed(MATRIX), codes=second)}
    return examine_mixture(models, labels="arm", rows=200)


def test_one_prior_gives_findings_by_name():
    result = examine_mixture(PRIOR)
    assert (result["P1"].status, result["P2"].basis, result["F4"].status) == ("holds", "certified", "unknown")
    assert [f.name for f in result.findings[:8]] == ["identified", "P1", "P2", "P3", "F1", "F2", "F3", "F4"]
    assert result["Theorem 3.10 (a)"].premises == (result["P1"], result["F1"], result["F2"])
    with pytest.raises(InputError, match="no 'P4' in this MixtureExamination; the keys are 'identified', 'P1'"):
        result["P4"]


def test_several_runs_are_joined_by_id_and_compared(several):
    assert several["a", "b"].weak == pytest.approx(1)
    assert several["a", "b"].affine.distance < 1e-3
    assert len(several.labels) == 200
    assert several.labels_from == "arm"
    assert several["a", "P1"].name == several["P1"].name == "P1"
    assert [(row["source"], row["target"]) for row in several.rows()] == [("a", "b"), ("b", "a")]


def test_codes_may_be_frames_or_files_and_files_are_recorded(several, tmp_path):
    pandas = pytest.importorskip("pandas")
    first, second = (space.codes for space in several.spaces)
    ids = [f"row{i}" for i in range(200)]
    frame = pandas.DataFrame(first, columns=["z0", "z1"], index=ids)
    order = np.random.default_rng(1).permutation(200)
    other = pandas.DataFrame({"id": np.array(ids)[order], "z0": second[order, 0], "z1": second[order, 1]})
    other.to_csv(tmp_path / "b.csv", index=False)
    models = {"a": MixtureModel(PRIOR, codes=frame), "b": MixtureModel(PRIOR.pushed(MATRIX), codes=tmp_path / "b.csv")}
    result = examine_mixture(models, check=False)
    assert result["a", "b"].weak == pytest.approx(several["a", "b"].weak)
    files = [(file["path"], len(file["sha256"])) for file in result.settings["inputs"]]
    assert files == [(str(tmp_path / "b.csv"), 64)]


def test_without_codes_draws_from_the_prior_are_shown():
    result = examine_mixture(PRIOR)
    assert result.labels_from == "component of the prior (draws from the prior)"
    drawn = PRIOR.draw(1000)
    np.testing.assert_array_equal(result.spaces[0].codes, drawn.latents)
    np.testing.assert_array_equal(result.labels, drawn.states)
    assert {row["name"] for row in result.rows()} >= {"identified", "P1", "F4", "Theorem 3.10 (d)"}


def test_a_trained_model_brings_its_noise_and_decoder():
    torch = pytest.importorskip("torch")
    model = Model()
    model.decoder = torch.nn.Sequential(torch.nn.Linear(2, 3))
    result = examine_mixture(model)
    assert result["F4"].basis == "certified"
    assert (result.runs[0].model, result.checked["model"].noise) == ("toy", "known")
    assert examine_mixture(model, noise="unknown").checked["model"].noise == "unknown"


def test_logits_of_pixels_are_noted():
    torch = pytest.importorskip("torch")
    model = Model()
    model.likelihood, model.decoder = "bernoulli", torch.nn.Sequential(torch.nn.Linear(2, 3))
    result = examine_mixture({"pixels": model})
    assert any("up to the logits of the pixels" in note for note in result.notes)
    assert result.checked["pixels"].noise == "unknown"


def test_large_priors_are_not_checked_and_that_is_noted():
    result = examine_mixture(PRIOR, max_components=1)
    assert result.status == "unknown"
    assert result.headlines == ("The assumptions were not checked.",)
    assert "since the prior has 2 components (at most 1 are checked)" in result.notes[0]


def test_results_are_drawn_on_one_set_of_axes(several):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for result in (several, examine_mixture(PRIOR)):
        _, axes = pyplot.subplots()
        assert result.plot(axes) is axes
        pyplot.close("all")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (({},), "got an empty mapping"),
        (({"a": PRIOR}, None, np.zeros((3, 2))), "codes must be set in the MixtureModel of each"),
        (({"a": PRIOR, "b": PRIOR},), "several runs are compared by their codes; a, b has none"),
        (({"a": 3},), "the prior of a cannot be used: prior must be a GaussianMixture"),
    ],
)
def test_unusable_arguments_are_refused(arguments, said):
    with pytest.raises(InputError, match=said):
        examine_mixture(*arguments)


def test_unusable_options_are_refused():
    codes = Table(PRIOR.sample(30), "a", metadata={"arm": np.arange(30)})
    with pytest.raises(InputError, match="a has no metadata column 'leg' to take labels from; it has arm"):
        examine_mixture(PRIOR, codes=codes, labels="leg")
    with pytest.raises(InputError, match=r"labels must have one label per row, shape \(30,\), but has shape \(3,\)"):
        examine_mixture(PRIOR, codes=codes, labels=np.arange(3))
    with pytest.raises(InputError, match=r"labels must be one column; got shape \(30, 2\)"):
        examine_mixture(PRIOR, codes=codes, labels=np.zeros((30, 2)))
    with pytest.raises(InputError, match="rows must be an integer of at least 2; got 1"):
        examine_mixture(PRIOR, codes=codes, rows=1)
    with pytest.raises(InputError, match=r"model must have a method mixture_prior\(\); int has none"):
        MixtureModel.from_model(3)


def arrays():
    return {"weights": PRIOR.weights, "means": PRIOR.means, "covariances": PRIOR.covariances}


class TestOwnModels:
    """A model of one's own: any form of a mixture, and a torch module."""

    torch = pytest.importorskip("torch")

    def decoder(self):
        self.torch.manual_seed(0)
        nn = self.torch.nn
        return nn.Sequential(nn.Linear(2, 6), nn.LeakyReLU(0.2), nn.Linear(6, 7))

    def forms(self, tmp_path):
        dist = self.torch.distributions
        module = self.torch.nn.Module()
        for name, values in arrays().items():
            module.register_parameter(name, self.torch.nn.Parameter(self.torch.tensor(values)))
        np.savez(tmp_path / "prior.npz", **arrays())
        normal = dist.MultivariateNormal(module.means, module.covariances)
        apart = dist.Independent(dist.Normal(module.means, module.covariances.diagonal(dim1=1, dim2=2).sqrt()), 1)
        weights = dist.Categorical(module.weights)
        yield from (arrays(), tuple(arrays().values()), module, tmp_path / "prior.npz", str(tmp_path / "prior.npz"))
        yield from (dist.MixtureSameFamily(weights, parts) for parts in (normal, apart))
        yield np.load(tmp_path / "prior.npz")

    def test_every_form_of_a_prior_gives_the_same_result(self, tmp_path):
        expected = examine_mixture(PRIOR, self.decoder())
        assert (expected.row, expected.status) == (4, "holds")
        for prior in self.forms(tmp_path):
            result = examine_mixture(prior, self.decoder())
            assert (result.row, result["P2"].evidence) == (4, expected["P2"].evidence)

    def test_codes_and_a_page_belong_to_it(self, tmp_path):
        result = examine_mixture(arrays(), self.decoder(), codes=PRIOR.sample(800, seed=1), codes_are="draws")
        assert (result["P1"].status, result["P1"].basis, result.row) == ("holds", "supported", 4)
        page = result.report(tmp_path / "own.html").read_text()
        assert "Power at this number of rows" in page
        assert "theorem numbers" in page

    def test_distributions_that_are_not_normal_are_refused(self):
        dist = self.torch.distributions
        laplace = dist.Independent(dist.Laplace(self.torch.zeros(2, 2), self.torch.ones(2, 2)), 1)
        with pytest.raises(InputError, match="components of distribution must be normal; got Laplace"):
            examine_mixture(dist.MixtureSameFamily(dist.Categorical(self.torch.ones(2) / 2), laplace))


def test_a_fit_stays_a_fit_in_a_file(tmp_path):
    np.savez(tmp_path / "prior.npz", **arrays(), fitted="diag")
    result = examine_mixture(tmp_path / "prior.npz")
    assert [result[name].status for name in ("P1", "P2")] == ["unknown", "unknown"]
    np.savez(tmp_path / "prior.npz", **arrays(), fitted="oblique")
    with pytest.raises(InputError, match="fitted must be one of"):
        examine_mixture(tmp_path / "prior.npz")


def test_files_that_hold_no_prior_are_refused(tmp_path):
    path = tmp_path / "prior.npz"
    for content, said in (
        ({"weights": [1.0]}, "means is missing"),
        ({"weights": np.array([print], dtype=object), "means": [[0.0]], "covariances": [1.0]}, "allow_pickle=False"),
        ({"weights": ["a"], "means": [[0.0]], "covariances": [1.0]}, "weights must be an array of numbers"),
    ):
        np.savez(path, **content)
        with pytest.raises(InputError, match=said):
            examine_mixture(path)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(InputError, match=r"cannot read a prior \(.npz\) from"):
        examine_mixture(path)
    with pytest.raises(InputError, match=r"cannot read a prior \(.npz\) from"):
        examine_mixture(tmp_path / "none.npz")


def test_the_kind_of_codes_is_checked():
    with pytest.raises(InputError, match="codes_are must be one of"):
        examine_mixture(PRIOR, codes_are="samples")
