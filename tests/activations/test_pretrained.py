"""Models that transformers saved are opened from their folders, and give what they gave before."""

import contextlib
import json
import sys

import numpy as np
import pytest

from congruence.activations import array_inputs, extract, load_pretrained, text_inputs
from congruence.activations.pretrained import _image_settings
from congruence.errors import InputError
from congruence.tables import read_table

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def saved(kind, config, folder):
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config).eval()
    model.save_pretrained(folder)
    return model


def caught(model, layer, **batch):
    kept = []
    handle = model.get_submodule(layer).register_forward_hook(lambda module, args, output: kept.append(output))
    with torch.no_grad():
        model(**batch)
    handle.remove()
    return (kept[0] if isinstance(kept[0], torch.Tensor) else kept[0][0]).numpy()


@pytest.fixture
def neox(tmp_path):
    config = transformers.GPTNeoXConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    return saved("GPTNeoXForCausalLM", config, tmp_path / "neox"), tmp_path / "neox"


def test_a_language_model_reads_text(neox, tmp_path):
    model, folder = neox
    vocabulary = {"[PAD]": 0} | {chr(97 + i): i + 1 for i in range(26)}
    tokenizers = pytest.importorskip("tokenizers")
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[PAD]"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]").save_pretrained(folder)
    (tmp_path / "corpus.txt").write_text("a b c\nd\n")
    found = load_pretrained(folder)
    inputs, layer, out = text_inputs(tmp_path / "corpus.txt"), "gpt_neox.layers.1", tmp_path / "t.parquet"
    extract(found.model, inputs, layer, out, pool="last", prepare=found.tokenize, device="cpu")
    tokens = {"input_ids": torch.tensor([[1, 2, 3], [4, 0, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 0, 0]])}
    whole = caught(model, layer, **tokens, use_cache=False)
    assert np.array_equal(read_table(out).values, whole[[0, 1], [2, 0]])


def test_every_token_has_its_piece_of_the_text_and_what_is_around_it(neox, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    _, folder = neox
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "one": 1, "two": 2}, unk_token="[PAD]"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]").save_pretrained(folder)
    texts, layer = ["one two one", "two", "one one"], "gpt_neox.layers.0"
    for batch in (1, 3):
        found = extract(folder, texts, layer, device="cpu", batch=batch, context=4).metadata
        assert found["Metadata_token"].tolist() == ["one", "two", "one", "two", "one", "one"]
        assert found["Metadata_context"][1] == "one [two] one"
        assert found["Metadata_context"][3] == "[two]"
    assert "Metadata_context" not in extract(folder, texts, layer, device="cpu", context=0).metadata
    out = extract(folder, texts, layer, tmp_path / "t.parquet", device="cpu", skip=1)
    assert out.table().metadata["Metadata_token"].tolist() == ["two", "one", "one"]
    assert "Metadata_token" not in extract(folder, texts, layer, device="cpu", pool="last").metadata


def test_a_short_text_gives_the_same_beside_a_long_one_whatever_side_its_tokenizer_fills(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    config = transformers.GPT2Config(vocab_size=30, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    saved("GPT2LMHeadModel", config, tmp_path / "net")  # whose positions are absolute
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "a": 1, "b": 2}, unk_token="[PAD]"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    left = {"pad_token": "[PAD]", "padding_side": "left"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, **left).save_pretrained(tmp_path / "net")
    (tmp_path / "corpus.txt").write_text("a b\nb a b a b a\n")
    found, inputs = load_pretrained(tmp_path / "net"), text_inputs(tmp_path / "corpus.txt")
    tables = []
    for batch in (1, 2):
        how = {"pool": "last", "prepare": found.tokenize, "batch": batch, "device": "cpu"}
        extract(found.model, inputs, "transformer.h.0", tmp_path / "t.parquet", **how)
        tables.append(read_table(tmp_path / "t.parquet").values)
    np.testing.assert_allclose(*tables, atol=1e-6)


def test_a_tokenizer_whose_replacements_fill_the_memory_is_refused(neox):
    tokenizers = pytest.importorskip("tokenizers")
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0}, unk_token="[PAD]"))
    wide = tokenizers.normalizers.Replace(tokenizers.Regex("."), "a" * 1000)
    plain.normalizer = tokenizers.normalizers.Sequence([wide, wide])
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]").save_pretrained(neox[1])
    with pytest.raises(InputError, match=r"tokenizer.json would make texts 1002000 times as long"):
        load_pretrained(neox[1])
    replace = tokenizers.normalizers.Replace
    across = [("a", "z" * 40), ("z", "xy"), ("yx", "c" * 40)]  # the last is in no text, but between two of them
    twice = [("a", "b" * 40), ("b", "c" * 40)]
    for texts, refused in ((twice, True), (across, True), ([("ä", "a" * 40), ("ö", "o" * 40)], False)):
        plain.normalizer = tokenizers.normalizers.Sequence([replace(*pair) for pair in texts])
        transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]").save_pretrained(neox[1])
        with pytest.raises(InputError, match="times as long") if refused else contextlib.nullcontext():
            load_pretrained(neox[1])


def test_a_masked_autoencoder_sees_all_patches_in_their_order(tmp_path):
    config = transformers.ViTMAEConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=4
    )
    model = saved("ViTMAEModel", config, tmp_path / "mae")
    x = np.random.default_rng(0).normal(size=(3, 3, 16, 16)).astype(np.float32)
    found = load_pretrained(tmp_path / "mae")
    out = tmp_path / "m.parquet"
    extract(found.model, array_inputs(x), "layernorm", out, prepare=found.prepare, device="cpu")
    model.config.mask_ratio = 0.0
    noise = torch.arange(16.0).expand(3, 16)
    whole = caught(model, "layernorm", pixel_values=torch.tensor(x), noise=noise)
    assert np.array_equal(read_table(out).values, whole.reshape(3 * 17, 16))


@pytest.mark.parametrize(
    ("size", "wanted"),
    [({"height": 8, "width": 16}, {}), ({"shortest_edge": 8}, {"size": 8}), (8, {"size": 8}), (True, {}), ("8", {})],
)
def test_only_a_side_of_a_square_is_taken_for_the_size_of_images(tmp_path, size, wanted):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": size}))
    assert _image_settings(tmp_path) == wanted


def test_a_residual_network_opens_and_tells_what_images_it_wants(tmp_path):
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    model = saved("ResNetForImageClassification", config, tmp_path / "net")
    said = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "net" / "preprocessor_config.json").write_text(json.dumps(said))
    found = load_pretrained(tmp_path / "net")
    assert found.images == {"size": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
    assert found.tokenize is None
    x = np.random.default_rng(0).normal(size=(3, 3, 32, 32)).astype(np.float32)
    out = tmp_path / "r.parquet"
    extract(found.model, array_inputs(x), "resnet.encoder", out, pool="mean", prepare=found.prepare, device="cpu")
    whole = []
    model.resnet.encoder.register_forward_hook(lambda module, args, output: whole.append(output.last_hidden_state))
    with torch.no_grad():
        model(torch.tensor(x))
    assert np.array_equal(read_table(out).values, whole[0].mean((2, 3)).numpy())


def test_damaged_weights_are_one_sentence(neox):
    _, folder = neox
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(InputError, match="cannot read weights from .*model.safetensors, it may be damaged"):
        load_pretrained(folder)


def test_weights_that_are_missing_are_not_drawn_at_random(neox):
    _, folder = neox
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": 3, "architectures": {}}))
    with pytest.raises(InputError, match=r"neox has no weights for 12 tensors .*layers\.2\.attention.dense.bias"):
        load_pretrained(folder)


def test_code_in_the_folder_is_not_run(neox):
    _, folder = neox
    (folder / "modeling_evil.py").write_text("import sys; sys.modules['evil_was_run'] = sys")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "modeling_evil.Model"}}))
    with pytest.raises(InputError, match="auto_map"):
        load_pretrained(folder)
    assert "evil_was_run" not in sys.modules


def test_weights_of_other_sizes_than_the_settings_are_named_and_refused(neox):
    _, folder = neox
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"vocab_size": 11}))
    with pytest.raises(InputError, match=r"neox has weights of the wrong shape .*2 tensors .*gpt_neox.embed_in.weight"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("CLIP", {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}}),
        ("ViT", {"size": {"height": 12, "width": 18}}),
        ("ConvNext", {"size": {"shortest_edge": 16}, "crop_pct": 0.875}),
        ("BitDefaults", {"size": {"shortest_edge": 30}, "crop_size": {"height": 24, "width": 24}, "resample": 2}),
    ],
)
def test_images_are_resized_and_cropped_as_transformers_does_it(kind, settings, tmp_path):
    from PIL import Image

    from congruence.activations.inputs import image_inputs
    from congruence.activations.pretrained import _image_processor

    kind = kind.removesuffix("Defaults")
    major = int(transformers.__version__.partition(".")[0])
    own = getattr(transformers, f"{kind}ImageProcessor{'Pil' * (major > 4)}")(**settings)
    own.save_pretrained(tmp_path)
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    pictures = []
    for number, (height, width) in enumerate([(37, 53), (29, 23), (19, 64), (24, 24), (101, 33), (15, 9)]):
        pictures.append(Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)))
        pictures[-1].save(tmp_path / f"photos/{number}.png")
    inputs = image_inputs(tmp_path / "photos", processor=_image_processor(transformers, tmp_path))
    wanted = own(images=pictures, return_tensors="np")["pixel_values"]
    assert inputs.read(0, 6).dtype == np.float32
    assert np.array_equal(inputs.read(0, 6), wanted)
    other = own.__class__.from_pretrained(tmp_path, image_mean=[0.1] * 3)
    assert inputs.name != image_inputs(tmp_path / "photos", processor=other).name  # a run is not resumed with it


def test_a_model_sees_images_through_its_own_processor_unless_size_mean_or_std_are_given(tmp_path):
    from PIL import Image

    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=4
    )
    model = saved("ViTModel", config, tmp_path / "net")
    major = int(transformers.__version__.partition(".")[0])
    kind = getattr(transformers, "CLIPImageProcessor" + "Pil" * (major > 4))
    own = kind(size={"shortest_edge": 20}, crop_size={"height": 16, "width": 16})
    own.save_pretrained(tmp_path / "net")
    (tmp_path / "photos").mkdir()
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (33, 47, 3), dtype=np.uint8))
    picture.save(tmp_path / "photos/a.png")
    found = extract(tmp_path / "net", tmp_path / "photos", "layernorm", pool="cls", device="cpu")
    pixels = torch.tensor(own(images=picture, return_tensors="np")["pixel_values"])
    assert np.array_equal(found.values, caught(model, "layernorm", pixel_values=pixels)[:, 0])
    other = extract(tmp_path / "net", tmp_path / "photos", "layernorm", pool="cls", device="cpu", size=16)
    assert np.abs(found.values - other.values).max() > 1e-3
    settings = json.loads((tmp_path / "net/preprocessor_config.json").read_text())
    (tmp_path / "net/preprocessor_config.json").write_text(json.dumps(settings | {"size": {"depth": 3}}))
    with pytest.raises(InputError, match="the image processor of .*; give size, mean and std"):
        extract(tmp_path / "net", tmp_path / "photos", "layernorm", pool="cls", device="cpu")
    for wide in ({"crop_size": {"height": 10**7}}, {"crop_size": 10, "size": 100, "crop_pct": 1e-5}):
        (tmp_path / "net/preprocessor_config.json").write_text(json.dumps(settings | wide))
        with pytest.raises(InputError, match="config.json does not fit in memory: an image of 10000000 x 10000000"):
            extract(tmp_path / "net", tmp_path / "photos", "layernorm", pool="cls", device="cpu")
    with pytest.raises(InputError, match="a.png does not fit in memory"):
        extract(tmp_path / "net", tmp_path / "photos", "layernorm", pool="cls", device="cpu", size=10**7)
    area = {"image_processor_type": "Qwen2VLImageProcessor", "size": {"longest_edge": 12_845_056}}  # pixels in all
    (tmp_path / "net/preprocessor_config.json").write_text(json.dumps(settings | area))
    assert load_pretrained(tmp_path / "net").processor() is not None
    (tmp_path / "net/preprocessor_config.json").write_text(json.dumps(settings | area | {"patch_size": 10**7}))
    with pytest.raises(InputError, match="an image of 10000000 x 10000000"):
        load_pretrained(tmp_path / "net").processor()
