"""The claims about trainings with a mixture prior follow the numbers, and both recipes run."""

import json

import numpy as np
import pytest

from congruence.experiments.models.catalogue import build_model
from congruence.experiments.recipes import mixture_mnist, mixture_pinwheel, reproduce
from congruence.experiments.recipes._mixture_trainings import pair_values
from congruence.experiments.recipes.claims import over_pairs, over_seeds
from congruence.experiments.training.pretraining import start_mixtures
from congruence.mixture import GaussianMixture
from congruence.mixture.agreement import LatentSpace, compare_spaces
from congruence.result import json_text

pytest.importorskip("torch")
PRIOR = GaussianMixture.from_arrays([0.3, 0.3, 0.4], [[0, 0], [4, 0], [0, 4]], [[0.3, 0.2], [0.2, 0.3], [0.5, 0.1]])
TURN = np.array([[0.8, -0.6], [0.6, 0.8]])


def spaces(maps, noise=0.0, priors=True):
    rng = np.random.default_rng(0)
    z = PRIOR.sample(300)
    return [
        LatentSpace(f"run {i}", z @ one.T + noise * rng.normal(size=z.shape), PRIOR.pushed(one) if priors else None)
        for i, one in enumerate(maps)
    ]


def agreement(*given, **how):
    """The kept numbers of the agreement of some spaces."""
    return json.loads(json_text(compare_spaces(*given, **how).to_dict()))


def test_the_pinwheel_is_recovered_up_to_affine_maps():
    found = agreement(spaces([np.eye(2), TURN, np.diag([2.0, 0.5]) @ TURN, TURN @ TURN]))
    assert [claim.status for claim in mixture_pinwheel.judge(found)] == ["holds", "holds", "holds"]
    assert "an MCC of 1 ± 0 up to a linear map and of 0.8" in mixture_pinwheel.headline(found)[0]


def test_codes_that_are_not_alike_are_not_called_so():
    rng = np.random.default_rng(1)
    far = [GaussianMixture.from_arrays([1.0], [[0.0, 0.0]], [size]) for size in (0.01, 1.0, 100.0)]
    noise = [LatentSpace(f"{i}", rng.normal(size=(300, 2)), prior) for i, prior in enumerate(far)]
    found = agreement([LatentSpace("a", PRIOR.sample(300), PRIOR), *noise])
    assert mixture_pinwheel.judge(found)[0].status == "fails"
    assert "an MCC of 0.06" in mixture_pinwheel.headline(found)[0]


def test_without_a_density_or_with_two_trainings_the_distance_is_unknown():
    found = agreement(spaces([np.eye(2), TURN, TURN.T], priors=False))
    assert mixture_pinwheel.judge(found)[2].status == "unknown"
    assert mixture_pinwheel.judge(agreement(spaces([np.eye(2), TURN])))[0].status == "unknown"


def numbers(whole, facets=(), states=(1.0, 2.0)):
    """The kept numbers of one activation, of which the facets separate so many states."""
    return {**whole, "mse": [0.1], "active": [2], "states": [list(states)] * 2, "facets": list(facets)}


def judged(relu, leaky_relu, differs=""):
    return mixture_mnist.judge({"relu": relu, "leaky_relu": leaky_relu}, differs)


def test_claims_about_mnist_follow_the_mcc():
    turns = [np.eye(2), TURN, TURN @ TURN, TURN.T]
    turned, same = (agreement(spaces(maps, noise)) for maps, noise in ((turns, 1.0), ([np.eye(2)] * 4, 0.01)))
    one, other = (numbers(whole, (whole, whole)) for whole in (turned, same))
    nearer, printed, leaky, _ = judged(one, other)
    assert (printed.status, leaky.status) == ("fails", "holds")
    assert nearer.status != "holds"  # as they are, the second pair is as near as up to a map
    assert judged(other, one)[2].status == "fails"
    assert judged(other, other)[2].status == "holds"  # as stable
    assert judged(one, other, "Another likelihood.")[1].status == "unknown"


def test_the_deepest_facet_should_be_the_most_stable_one():
    rough, fine = (agreement(spaces([np.eye(2), TURN, TURN.T, -TURN], noise)) for noise in (3.0, 0.1))
    found = [judged(*[numbers(fine, facets)] * 2)[3] for facets in ((rough, fine), (fine, rough))]
    assert [claim.status for claim in found] == ["holds", "fails"]
    assert "1.00 components separated, weak MCC held out" in found[0].evidence


def test_pairs_of_the_same_training_are_not_independent():
    """An interval over trainings is wider than one that takes all pairs as independent."""
    pairs = [
        {"source": a, "target": b, "mcc": {"weak": 0.5 + 0.4 * ("a" in (a, b))}}
        for a in "abcd"
        for b in "abcd"
        if a != b
    ]
    found = over_pairs(pair_values({"pairs": pairs}, "weak"))
    assert found.value == pytest.approx(0.7)
    assert found.high - found.low > 2 * (over_seeds([pair["mcc"]["weak"] for pair in pairs]).high - 0.7)


def test_the_pinwheel_recipe_writes_its_result(tmp_path, monkeypatch):
    tiny = {"rows": 200, "runs": 2, "steps": 4, "pretraining": 4, "shown": 60, "beside": ["ivae"], "arms": 3}
    tiny |= {"hidden": [6], "noise": 0.2, "batch": 50, "learning_rate": 1e-3}
    monkeypatch.setattr(mixture_pinwheel, "PARAMETERS", {"smoke": tiny})
    done = reproduce("mixture-pinwheel", tmp_path / "a", scale="smoke", device="cpu")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert len(done.ours["vade"]["pairs"]) == 2
    assert len(done.ours["ivae"]["states"]) == 2
    assert "swapped" in result["notes"][0]
    assert "0.87, printed as weak" in (tmp_path / "a" / "table.md").read_text()
    assert (tmp_path / "a" / "spaces.svg").exists()


def test_the_mnist_recipe_runs_on_digits(tmp_path, monkeypatch):
    tiny = {"data": "digits", "rows": 120, "test_rows": 80, "runs": 2, "hidden": [8, 8], "steps": 3, "batch": 40}
    tiny |= {"learning_rate": 1e-3, "fade": 2, "pretraining": 0, "latents": 4, "facets": 2, "clusters": 3}
    tiny |= {"hold": 1, "likelihood": "bernoulli", "start_variance": 0.01}  # as published
    monkeypatch.setattr(mixture_mnist, "PARAMETERS", {"smoke": tiny})
    said = []
    done = reproduce("mixture-mnist", tmp_path / "a", scale="smoke", device="cpu", announce=said.append)
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert said == ["4 trainings of 3 steps on digits, on cpu"]
    assert result["numbers"]["paper"]["MCC"]["relu"] == {"strong": 0.7, "weak": 0.91}
    assert [len(done.ours[name]["active"]) for name in ("relu", "leaky_relu")] == [2, 2]
    assert [len(done.ours[name]["facets"]) for name in ("relu", "leaky_relu")] == [2, 2]
    assert "Each facet alone" in (tmp_path / "a" / "table.md").read_text()
    assert (tmp_path / "a" / "mcc.svg").exists()


@pytest.mark.parametrize("scale", ["paper", "full"])
def test_the_published_settings_are_those_of_the_authors_program(scale):
    parameters = mixture_mnist.PARAMETERS[scale]
    assert (parameters["start_variance"], parameters["likelihood"], parameters["pretraining"]) == (0.01, "bernoulli", 0)
    assert (parameters["steps"], parameters["hold"], parameters["fade"]) == (47_318, 23_600, 15_000)


def test_printed_numbers_are_judged_only_with_the_published_settings():
    whole = agreement(spaces([np.eye(2)] * 3, 0.01))
    ours, scales = dict.fromkeys(("relu", "leaky_relu"), numbers(whole, (whole, whole))), mixture_mnist.PARAMETERS
    differ = [scales["small"], scales["paper"] | {"data": "digits"}, scales["paper"] | {"epochs": 402, "steps": 47_436}]
    for settings, notes in ((scales["paper"], 0), *((other, 1) for other in differ)):
        shown = mixture_mnist.present(ours, settings)
        assert len(shown.notes) == notes
        assert (shown.findings[1].status == "unknown") == bool(notes)


@pytest.mark.parametrize("start", [None, 0.01])
def test_the_variance_of_every_component_starts_as_asked_for(start, rng):
    config = {"model": "mfcvae", "latents": 4, "clusters": 3, "hidden": [8, 12], "shape": [1, 4, 4], "pretraining": 0}
    model = build_model(config | {"start_variance": start})
    start_mixtures(model, (rng.integers(0, 256, (200, 1, 4, 4), dtype=np.uint8),), seed=0, device="cpu")
    variances = np.concatenate([prior.log_variances.detach().exp().numpy() for _, prior in model.learned_mixtures()])
    assert np.allclose(variances, 0.01) == (start is not None)
    same = [bool(np.allclose(prior.logits.detach(), prior.logits[0].detach())) for _, prior in model.learned_mixtures()]
    assert same == [start is not None] * 2
    assert build_model(model.config()).start_variance == start
