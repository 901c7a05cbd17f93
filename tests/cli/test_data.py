"""`congruence data` lists what there is, draws a sheet of it, and writes it to a file."""

import sys

import numpy as np
import pytest
from PIL import Image

from congruence.cli import main
from congruence.experiments.data import list_data

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONGRUENCE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def call(*arguments):
    sys.argv = ["congruence", "data", *map(str, arguments)]
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


def size(path):
    with Image.open(path) as picture:
        return picture.size


def test_the_list_says_what_there_is_and_where_files_were_looked_for(folder, capsys):
    (folder / "data" / "shapes3d").mkdir(parents=True)
    (folder / "data" / "shapes3d" / "3dshapes.h5").write_bytes(b"x")
    assert call("list") == 0
    out = capsys.readouterr().out
    assert "rooms: a room with one object, generated; imitates Shapes3D" in out
    assert "480,000 images of 3 x 64 x 64; floor_hue 10, object_hue 10, orientation 15" in out
    assert f"found: {folder / 'data' / 'shapes3d' / '3dshapes.h5'}" in out
    assert f"isaac3d not found in {folder / 'data' / 'isaac3d'}" in out
    listed = {one.name: one for one in list_data()}
    assert listed["rooms"].where == "generated, no download"
    assert listed["pinwheel"].factors == {"arm": 3, "along": None, "across": None}


def test_a_sheet_is_drawn(folder, capsys):
    assert call("show", "rooms", "--columns", 4) == 0
    assert "sheet: rooms.png" in capsys.readouterr().err
    wide, tall = size("rooms.png")
    assert call("show", "rooms", "--columns", 4, "--rows", 3, "--out", "more.png") == 0
    assert size("more.png")[0] == wide
    assert size("more.png")[1] > tall + 200
    assert call("show", "sprites", "--columns", 3, "--continuous", "--seed", 1, "--out", "sprites.svg") == 0
    assert all(f"<!-- {word} -->" in (folder / "sprites.svg").read_text() for word in ("rotation", "heart", "120"))


def test_images_and_factors_are_written_for_other_programs(folder, capsys):
    assert call("make", "sprites", "--n", 40, "--seed", 3, "--out", "s.npz", "--factors", "f.csv") == 0
    assert "congruence evaluate codes.npy f.csv --kinds shape=categorical,scale=ordinal,rotation=circular:40" in (
        capsys.readouterr().err
    )
    from congruence.experiments.data import sprites

    data = sprites(40, seed=3, device="cpu")
    with np.load("s.npz", allow_pickle=False) as saved:
        assert np.array_equal(saved["images"], data.images.numpy())
        assert np.array_equal(saved["factors"], data.factors)
        assert saved["factor_names"].tolist() == list(data.factor_names)
        assert saved["kinds"].tolist() == list(data.kinds)
        assert "twin of dSprites" in str(saved["note"])
    lines = (folder / "f.csv").read_text().splitlines()
    assert lines[0].replace('"', "") == "shape,scale,rotation,x,y"
    assert np.array_equal(np.array([line.split(",") for line in lines[1:]], float), data.factors)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "roms"), "unknown data set 'roms'; did you mean rooms?"),
        (("show", "rooms", "--out", "x.jpg"), "a sheet of images is written as .png, .svg, .pdf; got 'x.jpg'"),
        (("show", "rooms", "--out", "no/x.png"), "cannot write to no/x.png: the folder no does not exist"),
        (("show", "dsprites"), "data set dsprites not found"),
        (("show", "mpi3d", "--continuous"), "continuous is an option of rooms and sprites; got mpi3d"),
        (("make", "rooms", "--out", "x.zip"), "data is written as .npz; got x.zip"),
        (
            ("make", "rooms", "--out", "x.npz", "--factors", "x.npz"),
            "factors must be another file than the data",
        ),
        (("make", "rooms", "--n", "0", "--out", "x.npz"), "n must be an integer of at least 1; got 0"),
        (("make", "rooms", "--seed", "-1", "--out", "x.npz"), "seed must be an integer from 0 to"),
        (("show", "rooms", "--seed", "-1", "--out", "x.png"), "seed must be an integer from 0 to"),
        (("make", "sprites", "--continuous", "--n", "3", "--seed", "-1", "--out", "x.npz"), "got -1"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments, message, folder, capsys):
    assert call(*arguments) == 2
    assert message in capsys.readouterr().err
    assert not list(folder.glob("x*"))


def test_rows_are_listed_and_written(folder, capsys):
    assert call("list") == 0
    assert "rows of 2 numbers; arm 3, along, across" in capsys.readouterr().out
    assert call("make", "pinwheel:5", "--n", 40, "--out", "p.npz", "--factors", "p.csv") == 0
    assert "40 rows: p.npz" in capsys.readouterr().err
    with np.load("p.npz") as file:
        assert file["rows"].shape == (40, 2)
        assert file["factors"][:, 0].max() <= 4
    assert call("show", "pinwheel") == 2
    assert "pinwheel is a data set of rows, not of images" in capsys.readouterr().err
