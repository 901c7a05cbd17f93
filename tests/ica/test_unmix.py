import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence import ICA
from congruence.errors import NotConvergedWarning
from congruence.ica._contrasts import contrast_named
from congruence.ica._passes import Passes
from congruence.ica._unmixing import unmix, unmix_rows
from congruence.maps.matching import strong_mcc
from congruence.rows.engine import Rows
from congruence.rows.sums import run_sums


def spread(x):
    return run_sums(Rows(x), [np.arange(len(x))]).outside(None)


def components(x, ica):
    return (x - x.mean(0)) @ ica.unmixing.T


@pytest.fixture
def mixture(rng):
    sources = np.column_stack([rng.laplace(size=5000), rng.uniform(-1, 1, 5000), rng.exponential(size=5000)])
    return sources, sources @ rng.normal(size=(3, 3)) + 4


def test_independent_sources_are_recovered(mixture):
    sources, x = mixture
    ica = unmix(spread(x))
    assert ica.converged
    assert strong_mcc(components(x, ica), sources) > 0.999


def test_components_are_white_and_lead_back(mixture):
    _, x = mixture
    ica = unmix(spread(x))
    s = components(x, ica)
    assert_allclose(np.cov(s, rowvar=False, bias=True), np.eye(3), atol=1e-8)
    assert_allclose(s @ ica.mixing.T + x.mean(0), x, atol=1e-8)


def test_low_rank_gives_as_many_components_as_there_are_directions(mixture, rng):
    _, x = mixture
    wide = np.column_stack([x @ rng.normal(size=(3, 5)), np.zeros(len(x))]).astype(np.float32)
    ica = unmix(spread(wide))
    assert ica.k == 3
    assert_allclose(np.cov(components(wide.astype(float), ica), rowvar=False, bias=True), np.eye(3), atol=1e-5)


def test_the_same_seed_gives_the_same_components(mixture):
    _, x = mixture
    assert_allclose(unmix(spread(x), seed=3).unmixing, unmix(spread(x), seed=3).unmixing, atol=0)


def test_signs_of_the_axes_do_not_matter(mixture):
    _, x = mixture
    plain, turned = spread(x), spread(x)
    axes, singular = plain.axes
    turned.__dict__["axes"] = axes * [1, -1, -1], singular  # as rounding may have it
    assert_allclose(unmix(turned).unmixing, unmix(plain).unmixing, atol=0)


def test_one_dimension_needs_no_rotation(rng):
    ica = unmix(spread(rng.normal(size=(50, 1))))
    assert ica.converged
    assert_allclose(np.abs(ica.unmixing * ica.mixing), 1)


def test_noise_is_brought_to_rest_and_recorded(rng):
    found = unmix(spread(rng.normal(size=(200, 15))))
    assert found.noise.all()
    assert not found.identified.any()


def test_the_order_does_not_depend_on_what_other_starts_say(mixture):
    sources = mixture[0]
    source = Passes((sources - sources.mean(0)) / sources.std(0), np.zeros(3), np.eye(3), contrast_named("logcosh"))
    alone = unmix_rows(source, np.eye(3), begins=[np.eye(3)])
    for plane in ([0, 1], [0, 2], [1, 2]):
        astray = np.eye(3)
        astray[np.ix_(plane, plane)] = [[0.8, 0.6], [-0.6, 0.8]]
        joined = unmix_rows(source, np.eye(3), begins=[np.eye(3)], agreed=[astray])
        assert joined.identified.sum() == 1
        assert_allclose(joined.unmixing, alone.unmixing)


def test_reaching_the_cap_is_recorded(rng):
    found = unmix(spread(rng.normal(size=(200, 15))), max_iter=5)
    assert found.iterations == 5
    assert not found.converged


def test_components_that_still_turn_are_not_identified(rng):
    z = rng.laplace(size=(3000, 5)) @ rng.normal(size=(5, 5))
    with pytest.warns(NotConvergedWarning):
        early = ICA(starts=1, max_iter=1, random_state=0).fit(z)
    assert not early.identified_.all()
    assert ICA(starts=1, random_state=0).fit(z).identified_.all()
