"""Folders of sentence-transformers give what its own `encode` returns."""

import json
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.activations import extract, list_layers, load_pretrained
from congruence.errors import InputError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

WORDS = ["the", "a", "cat", "dog", "sat", "on", "mat", "and", "ran", "fast", "slow", "query", "passage"]
TEXTS = [
    "the cat sat on the mat",
    "a dog",
    "the",
    "a slow dog ran and ran and ran and sat on the mat and the cat sat on a fast dog",  # longer than the model takes
    "",
    "The Cat SAT",
]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A tiny BERT with a tokenizer that adds [CLS] and [SEP]."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    plain.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, model_max_length=16, **special)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32,
    )  # fmt: skip
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("bert")
    transformers.BertForMaskedLM(config).save_pretrained(folder)  # which has no pooler
    fast.save_pretrained(folder)
    return folder


def save(bert, folder, pooling, *more, longest=None, lower=False, **options):
    """Save a model of sentence-transformers, and return it."""
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    words = Transformer(str(bert), max_seq_length=longest, do_lower_case=lower)
    model = library.SentenceTransformer(modules=[words, Pooling(8, **pooling), *more], device="cpu", **options)
    model.save_pretrained(str(folder))
    return model


@pytest.mark.parametrize("mode", ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"])
def test_every_pooling_is_that_of_encode(mode, bert, tmp_path):
    model = save(bert, tmp_path / "st", {"pooling_mode": mode})
    found = extract(tmp_path / "st", TEXTS, device="cpu", batch=4)
    assert_allclose(found.values, model.encode(TEXTS), atol=1e-5)
    assert found.d == 8


@pytest.mark.parametrize("include", [True, False])
def test_dense_layers_norms_length_prompt_and_several_poolings_are_those_of_encode(include, bert, tmp_path):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm

    torch.manual_seed(1)
    more = [Dense(24, 8), Dropout(0.5), LayerNorm(8), Dense(8, 5, activation_function=None, bias=False), Normalize()]
    pooling = {"pooling_mode": ("mean", "cls", "max"), "include_prompt": include}
    how = {"prompts": {"query": "query the "}, "default_prompt_name": "query", "longest": 6}
    model = save(bert, tmp_path / "st", pooling, *more, **how)
    texts = [text for text in TEXTS if text]  # without a prompt, nothing of an empty text is left to pool
    found = extract(tmp_path / "st", texts, "embedding", device="cpu", batch=2).values
    assert_allclose(found, model.encode(texts), atol=1e-5)
    assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert np.abs(found - model.encode(texts, prompt="")).max() > 1e-3  # the prompt matters


def test_settings_as_older_versions_wrote_them_are_read(bert, tmp_path):
    model = save(bert, tmp_path / "st", {"pooling_mode": ("cls", "mean")}, longest=5, lower=True)
    old = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    (tmp_path / "st/1_Pooling/config.json").write_text(json.dumps(old | {"pooling_mode_max_tokens": False}))
    (tmp_path / "st/sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 5, "do_lower_case": True}))
    modules = json.loads((tmp_path / "st/modules.json").read_text())
    for one, kind in zip(modules, ("Transformer", "Pooling"), strict=True):
        one["type"] = f"sentence_transformers.models.{kind}"
    (tmp_path / "st/modules.json").write_text(json.dumps(modules))
    tokens = json.loads((tmp_path / "st/tokenizer_config.json").read_text())
    (tmp_path / "st/tokenizer_config.json").write_text(json.dumps(tokens | {"model_max_length": 16}))
    assert_allclose(extract(tmp_path / "st", TEXTS, device="cpu").values, model.encode(TEXTS), atol=1e-5)


def test_other_layers_can_be_named_and_padding_is_left_out_of_them(bert, tmp_path):
    save(bert, tmp_path / "st", {"pooling_mode": "mean"})
    found = load_pretrained(tmp_path / "st")
    assert {"transformer.encoder.layer.1", "pooling", "embedding"} <= {one.name for one in list_layers(found.model)}
    tables = extract(tmp_path / "st", TEXTS, ["transformer.encoder.layer.1", "embedding"], pool="mean", device="cpu")
    assert_allclose(tables["transformer.encoder.layer.1"].values, tables["embedding"].values, atol=1e-6)
    with pytest.raises(InputError, match="layers must name at least one layer"):
        extract(found.model, TEXTS, prepare=found.tokenize)


def test_the_command_needs_no_layer(bert, tmp_path, monkeypatch, capsys):
    import sys

    from congruence.cli import main
    from congruence.tables import read_table

    model = save(bert, tmp_path / "st", {"pooling_mode": "mean"})
    (tmp_path / "corpus.txt").write_text("the cat\na dog ran\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["congruence", "extract", "st", "--text", "corpus.txt", "--out", "a.parquet"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert capsys.readouterr().out == "embedding: 2 rows x 8 dimensions in a.parquet\n"
    assert_allclose(read_table("a.parquet").values, model.encode(["the cat", "a dog ran"]), atol=1e-5)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("modules.json", {"type": "mymodule.Evil"}, "has a module 'Evil'; supported are Transformer, Pooling"),
        ("modules.json", {"path": "../elsewhere"}, "must name folders inside its own, not '../elsewhere'"),
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "must be among cls, max, .*; got 'median'"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "must be a module of torch.nn; got 'os.system'"),
        (
            "2_Dense/config.json",
            {"in_features": 30_000, "out_features": 30_000},
            "a model with far more numbers than its",
        ),
        ("2_Dense/config.json", {"in_features": 3}, "the module .*2_Dense cannot be opened: .*size mismatch"),
        (
            "2_Dense/config.json",
            {"module_input_name": "token_embeddings"},
            "must be sentence_embedding; got 'token_emb",
        ),
        ("2_Dense/model.safetensors", None, "2_Dense has no model.safetensors"),
        (
            "sentence_bert_config.json",
            {"transformer_task": "fill-mask"},
            "the task 'fill-mask'; only feature-extraction",
        ),
        ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length in .* must be an integer of at least 1"),
        ("config_sentence_transformers.json", {"default_prompt_name": "q"}, "names a prompt 'q' that it does not have"),
        ("config_sentence_transformers.json", {"prompts": 5}, "cannot read prompts from .*_transformers.json"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"q": 5}, "default_prompt_name": "q"},
            "the prompt 'q' in .* must be a text; got 5",
        ),
        ("tokenizer_config.json", {"model_max_length": "abc"}, "the tokenizer of .* cannot be opened"),
        ("tokenizer_config.json", {"tokenizer_class": "RagTokenizer"}, "the tokenizer of .* cannot be opened"),
    ],
)
def test_folders_that_cannot_be_opened_say_why(file, change, message, bert, tmp_path):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Dense

    save(bert, tmp_path / "st", {"pooling_mode": "mean"}, Dense(8, 4))
    path = tmp_path / "st" / file
    if change is None:
        path.unlink()
    else:
        settings = json.loads(path.read_text())
        (settings[-1] if isinstance(settings, list) else settings).update(change)
        path.write_text(json.dumps(settings))
    with pytest.raises(InputError, match=message):
        load_pretrained(tmp_path / "st")


def test_a_pooler_without_weights_is_left_out(bert, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    save(bert, tmp_path / "st", {"pooling_mode": "cls"})
    for name in ("config.json", "model.safetensors"):  # those of the masked language model
        shutil.copy(bert / name, tmp_path / "st" / name)
    found = load_pretrained(tmp_path / "st")
    assert not [one.name for one in list_layers(found.model) if "pooler" in one.name]
    model = library.SentenceTransformer(str(tmp_path / "st"), device="cpu")
    assert_allclose(extract(found, TEXTS, device="cpu").values, model.encode(TEXTS), atol=1e-5)


def test_a_transformer_in_a_folder_of_its_own_is_found(bert, tmp_path):
    model = save(bert, tmp_path / "st", {"pooling_mode": "mean"})
    home = tmp_path / "st/0_Transformer"
    home.mkdir()
    modules = json.loads((tmp_path / "st/modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    for path in list((tmp_path / "st").iterdir()):
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json"):
            shutil.move(path, home / path.name)
    (tmp_path / "st/modules.json").write_text(json.dumps(modules))
    assert_allclose(extract(tmp_path / "st", TEXTS, device="cpu").values, model.encode(TEXTS), atol=1e-5)


def test_a_length_of_minus_one_is_no_limit(bert, tmp_path):
    save(bert, tmp_path / "st", {"pooling_mode": "mean"})
    path = tmp_path / "st/tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": -1}))
    assert load_pretrained(tmp_path / "st").tokenize.longest == 32  # of the positions
