"""Folders that bring code or pickles are refused before anything in them is opened."""

import json

import pytest

from congruence.activations.hub import check_model_folder, module_folders
from congruence.errors import InputError
from congruence.guards import SETTINGS_BYTES


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neox"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def test_a_plain_folder_is_accepted_whatever_else_lies_in_it(folder):
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    assert check_model_folder(folder) == {"model_type": "gpt_neox"}


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "preprocessor_config.json"])
def test_code_of_its_own_is_refused(folder, name):
    (folder / name).write_text('{"auto_map": {"AutoModel": "evil.Model"}}')
    with pytest.raises(InputError, match=f"{name} asks to run its own code"):
        check_model_folder(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pkl"])
def test_pickled_weights_are_refused(folder, name):
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(InputError, match=f"has no model.safetensors, but {name}, which may run code when unpickled"):
        check_model_folder(folder)


@pytest.mark.parametrize(
    ("shards", "says"),
    [
        ({"a": "../other/model.safetensors"}, "of its own folder, not ../other/model.safetensors"),
        ({"a": "pytorch_model.bin"}, "of its own folder, not pytorch_model.bin"),
        ({"a": 3}, "of its own folder, not none"),
        ({}, "of its own folder, not none"),
        ({"a": "part-1.safetensors"}, "lacks part-1.safetensors"),
    ],
)
def test_an_index_may_name_only_weights_of_its_folder(folder, shards, says):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(InputError, match=says):
        check_model_folder(folder)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "config.json, it may be damaged: it is not JSON"),
        ("[" * 100_000, "config.json, it may be damaged: it is nested too deeply"),
        ("[1]", "holds a list"),
        (" " * (SETTINGS_BYTES + 1), "too many for settings"),
    ],
)
def test_configs_that_are_none_are_refused(folder, text, says):
    (folder / "config.json").write_text(text)
    with pytest.raises(InputError, match=says):
        check_model_folder(folder)


def test_what_is_not_there_or_not_whole_is_named(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/model"}')
    with pytest.raises(InputError, match="has only an adapter"):
        check_model_folder(folder)
    with pytest.raises(InputError, match="has no config.json"):
        check_model_folder(folder / "nowhere")


@pytest.mark.parametrize(
    "config",
    [
        {"num_labels": 10**9},
        {"text_config": {"num_hidden_layers": 10**9}},
        {"attention_types": [[["global", "local"], 10**9]]},
        {"encoder_layers": 10**9},
    ],
)
def test_counts_that_transformers_would_expand_to_lists_are_refused(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="config.json has 1000000000 for .*, more than the 1000000 of any model"):
        check_model_folder(folder)


def test_modules_without_end_are_refused(folder):
    (folder / "modules.json").write_text(json.dumps([{"type": "Normalize", "path": "n"}] * 1001))
    with pytest.raises(InputError, match="modules.json has 1001 modules; at most 1000 are read"):
        module_folders(folder)
