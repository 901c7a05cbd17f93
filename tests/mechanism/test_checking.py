"""`check` on generators whose verdicts are known by hand, and what it says of others."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError

torch = pytest.importorskip("torch")
from congruence.mechanism import check  # noqa: E402
from congruence.mechanism.criteria import block_orthogonality, disjoint_parts  # noqa: E402
from congruence.mechanism.derivatives import jacobians  # noqa: E402
from congruence.mechanism.sparsity_gap import sparse_decomposition  # noqa: E402

KNOWN = json.loads((Path(__file__).parents[1] / "oracles" / "mechanistic" / "analytic.json").read_text())
IDS = [known["id"] for known in KNOWN]
STATUS = {True: "holds", False: "fails"}


def blocks_of(known):
    return [[int(a) - 1 for a in part.split(",")] for part in known["partition"].strip("{}").split("},{")]


@pytest.mark.parametrize("known", KNOWN, ids=IDS)
def test_the_verdicts_on_analytic_generators_are_those_by_hand(generators, known):
    found = check(generators[known["id"]], np.array(known["sample_points"]), blocks_of(known))
    names = {"D": "D", "M_coordinate": "M_coord", "M_sparsest_basis": "M_sparsest", "S": "S", "H2": "H2", "H3": "H3"}
    names["IMA"] = "IMA"
    assert {ours: found[ours].status for ours in names.values()} == {
        ours: STATUS[known[theirs]] for theirs, ours in names.items()
    }
    assert found.rho == (known["rho_plus"], known["rho_minus"])
    assert [one.rank == one.expected for one in found.separable] == [
        known["separable_order2"][0],
        known["separable_order3"][0],
    ]
    irreducible = {one.criterion: one.status for one in found.irreducible}
    if known["D_irreducible"] is not None:
        assert irreducible["D"] == STATUS[known["D_irreducible"]]


@pytest.mark.parametrize("known", KNOWN, ids=IDS)
def test_contrasts_and_finest_parts_of_analytic_generators_are_those_by_hand(generators, known):
    blocks = tuple(map(tuple, blocks_of(known)))
    points = jacobians(generators[known["id"]], np.array(known["sample_points"]))
    contrasts = [block_orthogonality(j, blocks).contrast for j in points]
    assert_allclose(contrasts, known["ima_block_contrast"], atol=1e-9)
    for j in points:
        exact = np.where(np.abs(j) > 1e-9 * np.abs(j).max(), j, 0.0)
        assert disjoint_parts(exact, tuple(range(known["d"]))) == len(known["finest_D_block_dims"])
        dims = sorted(part.shape[1] for part in sparse_decomposition(exact))
        assert dims == sorted(known["finest_S_block_dims"])


def statuses(found, *names):
    return [found[name].status for name in names]


def stacked(*functions):
    return lambda s: torch.stack([function(*s.unbind(1)) for function in functions], 1)


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(12, 2))


def test_disjoint_at_a_point_does_not_make_it_additive():
    found = check(stacked(lambda a, b: a + a * b, lambda a, b: b + a**2), np.zeros((1, 2)))
    assert statuses(found, "D", "H2") == ["holds", "fails"]


def test_theorems_need_irreducible_blocks_and_something_that_bends(generators, points):
    applied = {(one.number, one.criterion): one.status for one in check(generators["A1"], points).theorems}
    assert applied[2, "D"] == applied[4, "S"] == applied[5, "H2"] == "applies"
    assert applied[3, "M_coord"] == "conditional"
    linear = check(generators["A3"], points)  # a rotation: additive, and yet nothing identifies it
    assert linear["H2"].degenerate
    assert {one.status for one in linear.theorems} == {"does not apply"}
    assert linear.separable[0].rank == linear.separable[0].expected
    four = np.random.default_rng(1).normal(size=(5, 4))
    for blocks, status in (("0-1,2-3", "does not apply"), ("0,1,2-3", "applies")):
        assert check(generators["A10"], four, blocks).theorems[0].status == status


def test_density_does_not_matter_where_the_points_lie_on_the_same_ground(generators):
    rng = np.random.default_rng(0)
    free = rng.uniform(0.2, 2, size=(30, 2))
    tied = free[np.abs(free[:, 0] - free[:, 1]) < 0.5]  # strongly dependent
    for name in ("A1", "A5", "A7"):
        one, two = (check(generators[name], z) for z in (free, tied))
        assert [v.status for v in one.verdicts] == [v.status for v in two.verdicts]


def leaky(additive):
    torch.manual_seed(0)
    parts = [torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.LeakyReLU(0.2), torch.nn.Linear(8, 6)) for _ in "ab"]
    whole = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.LeakyReLU(0.2), torch.nn.Linear(8, 6)).double()
    if not additive:
        return whole
    first, second = (part.double() for part in parts)
    return lambda z: first(z[:, :1]) + second(z[:, 1:])


@pytest.mark.parametrize("additive", [True, False])
def test_a_piecewise_linear_decoder_is_additive_or_not_by_finite_differences(points, additive):
    found = check(leaky(additive), points)
    assert found.bending == "piecewise linear"
    assert statuses(found, "H2", "H3") == ([STATUS[additive]] * 2)
    assert not found["H2"].degenerate
    assert found["H2"].note == "by differences over finite steps, since derivatives are empty"
    assert {one.status for one in found.separable} == {"unknown"}


@pytest.mark.parametrize("name", ["A5", "A7", "A9", "A13"])
def test_random_directions_find_what_all_derivatives_do(generators, name, monkeypatch):
    known = KNOWN[IDS.index(name)]
    monkeypatch.setattr("congruence.mechanism.interactions.MOST_TUPLES", 0)
    found = check(generators[name], np.array(known["sample_points"]), blocks_of(known), orders=(2, 3, 4))
    assert statuses(found, "H2", "H3") == [STATUS[known["H2"]], STATUS[known["H3"]]]
    assert "along random directions" in found["H4"].note


def test_noise_between_zero_and_the_entries_makes_it_ambiguous_and_more_of_it_fail(points):
    def noisy(noise):
        return stacked(
            lambda a, b: a.exp() + noise * b, lambda a, b: b + b**3 + noise * a, lambda a, b: a + 2 * b * noise
        )

    assert statuses(check(noisy(0.0), points), "D", "S") == ["holds", "holds"]
    for noise, expected in ((1e-9, "holds"), (1e-5, "ambiguous"), (0.3, "fails")):
        found = check(noisy(noise), points)
        assert found["D"].status == expected
    soft = check(noisy(1e-5), points)
    assert soft.tolerance.low == pytest.approx(2e-5, rel=0.9)
    assert soft["D"].sweep[0] == 0
    assert soft["D"].sweep[-1] == 1
    assert check(noisy(1e-5), points, rtol=1e-3)["D"].status == "holds"


def test_the_worst_point_and_the_share_of_points_are_told(points):
    spread = np.vstack([np.abs(points) + 1, [[-1.0, -1.0]]])
    found = check(stacked(lambda a, b: a + torch.relu(-a) * b, lambda a, b: b, lambda a, b: a), spread)
    assert (found["D"].status, found["D"].worst) == ("fails", 12)
    assert found["D"].fraction == pytest.approx(12 / 13)
    assert found["D"].evidence == "certified"


def test_past_the_budget_the_gap_is_unknown_with_bounds():
    torch.manual_seed(0)
    weight = torch.randn(40, 4).double() * (torch.rand(40, 4) < 0.6)
    found = check(
        lambda z: torch.tanh(z @ weight.T), np.random.default_rng(0).normal(size=(3, 4)), "0-1,2-3", budget=50
    )
    assert statuses(found, "S", "M_sparsest") == ["unknown", "holds"]
    assert found["S"].measures == "sparsity gap at most"
    assert found.rho[1] is None


def test_zero_weights_certify_that_blocks_stay_apart(points):
    net = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6)).eval()
    with torch.no_grad():
        net[0].weight[:3, 1] = net[0].weight[3:, 0] = 0
        net[2].weight[:3, 3:] = net[2].weight[3:, :3] = 0
    assert (check(net, points)["D"].status, check(net, points)["D"].evidence) == ("holds", "certified")
    net.double()
    assert check(lambda z: net(z), points)["D"].evidence == "supported"  # a function cannot be looked into
    net.register_forward_hook(lambda module, given, out: 2 * out)
    assert check(net, points)["D"].evidence == "supported"  # nor can a hook


def test_what_works_in_float32_only_has_wider_tolerances(points):
    weight = torch.tensor([[1.0, 0], [2, 0], [0, 3], [0, 4]])
    found = check(lambda z: torch.tanh(z.float() @ weight.T), points)
    assert found.tolerance.rtol == 1e-4
    assert statuses(found, "D", "M_coord", "S", "H2", "IMA") == ["holds"] * 5
    assert "float32" in found.notes[0]


def test_results_are_written_and_read(generators, points):
    found = check(generators["A5"], points, settings={"why": "a test"})
    told = json.loads(found.to_json())
    assert told["verdicts"][3]["criterion"] == "S"
    assert (told["rho_plus"], told["rho_minus"]) == (8, 10)
    assert told["overlap"] == [[1.0, 0.25], [0.25, 1.0]]
    assert len(told["tolerance"]["sweep"]) == len(told["verdicts"][0]["sweep"])
    assert found.verdict == (
        "For blocks 0,1 at 12 points M_coord, M_sparsest, S, H3 hold; Theorems 4 and 5 identify the blocks."
    )
    assert "sparsity gap 2" in str(found)
    assert found.sizes.shape == (7, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rtol": 1.0}, "rtol must be at least 0 and below 1, not 1.0"),
        ({"atol": -1.0}, "atol must be a number of at least 0, not -1.0"),
        ({"scale": "row"}, "scale must be one of global, column, not 'row'"),
        ({"orders": (1,)}, "orders must be whole numbers of at least 2, not 1"),
        ({"budget": -1}, "budget must be a number of at least 0, not -1"),
        ({"blocks": "0"}, "latent 1 is in none of '0'"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(generators, points, arguments, message):
    with pytest.raises(InputError, match=message):
        check(generators["A1"], points, **arguments)
