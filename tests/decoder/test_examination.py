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
        "theorem1_similarity": "unknown",
        "bi_lipschitz": "holds",
        "convex": "unknown",
        "injective": "unknown",
        "other": "unknown",
        "agreement": "unknown",
    }
    assert result["bi_lipschitz"].basis == "supported"
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


ROTATION = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0][:, :4]


def embedded(z):
    return z @ torch.as_tensor(ROTATION.T)


def test_the_constants_of_the_other_decoder_count_as_well(rng):
    """Equal reconstructions and an isometry, but the other training twists its codes."""
    twist = np.diag([20.0, 1.0, 1.0, 0.05])
    z = rng.uniform(-1, 1, size=(300, 4))
    result = examine_decoder(
        embedded, z, other=lambda w: embedded(w @ torch.as_tensor(twist)), other_latents=z @ np.linalg.inv(twist)
    )
    assert result["agreement"].status == "holds"
    assert result.other.constant == pytest.approx(20)
    assert (result["other_bi_lipschitz"].number, result["theorem1"].status) == (pytest.approx(20), "unknown")
    assert result.bounds["rigid"].other == pytest.approx(20)
    assert "vacuous" in result.verdict
    assert "differ by a rigid motion" not in result.verdict
    assert "least-squares map of these codes leaves" in result["theorem1_similarity"].evidence


def test_a_multiple_of_an_isometry_is_bounded_up_to_a_similarity(rng):
    z = rng.uniform(-1, 1, size=(300, 4))
    result = examine_decoder(lambda w: 7 * embedded(w), z)
    assert result.bounds["rigid"].vacuous
    assert not result.bounds["similarity"].vacuous
    assert result.theorem1_similarity.number < 1e-5
    assert "differ by a rigid motion and a scale" in result.verdict
    assert "vacuous" not in result.verdict
    both = examine_decoder(lambda w: 7 * embedded(w), z, other=embedded, other_latents=7 * z)
    assert both.best is both.theorem1_similarity


def orthogonal_net(leak):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LeakyReLU(leak), torch.nn.Linear(4, 6)).double()
    for layer in (net[0], net[2]):
        torch.nn.init.orthogonal_(layer.weight)
    return net.eval()


def test_a_certificate_is_used_where_the_layers_allow_it(rng):
    net, z = orthogonal_net(0.9999), rng.uniform(-1, 1, size=(200, 4))
    result = examine_decoder(net, z, other=net, other_latents=z, convex=True)
    assert {one.basis for one in result.premises if "bi_lipschitz" in one.name or "injective" in one.name} == {
        "certified"
    }
    assert result.bounds["rigid"].certified
    assert result.certificate.constant == pytest.approx(1 / 0.9999)
    assert (result.status, result.theorem1.basis) == ("holds", "supported")  # equal outputs are sampled
    assert "certified" in page(result)
    function = examine_decoder(lambda w: net(w), z, other=net, other_latents=z, convex=True)
    assert (function["bi_lipschitz"].basis, function["injective"].status) == ("supported", "unknown")
    assert not function.bounds["rigid"].certified
    assert function.status == "unknown"


def test_a_vacuous_certificate_gives_way_to_sampled_constants_and_is_noted(rng):
    decoder = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)).double()
    stretch = torch.diag(torch.tensor([2.0, 1.0, 1.0]).double())
    with torch.no_grad():
        decoder[0].weight.copy_(stretch)
        decoder[1].weight.copy_(torch.linalg.inv(stretch))  # an isometry, of which the product of layers knows nothing
    result = examine_decoder(decoder.eval(), rng.uniform(size=(50, 3)))
    assert result["bi_lipschitz"].basis == "supported"
    assert not result.bounds["rigid"].vacuous
    assert any("The layers certify a constant of 2, whose bound is vacuous" in note for note in result.notes)


def test_a_vacuous_bound_never_holds(rng):
    net, z = orthogonal_net(0.5), rng.uniform(-1, 1, size=(50, 4))
    result = examine_decoder(net, z, other=net, other_latents=z, convex=True)
    assert {one.status for one in result.premises} == {"holds"}
    assert {one.status for one in result.findings} == {"unknown"}


def test_codes_that_are_farther_apart_than_the_bound_refute_it(rng):
    """A folded strip: locally an isometry, so the constants do not tell that the codes differ."""
    z = rng.uniform(0, 1, size=(200, 2))
    moved = z + (z[:, :1] > 0.5) * np.array([[5.0, 0.0]])  # not convex, and with a gap

    def joined(w):
        return torch.where(w[:, :1] > 3, w - torch.tensor([[5.0, 0.0]]).double(), w)

    result = examine_decoder(lambda w: 1 * w, z, other=joined, other_latents=moved, convex=True)
    assert result.theorem1.status == "fails"
    assert "not within the bound of Theorem 1" in result.verdict


def test_nearly_equal_outputs_are_not_equal(rng):
    z = rng.uniform(size=(200, 2))
    noisy = z + 0.003 * rng.uniform(-1, 1, size=z.shape)
    result = examine_decoder(turned, z, other=turned, other_latents=noisy)
    assert result["agreement"].status == "unknown"
    assert "Theorem 1 is about equal outputs" in result["agreement"].evidence


def test_the_share_of_latents_that_the_points_may_miss_is_printed(rng):
    result = examine_decoder(turned, rng.uniform(size=(50, 2)))
    assert "in a region with less than 6 % of the latents are not excluded" in result["bi_lipschitz"].evidence
    assert "regions not excluded" in page(result)
