"""`load` opens every file that congruence saves, also those of 0.1.0, and refuses others by name."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors import safe_open
from safetensors.numpy import save_file

from congruence._saved import load
from congruence.errors import InputError
from congruence.ica.estimator import ICA
from congruence.maps.groups import Map, fit_map, load_map
from congruence.result import SCHEMA_VERSION
from congruence.translation import Translator

EARLIER = Path(__file__).parent / "saved_by_0_1_0"  # made from the rows of `pair`, by version 0.1.0


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(300, 3))
    return x, 2 * x @ np.linalg.qr(rng.normal(size=(3, 3)))[0] + 1


@pytest.mark.parametrize(("name", "kind"), [("map", Map), ("translator", Translator), ("ica", ICA)])
def test_files_of_0_1_0_are_opened_by_their_kind(name, kind):
    assert type(load(EARLIER / f"{name}.safetensors")) is kind


def test_a_map_of_0_1_0_gives_the_numbers_it_gave(pair):
    x, y = pair
    assert_allclose(load(EARLIER / "map.safetensors")(x), y, atol=1e-12)


def test_a_translator_of_0_1_0_gives_the_numbers_it_gave(pair):
    x, y = pair
    translator = load(EARLIER / "translator.safetensors")
    assert repr(translator) == "<Translator 3 -> 3 dimensions, rigid, on the unit sphere>"
    unit_x, unit_y = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y))
    expected = fit_map(unit_y, unit_x, "rigid")(unit_y)
    assert_allclose(translator(y), expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-9)


def test_components_of_0_1_0_give_the_numbers_they_gave(pair):
    x, _ = pair
    found = load(EARLIER / "ica.safetensors")
    assert_allclose(found.inverse_transform(found.transform(x)), x, atol=1e-9)
    assert_allclose(np.cov(found.transform(x), rowvar=False, ddof=0), np.eye(3), atol=1e-6)


def test_what_is_saved_now_is_opened_again_and_has_a_schema_version(pair, tmp_path):
    x, y = pair
    h = fit_map(x, y)
    h.save(tmp_path / "map.safetensors")
    Translator(h, None, 3, 3).save(tmp_path / "translator.safetensors")
    for name, kind in (("map", Map), ("translator", Translator)):
        again = load(tmp_path / f"{name}.safetensors")
        assert type(again) is kind
        assert_array_equal(again(x), kind(h, None, 3, 3)(x) if kind is Translator else h(x))
        with safe_open(tmp_path / f"{name}.safetensors", framework="numpy") as file:
            header = json.loads(file.metadata()["congruence"])
        assert (header["kind"], header["schema_version"]) == (name, SCHEMA_VERSION)


def test_a_map_says_its_group_width_and_scale_on_one_line(pair):
    assert repr(fit_map(*pair)) == "<Map similarity, width 3, scale 2.00>"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({}, "is a safetensors file, but not a file saved by congruence"),
        ({"kind": "model"}, "x.safetensors holds 'model', but only files of the kinds map, translator, ica"),
        ({"kind": "map", "schema_version": SCHEMA_VERSION + 1}, "has schema version 2, but .* upgrade congruence"),
        ({"kind": "map", "schema_version": "one"}, "has schema version 'one'"),
        ({"kind": "map", "group": "affine"}, "does not hold a map: its group is 'affine'"),
        ({"kind": "map", "about": 5, "group": None}, "does not hold a map: its group is None"),
        ({"kind": "translator", "group": "rigid"}, "holds a map that was not written by translate"),
    ],
)
def test_other_files_are_refused_by_name(header, message, tmp_path):
    parts = {"matrix": np.eye(2), "source_mean": np.zeros(2), "target_mean": np.zeros(2)}
    save_file(parts, tmp_path / "x.safetensors", metadata={"congruence": json.dumps(header)})
    with pytest.raises(InputError, match=message):
        load(tmp_path / "x.safetensors")


def test_what_is_no_safetensors_file_is_refused_by_name(tmp_path):
    (tmp_path / "x.npy").write_text("hello")
    with pytest.raises(InputError, match=r"cannot read a file from .*x\.npy"):
        load(tmp_path / "x.npy")


def test_a_loader_refuses_a_file_of_another_kind_and_names_the_one_that_opens_it(pair, tmp_path):
    Translator(fit_map(*pair), None, 3, 3).save(tmp_path / "up.safetensors")
    for path, kind in ((tmp_path / "up.safetensors", "translator"), (EARLIER / "ica.safetensors", "ica")):
        with pytest.raises(InputError, match=f"holds '{kind}', not a map; open it with congruence.load"):
            load_map(path)
