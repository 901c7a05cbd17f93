import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError
from congruence.ica.components import independent_components


def test_rows_without_any_component_are_all_used(rng):
    found = independent_components(rng.normal(size=(9000, 5)), rows="auto")
    assert found.unmixing.reason == "gaussian"
    assert found.unmixing.n == 9000
    assert found.rows is None
    assert found.error_left == np.inf


def test_the_rows_that_decided_are_known(rng):
    x = rng.laplace(size=(9000, 3)) @ rng.normal(size=(3, 3))
    found = independent_components(x, rows="auto")
    assert found.unmixing.n == len(found.rows) == len(set(found.rows)) < 9000
    everything = independent_components(x).unmixing.unmixing
    assert_allclose(np.abs(np.linalg.solve(everything.T, found.unmixing.unmixing.T)).max(0), 1, atol=0.05)


@pytest.mark.parametrize("number", ["3", 0, 1.5, True])
def test_a_number_of_given_rows_to_keep_must_be_one(number, rng):
    with pytest.raises(InputError, match="with whiten=False n_components must be a positive integer or None"):
        independent_components(rng.laplace(size=(100, 3)), whiten=False, n_components=number)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_tensors_give_what_arrays_give(dtype, rng):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(rng.laplace(size=(2000, 3))).to(getattr(torch, dtype))
    tensor = independent_components(x).unmixing.unmixing
    assert_allclose(tensor, independent_components(x.double().numpy()).unmixing.unmixing, atol=1e-5)
