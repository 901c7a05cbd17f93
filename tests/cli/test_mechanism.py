"""`congruence mechanism` checks given blocks, finds blocks where none are given, and refuses what it cannot use."""

import csv
import json
import sys

import numpy as np
import pytest

from congruence.cli import main

pytest.importorskip("torch")

MODULE = """
import torch

W = torch.randn(2, 6, generator=torch.Generator().manual_seed(0)).double()
T = torch.tensor([[1.0, 1, 0, 0], [1, -1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]).double()

def disjoint():
    def decode(s):
        a, b = s[:, :1], s[:, 1:2]
        return torch.cat([a, a.exp(), b, b**3 + b, (s[:, 2:].tanh() @ W)], dim=1)
    return decode

def turned():
    decode = disjoint()
    return lambda s: decode(s @ T)

def model():
    decode = disjoint()
    return lambda c: decode(torch.stack([c[:, 3], 2 * c[:, 2], c[:, 0] + c[:, 1] / 2, c[:, 1]], dim=1))

def ends_itself():
    raise SystemExit("usage: made [-h]")

def still():
    return lambda s: torch.ones(len(s), 5).double() + 0 * s[:, :1]

def square():
    return lambda s: (s @ T).sinh()

def pictures():
    def decode(s):
        grid = torch.linspace(-2, 2, 8).double()
        left = torch.exp(-((grid[:4] - s[:, :1]) ** 2))[:, None, :].expand(-1, 8, 4)
        right = torch.exp(-((grid[4:] - s[:, 1:2]) ** 2))[:, None, :].expand(-1, 8, 4)
        return torch.cat([left, right], dim=2)[:, None] * (1 + 0 * s[:, 2:].sum())
    return decode
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with decoders and latents."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "made.py").write_text(MODULE)
    np.save("latents.npy", np.random.default_rng(0).uniform(0.2, 1.2, size=(20, 4)))
    yield tmp_path
    sys.modules.pop("made", None)


def call(*arguments):
    sys.argv = ["congruence", "mechanism", *map(str, arguments)]
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


def test_given_blocks_are_checked_and_everything_is_written(folder, capsys):
    outputs = ("--json", "out.json", "--csv", "out.csv", "--report", "page.html")
    assert call("made:disjoint", "latents.npy", "--blocks", "0,1,2-3", "--points", 6, *outputs) == 0
    out = capsys.readouterr().out
    assert "Theorem 2 identifies the blocks 0,1,2-3" in out
    assert "Criteria for the blocks 0,1,2-3, 6 points" in out
    result = json.loads((folder / "out.json").read_text())
    assert (result["status"], result["findings"][0]["basis"]) == ("unknown", "not refuted")
    assert result["numbers"]["check"]["theorems"][0]["conditional"]
    assert result["numbers"]["parts"]["longest"]["parts"] == 3
    assert (result["settings"]["decoder"], result["settings"]["latents"]) == ("made:disjoint", "latents.npy")
    assert result["numbers"]["blocks_from"] == "given"
    assert result["numbers"]["discovery"] is None
    assert result["numbers"]["profile"]["points"] == 6
    with (folder / "out.csv").open() as handle:
        statuses = {row["criterion"]: row["status"] for row in csv.DictReader(handle)}
    assert (statuses["D"], statuses["H2"]) == ("holds", "holds")
    assert "Do the factors act on separate parts of the observation?" in (folder / "page.html").read_text()


def test_blocks_are_found_where_none_are_given(folder, capsys):
    assert call("made:disjoint", "latents.npy", "--points", 4, "--json", "-", "--types", "D") == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert result["numbers"]["blocks_from"] == "D"
    assert result["numbers"]["blocks"] == [[0], [1], [2, 3]]
    assert "3 parts of dimensions 1, 1, 2 at every point" in said.err


def test_parts_that_are_not_along_the_coordinates_are_reported(folder, capsys):
    assert call("made:turned", "latents.npy", "--points", 4, "--types", "D") == 0
    out = capsys.readouterr().out
    assert "3 parts of dimensions 1, 1, 2 at every point, but not along the coordinates (0-1,2-3)" in out


def test_a_model_of_the_generator_is_judged(folder, capsys):
    options = ("--blocks", "0,1,2-3", "--points", 5, "--orders", "2", "--model", "made:model")
    assert call("made:disjoint", "latents.npy", *options, "--json", "out.json", "--report", "page.html") == 0
    assert "The codes are disentangled at 5 points" in capsys.readouterr().out
    result = json.loads((folder / "out.json").read_text())
    model = result["numbers"]["disentanglement"]
    assert [finding["name"] for finding in result["findings"]] == ["identified", "disentangled", "disentangled_domain"]
    assert result["findings"][0]["status"] == "holds"
    assert (result["findings"][1]["status"], model["factor_of"], model["sparse"]) == ("holds", [2, 2, 1, 0], 1.0)
    assert result["settings"]["model"] == "made:model"
    assert "Is the model disentangled?" in (folder / "page.html").read_text()
    z = np.load("latents.npy")
    np.save("codes.npy", np.stack([z[:, 2] - z[:, 3] / 2, z[:, 3], z[:, 1] / 2, z[:, 0]], axis=1))
    assert call("made:disjoint", "latents.npy", *options, "--codes", "codes.npy", "--json", "-", "-q") == 0
    given = json.loads(capsys.readouterr().out)
    assert given["findings"][1]["status"] == "holds"
    assert given["numbers"]["disentanglement"]["factor_of"] == [2, 2, 1, 0]
    np.save("codes.npy", z[:3])
    assert call("made:disjoint", "latents.npy", *options, "--codes", "codes.npy") == 2
    assert "a row for each of 20 rows of latents; got 3" in capsys.readouterr().err


def test_a_square_jacobian_is_noted_once(folder, capsys):
    assert call("made:square", "latents.npy", "--points", 3, "--types", "D", "--orders", "2") == 0
    said = capsys.readouterr()
    assert (said.out + said.err).count("4 outputs for 4 latents") == 1


def test_outputs_that_are_images_are_shown_as_images(folder):
    page = folder / "page.html"
    options = ("--blocks", "0,1,2-3", "--points", 3, "--orders", "2", "--report", page, "-q")
    assert call("made:pictures", "latents.npy", *options) == 0
    text = page.read_text()
    assert text.count("data:image/png;base64,") == 3
    assert "z2-3 moves 0 outputs of 64" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--blocks", "0,1"), "latent 2 is in none of"),
        (("--blocks", "a"), "blocks must be written like '0-1,2,3-4'"),
        (("--codes", "latents.npy"), "codes require model"),
        (("--orders", "1"), "orders must be an integer of at least 2; got 1"),
        (("--orders", "9" * 30), "orders must be at most 10"),
        (("--orders", "two"), "orders must be an integer of at least 2; got 'two'"),
        (("--types", "M"), "types must be some of D, S, H2; got M"),
        (("--scale", "rows", "--blocks", "0-3"), "scale must be one of"),
        (("--points", "0"), "points must be an integer of at least 1"),
        (("--json", "latents.npy"), "--json latents.npy must end in .json"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(arguments, message, folder, capsys):
    assert call("made:disjoint", "latents.npy", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_rows_that_codes_or_latents_lack_are_left_out_of_both(folder, capsys):
    z = np.load("latents.npy")
    codes = np.stack([z[:, 2] - z[:, 3] / 2, z[:, 3], z[:, 1] / 2, z[:, 0]], axis=1)
    z[3, 0] = codes[15, 1] = np.nan  # one row each: counts agree, rows would not
    np.save("holes.npy", z)
    np.save("codes.npy", codes)
    options = ("--blocks", "0,1,2-3", "--model", "made:model", "--codes", "codes.npy", "--drop-missing", "-q")
    assert call("made:disjoint", "holes.npy", *options, "--json", "-") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["numbers"]["check"]["points"] == 18
    assert "The codes are disentangled at 18 points" in result["verdict"]
    assert "2 of 20 rows have NaN or infinite values and were left out." in result["notes"]


def test_codes_are_paired_by_id(folder, capsys):
    z = np.load("latents.npy")
    codes = np.stack([z[:, 2] - z[:, 3] / 2, z[:, 3], z[:, 1] / 2, z[:, 0]], axis=1)
    for name, values, order in (("z.csv", z, 1), ("codes.csv", codes, -1)):
        rows = [f"s{i}," + ",".join(map(repr, row.tolist())) for i, row in enumerate(values)][::order]
        (folder / name).write_text("\n".join(["sample,a,b,c,d", *rows]))
    options = ("--id", "sample", "--blocks", "0,1,2-3", "--model", "made:model", "-q")
    assert call("made:disjoint", "z.csv", *options, "--codes", "codes.csv", "--json", "-") == 0
    assert "disentangled at 20 points" in json.loads(capsys.readouterr().out)["verdict"]

    (folder / "codes.csv").write_text("\n".join((folder / "codes.csv").read_text().splitlines()[:-2]))
    assert call("made:disjoint", "z.csv", *options, "--codes", "codes.csv") == 2
    assert "2 rows of latents and 0 rows of codes have no partner" in capsys.readouterr().err


def test_whole_numbers_are_latents_and_nothing_is_reported_twice(folder, capsys):
    np.save("whole.npy", np.arange(1, 13).reshape(3, 4) % 5)
    assert call("made:disjoint", "whole.npy", "--types", "D,D", "--orders", "2,2", "--json", "-", "-q") == 0
    result = json.loads(capsys.readouterr().out)
    assert [one["type"] for one in result["numbers"]["discovery"]["found"]] == ["D"]
    assert [one["criterion"] for one in result["numbers"]["check"]["criteria"]].count("H2") == 1


def test_a_decoder_that_moves_nothing_is_reported(folder, capsys):
    assert call("made:still", "latents.npy", "--blocks", "0-1,2-3", "--csv", "out.csv") == 0
    out = capsys.readouterr().out
    assert "No theorem is known to identify the blocks 0-1,2-3." in out
    assert "nan" not in out


def test_a_script_that_ends_itself_is_reported(folder, capsys):
    assert call("made:ends_itself", "latents.npy") == 2
    assert "made:ends_itself fails when called: SystemExit: usage: made [-h]" in capsys.readouterr().err
    assert call(".made:disjoint", "latents.npy") == 2
    assert "cannot find a decoder called '.made:disjoint'" in capsys.readouterr().err


def test_decoders_are_loaded_from_files(folder, capsys):
    (folder / "elsewhere").mkdir()
    (folder / "made.py").rename(folder / "elsewhere" / "made.py")
    options = ("--blocks", "0,1,2-3", "--points", 4, "--orders", "2", "--model", "elsewhere/made.py:model", "-q")
    assert call("elsewhere/made.py:disjoint", "latents.npy", *options, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["status"] == "holds"


def test_the_decoder_of_a_run_folder_is_examined_at_its_latents(folder, capsys):
    from congruence.experiments.training import train

    how = {"data": "random-relu", "n": 60, "steps": 2, "batch": 20, "device": "cpu", "hidden": (8,)}
    (run,) = train("mixvae", out="runs", seeds=(0,), **how)
    assert call(run.folder, "--points", 3, "--orders", "2", "--types", "D", "--json", "-", "-q") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["settings"]["decoder"] == str(run.folder)
    assert result["numbers"]["check"]["points"] == 3
