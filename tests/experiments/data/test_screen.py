"""The simulated screen keeps the laws that its docstring states, and its mixing the bound it promises."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import kurtosis

from congruence.errors import InputError
from congruence.experiments.data._mixing import draw_mixing
from congruence.experiments.data.screen import GENES, simulate_screen


@pytest.fixture(scope="module")
def screen():
    return simulate_screen(12_000, 32, 40, 0.0, 3, share=0.02)


def test_a_screen_says_of_every_row_what_was_done_and_where(screen):
    assert screen.x.shape == (12_000, 32)
    assert screen.x.dtype == np.float32
    assert screen.biology.shape[1] + screen.technical.shape[1] == len(screen.names)
    assert len(np.unique(screen.plate)) == 40
    assert_array_equal(screen.is_control, screen.gene == "control")
    assert_array_equal(screen.is_control, screen.guide == "control")
    counts = {gene: len(np.unique(screen.guide[screen.gene == gene])) for gene in screen.genes}
    assert counts == {gene: guides for gene, (guides, *_) in GENES.items()}
    assert {(screen.guide == guide).sum() for guide in screen.guides} == {240}


def test_a_tenth_of_the_plates_holds_controls_only(screen):
    only = [plate for plate in np.unique(screen.plate) if screen.is_control[screen.plate == plate].all()]
    assert len(only) == 4


def test_each_gene_shifts_its_own_factors_and_no_others(screen):
    genes = np.array([guide.rsplit("_guide_", 1)[0] for guide in screen.guides])
    owners = [np.flatnonzero(screen.effects[genes == gene].any(0)) for gene in screen.genes]
    assert [len(factors) for factors in owners] == [factors for _, factors, _ in GENES.values()]
    assert len({factor for factors in owners for factor in factors}) == sum(map(len, owners))
    controls = screen.biology[screen.is_control]
    error = controls.std(0) * np.sqrt(1 / 240 + 1 / len(controls))
    for guide, effect in zip(screen.guides, screen.effects, strict=True):
        seen = screen.biology[screen.guide == guide].mean(0) - controls.mean(0)
        z = (seen - 0.8 * effect) / error  # a fifth does not respond
        assert np.abs(z[effect == 0]).max() < 4.5
        assert np.abs(z[effect != 0]).max() < 6  # responses differ, which widens the error


def test_plates_move_technical_factors_and_leave_biology_alone(screen):
    where = np.unique(screen.plate[screen.is_control], return_inverse=True)[1]

    def explained(factor):
        means = np.bincount(where, factor) / np.bincount(where)
        return np.var(means[where]) / np.var(factor)

    assert min(explained(factor) for factor in screen.technical[screen.is_control].T) > 0.1
    assert max(explained(factor) for factor in screen.biology[screen.is_control].T) < 0.015


def test_factors_are_not_gaussian(screen):
    controls = screen.biology[screen.is_control]
    assert (np.abs(kurtosis(controls)) > 0.5).all()


def test_with_the_dial_at_0_the_mixing_is_a_rotation(screen):
    z = np.random.default_rng(0).normal(size=(50, 32))
    mixing = screen.mixing
    assert_allclose(np.linalg.norm(mixing(z), axis=1), np.linalg.norm(z, axis=1), rtol=1e-5)
    assert mixing.bound == 1


@pytest.mark.parametrize("dial", [0.1, 0.4, 0.8])
def test_no_distance_is_changed_by_more_than_the_bound(dial, rng):
    mixing = draw_mixing(24, dial, 1)
    x, y = rng.normal(size=(2, 2000, 24))
    near = x + 0.01 * y
    ratio = np.linalg.norm(mixing(near) - mixing(x), axis=1) / np.linalg.norm(0.01 * y, axis=1)
    assert ratio.max() <= (1 + dial) ** 4
    assert ratio.min() >= 1 / mixing.bound
    assert ratio.max() / ratio.min() > 1 + dial / 2  # and it is no isometry


def test_constants_are_those_of_the_map(rng):
    mixing = draw_mixing(24, 0.5, 1)
    z, step = rng.normal(size=(3, 24)), 0.02
    for row, constant in zip(z, mixing.constants(z), strict=True):
        ahead, behind = (mixing(row + sign * step * np.eye(24)) for sign in (1, -1))
        stretches = np.linalg.svd((ahead - behind) / (2 * step), compute_uv=False)
        assert_allclose(constant, max(stretches[0], 1 / stretches[-1]), rtol=2e-3)
    assert mixing.constants(z).max() < mixing.bound
    assert_allclose(draw_mixing(24, 0.0, 1).constants(z), 1, rtol=1e-12)


def test_screens_of_several_dials_differ_in_the_dial_alone():
    one, two = (simulate_screen(2000, 24, 10, dial, 5, share=0.02) for dial in (0.0, 0.5))
    assert_array_equal(one.biology, two.biology)
    assert_array_equal(one.guide, two.guide)
    assert_array_equal(one.mixing.rotation, two.mixing.rotation)
    assert np.abs(one.x - two.x).mean() > 0.1


def test_the_same_seed_gives_the_same_screen_and_another_another():
    one, same, other = (simulate_screen(500, 24, 5, 0.2, seed, share=0.02) for seed in (1, 1, 2))
    assert_array_equal(one.x, same.x)
    assert np.abs(one.x - other.x).mean() > 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d": 8}, "d must be an integer from 24 to 4096"),
        ({"plates": 1}, "plates must be an integer of at least 2"),
        ({"plates": 600}, "n must be an integer from 600 to"),
        ({"dial": -0.1}, "dial must be a finite number at least 0; got -0.1"),
        ({"dial": float("nan")}, "dial must be a finite number"),
        ({"share": 0}, "share must be a number above 0 and at most 1; got 0"),
        ({"share": 0.07}, "share must be small enough for 16 guides and controls, such as 0.02; got 0.07"),
        ({"seed": -1}, "seed must be an integer from 0 to"),
    ],
)
def test_a_screen_that_cannot_be_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        simulate_screen(**{"n": 500, "d": 24, "plates": 10} | options)
