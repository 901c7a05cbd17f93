"""Layers of rectifiers and whole decoders: injective or not, with the pair that shows it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from congruence.errors import InputError
from congruence.mixture import decoder_conditions, relu_injective
from congruence.mixture._overlaps import judge_pieces
from congruence.mixture.relu_layers import linear_injective

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from congruence.decoder.regions import linear_pieces, linear_regions  # noqa: E402

ORACLE = json.loads((Path(__file__).parents[1] / "oracles" / "mixture.json").read_text())["relu_layer_injectivity"]
LATENTS = np.random.default_rng(0).normal(size=(60, 2)) * 2


def linear(weight, bias):
    weight = torch.tensor(weight, dtype=torch.float64)
    layer = nn.Linear(*weight.shape[::-1]).double()
    layer.weight.data, layer.bias.data = weight, torch.tensor(bias, dtype=torch.float64)
    return layer


def statuses(decoder, latents=LATENTS):
    return "".join(c.status[0] for c in decoder_conditions(decoder, latents).conditions)  # h, f or u for F1 to F4


@pytest.mark.parametrize("case", ORACLE["tests"], ids=lambda case: case["name"])
def test_layers_are_judged_as_in_the_reference(case):
    weight, bias = np.array(case["W"]), np.array(case["b"])
    result = relu_injective(weight, bias)
    assert result.status == ("holds" if case["injective"] else "fails")
    network = nn.Sequential(linear(weight, bias), nn.ReLU())
    assert linear_regions(network).count == case["n_cells"]
    assert judge_pieces(linear_pieces(network))[-1].status == result.status
    if result.pair is not None:
        assert result.pair.gap < 1e-12 < result.pair.apart


@pytest.mark.parametrize("bias", [-9.0, 0.0, 1.0])
def test_a_row_of_zeros_changes_nothing(bias):
    kept, lost = np.array([[1.0], [-1.0]]), np.array([[1.0], [2.0]])
    for weight, status in ((kept, "holds"), (lost, "fails")):
        assert relu_injective(np.vstack([weight, [[0.0]]]), np.array([0.5, 0.5, bias])).status == status


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 6), st.booleans(), st.floats(-1, 1), st.integers(0, 10_000))
def test_planes_of_rows_decide_as_all_cells_do(m, n, mirrored, bias, seed):
    """Brute force: the rank of the rows that are on in each cell of the arrangement."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(n, m))
    weight = np.vstack([weight, -weight]) if mirrored else weight
    shift = bias + 0.3 * rng.normal(size=len(weight))
    result = relu_injective(weight, shift)
    ranks = cell_ranks(weight, shift)
    assert result.status == ("holds" if min(ranks) == m else "fails")
    if result.pair is not None:
        images = [np.maximum(weight @ x + shift, 0) for x in (result.pair.first, result.pair.second)]
        np.testing.assert_allclose(*images, atol=1e-9)


def cell_ranks(weight, bias):
    """Ranks of the rows that are on, over cells that many points near vertices and far away fall into."""
    from itertools import combinations

    m = weight.shape[1]
    rng = np.random.default_rng(0)
    points = [100 * rng.normal(size=(4000, m))]
    for rows in combinations(range(len(weight)), m):
        if abs(np.linalg.det(weight[list(rows)])) > 1e-9:
            vertex = np.linalg.solve(weight[list(rows)], -bias[list(rows)])
            points.append(vertex + 10 ** rng.uniform(-6, 0, size=(60, 1)) * rng.normal(size=(60, m)))
    on = np.unique(np.vstack(points) @ weight.T + bias > 0, axis=0)
    return [np.linalg.matrix_rank(weight[row]) if row.any() else 0 for row in on]


def test_leaky_layers_need_only_full_rank():
    assert linear_injective(np.eye(3)[:, :2]).status == "holds"
    result = linear_injective(np.array([[1.0, 1.0], [2.0, 2.0]]))
    assert (result.status, result.pair.gap < 1e-12) == ("fails", True)


def test_large_layers_can_be_refuted_but_not_proved():
    rng = np.random.default_rng(0)
    assert relu_injective(rng.normal(size=(200, 12)), np.zeros(200)).status == "unknown"
    assert relu_injective(rng.normal(size=(20, 12)), np.zeros(20)).status == "fails"  # fewer than 2 m rows


def test_the_examples_of_the_paper():
    one = np.linspace(-3, 3, 50)[:, None]
    rectifier = nn.Sequential(linear([[1.0]], [0.0]), nn.ReLU())
    assert statuses(rectifier, one) == "hhhf"  # observably injective, not injective (Example 3.4)
    absolute = nn.Sequential(linear([[1.0], [-1.0]], [0.0, 0.0]), nn.ReLU(), linear([[1.0, 1.0]], [0.0]))
    assert statuses(absolute, one) == "hfff"  # not even weakly injective
    nothing = nn.Sequential(linear([[1.0]], [0.0]), nn.ReLU(), linear([[-1.0]], [0.0]), nn.ReLU())
    assert statuses(nothing, one) == "hfff"


@pytest.mark.parametrize(
    ("hidden", "activation", "f4"), [(4, nn.ReLU(), "f"), (2, nn.LeakyReLU(), "h"), (8, nn.LeakyReLU(), "h")]
)
def test_random_networks_with_many_outputs_are_observably_injective_though_not_injective(hidden, activation, f4):
    """Remark 3.5: generically F3, and so F2, hold; all pieces of these networks are enumerated."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        layers = [linear(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in ((2, hidden), (hidden, 16))]
        assert statuses(nn.Sequential(layers[0], activation, layers[1]), LATENTS) == f"hhh{f4}"


def test_a_fold_that_covers_only_a_part_is_weakly_injective():
    # slope 1, then -1 from 0 to 1, then 1 again: outputs between -1 and 0 are met three times, others once
    zigzag = nn.Sequential(
        linear([[1.0], [1.0], [1.0]], [0.0, -1.0, 9.0]), nn.ReLU(), linear([[-2.0, 2.0, 1.0]], [0.0])
    )
    result = decoder_conditions(zigzag, np.linspace(-3, 3, 50)[:, None])
    assert [c.status for c in result.conditions] == ["holds", "holds", "fails", "fails"]
    assert result["F3"].pair.gap < 1e-9 < result["F3"].pair.apart


def test_leaky_decoders_that_widen_are_injective():
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(2, 20), nn.LeakyReLU(0.2), nn.Linear(20, 30), nn.LeakyReLU(0.2), nn.Linear(30, 40))
    result = decoder_conditions(wide, LATENTS)
    assert {c.status for c in result.conditions} == {"holds"}
    assert {c.finding.basis for c in result.conditions} == {"certified"}
    narrow = nn.Sequential(nn.Linear(2, 20), nn.LeakyReLU(0.2), nn.Linear(20, 1), nn.LeakyReLU(0.2), nn.Linear(1, 9))
    assert statuses(narrow) == "hfff"


def test_large_networks_of_rectifiers_are_supported_at_points_and_refuted_by_a_pair():
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 30), nn.Sigmoid())
    result = decoder_conditions(wide, LATENTS[:15])
    assert "inverted first" in result["F1"].finding.evidence
    assert (result["F3"].status, result["F3"].finding.basis, result["F4"].status) == ("holds", "supported", "unknown")
    folded = nn.Sequential(nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 2))
    result = decoder_conditions(folded, LATENTS[:15])
    assert [c.status for c in result.conditions] == ["holds", "unknown", "fails", "fails"]
    pair = result["F4"].pair
    outputs = folded(torch.tensor(np.vstack([pair.first, pair.second]), dtype=torch.float32))
    assert float((outputs[0] - outputs[1]).norm().detach()) < 1e-5 < pair.apart


def test_more_latents_than_outputs_fail_with_the_reason():
    torch.manual_seed(0)
    result = decoder_conditions(nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 2)), np.ones((9, 3)))
    assert "3 latents and 2 outputs" in result["F2"].finding.evidence
    assert {result[name].status for name in ("F2", "F3", "F4")} == {"fails"}


class Written(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.first, self.second, self.activation = nn.Linear(2, 30), nn.Linear(30, 5), activation

    def forward(self, z):
        return self.second(self.activation(self.first(z)))


def test_modules_of_unknown_layers_are_probed():
    assert statuses(Written(torch.relu))[0] == "h"
    assert statuses(Written(torch.tanh)) == "fuuu"
    assert statuses(nn.Sequential(nn.Linear(2, 9), nn.Tanh(), nn.Linear(9, 5))) == "fuuu"


def test_invalid_arguments_raise():
    with pytest.raises(InputError, match="decoder must be a torch module; got int"):
        decoder_conditions(3, LATENTS)
    with pytest.raises(InputError, match="does not accept the 2 latents"):
        decoder_conditions(nn.Sequential(nn.Linear(3, 9)), LATENTS)
    with pytest.raises(InputError, match=r"latents must have shape \(n, m\); got \(4,\)"):
        decoder_conditions(nn.Linear(2, 3), np.zeros(4))
    with pytest.raises(InputError, match="weight and bias must have shapes"):
        relu_injective(np.eye(2), np.zeros(3))


class Squared(nn.Sequential):
    def forward(self, z):
        return super().forward(z) ** 2


class ReLU(nn.Module):  # not torch's
    def forward(self, z):
        return z**2


def test_a_chain_that_does_more_than_its_layers_is_not_certified():
    torch.manual_seed(0)
    layers = nn.Linear(2, 6), nn.LeakyReLU(0.2), nn.Linear(6, 5)
    hooked = nn.Sequential(*layers)
    assert {one.finding.basis for one in decoder_conditions(hooked, LATENTS).conditions} == {"certified"}
    hooked.register_forward_pre_hook(lambda module, given: (given[0] * torch.tensor([1.0, 0.0]),))
    result = {one.name: (one.status, one.exact) for one in decoder_conditions(hooked, LATENTS).conditions}
    assert result["F4"] == ("fails", False)
    for decoder in (Squared(*layers), nn.Sequential(layers[0], ReLU(), layers[2])):
        result = {one.name: one for one in decoder_conditions(decoder, LATENTS).conditions}
        assert (result["F1"].status, result["F2"].status) == ("fails", "unknown")


def test_a_decoder_that_cannot_be_copied_raises():
    layer = nn.Linear(2, 3)
    layer.kept = layer.weight * 2  # not a leaf, as in the old weight norm
    with pytest.raises(InputError, match="the decoder cannot be copied"):
        decoder_conditions(nn.Sequential(layer), LATENTS)


def test_a_decoder_with_weights_that_are_not_finite_or_that_fails_later_raises():
    layer = nn.Linear(2, 3)
    nn.init.constant_(layer.bias, float("nan"))
    with pytest.raises(InputError, match="weights of the decoder must be finite; got NaN or infinity in 0.bias"):
        decoder_conditions(nn.Sequential(layer, nn.ReLU()), LATENTS)

    class Exits(nn.Module):
        def forward(self, z):
            return z if len(z) == 2 else sys.exit(5)

    with pytest.raises(InputError, match="the decoder fails.*: SystemExit: 5"):
        decoder_conditions(Exits(), LATENTS)


def test_a_learned_slope_is_read_without_a_warning():
    result = decoder_conditions(nn.Sequential(nn.Linear(2, 6), nn.PReLU(), nn.Linear(6, 5)), LATENTS)
    assert result.conditions[0].status == "holds"


@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_pieces_are_judged_alike_whatever_the_scale_of_weights(scale):
    torch.manual_seed(9)
    leaky = nn.Sequential(nn.Linear(2, 3), nn.LeakyReLU(0.1), nn.Linear(3, 3)).double()  # injective layer by layer
    bent = nn.Sequential(linear([[1.0], [-1.0]], [0.0, 0.0]), nn.ReLU(), linear([[1.0, 1.0]], [0.0]))  # |z|
    for network, expected in ((leaky, ("holds",) * 3), (bent, ("fails",) * 3)):
        with torch.no_grad():
            for weight in network.parameters():
                weight *= scale
        assert tuple(one.status for one in judge_pieces(linear_pieces(network))) == expected


class Residual(nn.Module):
    def __init__(self, width, hidden, scale=1.0, inplace=False):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, width))
        self.scale, self.inplace = scale, inplace

    def forward(self, x):
        y = x
        if self.inplace:
            y.clamp_(min=0)
        return x + self.scale * self.net(y)


def test_residual_sums_with_a_contracting_branch_are_injective():
    """A branch may be narrower than the latents, and the sum is injective if it contracts more than the skip does."""
    torch.manual_seed(0)
    small = nn.Sequential(nn.Linear(2, 8), Residual(8, 1, 0.3), nn.Linear(8, 9))
    result = decoder_conditions(small, LATENTS)
    assert {(c.status, c.finding.basis) for c in result.conditions} == {("holds", "certified")}
    assert "Lipschitz constant of at most" in result["F4"].finding.evidence
    assert decoder_conditions(Residual(2, 9, 0.1), LATENTS)["F4"].status == "holds"


def test_residual_sums_that_fold_are_not_certified():
    fold = Residual(1, 1)  # x - 2 relu(x) = -|x|
    for layer, value in ((fold.net[0], 1.0), (fold.net[3], -2.0)):
        layer.weight.data.fill_(value)
        layer.bias.data.zero_()
    result = decoder_conditions(fold, np.linspace(-3, 3, 40)[:, None])
    assert (result["F1"].finding.basis, result["F3"].status, result["F4"].status) == ("certified", "fails", "fails")


def test_a_sum_that_is_not_what_its_layers_compute_is_only_probed():
    torch.manual_seed(0)
    changed = decoder_conditions(nn.Sequential(nn.Linear(2, 4), Residual(4, 3, 0.1, inplace=True)), LATENTS)
    assert (changed["F1"].finding.basis, changed["F4"].status) != ("certified", "holds")

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(2, 1)
            self.one.weight.data[:] = torch.tensor([[-0.9, 0.0]])  # added to both latents: a norm of 0.9 * sqrt(2)

        def forward(self, x):
            return x + self.one(x)

    assert decoder_conditions(Wide(), LATENTS)["F4"].status != "holds"
