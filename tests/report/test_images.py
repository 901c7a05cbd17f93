"""Images of a page: encoded in it, side by side."""

import base64
import io

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from congruence.document import Document, Image, Section
from congruence.report.html import GAP, png, render_html, side_by_side

pillow = pytest.importorskip("PIL.Image")


def test_a_png_can_be_read_and_is_the_same_every_time(rng):
    pixels = rng.integers(0, 256, size=(5, 7, 4), dtype=np.uint8)
    assert_array_equal(np.asarray(pillow.open(io.BytesIO(png(pixels)))), pixels)
    assert png(pixels) == png(pixels)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_side_by_side_with_transparent_gaps(channels, rng):
    images = rng.integers(0, 256, size=(3, channels, 4, 6), dtype=np.uint8)
    pixels = side_by_side(images)
    assert pixels.shape == (4, 3 * 6 + 2 * GAP, 4)
    second = pixels[:, 6 + GAP : 12 + GAP]
    assert_array_equal(second[..., :3], np.broadcast_to(images[1].transpose(1, 2, 0), (4, 6, 3)))
    assert (second[..., 3] == 255).all()
    assert (pixels[:, 6 : 6 + GAP, 3] == 0).all()


def test_a_page_holds_its_images(rng):
    images = rng.integers(0, 256, size=(2, 1, 4, 4), dtype=np.uint8)
    page = render_html(Document("?", "So.", "holds", sections=(Section("Images", (Image(images, "two"),)),)))
    body = page.partition("data:image/png;base64,")[2].partition('"')[0]
    assert_array_equal(np.asarray(pillow.open(io.BytesIO(base64.b64decode(body)))), side_by_side(images))
