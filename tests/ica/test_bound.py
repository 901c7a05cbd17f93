import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError
from congruence.ica.bound import theorem2, theorem2_for
from congruence.ica.estimator import ICA
from congruence.stats.matching import signed_permutation

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "theory.json").read_text())["theorem2"]


@pytest.mark.parametrize("row", ORACLE["rows"])
def test_constants_agree_with_the_oracle(row):
    given, expected = row["input"], row["output"]
    found = theorem2(
        given["eps"],
        diameter=given["Delta"],
        smallest_variance=given["lam"],
        dimension=given["D"],
        curvature=given["gamma"],
        singular_values=(given.get("smin", 1.0), given.get("smax", 1.0)),
    )
    assert_allclose(
        [found.whitening, found.linear, found.quadratic, found.bound],
        [expected["K6"], expected["K"], expected["Kprime"], expected["eps_prime"]],
        rtol=1e-12,
    )


def test_the_bound_holds_for_a_fitted_pair_and_is_loose(rng):
    x = rng.uniform(-1, 1, size=(4000, 3)) * [1.0, 1.5, 2.0]
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    y = x @ turn + 1e-5 * rng.uniform(-1, 1, size=x.shape)
    bound = theorem2_for(x, y)
    s, t = ICA(random_state=0).fit_transform(x), ICA(random_state=0).fit_transform(y)
    distance = np.linalg.norm(s @ signed_permutation(s.T @ t) - t, axis=1).max()
    assert 0 < distance < bound.bound / 5
    finding = bound.finding
    assert (finding.name, finding.status, finding.basis) == ("theorem_2", "holds", "supported")
    assert (finding.number, finding.null) == (bound.bound, bound.trivial)


def test_a_bound_above_the_trivial_one_concludes_nothing(rng):
    x = rng.laplace(size=(500, 3))
    finding = theorem2_for(x, x + 0.5 * rng.normal(size=x.shape)).finding
    assert (finding.status, finding.basis) == ("unknown", "premise fails")
    assert [p.name for p in finding.premises if p.status == "fails"] == ["informative"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"curvature": 0.0}, "curvature"),
        ({"smallest_variance": 0.0}, "smallest_variance"),
        ({"contrast": "cube"}, "bounded derivatives"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused(change, message):
    given = {"epsilon": 0.1, "diameter": 1.0, "smallest_variance": 1.0, "dimension": 2, "curvature": 1.0} | change
    with pytest.raises(InputError, match=message):
        theorem2(**given)


def test_runs_that_are_flat_or_of_different_width_are_refused(rng):
    x = rng.normal(size=(50, 3))
    with pytest.raises(InputError, match="vary in every direction"):
        theorem2_for(x * [1, 1, 0], x)
    with pytest.raises(InputError, match="same width"):
        theorem2_for(x, x[:, :2])
