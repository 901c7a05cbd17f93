"""The claims about trainings with a mixture prior follow the numbers, and both recipes run."""

import json

import numpy as np
import pytest

from congruence.experiments.recipes import mixture_mnist, mixture_pinwheel, reproduce
from congruence.mixture import GaussianMixture
from congruence.mixture.agreement import LatentSpace, compare_spaces

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


def test_the_pinwheel_is_recovered_up_to_affine_maps():
    found = compare_spaces(spaces([np.eye(2), TURN, np.diag([2.0, 0.5])]))
    assert [claim.status for claim in mixture_pinwheel.judge(found)] == ["holds", "holds", "holds"]
    assert "nearly the same up to a linear map" in mixture_pinwheel.headline(found)[0]


def test_codes_that_are_not_alike_are_not_called_so():
    rng = np.random.default_rng(1)
    far = GaussianMixture.from_arrays([1.0], [[0.0, 0.0]], [0.01])
    one, two = LatentSpace("a", PRIOR.sample(300), PRIOR), LatentSpace("b", rng.normal(size=(300, 2)), far)
    claims = mixture_pinwheel.judge(compare_spaces([one, two]))
    assert claims[0].status == "fails"
    assert claims[2].status == "fails"
    assert "not the same" in mixture_pinwheel.headline(compare_spaces([one, two]))[0]


def test_without_a_density_the_distance_is_unknown():
    found = compare_spaces(spaces([np.eye(2), TURN], priors=False))
    assert mixture_pinwheel.judge(found)[2].status == "unknown"


def test_claims_about_mnist_follow_the_mcc():
    turned, same = compare_spaces(spaces([np.eye(2), TURN], 0.3)), compare_spaces(spaces([np.eye(2), np.eye(2)], 0.01))
    nearer, printed, leaky, _ = judged(turned, same)
    assert (printed.status, leaky.status) == ("fails", "holds")
    assert nearer.status != "holds"  # as they are, the second pair is as near as up to a map
    assert judged(same, turned)[2].status == "fails"


def judged(relu, leaky_relu, facets=(), states=()):
    """The claims about MNIST where both activations have these facets, whose codes separate so many states."""
    names = "relu", "leaky_relu"
    counts = np.array([states, states], dtype=float)
    return mixture_mnist.judge(
        dict(zip(names, (relu, leaky_relu), strict=True)), dict.fromkeys(names, facets), dict.fromkeys(names, counts)
    )


def test_the_facet_with_the_richer_mixture_should_be_the_more_stable_one():
    rough, fine = (compare_spaces(spaces([np.eye(2), TURN], noise)) for noise in (3.0, 0.1))
    claims = [judged(fine, fine, (rough, fine), states)[3] for states in ((1.0, 15.0), (15.0, 1.0))]
    assert [claim.status for claim in claims] == ["holds", "fails"]
    assert "1.00 components separated, weak MCC held out" in claims[0].evidence


def test_the_pinwheel_recipe_writes_its_result(tmp_path, monkeypatch):
    tiny = {"rows": 200, "runs": 2, "steps": 4, "pretraining": 4, "shown": 60, "beside": ["ivae"], "arms": 3}
    tiny |= {"hidden": [6], "noise": 0.2, "batch": 50, "learning_rate": 1e-3}
    monkeypatch.setattr(mixture_pinwheel, "PARAMETERS", {"smoke": tiny})
    reproduce("mixture-pinwheel", tmp_path / "a", scale="smoke", device="cpu")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert len(result["numbers"]["ours"]["vade"]["pairs"]) == 2
    assert len(result["numbers"]["ours"]["ivae"]["states"]) == 2
    assert "swapped" in result["notes"][0]
    assert "0.87, printed as weak" in (tmp_path / "a" / "table.md").read_text()
    assert (tmp_path / "a" / "spaces.svg").exists()


def test_the_mnist_recipe_runs_on_digits(tmp_path, monkeypatch):
    tiny = {"data": "digits", "rows": 120, "test_rows": 80, "runs": 2, "hidden": [8, 8], "steps": 3, "batch": 40}
    tiny |= {"learning_rate": 1e-3, "fade": 2, "pretraining": 2, "latents": 4, "facets": 2, "clusters": 3}
    monkeypatch.setattr(mixture_mnist, "PARAMETERS", {"smoke": tiny})
    said = []
    reproduce("mixture-mnist", tmp_path / "a", scale="smoke", device="cpu", announce=said.append)
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert said == ["4 trainings of 3 steps on digits, on cpu"]
    assert result["numbers"]["paper"]["MCC"]["relu"] == {"strong": 0.7, "weak": 0.91}
    assert [len(result["numbers"]["ours"][name]["active"]) for name in ("relu", "leaky_relu")] == [2, 2]
    assert [len(result["numbers"]["ours"][name]["weak_by_facet"]) for name in ("relu", "leaky_relu")] == [2, 2]
    assert "Each facet alone" in (tmp_path / "a" / "table.md").read_text()
    assert (tmp_path / "a" / "mcc.svg").exists()
