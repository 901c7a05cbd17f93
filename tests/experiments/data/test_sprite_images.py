import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch")

from congruence.experiments.data import sprite_images as drawing  # noqa: E402
from congruence.experiments.data import sprites  # noqa: E402
from congruence.experiments.data.sprite_images import GRID, SPRITES, draw_sprites  # noqa: E402

SQUARE, ELLIPSE, HEART = range(3)


def drawn(*levels, side=64):
    return draw_sprites(SPRITES.values(np.array(levels)), side).numpy()[:, 0]


@pytest.mark.parametrize("rotation", [0, 1, 3, 5, 17])
@pytest.mark.parametrize("scale", [0, 3, 5])
def test_areas_are_those_of_geometry(scale, rotation):
    pictures = drawn(*([shape, scale, rotation, 7, 20] for shape in range(3)))
    size = 0.5 + scale / 10
    areas = np.array([drawing.SQUARE**2, math.pi * math.prod(drawing.ELLIPSE), drawing.HEART**2 * (1 + math.pi / 4)])
    assert_allclose(pictures.sum((1, 2)) / 255, areas * size**2, rtol=0.01)


def test_a_square_that_stands_straight_is_exact_but_for_its_corners():
    picture = drawn([SQUARE, 0, 0, 0, 0])[0]  # a side of 10.5 around 16.5: from 11.25 to 21.75
    expected = np.zeros((64, 64))
    expected[11:22, 11:22] = 255
    expected[[11, 21], 11:22] = expected[11:22, [11, 21]] = 191  # three quarters of 255
    corners = np.zeros((64, 64), bool)
    corners[np.ix_([11, 21], [11, 21])] = True
    assert_array_equal(picture[~corners], expected[~corners])
    assert ((picture[corners] > 0.75**2 * 255) & (picture[corners] < 191)).all()  # a little too bright, as told


@pytest.mark.parametrize("shape", range(3))
def test_a_step_of_x_or_y_is_one_pixel(shape):
    start = [shape, 5, 3, 9, 11]
    here, right, down = drawn(start, [*start[:3], 10, 11], [*start[:3], 9, 12])
    assert_array_equal(right, np.roll(here, 1, axis=1))
    assert_array_equal(down, np.roll(here, 1, axis=0))


def test_the_middle_of_a_sprite_is_where_x_and_y_say():
    factors = np.array([[SQUARE, 0.8, 20.0, 0.3, 0.6], [ELLIPSE, 0.9, 70.0, 0.7, 0.41]])
    pictures = draw_sprites(factors, 128).numpy()[:, 0].astype(float)
    middles = (np.arange(128) + 0.5) / 128
    mass = pictures.sum((1, 2))
    assert_allclose((pictures.sum(1) @ middles) / mass, factors[:, 3], atol=1e-3)
    assert_allclose((pictures.sum(2) @ middles) / mass, factors[:, 4], atol=1e-3)


def test_squares_come_round_after_90_degrees_ellipses_after_180_and_hearts_after_360():
    def differ(shape, turn):
        one, other = drawn([shape, 5, 4, 16, 16], [shape, 5, 4 + turn, 16, 16])
        return np.abs(one.astype(int) - other).max()

    assert differ(SQUARE, 10) <= 1
    assert differ(ELLIPSE, 20) <= 1
    assert min(differ(SQUARE, 5), differ(ELLIPSE, 10), differ(HEART, 10), differ(HEART, 20)) > 200


def test_turning_is_counterclockwise():
    upright, turned = drawn([HEART, 5, 0, 16, 16], [HEART, 5, 10, 16, 16])  # the tip points down, then to the right
    assert np.abs(np.rot90(upright).astype(int) - np.roll(turned, -1, axis=0)).max() <= 1  # about 32.5, not 32
    lowest, rightmost = np.flatnonzero(upright.any(1))[-1], np.flatnonzero(turned.any(0))[-1]
    assert upright[lowest].astype(bool).sum() <= 3
    assert turned[:, rightmost].astype(bool).sum() <= 3


@pytest.mark.parametrize("shape", range(3))
def test_no_sprite_is_cut_off(shape):
    levels = [[shape, 5, rotation, x, y] for rotation in range(40) for x in (0, 31) for y in (0, 31)]
    pictures = drawn(*levels)
    border = np.concatenate(
        [pictures[:, [0, -1]].reshape(len(levels), -1), pictures[:, :, [0, -1]].reshape(len(levels), -1)]
    )
    assert not border.any()


def test_a_batch_drawn_alone_equals_the_same_rows_drawn_with_others(monkeypatch):
    few = SPRITES.draw_values(33, seed=3)
    many = np.concatenate([SPRITES.draw_values(20, seed=4), few])
    assert torch.equal(draw_sprites(many)[20:], draw_sprites(few))
    assert torch.equal(draw_sprites(few[7:8])[0], draw_sprites(few)[7])
    whole = draw_sprites(few)
    monkeypatch.setattr(drawing, "PIXELS_ON_CPU", 4 * 64 * 64)
    assert torch.equal(draw_sprites(few), whole)


def test_the_grid_is_that_of_dsprites():
    assert len(GRID) == 737_280
    assert dict(zip(GRID.names, GRID.sizes, strict=True)) == {"shape": 3, "scale": 6, "rotation": 40, "x": 32, "y": 32}
    last = SPRITES.values(np.array(GRID.sizes)[None] - 1)[0]
    assert_allclose(last, [2, 1, 351, 47.5 / 64, 47.5 / 64])


def test_sprites_come_from_the_grid_or_from_ranges():
    data = sprites(50, seed=1, device="cpu")
    assert data.images.shape == (50, 1, 64, 64)
    assert_array_equal(data.images[:, 0].numpy(), drawn(*data.factors))
    assert torch.equal(sprites(50, seed=1, device="cpu").images, data.images)
    loose = sprites(50, seed=1, continuous=True, side=16, device="cpu")
    assert loose.kinds == ("categorical", "continuous", "circular:360", "continuous", "continuous")
    assert loose.sizes == (3, None, None, None, None)
    assert torch.equal(loose.images, draw_sprites(loose.factors, 16))
    assert "not the original" in loose.note
