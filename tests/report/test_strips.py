import base64
import dataclasses
import io
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from congruence.report.evaluation import render_evaluation
from congruence.report.strips import GAP, model_section, png, strip

pillow = pytest.importorskip("PIL.Image")


def opened(one):
    head, _, body = one["address"].partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(pillow.open(io.BytesIO(base64.b64decode(body))))


def test_a_png_can_be_read_and_is_the_same_every_time(rng):
    pixels = rng.integers(0, 256, size=(5, 7, 4), dtype=np.uint8)
    assert_array_equal(np.asarray(pillow.open(io.BytesIO(png(pixels)))), pixels)
    assert png(pixels) == png(pixels)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_stand_side_by_side_with_the_page_between_them(channels, rng):
    images = rng.integers(0, 256, size=(3, channels, 4, 6), dtype=np.uint8)
    one = strip(images, "three")
    pixels = opened(one)
    assert pixels.shape == (4, 3 * 6 + 2 * GAP, 4) == (one["height"], one["width"], 4)
    second = pixels[:, 6 + GAP : 12 + GAP]
    assert_array_equal(second[..., :3], np.broadcast_to(images[1].transpose(1, 2, 0), (4, 6, 3)))
    assert (second[..., 3] == 255).all()
    assert (pixels[:, 6 : 6 + GAP, 3] == 0).all()


def test_each_code_has_a_strip_and_the_factor_that_it_tells_of(rng):
    images = rng.integers(0, 256, size=(2, 1, 4, 4), dtype=np.uint8)
    pictures = SimpleNamespace(
        originals=images, reconstructions=images, traversals=(images, images), values=(np.array([-1.0, 2.0]),) * 2
    )
    codes = [
        SimpleNamespace(code="z0", factor="hue", active=True, idle=False),
        SimpleNamespace(code="z1", factor="", active=True, idle=True),
    ]
    found = model_section(pictures, SimpleNamespace(per_code=codes))
    assert [(row["name"], row["tells"], row["strip"]["about"]) for row in found["rows"]] == [
        ("z0", "hue", "z0 from −1.00 to 2.00"),
        ("z1", "", "z1 from −1.00 to 2.00"),
    ]


def test_what_codes_changed_before_stands_beside_what_they_change_now(make_evaluation, rng):
    images = rng.integers(0, 256, size=(2, 1, 4, 4), dtype=np.uint8)

    def shown(codes):
        values = (np.array([-1.0, 2.0]),) * codes
        return SimpleNamespace(originals=images, reconstructions=images, traversals=(images,) * codes, values=values)

    before = make_evaluation()
    after = dataclasses.replace(before, name="my model + ICA", beside=(before,))
    page = render_evaluation(after, shown(3), shown(3))
    assert "What each code changed before, and changes now" in page
    assert page.count("strip-of-images") > 3 * 3
    heading = page[page.index("Scores before and after") :]
    assert heading.index("<bdi>before</bdi>") < heading.index("<bdi>+ ICA</bdi>")
    alone = render_evaluation(before, shown(3))
    assert "What did ICA change?" not in alone
