import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError
from congruence.ica.latents import WAYS, latent_components
from congruence.maps.matching import strong_mcc


@pytest.fixture
def sources(rng):
    return rng.uniform(-1, 1, size=(3000, 2))


def latents(sources, rng, *, mean=0.0, idle=2, scale=1.0):
    """Two sources in four latents: rotated, the rest hardly varies."""
    rotation = np.linalg.qr(rng.normal(size=(2 + idle, 2 + idle)))[0]
    noise = 1e-4 * rng.normal(size=(len(sources), idle))
    return scale * np.column_stack([sources, noise]) @ rotation + mean


@pytest.mark.parametrize("way", WAYS)
def test_sources_that_were_rotated_are_found_beside_idle_latents(way, sources, rng):
    codes = latents(sources, rng)
    found = latent_components(codes, way=way)
    parts = found.transform(codes)
    assert found.converged
    size = np.abs(np.corrcoef(sources, parts, rowvar=False)[:2, 2:])
    assert (size.max(0) > 0.99).all()  # without whitening a source may lie on several axes, each for it alone
    assert (size.max(1) > 0.99).all()
    assert found.k == (2 if way == "whitened" else 4)
    assert_allclose(found.unmixing @ found.mixing, np.eye(found.k), atol=1e-8)


def test_without_whitening_latents_are_only_rotated(sources, rng):
    codes = latents(sources, rng, mean=3.0)
    for way in ("centred", "as is"):
        found = latent_components(codes, way=way)
        assert_allclose(found.unmixing @ found.unmixing.T, np.eye(4), atol=1e-8)
    assert_allclose(latent_components(codes).transform(codes).mean(0), 0, atol=1e-9)


def test_neither_mean_nor_scale_matter_where_latents_are_centred_and_the_mean_does_where_not(sources, rng):
    codes = latents(sources, rng, idle=0)
    moved = 40 * codes + [300.0, -100.0]
    here, there = (latent_components(one).transform(one) for one in (codes, moved))
    assert strong_mcc(here, there) > 0.999
    assert strong_mcc(sources, there) > 0.99
    assert strong_mcc(sources, latent_components(moved, way="as is").transform(moved)) < 0.9


def test_whitening_leaves_out_what_hardly_varies_and_brings_the_rest_to_one_size(sources, rng):
    codes = latents(sources * [1.0, 0.2], rng, mean=5.0)
    found = latent_components(codes, way="whitened")
    assert found.k == 2
    assert_allclose(found.transform(codes).std(0), 1, atol=1e-3)
    assert latent_components(codes, way="whitened", least=0.5).k == 1


@pytest.mark.parametrize(
    ("codes", "options", "words"),
    [(np.ones((9, 2)), {}, "all codes are equal"), (np.eye(5), {"way": "no"}, "way must be one of .centred., .as is.")],
)
def test_what_has_no_components_is_refused(codes, options, words):
    with pytest.raises(InputError, match=words):
        latent_components(codes, **options)
