import colorsys
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError

torch = pytest.importorskip("torch")

from congruence.experiments.data import room_images as scene  # noqa: E402
from congruence.experiments.data import rooms  # noqa: E402
from congruence.experiments.data.room_images import GRID, ROOMS, draw_rooms  # noqa: E402

HUES = {"floor_hue": scene.FLOOR, "wall_hue": scene.WALL, "object_hue": scene.OBJECT}
BASE = [1, 6, 4, 5, 0, 8]


@pytest.fixture(autouse=True)
def one_thread():
    """Rays are cast here without the pool that drawing has; more threads would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def drawn(*levels):
    return draw_rooms(ROOMS.values(np.array(levels))).numpy()


def met(places, side=64, within=(0.5, 0.5)):
    return scene.cast_rays(np.array(places, float), side, "cpu", within)[1].numpy().reshape(-1, side, side)


def all_rays_meet(level, surface):
    """Where all rays of a pixel meet the surface, and where none does, each (64, 64)."""
    offsets = [((i + 0.5) / 2, (j + 0.5) / 2) for i in range(2) for j in range(2)]
    hits = np.stack([met(ROOMS.values(np.array([level]))[:, 2:5], within=w)[0] == surface for w in offsets])
    return hits.all(0), ~hits.any(0)


@pytest.mark.parametrize("name", list(HUES))
@pytest.mark.parametrize("shape", range(4))
def test_a_hue_changes_the_pixels_of_its_surface_and_no_others(name, shape):
    level = [*BASE[:4], shape, BASE[5]]
    other = list(level)
    other[GRID.names.index(name)] = 3
    before, after = drawn(level, other)
    inside, outside = all_rays_meet(level, HUES[name])
    changed = (before != after).any(0)
    assert 50 < inside.sum() < 4000
    assert changed[inside].all()
    assert not changed[outside].any()


@pytest.mark.parametrize("name", list(HUES))
def test_hues_are_those_of_colorsys_and_saturation_is_the_same_everywhere(name):
    levels = np.tile(BASE, (10, 1))
    levels[:, GRID.names.index(name)] = np.arange(10)
    inside, _ = all_rays_meet(BASE, HUES[name])
    for level, picture in enumerate(drawn(*levels)):
        pixels = picture[:, inside].T[::7]
        for hue, saturation, value in (colorsys.rgb_to_hsv(*(pixel / 255)) for pixel in pixels):
            apart = abs((hue - level / 10 + 0.5) % 1 - 0.5)
            assert apart < 1 / (6 * 255 * value * scene.SATURATION)  # what rounding to 255 steps can do
            assert saturation == pytest.approx(scene.SATURATION, abs=1 / (255 * value))


def test_colours_of_hues_agree_with_colorsys():
    hues = np.linspace(0, 1, 61)
    expected = [colorsys.hsv_to_rgb(hue % 1, scene.SATURATION, 1) for hue in hues]
    assert_allclose(scene.hue_colours(hues), expected, atol=1e-12)


def test_orientation_moves_the_corner_to_where_perspective_puts_it():
    degrees = np.linspace(-30, 30, 15)
    shade = scene.cast_rays(np.column_stack([degrees, np.ones(15), np.full(15, 2)]), 64, "cpu")[0]
    top = shade.reshape(15, 64, 64)[:, 0].numpy()  # one wall, then the other
    columns = np.abs(np.diff(top, axis=1)).argmax(1) + 1
    pitch = math.atan2(scene.AIM - scene.HEIGHT, scene.DISTANCE)
    ray = scene.VIEW * (1 - 1 / 64)
    far = scene.HALF_ROOM * math.sqrt(2)
    forward, aside = scene.DISTANCE + far * np.cos(np.radians(degrees)), far * np.sin(np.radians(degrees))
    climb = (ray * math.cos(pitch) + math.sin(pitch)) / (math.cos(pitch) - ray * math.sin(pitch))
    depth = forward * (math.cos(pitch) + climb * math.sin(pitch))
    expected = 32 * (1 + aside / depth / scene.VIEW)
    assert_allclose(columns, expected, atol=1)
    assert (np.diff(columns) > 0).all()
    assert 2 < columns[0] < 10
    assert 54 < columns[-1] < 62


def inside_object(shape, scale, x, y, z):
    x, y, z = x / scale, y / scale, z / scale
    around = np.hypot(x, y)
    if shape == "cube":
        return (np.maximum(abs(x), abs(y)) < scene.CUBE) & (z > 0) & (z < 2 * scene.CUBE)
    if shape == "cylinder":
        return (around < scene.CYLINDER) & (z > 0) & (z < scene.CYLINDER_TALL)
    if shape == "sphere":
        return np.hypot(around, z - scene.SPHERE) < scene.SPHERE
    axis = np.clip(z, scene.CAPSULE, scene.CAPSULE_TALL - scene.CAPSULE)
    return np.hypot(around, z - axis) < scene.CAPSULE


@pytest.mark.parametrize("shape", scene.SHAPES)
def test_rays_meet_what_walking_along_them_in_small_steps_meets(shape):
    side, degrees, scale = 24, 17.0, 1.1
    forward, right, up = scene._camera_rays(side, (0.5, 0.5))
    turn = math.radians(degrees) + scene.CORNER
    t = np.arange(0, 20, 0.004)[:, None]
    x = -scene.DISTANCE * math.cos(turn) + t * (forward * math.cos(turn) + right * math.sin(turn))
    y = -scene.DISTANCE * math.sin(turn) + t * (forward * math.sin(turn) - right * math.cos(turn))
    z = scene.HEIGHT + t * up
    stops = [z < 0, np.maximum(abs(x), abs(y)) > scene.HALF_ROOM, inside_object(shape, scale, x, y, z)]
    first = np.argmax(np.stack(stops), axis=1)
    first = np.where(np.stack(stops).any(1), first, len(t))
    found = met([[degrees, scale, scene.SHAPES.index(shape)]], side).reshape(-1)
    differ = found != first.argmin(0)
    assert differ.mean() < 0.005  # rays that touch an edge within a step
    assert (found == scene.OBJECT).sum() > 20


def test_larger_scales_cover_more_and_contain_the_smaller_ones():
    for shape in range(4):
        covered = met([[0, scale, shape] for scale in np.linspace(0.75, 1.25, 8)]) == scene.OBJECT
        assert (np.diff(covered.sum((1, 2))) > 0).all()


def test_no_colour_is_cut_off():
    weights = scene.surface_weights(np.array([[d, 1.0, s] for d in (-30.0, 0.0, 30.0) for s in range(4)]), 32, "cpu")
    assert weights.sum(1).max() < 1
    assert weights.sum(1).min() > 0.1


def test_a_batch_drawn_alone_equals_the_same_rows_drawn_with_others():
    few = ROOMS.draw_values(70, seed=3)
    many = np.concatenate(
        [ROOMS.draw_values(90, seed=4), few, few, few, few]
    )  # rows share rays here, and above they do not
    assert torch.equal(draw_rooms(many, 40)[90:160], draw_rooms(few, 40))
    assert torch.equal(draw_rooms(few[5:6], 40)[0], draw_rooms(few, 40)[5])


def test_chunks_do_not_change_pictures(monkeypatch):
    values = ROOMS.draw_values(20, seed=0)
    whole = draw_rooms(values, 32)
    monkeypatch.setattr("congruence.experiments.data.room_images.IMAGE_VALUES_ON_CPU", 7 * 3 * 32 * 32)
    monkeypatch.setattr("congruence.experiments.data.room_images.RAYS_ON_CPU", 3 * 32 * 32)
    assert torch.equal(draw_rooms(values, 32), whole)


def test_the_grid_is_that_of_shapes3d_in_the_reference_order():
    assert len(GRID) == 480_000
    assert dict(zip(GRID.names, GRID.sizes, strict=True)) == {
        "floor_hue": 10, "object_hue": 10, "orientation": 15, "scale": 8, "shape": 4, "wall_hue": 10,
    }  # fmt: skip
    last = np.array(GRID.sizes) - 1
    assert_array_equal(GRID.levels(np.array([0, 1, 479_999])), [[0] * 6, [0, 0, 0, 0, 0, 1], last])
    assert_allclose(ROOMS.values(last[None])[0], [0.9, 0.9, 30, 1.25, 3, 0.9])
    assert_allclose(ROOMS.values(np.zeros((1, 6), int))[0], [0, 0, -30, 0.75, 0, 0])


def test_rooms_are_drawn_without_replacement_and_the_seed_decides():
    data = rooms(300, seed=5, side=8, device="cpu")
    assert data.images.shape == (300, 3, 8, 8)
    assert data.images.dtype == torch.uint8
    assert len(np.unique(GRID.rows(data.factors))) == 300
    again, other = rooms(300, seed=5, side=8, device="cpu"), rooms(300, seed=6, side=8, device="cpu")
    assert torch.equal(again.images, data.images)
    assert (other.factors != data.factors).any()
    assert torch.equal(data.images, draw_rooms(ROOMS.values(data.factors), 8))
    assert "not the original" in data.note


def test_continuous_rooms_fill_their_ranges_and_meet_the_grid_at_its_values():
    data = rooms(400, continuous=True, side=8, device="cpu")
    assert data.kinds == ("circular:1", "circular:1", "continuous", "continuous", "categorical", "circular:1")
    assert data.sizes == (None, None, None, None, 4, None)
    for column, (low, high) in zip(data.factors.T, ROOMS.ranges, strict=True):
        assert low <= column.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < column.max() <= high
    assert set(data.factors[:, 4]) == {0, 1, 2, 3}
    near = ROOMS.values(np.array([BASE]))
    moved = near + np.array([[0.004, 0, 0, 0, 0, 0]])
    assert_array_equal(draw_rooms(near).numpy(), drawn(BASE))
    assert 0 < np.abs(draw_rooms(moved).numpy().astype(int) - drawn(BASE)).max() <= 6


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"n": 0}, "n must be an integer of at least 1; got 0"),
        ({"n": 480_001}, "n must be at most 480000, the number of images in rooms; got 480001"),
        ({"n": 2.5}, "n must be an integer of at least 1; got 2.5"),
        ({"n": -1, "continuous": True}, "n must be an integer of at least 1"),
        ({"n": 5, "side": 4}, "side must be an integer from 8 to 1024; got 4"),
        ({"n": 5, "device": "gpu"}, "device must be 'auto', 'cpu' or 'cuda'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(asked, message):
    with pytest.raises(InputError, match=message):
        rooms(**asked)
