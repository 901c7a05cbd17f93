import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.cli import main
from congruence.errors import InputError
from congruence.maps.groups import Map
from congruence.translation import Translator, load_translator
from congruence.translation.export import export_translator

WIDTHS = [(4, 4), (7, 3), (3, 7)]
CASES = [(*widths, normalize) for widths in WIDTHS for normalize in (None, "cosine")]


def rows(d):
    return np.random.default_rng(1).normal(5, 2, size=(50, d)).astype(np.float32)


def assert_same(got, translator, x):
    """Agreement to float32: relative to the size of what is summed, which may cancel."""
    expected = translator(x.astype(np.float64))
    scale = 1.0 if translator.normalize else np.abs(x).max() * np.abs(translator.map.matrix).sum(0).max()
    assert got.dtype == np.float32
    assert_allclose(got, expected, atol=4e-7 * scale, rtol=1e-5)


@pytest.mark.parametrize(("d_new", "d_old", "normalize"), CASES)
def test_an_onnx_model_translates_alike(tmp_path, make_translator, d_new, d_old, normalize):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    translator = make_translator(d_new, d_old, normalize)
    assert export_translator(translator, tmp_path / "up.onnx", "onnx") == [tmp_path / "up.onnx"]
    session = runtime.InferenceSession(str(tmp_path / "up.onnx"))
    assert [(i.name, i.shape, i.type) for i in session.get_inputs()] == [("new", ["rows", d_new], "tensor(float)")]
    for x in (rows(d_new), rows(d_new)[:1]):
        assert_same(session.run(["old"], {"new": x})[0], translator, x)
    if normalize:  # no square may overflow, and a row of zeros stays finite
        far = np.repeat(np.float32([[1e30], [1e-30], [0]]), d_new, axis=1)
        assert_same(session.run(["old"], {"new": far})[0], translator, far)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("d_new", "d_old", "normalize"), CASES)
def test_sentence_transformers_loads_the_dense_module(tmp_path, make_translator, d_new, d_old, normalize):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    import torch

    translator = make_translator(d_new, d_old, normalize)
    export_translator(translator, tmp_path / "up", "sentence-transformers")
    model = library.SentenceTransformer(str(tmp_path / "up"), device="cpu")
    x = rows(d_new)
    with torch.no_grad():
        assert_same(model({"sentence_embedding": torch.tensor(x)})["sentence_embedding"].numpy(), translator, x)
    kinds = [type(module).__name__ for module in model]
    assert kinds == (["Normalize", "Dense", "Normalize"] if normalize else ["Dense"])


CALL = "import sys, numpy as np, up; np.save('y.npy', up.translate(np.load('x.npy'))); print(*sys.modules)"


@pytest.mark.parametrize(("d_new", "d_old", "normalize"), CASES)
def test_the_numpy_file_needs_numpy_alone(tmp_path, make_translator, d_new, d_old, normalize):
    translator = make_translator(d_new, d_old, normalize)
    export_translator(translator, tmp_path / "up.py", "numpy")
    assert len((tmp_path / "up.py").read_text().splitlines()) <= 11  # ten lines and a docstring
    x = rows(d_new)
    np.save(tmp_path / "x.npy", x)
    call = [sys.executable, "-W", "error", "-c", CALL]
    done = subprocess.run(call, cwd=tmp_path, env={"PYTHONPATH": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"congruence", "scipy", "torch", "pyarrow"} & set(done.stdout.split())
    assert_same(np.load(tmp_path / "y.npy"), translator, x)


def test_the_command_exports(tmp_path, make_translator, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_translator().save("up.safetensors")
    for to, out in (("onnx", "up.onnx"), ("sentence-transformers", "up"), ("numpy", "up.py")):
        monkeypatch.setattr(sys, "argv", f"congruence translate export up.safetensors --to {to} --out {out}".split())
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code
        assert f"written: {out}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("to", "out", "message"),
    [
        ("onnx", "up.pb", "must end in .onnx"),
        ("numpy", "up.npz", "must end in .py"),
        ("numpy", "", "must end in .py"),
        ("tensorflow", "up", "to must be one of 'onnx', 'sentence-transformers', 'numpy'"),
        ("onnx", "nowhere/up.onnx", "does not exist"),
        ("sentence-transformers", "full", "it exists; give the name of a new folder"),
        ("sentence-transformers", "nowhere/up", "does not exist"),
    ],
)
def test_mistakes_leave_nothing_behind(tmp_path, make_translator, to, out, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("...")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=message):
        export_translator(make_translator(), tmp_path / out if out else "", to)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_is_written_as_a_whole_or_not_at_all(tmp_path, make_translator, monkeypatch):
    (tmp_path / "up").mkdir()
    monkeypatch.setattr("congruence.translation.export.write_text", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export_translator(make_translator(), tmp_path / "up", "sentence-transformers")
    assert [path.name for path in tmp_path.rglob("*")] == ["up"]


def test_a_map_beyond_float32_is_refused(tmp_path):
    huge = Translator(Map("linear", 1e35 * np.eye(2), np.zeros(2), np.zeros(2)), None, 2, 2)
    with pytest.raises(InputError, match="beyond the range of float32"):
        export_translator(huge, tmp_path / "up.onnx", "onnx")


def test_without_onnx_the_extra_is_named(tmp_path, make_translator, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"congruence\[onnx\]"):
        export_translator(make_translator(), tmp_path / "up.onnx", "onnx")


def test_a_saved_translator_exports_the_same(tmp_path, make_translator):
    translator = make_translator(7, 3, "cosine")
    translator.save(tmp_path / "up.safetensors")
    for name, one in (("a", translator), ("b", load_translator(tmp_path / "up.safetensors"))):
        export_translator(one, tmp_path / f"{name}.onnx", "onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


@pytest.mark.parametrize(
    ("to", "out", "used"),
    [("numpy", "up.py", "up.py"), ("numpy", "up.py", "up.npz"), ("sentence-transformers", "up", "up")],
)
def test_an_output_in_use_is_refused(tmp_path, make_translator, held_elsewhere, to, out, used):
    with (
        held_elsewhere(tmp_path / used),
        pytest.raises(InputError, match=f"another process is using .*{used}; wait until"),
    ):
        export_translator(make_translator(), tmp_path / out, to)
    assert list(tmp_path.iterdir()) == []
