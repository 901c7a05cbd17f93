"""Models of a hub are used at one commit, from the cache or fetched into it, and never run code."""

import fnmatch
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from congruence.activations.hub import find_model, is_hub_name
from congruence.cli import main
from congruence.errors import InputError
from congruence.tables import read_table

hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
constants = pytest.importorskip("huggingface_hub.constants")
FIRST, SECOND = "0123456789abcdef" * 2 + "01234567", "f" * 40
PLAIN = {"config.json": b'{"model_type": "gpt_neox"}', "model.safetensors": b"weights"}


def put(cache, commit, files, name="someone/model"):
    """Lay files into a cache as the hub's own client does: blobs, and links to them."""
    home = cache / f"models--{name.replace('/', '--')}"
    for folder in (home / "blobs", home / "refs", home / "snapshots" / commit):
        folder.mkdir(parents=True, exist_ok=True)
    (home / "refs" / "main").write_text(commit)
    for file, content in files.items():
        blob = hashlib.sha256(content).hexdigest()
        (home / "blobs" / blob).write_bytes(content)
        link = home / "snapshots" / commit / file
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(os.path.relpath(home / "blobs" / blob, link.parent))
    return home / "snapshots" / commit


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a client that must not look at the network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


@pytest.fixture
def far(monkeypatch):
    """A hub far away: the files it has, and the patterns it was asked for."""
    files, asked = dict(PLAIN) | {"pytorch_model.bin": b"pickle", "onnx/model.onnx": b"", "tokenizer.json": b"{}"}, []

    def download(name, *, revision, cache_dir, allow_patterns):
        asked.extend(allow_patterns)
        wanted = {f: c for f, c in files.items() if any(fnmatch.fnmatch(f, p) for p in allow_patterns)}
        folder = Path(cache_dir)
        there = folder / f"models--{name.replace('/', '--')}" / "snapshots" / revision
        put(folder, revision, {f: c for f, c in wanted.items() if not (there / f).exists()}, name)

    monkeypatch.setattr(hub, "snapshot_download", download)
    monkeypatch.setattr(hub, "get_session", lambda: SimpleNamespace(head=lambda url, timeout: None))
    return files, asked


def test_what_the_cache_has_whole_is_used_without_a_network(cache):
    folder = put(cache, FIRST, PLAIN)
    found = find_model("someone/model", FIRST.upper())
    assert (found.folder, found.title) == (folder, f"someone/model@{FIRST}")


def test_without_a_revision_the_only_commit_of_the_cache_is_pinned(cache):
    put(cache, FIRST, PLAIN)
    assert find_model("someone/model").commit == FIRST
    put(cache, SECOND, PLAIN)
    with pytest.raises(InputError, match=f"name can change: .*; the cache holds {FIRST}, {SECOND}"):
        find_model("someone/model")


@pytest.mark.parametrize("revision", ["main", "v1.0", FIRST[:8], FIRST + "0", ""])
def test_what_can_be_moved_is_refused_with_the_way_to_find_a_commit(cache, revision):
    put(cache, FIRST, PLAIN)
    says = f"not '{revision}', which can change: https://huggingface.co/someone/model/commits/main lists them"
    with pytest.raises(InputError, match=says):
        find_model("someone/model", revision)


def test_without_a_network_it_is_said_and_what_to_do(cache):
    with pytest.raises(
        InputError, match=r"is not in the cache .*the download failed \(.*offline mode is enabled"
    ) as error:
        find_model("someone/model", FIRST)
    assert f"'hf download someone/model --revision {FIRST}'" in str(error.value)


def test_a_hub_that_cannot_be_reached_is_not_asked_again_and_again(cache, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody answers
    started = time.monotonic()
    with pytest.raises(InputError, match=r"the download failed \(.*[Cc]onnection"):
        find_model("someone/model", FIRST)
    assert time.monotonic() - started < 5


def test_only_what_is_needed_is_fetched(cache, far):
    files, asked = far
    found = find_model("someone/model", FIRST)
    assert sorted(path.name for path in found.folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert not any(fnmatch.fnmatch("pytorch_model.bin", pattern) for pattern in asked)
    files.clear()
    assert find_model("someone/model", FIRST) == found  # and not asked for again


def test_what_is_missing_of_a_snapshot_is_fetched(cache, far):
    files, _ = far
    index = json.dumps({"weight_map": {"a": "model-1-of-1.safetensors"}}).encode()
    put(cache, FIRST, {"config.json": b"{}", "model.safetensors.index.json": index})
    files |= {"model-1-of-1.safetensors": b"weights"}
    assert (find_model("someone/model", FIRST).folder / "model-1-of-1.safetensors").is_file()


def test_modules_of_sentence_transformers_are_fetched_with_their_weights(cache, far):
    files, _ = far
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    put(cache, FIRST, PLAIN | {"modules.json": json.dumps(listed).encode()})  # as if its download had been cut short
    with pytest.raises(InputError, match="2_Dense"):
        find_model("someone/model", FIRST)
    files |= {"1_Pooling/config.json": b"{}", "2_Dense/config.json": b"{}", "2_Dense/model.safetensors": b"weights"}
    files |= {"2_Dense/pytorch_model.bin": b"pickle"}
    found = find_model("someone/model", FIRST).folder
    assert sorted(path.name for path in (found / "2_Dense").iterdir()) == ["config.json", "model.safetensors"]
    assert (found / "1_Pooling/config.json").is_file()


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_of_its_own_is_refused_before_weights_are_fetched(cache, far, name):
    files, asked = far
    files[name] = b'{"auto_map": {"AutoModel": "evil.Model"}}'
    with pytest.raises(InputError, match=f"{name} asks to run its own code"):
        find_model("someone/model", FIRST)
    assert "model.safetensors" not in asked
    with pytest.raises(InputError, match="asks to run its own code"):  # now from the cache, through its links
        find_model("someone/model", FIRST)


def test_pickled_weights_in_the_cache_are_refused(cache):
    put(cache, FIRST, {"config.json": b"{}", "pytorch_model.bin": b"pickle"})
    with pytest.raises(InputError, match="no model.safetensors, but pytorch_model.bin, which may run code"):
        find_model("someone/model", FIRST)


def test_links_stay_in_the_cache(cache, tmp_path):
    folder = put(cache, FIRST, PLAIN)
    (tmp_path / "secret.json").write_text("{}")
    (folder / "tokenizer.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(InputError, match="tokenizer.json is a link out of"):
        find_model("someone/model", FIRST)


def test_links_in_folders_of_a_snapshot_stay_in_the_cache_and_one_to_itself_is_no_file(cache, tmp_path):
    folder = put(cache, FIRST, PLAIN)
    (folder / "tokenizer.json").symlink_to("tokenizer.json")
    assert find_model("someone/model", FIRST).folder == folder
    (folder / "inner").mkdir()
    (folder / "inner" / "template").symlink_to(tmp_path)
    with pytest.raises(InputError, match="inner/template is a link out of"):
        find_model("someone/model", FIRST)


def test_a_model_moved_to_another_disk_and_blobs_shared_by_models_are_followed(cache, tmp_path):
    put(tmp_path / "disk", FIRST, PLAIN)
    cache.mkdir()
    (cache / "models--someone--model").symlink_to(tmp_path / "disk" / "models--someone--model")
    folder = find_model("someone/model", FIRST).folder
    (cache / "blobs").mkdir()
    (cache / "blobs" / "shared").write_bytes(b"weights")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(cache / "blobs" / "shared")
    assert find_model("someone/model", FIRST).folder == folder


@pytest.mark.parametrize(
    ("name", "right"),
    [("EleutherAI/pythia-70m", True), ("a/b.c_d", True), ("model", False), ("a/b/c", False), ("../b", False),
     ("a/..", False), ("a/b--c", False), ("a/b:c", False), ("./model", False), ("/a/b", False)],
)  # fmt: skip
def test_names_are_an_owner_and_a_model(name, right):
    assert is_hub_name(name) == right


def test_a_model_of_the_cache_is_extracted_and_its_commit_stands_in_the_table(cache, tmp_path, monkeypatch, capsys):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("torch").manual_seed(0)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    transformers.GPTNeoXModel(transformers.GPTNeoXConfig(vocab_size=9, **size)).save_pretrained(tmp_path / "saved")
    put(cache, FIRST, {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()})
    np.save(tmp_path / "tokens.npy", np.arange(18).reshape(6, 3) % 9)
    monkeypatch.chdir(tmp_path)
    arguments = ["--array", "tokens.npy", "--layer", "layers.0", "--pool", "last", "--device", "cpu", "--out"]
    found = {}
    for name, words in {"hub": ["someone/model"], "folder": ["saved"]}.items():
        monkeypatch.setattr(sys, "argv", ["congruence", "extract", *words, *arguments, f"{name}.parquet"])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code
        found[name] = read_table(f"{name}.parquet")
    assert np.array_equal(found["hub"].values, found["folder"].values)
    assert set(found["hub"].metadata["Metadata_model"]) == {f"someone/model@{FIRST}"}
    assert not found["folder"].metadata
    assert f"in the cache: revision {FIRST}" in capsys.readouterr().err
