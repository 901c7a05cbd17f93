"""What is said about a decoder as a whole follows its numbers and its latents."""

import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence import diameter
from congruence.decoder import examine_decoder
from congruence.errors import InputError, UnknownKeyError
from congruence.report.html import render_html
from congruence.tables import Table

torch = pytest.importorskip("torch")


def turned(z):
    return torch.cat([z, 0 * z[:, :1]], 1)


def page(result):
    return render_html(result.document())


def test_an_isometry_is_guaranteed_a_rigid_motion_if_its_premises_hold(rng):
    z = rng.uniform(size=(400, 3))
    result = examine_decoder(turned, z)
    assert "differ by a rigid motion, up to 0 % of the diameter" in result.verdict
    assert_allclose(result.diameter, diameter(z).value)
    assert {name: finding.status for name, finding in result.parts().items()} == {
        "theorem1": "unknown",
        "bi_lipschitz": "holds",
        "convex": "unknown",
        "injective": "unknown",
        "agreement": "unknown",
    }
    assert (result.theorem1.number, result.status, result.theorem1.basis) == (0.0, "unknown", "not refuted")


def test_a_bent_decoder_gets_a_vacuous_bound(rng):
    result = examine_decoder(lambda z: torch.cat([z, z**2], 1), rng.uniform(size=(50, 3)))
    assert result.bound.vacuous
    assert result.theorem1.number >= result.theorem1.null
    assert "vacuous" in result.verdict
    assert "<strong>The bound is vacuous" in page(result)


def test_latents_with_a_hole_are_not_convex(rng):
    def convex(z):
        return examine_decoder(turned, z)["convex"].status

    angle = rng.uniform(0, 2 * math.pi, size=600)
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    assert convex(ring) == "fails"
    assert convex(rng.uniform(size=(600, 2))) == "unknown"
    assert convex(rng.normal(size=(600, 20))) == "unknown"
    assert convex(rng.uniform(size=(5, 2))) == "unknown"


def test_a_premise_that_fails_leaves_the_conclusion_unknown(rng):
    angle = rng.uniform(0, 2 * math.pi, size=600)
    result = examine_decoder(turned, np.column_stack([np.cos(angle), np.sin(angle)]))
    assert (result.status, result.theorem1.basis) == ("unknown", "premise fails")
    assert "a premise is refuted" in page(result)


def test_two_latents_with_the_same_output_speak_against_injectivity():
    def rolled(z):
        return torch.cat([torch.cos(2 * math.pi * z), torch.sin(2 * math.pi * z)], 1)

    steps = np.arange(-12, 13)[:, None]
    assert examine_decoder(rolled, 0.25 * steps)["injective"].status == "fails"  # some rows are whole turns apart
    assert examine_decoder(rolled, 0.2514 * steps)["injective"].status == "unknown"  # no two are


@pytest.mark.parametrize(("noise", "expected"), [(0.0, "holds"), (0.02, "unknown"), (0.3, "fails")])
def test_outputs_of_another_training_are_compared(noise, expected, rng):
    z = rng.uniform(size=(200, 2))
    moved = z[:, ::-1] + noise * rng.uniform(-1, 1, size=z.shape)
    result = examine_decoder(turned, z, other=lambda w: turned(w.flip(1)), other_latents=moved.copy())
    assert result["agreement"].status == expected


def test_another_training_is_paired_by_id_where_both_have_ids(rng):
    z, ids = rng.uniform(size=(50, 2)), np.array([f"r{i}" for i in range(50)])
    order = rng.permutation(50)
    shuffled = Table(z[order], "codes", ids=ids[order])
    result = examine_decoder(turned, Table(z, "z", ids=ids), other=turned, other_latents=shuffled)
    assert result["agreement"].status == "holds"


def test_another_training_must_have_the_same_rows_and_outputs(rng):
    z = rng.normal(size=(20, 2))
    with pytest.raises(InputError, match="other_latents must have a row for each of 20 rows of latents; got 10"):
        examine_decoder(turned, z, other=turned, other_latents=z[:10])
    with pytest.raises(InputError, match="other must have 20 rows and 3 outputs, like decoder; got 20 and 2"):
        examine_decoder(turned, z, other=lambda w: w, other_latents=z)
    with pytest.raises(InputError, match="other and other_latents must be set together"):
        examine_decoder(turned, z, other=turned)


def test_a_lost_direction_is_the_verdict(rng):
    result = examine_decoder(lambda z: z[:, :1] + 0 * z, rng.normal(size=(20, 2)))
    assert "loses a direction at 20 of 20 points" in result.verdict
    assert (result["bi_lipschitz"].status, result.theorem1.basis) == ("fails", "premise fails")
    assert "∞" in page(result)


def test_latents_that_are_one_point_have_no_bound():
    result = examine_decoder(turned, np.ones((3, 2)))
    assert result.bound is None
    assert result.numbers()["theorem1"] is None
    assert "nothing to bound" in result.verdict
    assert "nothing to bound" in page(result)


def test_the_diameter_and_the_constant_can_be_given(rng):
    result = examine_decoder(lambda z: 1.1 * turned(z), rng.normal(size=(30, 2)), diameter=5.0, constant=0.01)
    assert (result.bound.diameter, result.diameter_from) == (5.0, "given")
    assert_allclose(result.bound.epsilon, 0.01 * math.sqrt(0.21) * 5)
    with pytest.raises(InputError, match="diameter must be 'auto' or a number above 0; got -1"):
        examine_decoder(turned, rng.normal(size=(30, 2)), diameter=-1)


def test_files_tensors_frames_and_arrays_give_the_same(rng, tmp_path):
    pandas = pytest.importorskip("pandas")
    z = rng.normal(size=(40, 3))
    np.save(tmp_path / "z.npy", z)
    constants = [
        examine_decoder(turned, given).stretch.constant
        for given in (z, torch.as_tensor(z), pandas.DataFrame(z), tmp_path / "z.npy", Table(z, "z"))
    ]
    assert_allclose(constants, constants[0])
    images = rng.normal(size=(10, 2, 3))
    assert examine_decoder(lambda w: w.flatten(1), images).stretch.dimension == 6


def test_rows_with_missing_values_are_refused_or_left_out(rng, tmp_path):
    z = rng.normal(size=(40, 3))
    z[7, 1] = np.nan
    np.save(tmp_path / "z.npy", z)
    for given in (z, tmp_path / "z.npy"):
        with pytest.raises(InputError, match="NaN"):
            examine_decoder(turned, given)
        result = examine_decoder(turned, given, drop_missing=True)
        assert result.stretch.n == 39
        assert result.notes[0] == "1 of 40 rows have NaN or infinite values and were left out."


def test_results_are_written_the_same_each_time(rng, tmp_path):
    z = rng.normal(size=(60, 3))
    one, two = (examine_decoder(lambda z: torch.tanh(turned(z)), z) for _ in range(2))
    assert one.to_json() == two.to_json()
    assert json.loads(one.to_json())["numbers"]["theorem1"]["certified"] is False
    one.report(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page(two)
    assert "a lower estimate" in page(one)
    assert len(one.to_frame()) == 60


def test_the_main_figure_and_the_terminal_page(rng):
    pytest.importorskip("matplotlib").use("agg")
    result = examine_decoder(lambda z: torch.tanh(turned(z)), rng.normal(size=(60, 3)))
    assert result.plot().get_xlabel() == "bi-Lipschitz constant (log)"
    for part in ("95th percentile", "form of the paper", "The latents fill a convex set.", "note: Only 60 points"):
        assert part in str(result)
    with pytest.raises(UnknownKeyError, match="there is no 'smooth'"):
        result["smooth"]
