"""What is said of a decoder as a whole follows its numbers and its latents."""

import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence import diameter
from congruence.decoder import examine
from congruence.errors import InputError
from congruence.report import render_decoder, write_decoder_report

torch = pytest.importorskip("torch")


def turned(z):
    return torch.cat([z, 0 * z[:, :1]], 1)


def status(result):
    return [premise.status for premise in result.premises]


def test_an_isometry_is_promised_a_rigid_motion(rng):
    z = rng.uniform(size=(400, 3))
    result = examine(turned, z)
    assert "a rigid motion apart, up to 0 % of the diameter" in result.verdict
    assert_allclose(result.diameter, diameter(z).value)
    assert status(result) == ["unknown", "unknown", "unknown"]


def test_a_bent_decoder_gets_a_vacuous_bound(rng):
    result = examine(lambda z: torch.cat([z, z**2], 1), rng.uniform(size=(50, 3)))
    assert result.bound.vacuous
    assert "vacuous" in result.verdict
    assert "<strong>vacuous</strong>" in render_decoder(result)


def test_latents_with_a_hole_are_not_convex(rng):
    angle = rng.uniform(0, 2 * math.pi, size=600)
    assert status(examine(turned, np.column_stack([np.cos(angle), np.sin(angle)])))[0] == "fails"
    assert status(examine(turned, rng.uniform(size=(600, 2))))[0] == "unknown"
    assert status(examine(turned, rng.normal(size=(600, 20))))[0] == "unknown"
    assert status(examine(turned, rng.uniform(size=(5, 2))))[0] == "unknown"


def test_two_latents_with_the_same_output_speak_against_injectivity():
    def rolled(z):
        return torch.cat([torch.cos(2 * math.pi * z), torch.sin(2 * math.pi * z)], 1)

    steps = np.arange(-12, 13)[:, None]
    assert status(examine(rolled, 0.25 * steps))[1] == "fails"  # some rows are whole turns apart
    assert status(examine(rolled, 0.2514 * steps))[1] == "unknown"  # no two are


@pytest.mark.parametrize(("noise", "expected"), [(0.0, "holds"), (0.02, "unknown"), (0.3, "fails")])
def test_outputs_of_another_training_are_compared(noise, expected, rng):
    z = rng.uniform(size=(200, 2))
    moved = z[:, ::-1] + noise * rng.uniform(-1, 1, size=z.shape)
    result = examine(turned, z, other=(lambda w: turned(w.flip(1)), moved.copy()))
    assert status(result)[2] == expected


def test_another_training_must_have_the_same_rows(rng):
    z = rng.normal(size=(20, 2))
    with pytest.raises(InputError, match="it has 10 rows and 3 outputs, not 20 and 3"):
        examine(turned, z, other=(turned, z[:10]))


def test_a_lost_direction_is_the_verdict(rng):
    result = examine(lambda z: z[:, :1] + 0 * z, rng.normal(size=(20, 2)))
    assert "loses a direction at 20 of 20 points" in result.verdict
    assert "∞" in render_decoder(result)


def test_latents_that_are_one_point_have_no_bound():
    result = examine(turned, np.ones((3, 2)))
    assert result.bound is None
    assert "nothing to bound" in result.verdict
    assert "nothing to bound" in render_decoder(result)


def test_the_diameter_and_the_constant_can_be_given(rng):
    result = examine(lambda z: 1.1 * turned(z), rng.normal(size=(30, 2)), diameter=5.0, constant=0.01)
    assert (result.bound.diameter, result.diameter_from) == (5.0, "given")
    assert_allclose(result.bound.epsilon, 0.01 * math.sqrt(0.21) * 5)


def test_results_are_written_the_same_each_time(rng, tmp_path):
    z = rng.normal(size=(60, 3))
    one, two = (examine(lambda z: torch.tanh(turned(z)), z, settings={"decoder": "a:b"}) for _ in range(2))
    assert one.to_json() == two.to_json()
    assert json.loads(one.to_json())["theorem1"]["certified"] is False
    write_decoder_report(one, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == render_decoder(two)
    assert "a lower estimate" in render_decoder(one)
