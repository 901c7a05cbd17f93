"""The premises of Theorem 1 about where latents live: exact for boxes, heuristic for samples."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from congruence.errors import InputError
from congruence.mechanism.domains import LatentDomain, count_loops

BASE, LEFT, RIGHT, TOP = ([0, 0], [3, 1]), ([0, 1], [1, 2]), ([2, 1], [3, 2]), ([0, 2], [3, 3])
SHAPES = {
    "box": LatentDomain.box([0, 0], [1, 1]),
    "L": LatentDomain.boxes([BASE, LEFT]),
    "U": LatentDomain.boxes([BASE, LEFT, RIGHT]),
    "annulus": LatentDomain.boxes([BASE, LEFT, RIGHT, TOP]),
    "apart": LatentDomain.boxes([LEFT, RIGHT]),
    "cross": LatentDomain.boxes([([-np.inf, 0], [np.inf, 1]), ([0, -np.inf], [1, np.inf])]),
}


def walls(axes):
    """Walls of a cube of side 3 across the given axes."""
    corners = [(axis, side) for axis in axes for side in (0, 2)]
    low, high = np.zeros((len(corners), 3)), np.full((len(corners), 3), 3.0)
    for k, (axis, side) in enumerate(corners):
        low[k, axis], high[k, axis] = side, side + 1
    return LatentDomain.boxes(zip(low, high, strict=True))


@pytest.mark.parametrize(
    ("shape", "simple", "slices"),
    [
        ("box", "holds", "holds"),
        ("L", "holds", "holds"),
        ("U", "holds", "fails"),
        ("annulus", "fails", "fails"),
        ("apart", "fails", "fails"),
        ("cross", "holds", "holds"),
    ],
)
def test_unions_of_boxes_are_decided(shape, simple, slices):
    for result, status in ((SHAPES[shape].simply_connected(), simple), (SHAPES[shape].connected_slices(None), slices)):
        assert (result.status, result.basis) == (status, {"holds": "certified", "fails": "refuted"}[status])


def test_which_slice_falls_apart_is_said():
    assert SHAPES["U"].connected_slices([[0], [1]]).evidence == "With z1 = 1.5 fixed, 2 pieces remain."


def test_one_factor_has_no_slices_that_could_fall_apart():
    assert SHAPES["U"].connected_slices([[0, 1]]).status == "holds"


def test_a_hollow_cube_is_simply_connected_and_a_tunnel_is_not():
    assert walls([0, 1, 2]).simply_connected().status == "holds"
    assert "1 loop" in walls([0, 1]).simply_connected().evidence


def test_slices_with_factors_of_several_latents():
    assert walls([0, 1, 2]).connected_slices([[0, 1], [2]]).status == "fails"  # a rod through the hollow
    assert walls([0, 1, 2]).connected_slices([[0], [1], [2]]).status == "holds"


def test_loops_are_counted():
    ring = np.eye(5, dtype=bool) | np.roll(np.eye(5, dtype=bool), 1, 0) | np.roll(np.eye(5, dtype=bool), -1, 0)
    assert count_loops(ring) == 1
    bouquet = np.zeros((9, 9), dtype=bool)
    bouquet[:5, :5] |= ring
    bouquet[4:, 4:] |= ring
    assert count_loops(bouquet) == 2
    assert count_loops(np.ones((6, 6), dtype=bool)) == 0


def test_loops_of_the_projective_plane_are_not_missed():
    # the loop of this triangulation is drawn together when it is passed twice, so that only numbers modulo 2 see it;
    # its flag complex is the barycentric subdivision
    faces = [
        (0, 1, 3),
        (0, 1, 4),
        (0, 2, 3),
        (0, 2, 5),
        (0, 4, 5),
        (1, 2, 4),
        (1, 2, 5),
        (1, 3, 5),
        (2, 3, 4),
        (3, 4, 5),
    ]
    cells = sorted({tuple(sorted(s)) for f in faces for s in (*((i,) for i in f), f[:2], f[1:], (f[0], f[2]), f)})
    below = np.array([[set(a) <= set(b) or set(b) <= set(a) for a in cells] for b in cells])
    assert count_loops(below) == 1


@pytest.mark.parametrize(("shape", "simple", "slices"), [
    ("box", "holds", "holds"), ("L", "holds", "holds"), ("U", "unknown", "fails"), ("annulus", "unknown", "fails"),
    ("apart", "fails", "fails"),
])  # fmt: skip
def test_samples_support_and_never_certify(shape, simple, slices, rng):
    z = rng.uniform(0, 3, size=(6000, 2))
    cloud = LatentDomain.sample(z[SHAPES[shape].contains(z)])
    for result, status in ((cloud.simply_connected(), simple), (cloud.connected_slices(None), slices)):
        assert result.status == status
        assert result.basis == {"holds": "supported", "fails": "refuted", "unknown": "not refuted"}[status]


def test_heavy_tails_and_grids_do_not_look_like_pieces(rng):
    grid = rng.integers(0, 12, size=(3000, 2)).astype(float)
    for z in (rng.standard_t(3, size=(2000, 3)), rng.laplace(size=(2000, 3)), grid):
        assert LatentDomain.sample(z).simply_connected().status == "holds"
        assert LatentDomain.sample(z).connected_slices(None).status == "holds"


def test_few_rows_leave_it_unknown(rng):
    few = LatentDomain.sample(rng.normal(size=(20, 2)))
    assert few.simply_connected().status == "unknown"
    assert "too few" in few.connected_slices(None).evidence


def test_turning_a_sample_does_not_change_whether_it_is_filled(rng):
    ring = rng.normal(size=(900, 3))
    ring /= np.linalg.norm(ring, axis=1, keepdims=True)
    turned = ring @ Rotation.random(random_state=0).as_matrix()
    for z in (ring, turned):
        result = LatentDomain.sample(z).simply_connected()
        assert (result.status, "lie in holes" in result.evidence) == ("unknown", True)


@pytest.mark.parametrize(
    ("corners", "message"),
    [
        ([([0, 0], [1, 0])], "box 0 must have low < high, but latent 1 has 0 and 0"),
        ([([0, 0], [1])], "corners must be two rows"),
        ([([0, np.nan], [1, 1])], "corners must be numbers; got NaN"),
        ([([0, 0], [1, 1]), ([0], [1])], "all with the same number of latents"),
        (3, "pairs"),
    ],
)
def test_boxes_that_are_none_are_refused(corners, message):
    with pytest.raises(InputError, match=message):
        LatentDomain.boxes(corners)
