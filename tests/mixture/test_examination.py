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
