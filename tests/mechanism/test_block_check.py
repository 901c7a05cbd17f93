"""`check_blocks` on generators whose criteria are known by hand, and on others."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError, UnknownKeyError

torch = pytest.importorskip("torch")
from congruence.mechanism import check_blocks  # noqa: E402
from congruence.mechanism._criteria import block_orthogonality, disjoint_parts  # noqa: E402
from congruence.mechanism._sparsity_gap import sparse_decomposition  # noqa: E402
from congruence.mechanism.derivatives import jacobians  # noqa: E402
from congruence.result import json_text  # noqa: E402

KNOWN = json.loads((Path(__file__).parents[1] / "oracles" / "mechanistic" / "analytic.json").read_text())
IDS = [known["id"] for known in KNOWN]
STATUS = {True: "holds", False: "fails"}


def blocks_of(known):
    return [[int(a) - 1 for a in part.split(",")] for part in known["partition"].strip("{}").split("},{")]


@pytest.mark.parametrize("known", KNOWN, ids=IDS)
def test_the_verdicts_on_analytic_generators_are_those_by_hand(generators, known):
    result = check_blocks(generators[known["id"]], np.array(known["sample_points"]), blocks_of(known))
    names = {"D": "D", "M_coordinate": "M_coord", "M_sparsest_basis": "M_sparsest", "S": "S", "H2": "H2", "H3": "H3"}
    names["IMA"] = "IMA"
    assert {ours: result[ours].status for ours in names.values()} == {
        ours: STATUS[known[theirs]] for theirs, ours in names.items()
    }
    assert result.rho == (known["rho_plus"], known["rho_minus"])
    assert [one.rank == one.expected for one in result.separable] == [
        known["separable_order2"][0],
        known["separable_order3"][0],
    ]
    irreducible = {one.criterion: one.status for one in result.irreducible}
    if known["D_irreducible"] is not None:
        assert irreducible["D"] == STATUS[known["D_irreducible"]]


@pytest.mark.parametrize("known", KNOWN, ids=IDS)
def test_contrasts_and_finest_parts_of_analytic_generators_are_those_by_hand(generators, known):
    blocks = tuple(map(tuple, blocks_of(known)))
    points = jacobians(generators[known["id"]], np.array(known["sample_points"]))
    contrasts = [block_orthogonality(j, blocks)[0] for j in points]
    assert_allclose(contrasts, known["ima_block_contrast"], atol=1e-9)
    for j in points:
        exact = np.where(np.abs(j) > 1e-9 * np.abs(j).max(), j, 0.0)
        assert disjoint_parts(exact, tuple(range(known["d"]))) == len(known["finest_D_block_dims"])
        dims = sorted(part.shape[1] for part in sparse_decomposition(exact))
        assert dims == sorted(known["finest_S_block_dims"])


def statuses(result, *names):
    return [result[name].status for name in names]


def stacked(*functions):
    return lambda s: torch.stack([function(*s.unbind(1)) for function in functions], 1)


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(12, 2))


def test_disjoint_at_a_point_does_not_make_it_additive():
    result = check_blocks(stacked(lambda a, b: a + a * b, lambda a, b: b + a**2), np.zeros((1, 2)))
    assert statuses(result, "D", "H2") == ["holds", "fails"]


def test_theorems_need_irreducible_blocks_and_something_that_bends(generators, points):
    applied = {(one.number, one.criterion): one for one in check_blocks(generators["A1"], points).theorems}
    for key in ((2, "D"), (3, "M_coord"), (4, "S"), (5, "H2")):  # what they say about a model is only assumed
        assert (applied[key].status, applied[key].strength) == ("unknown", "conditional")
        assert {one.name for one in applied[key].open_premises} == set(applied[key].assumed)
    assert applied[2, "D"].assumed == ("reconstruction", "model_type")
    assert "It is assumed" in applied[2, "D"].conclusion.premises[-1].evidence
    linear = check_blocks(generators["A3"], points)  # a rotation: additive, and yet nothing identifies it
    assert linear["H2"].degenerate
    assert {(one.status, one.conclusion.basis) for one in linear.theorems} == {("unknown", "premise fails")}
    assert linear.separable[0].rank == linear.separable[0].expected
    four = np.random.default_rng(1).normal(size=(5, 4))
    for blocks, strength in (("0-1,2-3", "premise fails"), ("0,1,2-3", "conditional")):
        assert check_blocks(generators["A10"], four, blocks).theorems[0].strength == strength


def test_density_does_not_matter_where_the_points_lie_on_the_same_ground(generators):
    rng = np.random.default_rng(0)
    free = rng.uniform(0.2, 2, size=(15, 2))
    tied = free[np.abs(free[:, 0] - free[:, 1]) < 0.5]  # strongly dependent
    for name in ("A1", "A5", "A7"):
        one, two = (check_blocks(generators[name], z) for z in (free, tied))
        assert [v.status for v in one.criteria] == [v.status for v in two.criteria]


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
    result = check_blocks(leaky(additive), points)
    assert result.bending == "piecewise linear"
    assert statuses(result, "H2", "H3") == ([STATUS[additive]] * 2)
    assert not result["H2"].degenerate
    assert result["H2"].remarks == ("by differences over finite steps, since the derivatives vanish",)
    assert {one.status for one in result.separable} == {"unknown"}


@pytest.mark.parametrize("name", ["A5", "A7", "A9", "A13"])
def test_random_directions_find_what_all_derivatives_do(generators, name, monkeypatch):
    known = KNOWN[IDS.index(name)]
    monkeypatch.setattr("congruence.mechanism._interactions.MOST_TUPLES", 0)
    result = check_blocks(generators[name], np.array(known["sample_points"]), blocks_of(known), orders=(2, 3, 4))
    assert statuses(result, "H2", "H3") == [STATUS[known["H2"]], STATUS[known["H3"]]]
    assert "along random directions" in result["H4"].remarks


def test_noise_between_zero_and_the_entries_makes_it_ambiguous_and_more_of_it_fail(points):
    def noisy(noise):
        return stacked(
            lambda a, b: a.exp() + noise * b, lambda a, b: b + b**3 + noise * a, lambda a, b: a + 2 * b * noise
        )

    assert statuses(check_blocks(noisy(0.0), points), "D", "S") == ["holds", "holds"]
    for noise, expected in ((1e-9, "holds"), (1e-5, "ambiguous"), (0.3, "fails")):
        result = check_blocks(noisy(noise), points)
        assert result["D"].status == expected
    soft = check_blocks(noisy(1e-5), points)
    assert soft.tolerance.low == pytest.approx(2e-5, rel=0.9)
    assert soft["D"].sweep[0] == 0
    assert soft["D"].sweep[-1] == 1
    assert check_blocks(noisy(1e-5), points, rtol=1e-3)["D"].status == "holds"


def test_the_worst_point_and_the_share_of_points_are_given(points):
    spread = np.vstack([np.abs(points) + 1, [[-1.0, -1.0]]])
    result = check_blocks(stacked(lambda a, b: a + torch.relu(-a) * b, lambda a, b: b, lambda a, b: a), spread)
    assert (result["D"].status, result["D"].worst) == ("fails", 12)
    assert result["D"].fraction == pytest.approx(12 / 13)
    assert result["D"].basis == "refuted"


def test_past_the_budget_the_gap_is_unknown_with_bounds():
    torch.manual_seed(0)
    weight = torch.randn(40, 4).double() * (torch.rand(40, 4) < 0.6)
    result = check_blocks(
        lambda z: torch.tanh(z @ weight.T), np.random.default_rng(0).normal(size=(3, 4)), "0-1,2-3", budget=50
    )
    assert statuses(result, "S", "M_sparsest") == ["unknown", "holds"]
    assert result["S"].measures == "sparsity gap at most"
    assert result.rho[1] is None


def test_zero_weights_certify_that_blocks_stay_apart(points):
    net = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6)).eval()
    with torch.no_grad():
        net[0].weight[:3, 1] = net[0].weight[3:, 0] = 0
        net[2].weight[:3, 3:] = net[2].weight[3:, :3] = 0
    assert (check_blocks(net, points)["D"].status, check_blocks(net, points)["D"].basis) == ("holds", "certified")
    net.double()
    assert check_blocks(lambda z: net(z), points)["D"].basis == "supported"  # a function cannot be looked into
    net.register_forward_hook(lambda module, given, out: 2 * out)
    assert check_blocks(net, points)["D"].basis == "supported"  # nor can a hook


def test_what_works_in_float32_only_has_the_tolerance_of_its_rounding(points):
    weight = torch.tensor([[1.0, 0], [2, 0], [0, 3], [0, 4]])
    result = check_blocks(lambda z: torch.tanh(z.float() @ weight.T), points)
    assert result.tolerance.rtol == 16 * np.finfo(np.float32).eps
    assert statuses(result, "D", "M_coord", "S", "H2", "IMA") == ["holds"] * 5
    assert "float32" in result.notes[0]


def test_results_are_plain_data(generators, points):
    result = check_blocks(generators["A5"], points)
    numbers = json.loads(json_text(result.to_dict()))
    assert numbers["criteria"][3]["criterion"] == "S"
    assert numbers["criteria"][3]["margin"] == 2
    assert (numbers["rho_plus"], numbers["rho_minus"]) == (8, 10)
    assert numbers["overlap"] == [[1.0, 0.25], [0.25, 1.0]]
    assert len(numbers["tolerance"]["sweep"]) == len(numbers["criteria"][0]["sweep"])
    assert [one.name for one in result.criteria if one.status == "holds"] == ["M_coord", "M_sparsest", "S", "H3"]
    assert {one.number for one in result.theorems if one.strength == "conditional"} == {3, 4, 5}
    assert [one["number_from"] for one in numbers["theorems"][:2]] == ["inferred", "summary"]
    assert numbers["criteria"][0]["null"] > numbers["criteria"][0]["typical"] > 0
    assert result["theorem4_S"] == result.theorems[3].conclusion
    assert result.sizes.shape == (7, 2)
    with pytest.raises(UnknownKeyError, match="there is no criterion 'T'; there are D, M_coord"):
        result["T"]


def test_a_theorem_is_never_better_than_its_premises(generators, points):
    for name in ("A1", "A3", "A5", "A7"):
        result = check_blocks(generators[name], points[:5])
        for theorem in result.theorems:
            premises = [one.status for one in theorem.conclusion.premises]
            assert (theorem.status == "holds") == (set(premises) == {"holds"})
            assert (theorem.conclusion.basis == "premise fails") == ("fails" in premises)
            assert theorem.conclusion.premises[0] == result[theorem.criterion].finding


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rtol": 1.0}, "rtol must be at least 0 and below 1; got 1.0"),
        ({"atol": -1.0}, "atol must be a finite number at least 0; got -1.0"),
        ({"scale": "row"}, "scale must be one of 'global', 'column'; got 'row'"),
        ({"orders": (1,)}, "orders must be an integer of at least 2; got 1"),
        ({"orders": (2, 10**12)}, "orders must be at most 10, as each order doubles the work; got 1000000000000"),
        ({"budget": -1}, "budget must be a number of at least 0; got -1"),
        ({"blocks": "0"}, "latent 1 is in none of '0'"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(generators, points, arguments, message):
    with pytest.raises(InputError, match=message):
        check_blocks(generators["A1"], points, **arguments)


def mixed_single(leak):
    """A decoder that works in float32 only, whose blocks leak into each other."""
    weight = torch.tensor([[1.0, leak], [2, 0], [leak, 3], [0, 4]])
    return lambda z: torch.tanh(z.float() @ weight.T)


@pytest.mark.parametrize("leak", [1e-5, 1e-4])
def test_float32_leaks_above_rounding_do_not_hold(points, leak):
    result = check_blocks(mixed_single(leak), points)
    assert result["D"].status == "ambiguous"
    assert {one.status for one in result.theorems if one.criterion in ("D", "M_coord", "S")} <= {"ambiguous", "unknown"}
    assert result.theorems[0].strength != "conditional"


def test_leaks_below_the_tolerance_are_a_remark(points):
    result = check_blocks(mixed_single(1e-8), points / 4)
    assert result["D"].status == "holds"
    assert "of the largest count as zero" in result["D"].remarks[0]
    assert check_blocks(mixed_single(0.0), points)["D"].remarks == ()


def weak(leak, strength=1e-7):
    """The second latent acts weakly, on outputs of the first as well where there is a leak."""
    return stacked(
        lambda a, b: a.exp() + leak * strength * b,
        lambda a, b: a + leak * strength * b.sin(),
        lambda a, b: strength * (b + b**3),
        lambda a, b: strength * 2 * b,
    )


@pytest.mark.parametrize("strength", [1e-7, 1e-12])
def test_a_weak_block_is_not_disjoint_for_being_weak(points, strength):
    leaking = weak(1.0, strength)
    assert check_blocks(leaking, points)["D"].status == "fails"
    assert check_blocks(weak(0.0, strength), points)["D"].status == "holds"
    seen = check_blocks(leaking, points, scale="global")["D"]
    assert seen.status == "ambiguous"
    assert "scale='column'" in seen.remarks[-1]
    assert check_blocks(leaking, points, scale="global")["S"].status != "holds"


def test_a_basis_chosen_to_be_sparse_does_not_make_a_dense_decoder_of_type_m():
    """In two latents one output of any column can be set to zero: one of 768 is no margin."""
    weight = torch.randn(768, 4, generator=torch.Generator().manual_seed(0)).double()
    z = np.random.default_rng(0).normal(size=(2, 4))
    result = check_blocks(lambda s: torch.tanh(s @ weight.T / 4), z, "0-1,2-3", orders=(2,))
    assert 0 < result["M_sparsest"].margin < 0.01
    assert result["M_sparsest"].status == "ambiguous"
    assert result["M_sparsest"].remarks[-1] == "hardly more than the choice of a basis gives in a dense Jacobian"


def test_one_exclusive_output_of_many_is_too_thin_a_margin():
    z = np.random.default_rng(0).normal(size=(2, 2))
    weight = torch.randn(400, 2, generator=torch.Generator().manual_seed(0)).double()
    weight[0, 0] = weight[1, 1] = 0
    result = check_blocks(lambda s: torch.tanh(s @ weight.T / 4), z, orders=(2,))
    assert result["M_coord"].margin == pytest.approx(1 / 399)
    assert result["M_coord"].status == "ambiguous"


def test_regions_that_the_points_may_miss_are_named(generators):
    z = np.random.default_rng(0).normal(size=(50, 2))
    result = check_blocks(generators["A1"], z, orders=(2,))
    assert result.unseen == 0.06
    assert "Regions with less than 6 % of the latents are not excluded." in result["D"].evidence


def test_grades_are_zero_where_blocks_are_apart_and_those_of_random_directions_where_they_mean_nothing(generators):
    z = np.random.default_rng(0).normal(size=(20, 2))
    apart = check_blocks(generators["A1"], z, orders=(2,))
    for name in ("D", "M_coord", "M_sparsest", "S", "H2", "IMA"):
        assert apart[name].typical < 1e-12 < 0.05 < apart[name].null
    weight = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)).double()
    four = np.random.default_rng(0).normal(size=(20, 4))
    dense = check_blocks(lambda s: torch.tanh(s @ weight.T / 4), four, "0-1,2-3", orders=(2,))
    for name in ("D", "M_coord", "M_sparsest", "H2"):
        assert dense[name].typical == pytest.approx(dense[name].null, rel=0.4)
    assert 0.3 * dense["S"].null < dense["S"].typical < 3 * dense["S"].null


@pytest.mark.parametrize("turn", ["inside blocks", "across blocks"])
def test_the_grades_of_s_and_m_do_not_depend_on_the_basis_of_a_block_and_notice_mixed_blocks(turn):
    rng = np.random.default_rng(3)
    weights = np.kron(np.eye(2), rng.normal(size=(9, 2)))  # (18, 4): blocks 0-1 and 2-3 are apart
    angle = np.kron(np.eye(2), np.linalg.qr(rng.normal(size=(2, 2)))[0])
    rotation = angle if turn == "inside blocks" else np.linalg.qr(rng.normal(size=(4, 4)))[0]
    matrix = torch.as_tensor(weights @ rotation)
    graded = check_blocks(lambda s: s @ matrix.T, rng.normal(size=(5, 4)), "0-1,2-3", orders=(2,))
    for name in ("M_sparsest", "S"):
        if turn == "inside blocks":
            assert graded[name].typical < 1e-12 < 0.1 < graded[name].null
        else:
            assert graded[name].typical > 0.3 * graded[name].null
