"""Squares that move and grow: closed form, quadrature, pictures and oracle agree."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from congruence.decoder import bilipschitz
from congruence.errors import InputError
from congruence.experiments.data.sprite_decoders import (
    sprite_constant,
    sprite_decoder,
    sprite_metric,
    sprite_metric_by_quadrature,
)

ORACLE = json.loads((Path(__file__).parents[2] / "oracles" / "theory.json").read_text())["sprite"]


def test_the_closed_form_agrees_with_the_oracle():
    for row in ORACLE["rows"]:
        found = sprite_metric(row["r"], row["sigma"])
        assert_allclose(found.position, row["closed_pp"], rtol=1e-9)
        # what follows was summed on a grid, which is good to 1e-6
        assert_allclose([found.position, found.size], [row["g_pp"], row["g_rr"]], rtol=1e-6)
        assert_allclose(found.position / found.unit, row["g_pp_over_C"], rtol=1e-6)


def test_the_constants_agree_with_the_oracle():
    for row in ORACLE["bilip"]:
        found = sprite_constant(row["rmin"], row["rmax"])
        assert_allclose([found.rescaled, found.raw], [row["Lambda_rescaled"], row["Lambda_raw"]], rtol=1e-6)


@given(st.floats(0.05, 0.5), st.floats(0.002, 0.2), st.floats(-1, 1))
def test_quadrature_agrees_with_the_closed_form_at_every_position(r, s, p):
    closed, summed = sprite_metric(r, s), sprite_metric_by_quadrature(r, s, p)
    assert_allclose([summed.position, summed.size], [closed.position, closed.size], rtol=1e-9)
    assert abs(summed.mixed) < 1e-9 * closed.size


def test_sharp_edges_have_speed_two_roots_of_r_and_not_two_r():
    for r in (0.1, 0.2, 0.4):
        found = sprite_metric(r, 1e-6)
        assert_allclose(found.speed, 2 * math.sqrt(r), rtol=1e-4)
        assert_allclose(found.stretch, 2 * math.sqrt(r), rtol=1e-4)
        assert abs(found.speed - 2 * r) > 0.2


def test_smoothing_vanishes_from_the_constant():
    sharp = sprite_constant(0.1, 0.4)
    gaps = [abs(sprite_constant(0.1, 0.4, s).rescaled - sharp.rescaled) for s in (0.03, 0.01, 0.001)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-2


def test_pictures_have_the_stretch_of_the_closed_form():
    pytest.importorskip("torch")
    sizes = np.linspace(0.15, 0.4, 6)
    z = np.column_stack([np.linspace(-0.2, 0.2, 6), math.sqrt(2) * sizes])
    found = bilipschitz(sprite_decoder(64, 0.05), z)
    expected = np.array([sprite_metric(r, 0.05).stretch for r in sizes])
    assert_allclose(found.s_min, expected[:, 0], rtol=1e-6)
    assert_allclose(found.s_max, expected[:, 1], rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sprite_metric(0.0, 0.1), "half_side must be a finite number above 0; got 0.0"),
        (lambda: sprite_metric(0.1, -1.0), "sigma must be a finite number above 0"),
        (lambda: sprite_constant(0.4, 0.1), "smallest must be at most largest"),
    ],
)
def test_squares_that_are_none_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
