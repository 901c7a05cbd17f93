import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from congruence.errors import InputError, MissingDependencyError
from congruence.experiments.data import FactorImages, load_images
from congruence.experiments.data._image_sets import FactorGrid
from congruence.experiments.data.factor_data import KINDS
from congruence.experiments.data.registry import IMAGE_SETS
from congruence.experiments.data.variations import vary_factors
from congruence.metrics import factors as evaluated
from congruence.metrics.factors import read_factors


@pytest.fixture
def data(rng):
    images = rng.integers(256, size=(6, 3, 4, 5), dtype=np.uint8)
    factors = np.array([[i % 2, i // 2] for i in range(6)])
    return FactorImages("toy", images, factors, ("colour", "size"), ("categorical", "ordinal"), (2, 3))


def test_data_has_a_length_a_shape_and_columns(data):
    assert len(data) == 6
    assert data.shape == (3, 4, 5)
    assert_array_equal(data.columns["size"], [0, 0, 1, 1, 2, 2])
    assert repr(data) == "FactorImages(toy: 6 images of 3 x 4 x 5, colour, size)"


def test_rows_are_taken_with_their_factors(data):
    part = data.take([4, 1])
    assert_array_equal(part.images, data.images[[4, 1]])
    assert_array_equal(part.factors, data.factors[[4, 1]])
    assert len(data.take(slice(2, None))) == 4


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"images": np.zeros((6, 4, 5), np.uint8)},
            r"images must have shape \(n, channels, height, width\); got \(6, 4, 5\)",
        ),
        ({"images": np.zeros((6, 3, 4, 5))}, "images must be uint8; got float64"),
        ({"factors": np.zeros((5, 2), int)}, r"factors must have shape \(6, 2\) \(inputs, names\); got \(5, 2\)"),
        ({"kinds": ("ordinal",)}, "kinds must have one entry for each of the 2 factors; got 1"),
        ({"sizes": (2, 3, 4)}, "sizes must have one entry for each of the 2 factors; got 3"),
        ({"kinds": ("ordinal", "round")}, "kinds must be among categorical, .*; got 'round'"),
        ({"sizes": (2, 2)}, "levels of size must be from 0 to 1; got 0 to 2"),
    ],
)
def test_what_does_not_fit_together_is_refused(changed, message, data):
    with pytest.raises(InputError, match=message):
        replace(data, **changed)


def test_kinds_are_the_words_that_evaluation_uses():
    assert KINDS == evaluated.KINDS
    for one in IMAGE_SETS.values():
        levels = one.grid.levels(np.random.default_rng(0).integers(len(one.grid), size=4000))
        named = read_factors(dict(zip(one.grid.names, levels.T, strict=True)), one.grid.kinds)
        assert all(factor.is_discrete for factor in named)
        for factor, kind, size in zip(named, one.grid.kinds, one.grid.sizes, strict=True):
            assert not kind.startswith("circular") or factor.period == size


def test_every_set_counts_as_published():
    counts = {name: one.count for name, one in IMAGE_SETS.items()}
    assert counts == {
        "rooms": 480_000, "sprites": 737_280, "shapes3d": 480_000, "mpi3d": 460_800, "falcor3d": 233_280,
        "isaac3d": 737_280, "dsprites": 737_280, "mnist": 60_000,
    }  # fmt: skip
    assert all(one.is_whole for name, one in IMAGE_SETS.items() if name != "mnist")
    assert {name for name, one in IMAGE_SETS.items() if one.shape[0] == 1} == {"sprites", "dsprites", "mnist"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("room", "did you mean rooms"),
        ("Shapes3D", "did you mean shapes3d"),
        ("zzz", "known are rooms, sprites, shapes3d"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_what_is(name, hint):
    with pytest.raises(InputError, match=f"unknown data set '{name}'; {hint}"):
        load_images(name)


def test_generated_images_are_loaded_by_name():
    pytest.importorskip("torch")
    from congruence.experiments.data import sprites

    assert_array_equal(
        load_images("sprites", 5, seed=2, device="cpu").images.numpy(), sprites(5, seed=2, device="cpu").images.numpy()
    )
    assert load_images("rooms", 3, continuous=True, device="cpu").sizes[0] is None
    with pytest.raises(InputError, match="continuous is an option of rooms and sprites; got mnist"):
        load_images("mnist", continuous=True)


def test_drawing_without_torch_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"needs torch: pip install 'congruence\[torch\]'"):
        load_images("rooms", 3)


def test_labels_of_a_file_become_levels_by_their_size():
    grid = FactorGrid(("a", "b"), ("ordinal", "ordinal"), (2, 3))
    labels = np.array([[0.5, 2], [0.5, -1], [0.5, 0], [0.1, 0], [0.1, 2], [0.1 + 1e-9, -1]])
    assert_array_equal(grid.rank_labels(labels, "x"), [[1, 2], [1, 0], [1, 1], [0, 1], [0, 2], [0, 0]])


@pytest.mark.parametrize("continuous", [False, True])
def test_variations_change_one_factor_at_a_time(continuous):
    pytest.importorskip("torch")
    shown = vary_factors("sprites", columns=4, rows=2, continuous=continuous)
    assert [row.name for row in shown] == ["random", "random", "shape", "scale", "rotation", "x", "y"]
    assert [len(row.images) for row in shown] == [4, 4, 3, 4, 4, 4, 4]
    assert shown[2].labels == ("square", "ellipse", "heart")
    assert shown[3].labels[0] == "0.5"
    assert shown[4].labels[0] == "0"
    areas = shown[5].images.sum((1, 2, 3), dtype=float)
    assert areas.std() < 0.01 * areas.mean()  # moving changes nothing else
    assert (np.diff(shown[3].images.sum((1, 2, 3), dtype=float)) > 0).all()  # growing does
    with pytest.raises(InputError, match="continuous is an option of rooms and sprites; got mnist"):
        vary_factors("mnist", continuous=True)
