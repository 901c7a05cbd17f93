"""The constants, the laws and the claims of `mnist-bilipschitz` follow the numbers, and the recipe runs."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.align._compare import compare
from congruence.errors import InputError
from congruence.experiments.recipes import reproduce, verify
from congruence.experiments.recipes._files import read_numbers
from congruence.experiments.recipes._isometry import (
    PairError,
    fit_factor,
    line_term,
    measure_nearness,
    relate_errors,
    root_term,
)
from congruence.experiments.recipes.mnist_bilipschitz import run as method
from congruence.experiments.recipes.mnist_bilipschitz.claims import (
    headline,
    judge,
    judge_curves,
    judge_digits,
    judge_linear_pairs,
    leak_table,
    linear_tables,
)
from congruence.experiments.recipes.mnist_bilipschitz.run import (
    AutoencoderPair,
    LeakExperiment,
    LinearPairs,
    keep_converged,
    local_constants,
    member_seed,
)
from congruence.maps.nearness import HeldOut

LEAKS = (0.3, 0.7, 1.0)
TINY = method.PARAMETERS["smoke"] | {"rows": 60, "test_rows": 50, "seeds": 2, "hidden": [8, 6, 3], "epochs": 2}
TINY |= {
    "leaks": [0.4, 1.0],
    "batch": 30,
    "at_once": 1,
    "digit_seeds": 1,
    "digit_rows": 20,
    "digit_test_rows": 30,
    "digit_batch": 20,
}


def pair(leak, seed=0, *, error=None, constant=None, reconstruction=(0.1, 0.1), digit=None):
    constant = 1 + 0.5 * (1 - leak) + 0.001 * seed * (leak < 1) if constant is None else constant
    error = 0.001 + 0.001 * seed + 0.1 * np.sqrt(constant**2 - 1) if error is None else error
    near = PairError(0.1, 0.1, HeldOut(error, error, error), 0.4)
    constants = dict.fromkeys(("mean", "max", "sampled_mean", "sampled_max"), constant)
    return AutoencoderPair(leak, seed, digit, reconstruction, near, constants)


def findings(pairs, kept=None):
    converged, limit = keep_converged(pairs, 1.0)
    return LeakExperiment(tuple(pairs), tuple(converged if kept is None else kept), limit, spread=1.0)


def good():
    return [pair(leak, seed) for leak in LEAKS for seed in range(4)]


def held(found):
    return [claim.status for claim in (*judge(found, 3), *judge_curves({"all digits": found}))]


def test_the_verdict_names_the_last_step_to_linear_networks():
    experiment = findings(
        [*(one for one in good() if one.leak < 1), *(pair(1.0, seed, error=0.5) for seed in range(4))]
    )
    first, law = headline(experiment, judge_curves({"all digits": experiment}))
    assert first.startswith("With leaks of 0.3, 0.7, 1 two trainings differ by ")
    assert ", 50.0 % of the diameter; with a leak of 1 decoders are isometries." in first
    assert law.startswith("With the mean constant over samples the term")


def test_the_exact_constant_is_that_of_the_singular_values_and_directions_find_less(rng):
    jacobian = np.stack([np.diag([1.2, 0.8]), np.diag([1.1, 1.0]), np.diag([0.5, 0.5])])
    exact, sampled = local_constants(jacobian**2, rng)
    assert_allclose(exact, [1.25, 1.1, 2.0])
    assert_allclose(root_term(exact[:1]), [0.75])
    assert (sampled <= exact + 1e-12).all()
    assert (sampled > 1).all()
    assert sampled[2] == pytest.approx(2)
    assert np.isinf(local_constants(np.diag([1.0, 0.0])[None], rng)[0]).all()


@pytest.mark.parametrize("group", ["rigid", "similarity"])
def test_nearness_is_that_of_compare(group, rng):
    x = rng.normal(size=(60, 3))
    y = x @ np.linalg.qr(rng.normal(size=(3, 3)))[0] + 0.1 * rng.normal(size=(60, 3))
    theirs = compare({"x": x, "y": y}, groups=(group,), nulls=5, bootstrap=100, seed=4)["x", "y"].groups[group]
    ours = measure_nearness(x, y, group, seed=4)[group]
    assert (ours.mean, ours.sup, ours.held_out, ours.null) == (theirs.mean, theirs.sup, theirs.held_out, theirs.null)


def test_a_law_is_found_where_it_holds():
    constants = np.linspace(1, 2, 30)
    for term, other, name in ((root_term, line_term, "root"), (line_term, root_term, "line")):
        errors = 0.3 * term(constants)
        assert_allclose(fit_factor(term(constants)[None], errors[None]), [[0.3], [1]])
        assert fit_factor(other(constants)[None], errors[None])[1] < 0.99
        found = relate_errors(constants, errors, 0)
        assert (found.root_better > 0.95) == (name == "root")
        assert found.rank.value == pytest.approx(1)
        assert (found.gain.low > 0) == (name == "root")


def test_errors_that_do_not_go_with_constants_prefer_no_law(rng):
    found = relate_errors(1 + rng.random(150), rng.random(150), 0)
    assert found.rank.low < 0 < found.rank.high
    assert relate_errors(np.arange(1.0, 30), np.arange(29.0), 0).rank.low > 0.9
    assert relate_errors(np.arange(1.0, 30), -np.arange(29.0), 0).rank.high < -0.9
    assert np.isnan(relate_errors(np.ones(3), np.ones(3), 0).rank).all()  # too few
    assert found.root_better > 0.05  # the root is flatter
    assert found.root[1] < 0.2


def test_the_filter_drops_what_reconstructs_worse_than_the_reference():
    pairs = [pair(1.0, seed, reconstruction=(0.1 + 0.01 * seed, 0.1)) for seed in range(4)]
    pairs += [pair(0.3, 0, reconstruction=(0.05, 0.2)), pair(0.3, 1, reconstruction=(0.05, 0.05))]
    kept, limit = keep_converged(pairs, 1.0)
    assert limit == pytest.approx(np.quantile([0.1, 0.11, 0.12, 0.13] + [0.1] * 4, 0.95))
    assert kept == [True, True, True, False, False, True]


def test_digits_are_held_against_themselves():
    pairs = [pair(1.0, 0, digit=0, reconstruction=(0.1, 0.1)), pair(1.0, 0, digit=1, reconstruction=(0.3, 0.3))]
    pairs += [pair(0.3, 0, digit=0, reconstruction=(0.2, 0.2)), pair(0.3, 0, digit=1, reconstruction=(0.2, 0.2))]
    assert keep_converged(pairs, 1.0)[0] == [True, True, False, True]


def test_all_claims_can_hold():
    assert held(findings(good())) == ["holds"] * 7
    assert judge_digits(findings(good())).status == "holds"


@pytest.mark.parametrize(
    ("change", "fallen"),
    [
        (lambda one: {"constant": 20.0} if one.leak == 0.3 and one.seed == 0 else {}, {0, 2}),
        (lambda one: {"constant": 1.5 - 0.2 * (1 - one.leak) if one.leak < 1 else 1.0}, {1}),
        (lambda one: {"error": 0.05 + 0.001 * one.seed}, {2, 3, 4, 5, 6}),
        (lambda one: {"error": 0.1 * one.leak + 0.001 * one.seed}, {2, 3, 4, 5, 6}),
        (lambda one: {"error": 0.1 + 0.001 * one.seed} if one.leak == 1 else {}, {2, 3, 4, 5, 6}),
        (lambda one: {"reconstruction": (0.01, 0.1)}, {4}),
        (lambda one: {"error": 0.1 * (one.constant["mean"] - 1) + 1e-5 * one.seed}, {5, 6}),  # the line
    ],
)
def test_a_claim_falls_with_its_numbers(change, fallen):
    pairs = [pair(one.leak, one.seed, **change(one)) for one in good()]
    found = held(findings(pairs))
    assert {i for i, status in enumerate(found) if status != "holds"} == fallen


def test_what_cannot_be_told_is_unknown():
    linear = findings(good(), kept=tuple(one.leak == 1 for one in good()))
    assert held(linear)[1:4] == ["unknown", "unknown", "unknown"]
    assert [row[2] for row in leak_table(linear, "x").rows] == ["0 of 4", "0 of 4", "4 of 4"]
    assert leak_table(linear, "x").rows[0][7].text == "–"


@pytest.mark.parametrize(
    ("errors", "controls", "status"),
    [
        ([0.009, 0.008, 0.01], [1e-5, 2e-5, 3e-5], "holds"),
        ([0.009, 0.008, 0.01], [0.009, 0.01, 0.008], "fails"),  # the controls differ as much
        ([0.009, 0.0001, 0.004], [1e-5, 2e-5, 3e-5], "ambiguous"),
        ([0.009], [1e-5], "unknown"),
    ],
)
def test_controls_of_linear_pairs_tell_the_optimisation_from_the_theory(errors, controls, status):
    trained, control = (LinearPairs(tuple(pair(1.0, error=one) for one in some), 0.5) for some in (errors, controls))
    linear = {"as trained": trained, "without early stopping": control, "from principal components": control}
    assert [one.status for one in judge_linear_pairs(linear, 0.1)] == [status] * 2
    assert [one.status for one in judge_linear_pairs({}, 0.1)] == ["unknown"] * 2  # an older result has no controls
    (table,) = linear_tables(linear)
    assert [row[0] for row in table.rows] == list(linear)
    assert not list(linear_tables({}))


def test_linear_pairs_that_start_at_principal_components_reach_them_exactly():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 10)) * np.linspace(3, 0.1, 10)
    trainings = method.PairTrainings(x, x, (None,), (np.arange(200),), (np.arange(200),), 2)
    directions = method.principal_directions({"hidden": [8, 6, 3]}, trainings)
    best = method.linear_error(trainings, directions)
    assert best == pytest.approx(np.square(np.linalg.svd(x)[1][3:]).sum() / x.size)
    options = {"widths": [10, 8, 6, 3], "epochs": 1, "batch": 200, "learning_rate": 1e-9, "device": "cpu"}
    measured = method.train_and_measure(trainings, [1.0], [0], 0, None, onto=directions, **options)
    assert_allclose(measured["error-0"], best, rtol=1e-4)
    errors = [one.error for one in method.measure_pairs(trainings, [1.0], measured, 0, lambda i, n: None)]
    assert max(errors) < 1e-5
    assert np.abs(measured["codes-0"][0] - measured["codes-0"][1]).max() > 0.1  # rotations differ


def test_every_member_has_a_seed_of_its_own():
    seeds = {member_seed(0, k, d, s, i) for k in range(6) for d in (None, *range(10)) for s in range(3) for i in (0, 1)}
    assert len(seeds) == 6 * 11 * 3 * 2


def test_the_recipe_gives_the_same_for_the_same_seed_and_goes_on_from_its_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(method, "PARAMETERS", {"smoke": TINY})
    for name in "ab":
        reproduce("mnist-bilipschitz", tmp_path / name, scale="smoke", seed=1, device="cpu")
    one, same = ((tmp_path / name / "result.json").read_text() for name in "ab")
    assert one == same
    result = json.loads(one)
    ours = read_numbers(tmp_path / "a")["ours"]
    assert len(ours["all digits"]["pairs"]) == 2 * 2
    assert len(ours["a model per digit"]["pairs"]) == 2 * 10
    assert len(result["findings"]) == 11
    assert verify(tmp_path / "a") == []
    assert {path.name for path in (tmp_path / "a").glob("*.svg")} == {
        one["file"] for one in result["numbers"]["figures"]
    }
    for path in (tmp_path / "a" / "parts").glob("all-*"):
        assert path.name in ("all-leak0.safetensors", "all-leak1.safetensors")

    monkeypatch.setattr(method, "train_and_measure", lambda *given, **options: pytest.fail("trained again"))
    (tmp_path / "a" / "table.md").unlink()
    reproduce("mnist-bilipschitz", tmp_path / "a", scale="smoke", seed=1, device="cpu")
    assert (tmp_path / "a" / "result.json").read_text() == one


def test_another_data_set_may_be_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(method, "PARAMETERS", {"small": TINY | {"data": "mnist", "digit_seeds": 0}})
    options = {"scale": "small", "device": "cpu"}
    done = reproduce("mnist-bilipschitz", tmp_path / "a", data="digits", **options)
    assert done.settings["data"] == "digits"
    assert "scikit-learn's digits" in done.notes[0]
    with pytest.raises(InputError, match="data must be one of 'mnist', 'digits'; got 'cats'"):
        reproduce("mnist-bilipschitz", tmp_path / "b", data="cats", **options)
    with pytest.raises(InputError, match="structural generates its own data, so data cannot be 'mnist'"):
        reproduce("statistical-versus-structural", tmp_path / "b", data="mnist", scale="smoke", device="cpu")
    monkeypatch.setenv("CONGRUENCE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="data set mnist not found in"):
        reproduce("mnist-bilipschitz", tmp_path / "b", **options)
