"""`congruence extract` loads a model by name, writes its layers, and says in one sentence what it cannot use."""

import sys

import numpy as np
import pytest

from congruence.cli import main
from congruence.tables import read_table

torch = pytest.importorskip("torch")

MODULE = """
import torch

def load():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 6))

def tokens(texts):
    return torch.tensor([[float(len(text))] * 3 for text in texts])

def reader(): return load(), tokens
def text(): return "model"
def odd(): return load(), 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_extracted.py").write_text(MODULE)
    np.save("x.npy", np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32))
    (tmp_path / "corpus.txt").write_text("one\nthree\n")
    yield tmp_path
    sys.modules.pop("my_extracted", None)


def call(*arguments):
    sys.argv = ["congruence", "extract", *map(str, arguments)]
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


def test_layers_are_written_and_told(folder, capsys):
    arguments = ("--array", "x.npy", "--device", "cpu", "--layer", 0, "--layer", 1, "--out", "r{layer}.parquet")
    assert call("my_extracted:load", *arguments) == 0
    assert capsys.readouterr().out.splitlines() == [
        "0: 80 rows x 8 dimensions in r0.parquet",
        "1: 80 rows x 8 dimensions in r1.parquet",
    ]
    assert np.array_equal(read_table("r1.parquet").values, torch.tanh(torch.tensor(read_table("r0.parquet").values)))


def test_ids_that_occur_more_than_once_are_told_of(folder, capsys):
    np.savez("x.npz", x=np.ones((4, 3), np.float32), ids=np.array(["a", "b", "a", "c"]))
    assert call("my_extracted:load", "--array", "x.npz", "--layer", 0, "--device", "cpu", "--out", "r.parquet") == 0
    assert "note: ids occur more than once (a); compare and layers refuse such tables" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("array", "message"),
    [(np.array([["a", "b"]]), "odd.npy must hold numbers"), (np.ones((0, 3)), "odd.npy must have rows")],
)
def test_an_array_that_has_no_rows_of_numbers_is_named_and_refused(folder, capsys, array, message):
    np.save("odd.npy", array)
    assert call("my_extracted:load", "--array", "odd.npy", "--layer", 0, "--out", "r.parquet") == 2
    assert message in capsys.readouterr().err


def test_rows_that_are_not_finite_are_written_and_told_of(folder, capsys):
    x = np.ones((4, 3), np.float32)
    x[1, 0], x[2, 2] = np.nan, np.inf
    np.save("odd.npy", x)
    assert call("my_extracted:load", "--array", "odd.npy", "--device", "cpu", "--layer", 0, "--out", "a.parquet") == 0
    assert capsys.readouterr().err == "note: 2 of 4 rows of 0 contain NaN or infinity; compare refuses them\n"


def test_layers_are_listed_with_shapes_where_there_are_inputs(folder, capsys):
    assert call("my_extracted:load", "--layers") == 0
    assert "Tanh" in capsys.readouterr().out
    assert call("my_extracted:load", "--layers", "--array", "x.npy") == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "layer  kind    parameters  output",
        "0      Linear          32  2 x 8",
    ]


def test_text_goes_through_what_the_loader_returns_beside_the_model(folder):
    arguments = ("--text", "corpus.txt", "--layer", "2", "--out", "t.parquet", "-q")
    assert call("my_extracted:reader", *arguments) == 0
    assert read_table("t.parquet").ids.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("my_extracted:load --layer 0 --out a.parquet", "give the inputs of the model: --array FILE"),
        ("my_extracted:load --array x.npy --out a.parquet", "name a layer with --layer"),
        ("my_extracted:load --array x.npy --layer 0", "give the table to write with --out"),
        ("my_extracted:load --array x.npy --text corpus.txt --layers", "--array and --text cannot be given together"),
        (
            "my_extracted:load --array x.npy --layer 0 --out a.parquet --size 8",
            "size applies to the path of images only",
        ),
        (
            "my_extracted:load --text corpus.txt --layer 0 --out a.parquet",
            "texts must be tokenized, but the model has no",
        ),
        ("my_extracted:text --array x.npy --layer 0 --out a.parquet", "returned a str, not a torch module"),
        ("my_extracted:odd --array x.npy --layer 0 --out a.parquet", "callable prepare; got a int"),
        ("my_extracted:no --array x.npy --layer 0 --out a.parquet", "my_extracted has no 'no'; name a model as"),
        (
            "a/b/model --array x.npy --layer 0 --out a.parquet",
            "a/b/model is not a model: give a folder that exists, the name of",
        ),
        (
            "my_extracted:load --revision main --array x.npy --layer 0 --out a.parquet",
            "revision applies only to models of a hub",
        ),
        ("my_extracted:load --array x.npy --layer 3 --out a.parquet", "the model has no layer '3'"),
        (
            "my_extracted:load --images . --mean a,b --layer 0 --out a.parquet",
            "mean and std must be three numbers each",
        ),
        ("my_extracted:load --array x.npy --layer 0 --out x.npy", "--out x.npy would overwrite the input x.npy"),
        (
            "no/folder --array x.npy --layer 0 --out a.parquet",
            "no/folder is not a folder; as the name of a model",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(folder, capsys, arguments, says):
    assert call(*arguments.split()) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not list(folder.glob("*.parquet"))


def test_a_folder_that_brings_code_is_refused(folder, capsys):
    (folder / "net").mkdir()
    (folder / "net" / "config.json").write_text('{"auto_map": {"AutoModel": "evil.Model"}}')
    assert call("net", "--array", "x.npy", "--layer", "0", "--out", "a.parquet") == 2
    assert "asks to run its own code" in capsys.readouterr().err


def test_a_folder_without_transformers_says_what_to_install(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    (folder / "net").mkdir()
    (folder / "net" / "config.json").write_text("{}")
    (folder / "net" / "model.safetensors").write_bytes(b"")
    assert call("net", "--array", "x.npy", "--layer", "0", "--out", "a.parquet") == 2
    assert "pip install 'congruence[extract]'" in capsys.readouterr().err


def test_a_language_model_in_a_folder_needs_its_tokenizer(folder, capsys):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    transformers.GPTNeoXModel(transformers.GPTNeoXConfig(vocab_size=9, **size)).save_pretrained(folder / "net")
    capsys.readouterr()
    assert call("net", "--text", "corpus.txt", "--layer", "layers.0", "--out", "a.parquet") == 2
    assert capsys.readouterr().err == (
        "congruence: texts must be tokenized, but net has no tokenizer.json; save the tokenizer next to the model\n"
    )
    np.save("tokens.npy", np.arange(18).reshape(6, 3) % 9)
    assert call("net", "--array", "tokens.npy", "--layer", "layers.0", "--out", "a.parquet") == 0
    assert capsys.readouterr().out == "layers.0: 18 rows x 8 dimensions in a.parquet\n"


def test_a_layer_does_not_overwrite_the_input_whose_name_it_makes(folder, capsys):
    assert call("my_extracted:load", "--array", "x.npy", "--layer", "0", "--out", "r0.parquet", "-q") == 0
    assert call("my_extracted:load", "--array", "r0.parquet", "--layer", "0", "--out", "r{layer}.parquet") == 2
    assert "--out r0.parquet would overwrite the input r0.parquet" in capsys.readouterr().err
