"""Odd kinds of files, archives, nesting, sizes and changes during reading end in one sentence and exit code 2."""

import io
import json
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import congruence
from congruence import guards
from congruence._saved import write_tensors
from congruence.cli import main
from congruence.errors import InputError
from congruence.experiments.runs import start_run
from congruence.mixture.priors import as_mixture
from congruence.tables import Table, read_table, write_table

X = np.random.default_rng(0).laplace(size=(60, 4))
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", X)
    return tmp_path


@pytest.fixture
def refused(monkeypatch, capsys):
    """Call the command line and return the sentence with which it stops."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["congruence", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr().err
        assert stop.value.code == 2, said
        return said.splitlines()[-1]

    return call


def npz(path, names, count=0):
    content = io.BytesIO()
    np.save(content, X)
    with zipfile.ZipFile(path, "w") as archive:
        for name in (*names, *(f"{k}.npy" for k in range(count))):
            archive.writestr(name, content.getvalue())


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "apply", "p.safetensors", "a.npy", "--out", "o.npy"],
        ["check", "a.npy", "--baseline", "p.safetensors"],
        ["features", "p.safetensors", "a.npy"],
        ["mixture", "--prior", "p.npz"],
        ["train", "mixvae", "--data", "pinwheel", "--prior", "p.npz", "--out", "r"],
        ["train", "mixvae", "--data", "pinwheel", "--prior", "p.json", "--out", "r"],
    ],
)
def test_a_pipe_is_refused_instead_of_waited_for(refused, arguments):
    name = next(one for one in arguments if one.startswith("p."))
    os.mkfifo(name)
    assert f"{name} is not a regular file, but a pipe or a device" in refused(*arguments)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "weights.safetensors", "examples.safetensors"])
def test_a_pipe_in_a_run_folder_is_refused(name):
    run = start_run("r", {"model": "ae"})
    Path("r", name).unlink(missing_ok=True)
    os.mkfifo(f"r/{name}")
    read = {"config.json": lambda: congruence.experiments.runs.open_run("r"), "metrics.jsonl": run.metrics}
    with pytest.raises(InputError, match=f"{name} is not a regular file"):
        read.get(name, run.examples if name.startswith("ex") else run.weights)()


def test_a_pipe_in_a_model_folder_or_among_images_is_refused():
    pytest.importorskip("torch")
    from congruence.activations.hub import check_settings
    from congruence.activations.inputs import image_paths, read_images

    os.mkdir("m")
    Path("m/config.json").write_text("{}")
    os.mkfifo("m/generation_config.json")
    with pytest.raises(InputError, match=r"generation_config.json is not a regular file"):
        check_settings(Path("m"))
    os.mkdir("i")
    os.mkfifo("i/a.png")
    with pytest.raises(InputError, match=r"a.png is not a regular file"):
        read_images(image_paths(Path("i")))


@pytest.mark.parametrize(
    "names", [["values.npy", "values.npy"], ["values.npy", "VALUES.npy"], ["values.npy", "values"]]
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_of_one_name_are_refused(refused, names):
    npz("x.npz", names)
    assert "2 of its members have the name 'values.npy'" in refused("compare", "x.npz", "a.npy", "--key", "values")


def test_an_archive_of_many_members_is_refused(refused, monkeypatch):
    npz("x.npz", ["values.npy"], 30)
    monkeypatch.setattr(guards, "MEMBERS", 30)
    assert "x.npz has 31 members; at most 30 are read" in refused("compare", "x.npz", "a.npy")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("change", [str, str.upper])
def test_a_pt_file_with_two_pickles_is_refused(refused, change):
    torch = pytest.importorskip("torch")
    torch.save({"values": torch.tensor(X)}, "x.pt")
    with zipfile.ZipFile("x.pt", "a") as archive:
        name = next(one for one in archive.namelist() if one.endswith("data.pkl"))
        archive.writestr(change(name), b"")
    assert "2 of its members have the name" in refused("compare", "x.pt", "a.npy")


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("module", ["torch", "ml_dtypes"])  # which gives numpy these types
def test_numbers_that_numpy_does_not_have_are_refused_in_saved_files(dtype, module):
    torch = pytest.importorskip("torch")
    pytest.importorskip(module)
    from safetensors.torch import load_file, save_file

    congruence.fit_map(X, X[:, ::-1].copy()).save("m.safetensors")
    with guards.open_tensors("m.safetensors") as file:
        about = file.metadata()
    tensors = {name: value.to(getattr(torch, dtype)) for name, value in load_file("m.safetensors").items()}
    save_file(tensors, "m.safetensors", metadata=about)
    with pytest.raises(InputError, match=r"from m.safetensors, it may be damaged: .*" + dtype):
        congruence.load("m.safetensors")


def test_deep_nesting_is_refused(refused):
    from safetensors.numpy import save_file

    save_file({"a": X}, "m.safetensors", metadata={"congruence": DEEP})
    assert "it is nested too deeply" in refused("translate", "apply", "m.safetensors", "a.npy", "--out", "o.npy")
    Path("p.json").write_text(DEEP)
    assert "it is nested too deeply" in refused("train", "mixvae", "--data", "moons", "--prior", "p.json", "--out", "r")
    run = start_run("run", {"model": "ae"})
    Path("run/metrics.jsonl").write_text(DEEP + "\n")
    with pytest.raises(InputError, match="line 1 of a log from .* it is nested too deeply"):
        run.metrics()
    with pytest.raises(InputError, match="nested more than 100 levels deep"):
        guards.parse_json("[" * 102 + "]" * 102, "x.json")


def test_a_damaged_or_large_prior_is_one_sentence(refused, monkeypatch):
    train = ["train", "mixvae", "--data", "pinwheel", "--prior", "p.npz", "--out", "r"]
    Path("p.npz").write_bytes(b"")
    assert "cannot read a prior (.npz or .json) from p.npz" in refused(*train)
    np.savez_compressed("p.npz", weights=np.ones(2) / 2, means=np.zeros((2, 2)), covariances=np.stack([np.eye(2)] * 2))
    content = Path("p.npz").read_bytes()
    for at in range(70, 110, 8):
        Path("p.npz").write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        assert "cannot read a prior (.npz or .json) from p.npz, it may be damaged" in refused(*train)
    Path("p.npz").write_bytes(content)
    monkeypatch.setattr("congruence.experiments.models.catalogue.PRIOR_BYTES", 100)
    assert "at most 100 are read as a prior" in refused(*train)


def test_a_link_to_itself_is_no_table():
    Path("loop.npy").symlink_to("loop.npy")
    with pytest.raises(InputError, match="loop.npy cannot be read"):
        read_table("loop.npy")


def test_what_is_wrong_with_a_prior_names_its_file():
    np.savez("p.npz", weights=np.ones(2), means=np.eye(2), covariances=np.stack([np.eye(2)] * 2))
    with pytest.raises(InputError, match=r"p.npz: weights must sum to 1"):
        as_mixture("p.npz")


def test_data_make_takes_no_table(refused):
    assert "data must be images or rows with known factors; got a Table" in refused(
        "data", "make", "a.npy", "--out", "o.npz"
    )


@pytest.mark.parametrize("counts", [{"step": None}, {"step": -3}, {"step": "x"}, {"step": 1.5}, {"sums": [1]}])
def test_counts_of_a_checkpoint_are_numbers(counts):
    from congruence.experiments.training._checkpoints import CHECKPOINT, RANDOM, read_checkpoint

    run = start_run("r", {"model": "ae"})
    header = {"counts": {"step": 1, "sums": {"loss": 1.0}} | counts, "about": {}}
    write_tensors(run.folder / CHECKPOINT, {RANDOM: np.zeros(3)}, header)
    with pytest.raises(InputError, match="is not a checkpoint of congruence"):
        read_checkpoint(run, {})


@pytest.mark.parametrize(
    "command", [["compare", "LONG", "a.npy"], ["mixture", "LONG"], ["extract", "LONG", "--layers"]]
)
def test_a_name_that_is_too_long_is_one_sentence(refused, command):
    refused(*(one.replace("LONG", "x" * 300) for one in command))


@pytest.mark.parametrize("name", ["run:1.parquet", "s3:x.parquet", "file:1.npy", "s3:/x.parquet"])
def test_a_relative_name_with_a_colon_is_a_path(name):
    Path(name).parent.mkdir(exist_ok=True)
    write_table(Table(X, "x"), name)
    np.testing.assert_array_equal(read_table(name).values, X)


def test_a_file_that_is_changed_while_it_is_read_is_refused():
    with pytest.raises(InputError, match="a.npy was changed while it was read"), guards.reading("a.npy"):
        np.save("a.npy", X[:5])


def test_images_count_by_their_pixels(monkeypatch):
    image = pytest.importorskip("PIL.Image")
    from congruence.activations.inputs import read_images

    image.new("1", (3000, 3000)).save("a.png")
    monkeypatch.setenv("CONGRUENCE_MAX_BYTES", str(2**26))
    with pytest.raises(InputError, match=r"a.png does not fit in memory: the image"):
        read_images([Path("a.png")])
    image.new("RGB", (1000, 1000)).save("b.png")
    with pytest.raises(InputError, match="20 images would take"):
        read_images([Path("b.png")] * 20)


@pytest.mark.parametrize("value", ["someone/kernel", "flash_attention_2", 3])
def test_attention_from_elsewhere_is_refused(value):
    from congruence.activations.hub import check_settings

    Path("config.json").write_text(json.dumps({"text_config": {"_attn_implementation": value}}))
    with pytest.raises(InputError, match="asks to run code from elsewhere"):
        check_settings(Path("."))


def test_links_out_of_a_model_folder_are_refused():
    pytest.importorskip("torch")
    from congruence.activations.pretrained import load_pretrained

    for folder in ("m", "cache/snapshots/abc"):
        Path(folder).mkdir(parents=True)
    Path("cache/blobs").mkdir()
    for target in ("secret.json", "cache/blobs/1"):
        Path(target).write_text('{"model_type": "none"}')
    Path("m/config.json").symlink_to(Path("secret.json").absolute())
    with pytest.raises(InputError, match=r"m/config.json is a link out of m, to"):
        load_pretrained("m")
    Path("cache/snapshots/abc/config.json").symlink_to("../../blobs/1")
    with pytest.raises(InputError, match=r"^(?!.*is a link).*"):  # refused for what it holds
        load_pretrained("cache/snapshots/abc")


def test_links_out_of_folders_of_tables_runs_and_results_are_refused(refused):
    np.save("secret.npy", X)
    for folder in ("parts", "run", "result"):
        os.mkdir(folder)
    np.save("parts/0.npy", X)
    Path("parts/1.npy").symlink_to("../secret.npy")
    assert "parts/1.npy is a link out of parts, to" in refused("compare", "parts", "a.npy")
    write_table(Table(X, "x"), "secret.parquet")
    Path("run/latents.parquet").symlink_to("../secret.parquet")
    assert "run/latents.parquet is a link out of run, to" in refused("compare", "run", "a.npy")
    start_run("other", {"model": "ae"})
    Path("other/weights.safetensors").symlink_to("../secret.npy")
    assert "other/weights.safetensors is a link out of other, to" in refused("decoder", "other")
    Path("result/numbers.json.gz").symlink_to("../secret.npy")
    assert "result/numbers.json.gz is a link out of result, to" in refused("reproduce", "verify", "result")
    os.unlink("parts/1.npy")
    os.mkdir("parts/inner")
    np.save("parts/inner/1.npy", X)
    Path("parts/1.npy").symlink_to("inner/1.npy")
    assert len(read_table("parts").values) == 2 * len(X)


def test_a_config_of_many_layers_is_refused_before_they_are_built():
    transformers = pytest.importorskip("transformers")
    from congruence.activations.pretrained import load_pretrained

    sizes = {
        "vocab_size": 9,
        "hidden_size": 4,
        "num_attention_heads": 1,
        "intermediate_size": 4,
        "num_hidden_layers": 1,
    }
    transformers.BertModel(transformers.BertConfig(**sizes)).save_pretrained("m")
    about = json.loads(Path("m/config.json").read_text())
    for change in ({"num_hidden_layers": 100_000}, {"vocab_size": 10**12}):
        Path("m/config.json").write_text(json.dumps(about | change))
        with pytest.raises(InputError, match="its config asks for a model with far more (tensors|numbers)"):
            load_pretrained("m")
