"""`assert_congruent` passes, or says in an AssertionError what changed and by how much."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from congruence.errors import InputError
from congruence.testing import assert_congruent, save_baseline


@pytest.fixture(scope="module")
def old():
    return np.random.default_rng(0).laplace(size=(300, 4))


@pytest.fixture(scope="module")
def rotated(old):
    return old @ ortho_group.rvs(4, random_state=0)


def test_it_returns_the_result_where_nothing_changed(old, tmp_path):
    save_baseline(old, tmp_path / "b.safetensors", rows=100)
    for baseline in (old, tmp_path / "b.safetensors", str(tmp_path / "b.safetensors")):
        result = assert_congruent(old.astype(np.float32), baseline)
        assert result.status == "holds"
        assert [gate["exceeded"] for gate in result.settings["gates"]] == [False]


def test_it_names_the_verdict_and_the_numbers(old, rotated):
    with pytest.raises(AssertionError) as raised:
        assert_congruent(rotated, old)
    text = str(raised.value)
    assert text.startswith("the embeddings are not those of the baseline (status fails, allow 'identity')\n")
    assert "The embeddings changed. The difference is only a rotation." in text
    assert "\n  similarity: " in text
    assert "of chance, R² 1.0000" in text


def test_a_limit_decides_instead_of_the_verdict(old, rotated):
    noisy = rotated + 0.3 * np.random.default_rng(1).normal(size=old.shape)
    assert assert_congruent(noisy, old, similarity=0.3).settings["allow"] == "similarity"
    assert_congruent(noisy, old, fail_above={"similarity.r2": 0.9})
    with pytest.raises(AssertionError, match=r"similarity: the held-out error as a share of chance is 0\.\d+, above"):
        assert_congruent(noisy, old, similarity=0.1)
    with pytest.raises(AssertionError, match="status is ambiguous, which is among --fail-on fails,ambiguous"):
        assert_congruent(noisy, old, similarity=0.3, fail_on=["fails", "ambiguous"])


def test_unknown_fails_unless_it_is_allowed():
    x = np.random.default_rng(0).normal(size=(30, 64))
    turned = x @ ortho_group.rvs(64, random_state=0)
    with pytest.raises(AssertionError, match="There are too few rows to decide"):
        assert_congruent(turned, x, similarity=2)
    assert assert_congruent(turned, x, similarity=2, allow_unknown=True).status == "unknown"


def test_wrong_arguments_are_refused(old):
    with pytest.raises(TypeError, match="unexpected keyword argument 'similarty'; known are the groups identity, "):
        assert_congruent(old, old, similarty=0.3)
    with pytest.raises(InputError, match="--fail-above takes GROUP=LIMIT such as similarity=0.3"):
        assert_congruent(old, old, similarity="much")
    with pytest.raises(InputError, match="--fail-on must be"):
        assert_congruent(old, old, fail_on=["failed"])
