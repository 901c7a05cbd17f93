"""`congruence decoder` finds a decoder by name, measures it, and refuses in one sentence what it cannot use."""

import csv
import json
import sys

import numpy as np
import pytest

from congruence.cli import main

pytest.importorskip("torch")

MODULE = """
import torch

def load_decoder():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 6)).eval()

decoder = load_decoder()
number = 3

def plain():
    return lambda z: 2 * z

def nothing(): pass
def broken(): raise RuntimeError("no weights here")
def wanting(path): return path
def text(): return "decoder"
class training:
    def __new__(cls): return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a package of one's own and latents."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_models").mkdir()
    (tmp_path / "my_models" / "__init__.py").write_text("")
    (tmp_path / "my_models" / "model.py").write_text(MODULE)
    (tmp_path / "wrong_import.py").write_text("import no_such_package\n")
    (tmp_path / "wrong_code.py").write_text("1 / 0\n")
    np.save("latents.npy", np.random.default_rng(0).normal(size=(80, 3)))
    yield tmp_path
    for name in ("my_models.model", "my_models", "wrong_import", "wrong_code"):
        sys.modules.pop(name, None)


def call(*arguments):
    sys.argv = ["congruence", "decoder", *map(str, arguments)]
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


def test_a_decoder_is_measured_and_everything_is_written(folder, capsys):
    outputs = ("--json", "out.json", "--csv", "out.csv", "--report", "page.html")
    assert call("my_models.model:load_decoder", "latents.npy", *outputs) == 0
    out = capsys.readouterr().out
    assert "Theorem 1" in out
    assert "lower estimate" in out
    result = json.loads((folder / "out.json").read_text())
    assert result["numbers"]["stretch"]["n"] == 80
    assert result["settings"]["decoder"] == "my_models.model:load_decoder"
    assert result["settings"]["latents"] == "latents.npy"
    assert [premise["name"] for premise in result["findings"][0]["premises"]] == [
        "bi_lipschitz",
        "convex",
        "injective",
        "other",
        "agreement",
    ]
    with (folder / "out.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 80
    assert max(float(row["constant"]) for row in rows) == pytest.approx(
        result["numbers"]["stretch"]["constant"], rel=1e-9
    )
    assert "How much does the decoder stretch lengths" in (folder / "page.html").read_text()


def test_a_torch_module_by_name_and_json_on_stdout(folder, capsys):
    assert call("my_models.model:decoder", "latents.npy", "--json", "-", "--quiet", "--method", "lanczos") == 0
    assert json.loads(capsys.readouterr().out)["numbers"]["stretch"]["method"] == "lanczos"


def test_diameter_and_constant_are_passed_on(folder, capsys):
    options = ("--diameter", "40", "--constant", "0.5", "--json", "-", "-q")
    assert call("my_models.model:plain", "latents.npy", *options) == 0
    bound = json.loads(capsys.readouterr().out)["numbers"]["theorem1"]
    assert (bound["diameter"], bound["isometric_constant_from"], bound["constant"]) == (40.0, "yours", 2.0)


def test_another_training_is_compared(folder, capsys):
    options = ("--other", "my_models.model:plain", "--other-latents", "latents.npy", "--json", "-", "-q")
    assert call("my_models.model:plain", "latents.npy", *options) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["findings"][0]["premises"][-1]["status"] == "holds"
    assert result["numbers"]["other"]["constant"] == 2.0
    assert result["settings"]["other"] == "my_models.model:plain"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("my_models.model:plain", "latents.npy", "--other", "my_models.model:plain"),
            "other and other_latents must be set together",
        ),
        (("no_such_module:f", "latents.npy"), "there is no module 'no_such_module', neither in"),
        (("my_models.other:f", "latents.npy"), "there is no module 'my_models.other'"),
        (("my_models.model:absent", "latents.npy"), "my_models.model has no 'absent'"),
        (("my_models.model", "latents.npy"), "name a decoder as package.module:function"),
        (("my_models/absent.py:load_decoder", "latents.npy"), "there is no file 'my_models/absent.py'"),
        (("my_models/model:load_decoder", "latents.npy"), "name a decoder as package.module:function"),
        (("wrong_code.py:f", "latents.npy"), "cannot be imported: ZeroDivisionError"),
        (("my_models.model:plain",), "LATENTS must be given, since 'my_models.model:plain' is not a run folder"),
        (("runs/absent",), "there is no run folder runs/absent"),
        (("my_models.model:number", "latents.npy"), "must be a function; got int"),
        (("my_models.model:nothing", "latents.npy"), "returned nothing; it must return the decoder"),
        (("my_models.model:text", "latents.npy"), "must return a callable decoder; got str"),
        (("my_models.model:broken", "latents.npy"), "fails when called: RuntimeError: no weights here"),
        (("my_models.model:wanting", "latents.npy"), "takes no arguments and returns the decoder"),
        (("my_models.model:training", "latents.npy"), "dropout in training mode"),
        (("wrong_import:f", "latents.npy"), "the module wrong_import needs no_such_package"),
        (("wrong_code:f", "latents.npy"), "cannot be imported: ZeroDivisionError"),
        (("my_models.model:plain", "absent.npy"), "absent.npy"),
        (
            ("my_models.model:plain", "latents.npy", "--diameter", "wide"),
            "diameter must be 'auto' or a number above 0; got 'wide'",
        ),
        (("my_models.model:plain", "latents.npy", "--method", "guess"), "method must be one of"),
        (
            ("my_models.model:plain", "latents.npy", "--features", "z_*"),
            "features does not apply to files like latents",
        ),
        (("my_models.model:plain", "latents.npy", "--json", "latents.npy"), "--json latents.npy must end in .json"),
        (("my_models.model:plain", "latents.npy", "--report", "page.txt"), "--report page.txt must end in .html"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(arguments, message, folder, capsys):
    assert call(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_decoder_is_loaded_from_a_file(folder, capsys):
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "model.py").write_text(MODULE)
    assert call("elsewhere/model.py:plain", "latents.npy", "--json", "-", "-q") == 0
    assert json.loads(capsys.readouterr().out)["numbers"]["stretch"]["constant"] == 2.0


def test_the_decoders_of_two_run_folders_are_compared_with_their_own_latents(folder, capsys):
    from congruence.experiments.training import train

    how = {"data": "sprites", "n": 40, "steps": 2, "batch": 16, "device": "cpu"}
    runs = [str(run.folder) for run in train("ae", out="runs", seeds=(0, 1), **how)]
    assert call(runs[0], "--other", runs[1], "--method", "directions", "--json", "-", "-q") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["settings"]["decoder"] == runs[0]
    assert result["numbers"]["stretch"]["n"] == result["numbers"]["other"]["n"] == 40
    assert "agreement" in [premise["name"] for premise in result["findings"][0]["premises"]]
