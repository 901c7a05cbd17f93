"""Planted parts are found through linear and bent changes of the latents; what cannot be told is said."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles

from congruence.errors import FewOutputsWarning, InputError, UnknownKeyError
from congruence.mechanism.parts import finest_additive, finest_disjoint

torch = pytest.importorskip("torch")

from congruence.mechanism.discovery import discover  # noqa: E402

ORACLE = Path(__file__).parents[1] / "oracles" / "mechanistic" / "analytic.json"


def planted(rng, sizes, rows=4):
    """A Jacobian whose blocks act on disjoint outputs and cannot be split further, and its blocks."""
    d, blocks, first = sum(sizes), [], 0
    matrix = np.zeros((sum(rows + size for size in sizes), d))
    top = 0
    for size in sizes:
        matrix[top : top + rows + size, first : first + size] = rng.normal(size=(rows + size, size))
        blocks.append(tuple(range(first, first + size)))
        top, first = top + rows + size, first + size
    return matrix[rng.permutation(len(matrix))], blocks


@settings(max_examples=40)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 10**6))
def test_disjoint_parts_are_found_in_any_basis(sizes, seed):
    rng = np.random.default_rng(seed)
    matrix, blocks = planted(rng, sizes)
    turn = rng.normal(size=(sum(sizes), sum(sizes))) + np.diag(rng.uniform(1, 3, size=sum(sizes)))
    if np.linalg.cond(turn) > 100:
        return
    result = finest_disjoint(matrix @ turn * 10.0 ** rng.integers(-3, 3, size=sum(sizes)))
    assert result.dims == tuple(sorted(sizes))
    straight = finest_disjoint(matrix)
    assert straight.partition(1e-6) == tuple(blocks)
    for part in finest_disjoint(matrix @ turn).parts:
        there = turn @ part
        assert min(
            subspace_angles(np.eye(len(turn))[:, list(block)], there).max() if len(block) == part.shape[1] else 9
            for block in blocks
        ) < 1e-6  # fmt: skip


def test_outputs_that_hardly_move_do_not_hide_the_parts(rng):
    matrix, _ = planted(rng, [1, 2])
    noisy = np.concatenate([matrix, 1e-9 * rng.normal(size=(5, 3)), np.zeros((2, 3))])
    result = finest_disjoint(noisy)
    assert result.dims == (1, 2)
    assert sorted(len(rows) for rows in result.rows) == [5, 6]
    assert finest_disjoint(noisy, rtol=1e-12).dims == (3,)


def test_a_direction_that_does_nothing_is_idle(rng):
    matrix, _ = planted(rng, [1, 1, 1])
    result = finest_disjoint(matrix * [1, 0, 1])
    assert result.dims == (1, 1)
    assert np.abs(result.idle[:, 0]).tolist() == pytest.approx([0, 1, 0], abs=1e-12)
    assert finest_disjoint(np.zeros((3, 2))).dims == ()


def additive(blocks, m, seed):
    """A sum of functions of separate latents with m outputs, and a smooth change of latents."""
    generator = torch.Generator().manual_seed(seed)
    d = sum(blocks)
    nets = [
        (torch.randn(size, 8, generator=generator).double(), torch.randn(8, m, generator=generator).double())
        for size in blocks
    ]
    linear = torch.eye(d).double() + 0.4 * torch.randn(d, d, generator=generator).double()
    mixing = 0.3 * torch.randn(d, d, generator=generator).double()

    def decode(s):
        return sum(
            torch.tanh(part @ into) @ out
            for part, (into, out) in zip(s.split(list(blocks), dim=1), nets, strict=True)
        )  # fmt: skip

    def warp(t):
        y = t @ linear
        return y + 0.1 * (y @ mixing) ** 2 + 0.05 * (y @ mixing.T) ** 3

    return decode, warp


def test_additive_parts_are_found_through_a_bent_change_of_latents(rng):
    decode, warp = additive((1, 1, 2), 12, seed=0)
    z = rng.normal(size=(5, 4)) / 2
    plain = discover(decode, z, types=("H2",))["H2"]
    assert plain.partition == ((0,), (1,), (2, 3))
    assert plain.aligned
    bent = discover(lambda t: decode(warp(t)), z, types=("H2",))["H2"]
    assert bent.dims == (1, 1, 2)
    assert bent.agreeing == 1.0
    assert not bent.aligned
    assert "not along the coordinates" in bent.sentence
    slope = torch.func.jacfwd(lambda t: warp(t[None])[0])(torch.as_tensor(z[0])).numpy()
    for part in bent.splittings[0].parts:
        blocks = {1: [[0], [1]], 2: [[2, 3]]}[part.shape[1]]
        assert min(subspace_angles(np.eye(4)[:, block], slope @ part).max() for block in blocks) < 1e-6


@pytest.mark.parametrize(("sizes", "seed"), [((2, 2), 3), ((1, 3), 4), ((3, 1, 1), 5), ((4,), 6)])
def test_additive_parts_of_any_sizes_are_found_through_a_bent_change_of_latents(sizes, seed):
    decode, warp = additive(sizes, 24, seed)
    at = torch.randn(sum(sizes), generator=torch.Generator().manual_seed(seed)).double() / 2
    whole = lambda t: decode(warp(t[None]))[0]  # noqa: E731
    result = finest_additive(torch.func.jacfwd(whole)(at), torch.func.hessian(whole)(at))
    assert result.dims == tuple(sorted(sizes))
    assert result.idle.shape[1] == 0


def test_sparsest_parts_are_found_through_a_linear_change_of_latents(generators, rng):
    mixing = torch.as_tensor(rng.normal(size=(3, 3)))
    z = rng.uniform(0.3, 1.2, size=(3, 3))
    result = discover(lambda s: generators["A13"](s @ mixing), z, types=("D", "S"))
    assert result["D"].dims == (3,)
    assert result["S"].dims == (1, 1, 1)
    assert result["S"].partition == ((0, 1, 2),)
    for part in result["S"].splittings[0].parts:  # each moves one of the latents before mixing
        assert np.sort(np.abs(mixing.numpy().T @ part[:, 0]))[:2].max() < 1e-9


def test_outputs_show_disjoint_parts_over_all_points_whatever_the_latents_are(rng):
    _, warp = additive((1, 1, 2), 4, seed=3)

    def decode(s):
        a, b, c, e = s.T
        return _columns(a, b, c * e, a.exp(), b**3 + b, c**2 + e, c + e.exp())

    result = discover(lambda t: decode(warp(t)), rng.normal(size=(6, 4)) / 3, types=("D",))["D"]
    assert result.dims == (1, 1, 2)
    assert result.partition == ((0, 1, 2, 3),)
    assert sorted(tuple(map(int, part)) for part in result.outputs) == [(0, 3), (1, 4), (2, 5, 6)]
    assert "the outputs form 3 groups" in result.sentence


def test_flat_directions_are_idle(rng):
    decode, _ = additive((1, 2), 12, seed=1)
    out = torch.randn(1, 12, generator=torch.Generator().manual_seed(2)).double()
    result = discover(lambda s: decode(s[:, 1:]) + s[:, :1] @ out, rng.normal(size=(3, 4)), types=("H2",))["H2"]
    assert result.dims == (1, 2)
    assert result.to_dict()["idle"] == 1
    assert result.partition == ((0,), (1,), (2, 3))


def test_few_curvatures_are_noted(rng):
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    result = discover(net, rng.normal(size=(3, 3)), types=("H2",))["H2"]
    assert "independent curvature" in result.notes[0]


@pytest.mark.parametrize("generator", [f"A{k}" for k in range(1, 15)])
@pytest.mark.filterwarnings("ignore::congruence.errors.FewOutputsWarning")
def test_parts_of_the_analytic_generators(generator, generators):
    known = {one["id"]: one for one in json.loads(ORACLE.read_text())}[generator]
    result = discover(generators[generator], np.array(known["sample_points"]), types="D,S")
    assert list(result["D"].dims) == known["finest_D_block_dims"]
    assert list(result["S"].dims) == known["finest_S_block_dims"]
    assert result["D"].steady == 7.0


def test_blocks_along_the_coordinates_are_sums_of_parts(generators, rng):
    result = discover(generators["A14"], rng.uniform(0.3, 1.2, size=(4, 3)), types=("S",))["S"]
    assert result.dims == (1, 1, 1)
    assert result.partition == ((0, 1), (2,))
    assert not result.aligned


def _columns(*columns):
    return torch.stack(columns, dim=1)


def test_parts_that_hold_at_single_points_are_joined_over_the_sample():
    def decode(s):  # at s0 = 0 the third output does not move with s1
        return _columns(s[:, 0], s[:, 0].exp(), s[:, 0] ** 2 * s[:, 1], s[:, 1], 2 * s[:, 1])

    alone = discover(decode, np.array([[0.0, 1.0]]), types=("D",))["D"]
    assert alone.partition == ((0,), (1,))
    both = discover(decode, np.array([[0.0, 1.0], [0.5, 1.0]]), types=("D",))["D"]
    assert both.partition == ((0, 1),)
    assert both.agreeing == 0.5
    assert len(both.outputs) == 1


def test_parts_are_followed_from_point_to_point():
    def decode(s):  # polar coordinates: parts turn with the point
        radius, angle = s.norm(dim=1), torch.atan2(s[:, 1], s[:, 0])
        return _columns(radius, radius.exp(), radius**2, angle, angle.sin(), angle.cos())

    around = np.linspace(0.1, 3.0, 40)
    z = np.stack([np.cos(around), np.sin(around)], axis=1) * (1 + around[:, None] / 10)
    result = discover(decode, z, types=("D",))["D"]
    assert result.dims == (1, 1)
    assert result.partition == ((0, 1),)
    assert result.followed.lost == 0
    assert np.nanmin(result.followed.overlap) > 0.99
    for splitting, order, at in zip(result.splittings, result.followed.order, z, strict=True):
        outward = int(np.argmax([np.abs(part[:, 0] @ at) for part in splitting.parts]))
        first = result.followed.order[0]
        away = int(np.argmax([np.abs(part[:, 0] @ z[0]) for part in result.splittings[0].parts]))
        assert list(order).index(outward) == list(first).index(away)


def test_a_square_jacobian_warns_that_nothing_is_learned(rng):
    turn = torch.as_tensor(rng.normal(size=(3, 3)))
    with pytest.warns(FewOutputsWarning, match="3 outputs for 3 latents"):
        result = discover(lambda s: (s @ turn).sinh(), rng.normal(size=(4, 3)), types=("D",))
    assert result["D"].dims == (1, 1, 1)
    assert "uninformative" in result.notes[0]


def test_what_cannot_be_found_is_unknown(rng):
    linear = torch.as_tensor(rng.normal(size=(4, 30)))
    result = discover(lambda s: (s @ linear).relu(), rng.normal(size=(3, 4)), types=("S", "H2"), budget=100)
    assert result["S"].dims is None
    assert "raise the budget" in result["S"].sentence
    assert "piecewise linear" in result["H2"].sentence
    assert result.to_dict()["found"][0]["partition"] is None
    wide = discover(lambda s: s.repeat(1, 2).sin(), rng.normal(size=(2, 21)), types=("H2",))
    assert "at most 20 latents" in wide["H2"].sentence


def test_a_nearly_disjoint_decoder_shows_its_parts_at_a_larger_tolerance(rng):
    matrix, _ = planted(rng, [1, 2], rows=6)
    noisy = torch.as_tensor(matrix + 1e-4 * rng.normal(size=matrix.shape))
    result = discover(lambda s: s @ noisy.T, rng.normal(size=(3, 3)), types=("D",))["D"]
    assert result.dims == (3,)
    assert dict(result.sweep)[1e-2] == (1, 2)
    assert "2 parts from a tolerance of" in result.sentence


def test_words_and_json(generators, rng):
    result = discover(generators["A10"], rng.uniform(0.3, 1.2, size=(3, 4)), types=("D",))
    assert str(result) == "Type D: 3 parts of dimensions 1, 1, 2 at every point; along the coordinates 0,1,2-3."
    assert result.to_dict()["found"][0]["partition"] == [[0], [1], [2, 3]]
    with pytest.raises(UnknownKeyError, match="there is no type 'H2'; there are D"):
        result["H2"]
    with pytest.raises(InputError, match="types must be some of D, S, H2; got M"):
        discover(generators["A10"], rng.normal(size=(3, 4)), types=("M",))
    for wrong in ({"rtol": 2.0}, {"rtol": float("nan")}, {"budget": -1}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))} must be"):
            discover(generators["A10"], rng.normal(size=(3, 4)), **wrong)
    with pytest.raises(InputError, match=r"hessian must have shape \(3, 2, 2\)"):
        finest_additive(np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(InputError, match="at most 20 latents for H_2 parts; got 21"):
        finest_additive(np.ones((30, 21)), np.ones((30, 21, 21)))
