import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from congruence import guards
from congruence.errors import MissingDependencyError, TableError
from congruence.tables import SUFFIXES, Table, access, read_table, write_table
from congruence.tables.formats import BY_SUFFIX, WRITABLE

X = np.random.default_rng(0).normal(size=(400, 8))
FILES = [suffix for suffix in SUFFIXES if not BY_SUFFIX[suffix].folder]
MADE = [suffix for suffix in FILES if suffix in (*WRITABLE, ".pt", ".pth")]  # test_formats.py has the others


def make(path):
    if path.suffix in (".pt", ".pth"):
        torch.save({"values": torch.from_numpy(X)}, path)
    else:
        write_table(Table(X, "x"), path)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_file_is_named(tmp_path, suffix):
    with pytest.raises(TableError, match=f"x{suffix} does not exist"):
        read_table(tmp_path / f"x{suffix}")


@pytest.mark.parametrize("suffix", FILES)
def test_a_folder_is_no_file(tmp_path, suffix):
    (tmp_path / f"x{suffix}").mkdir()
    with pytest.raises(TableError, match=f"x{suffix} is a folder, but a {suffix} table is a file"):
        read_table(tmp_path / f"x{suffix}")


def test_a_zarr_store_is_a_folder(tmp_path):
    (tmp_path / "x.zarr").write_text("x")
    with pytest.raises(TableError, match=r"x.zarr is a file, but a .zarr store is a folder"):
        read_table(tmp_path / "x.zarr")


@pytest.mark.parametrize("name", ["x.xlsx", "x", "x.npy.gz"])
def test_an_unknown_suffix_lists_the_known(tmp_path, name):
    (tmp_path / name).write_text("x")
    suffix = "".join(Path(name).suffixes)
    with pytest.raises(TableError, match=re.escape(f"{name} has an unknown suffix '{suffix}'; known are .npy, .npz")):
        read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["x.xlsx", "runs/ae-0"])
def test_a_missing_file_is_missing_whatever_its_suffix(tmp_path, name):
    with pytest.raises(TableError, match=re.escape(f"{name} does not exist")):
        read_table(tmp_path / name)


def test_a_suffix_may_be_in_capitals(tmp_path):
    np.save(tmp_path / "x.npy", X)
    os.rename(tmp_path / "x.npy", tmp_path / "X.NPY")
    assert read_table(tmp_path / "X.NPY").name == "X"


@pytest.mark.parametrize("suffix", FILES)
def test_an_empty_file_is_said_to_be_empty(tmp_path, suffix):
    (tmp_path / f"x{suffix}").touch()
    with pytest.raises(TableError, match=f"x{suffix} is empty: it has 0 bytes"):
        read_table(tmp_path / f"x{suffix}")


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr(guards.os, "access", lambda *args: False)
    with pytest.raises(TableError, match=r"x.npy cannot be read: permission denied"):
        read_table(tmp_path / "x.npy")


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("suffix", [suffix for suffix in MADE if suffix not in (".csv", ".tsv")])
def test_a_truncated_file_is_refused_in_one_sentence(tmp_path, suffix, kept):
    path = make(tmp_path / f"x{suffix}")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(TableError, match=f"x{suffix} (could not be read as|is damaged)") as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def test_a_truncated_csv_is_refused(tmp_path):
    path = make(tmp_path / "x.csv")
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b",", 0, len(data) // 2)])
    with pytest.raises(TableError, match=r"x.csv is ragged: line \d+ has \d cells, but the header has 8"):
        read_table(path)


@pytest.mark.parametrize("suffix", [suffix for suffix in FILES if not suffix.startswith((".csv", ".tsv"))])
def test_another_sort_of_file_is_refused(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"this is a letter, not a table\n" * 20)
    with pytest.raises(TableError, match=f"x{suffix} (could not be read as|is damaged)") as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("broken", [".zgroup", ".zarray", "chunk"])
def test_a_damaged_zarr_store_is_refused(tmp_path, broken):
    path = make(tmp_path / "x.zarr")
    victim = {
        ".zgroup": path / ".zgroup",
        ".zarray": path / "values" / ".zarray",
        "chunk": path / "values" / "0.0",
    }[broken]
    victim.write_bytes(victim.read_bytes()[:10])
    with pytest.raises(TableError, match=r"x.zarr (could not be read as .zarr, it may be|is) damaged"):
        read_table(path)


def test_an_empty_folder_is_no_zarr_store(tmp_path):
    (tmp_path / "x.zarr").mkdir()
    with pytest.raises(TableError, match=r"x.zarr could not be read as .zarr"):
        read_table(tmp_path / "x.zarr")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pt", ".pth"])
def test_a_bare_pickle_is_refused_and_not_run(tmp_path, payload, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(pickle.dumps(payload))
    with pytest.raises(TableError, match=f"x{suffix}"):
        read_table(path)


def test_an_npy_of_objects_is_refused_and_not_run(tmp_path, payload):
    np.save(tmp_path / "x.npy", np.array([[payload]]), allow_pickle=True)
    with pytest.raises(TableError, match="the array holds Python objects, which are never unpickled because they may"):
        read_table(tmp_path / "x.npy")


def test_an_npz_of_objects_is_refused_and_not_run(tmp_path, payload):
    np.savez(tmp_path / "x.npz", z=np.array([[payload]]))
    with pytest.raises(TableError, match="the array 'z' holds Python objects, which are never unpickled"):
        read_table(tmp_path / "x.npz")


def test_objects_beside_the_values_are_left_alone(tmp_path, payload):
    notes = np.full(400, None)
    notes[0] = payload
    np.savez(tmp_path / "x.npz", z=X, notes=notes)
    assert read_table(tmp_path / "x.npz").metadata == {}
    with pytest.raises(TableError, match="the array 'notes' holds Python objects"):
        read_table(tmp_path / "x.npz", id="notes")


def test_a_pt_of_objects_is_refused_and_not_run(tmp_path, payload):
    torch.save({"values": torch.from_numpy(X), "extra": payload}, tmp_path / "x.pt")
    with pytest.raises(TableError, match="is damaged or holds Python objects other than tensors, which are never"):
        read_table(tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("suffix", "module", "extra"),
    [(".h5ad", "anndata", "h5ad"), (".zarr", "zarr", "zarr"), (".pt", "torch", "torch")],
)
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, suffix, module, extra):
    path = make(tmp_path / f"x{suffix}")
    monkeypatch.setitem(sys.modules, module, None)
    message = f"x{suffix} needs {module}: pip install 'congruence[{extra}]'"
    with pytest.raises(MissingDependencyError, match=re.escape(message)):
        read_table(path)
    if suffix != ".pt":
        with pytest.raises(MissingDependencyError, match=re.escape(message)):
            write_table(Table(X, "x"), path)


def test_memory_that_runs_out_is_said(tmp_path):
    with pytest.raises(TableError, match=r"x.npy does not fit in memory: 8 GB"), guards.reading(Path("x.npy")):
        raise MemoryError("8 GB")


def test_an_interruption_is_not_a_damaged_file():
    with pytest.raises(KeyboardInterrupt), guards.reading(Path("x.npy")):
        raise KeyboardInterrupt


def test_an_error_without_words_is_told_by_its_kind():
    with pytest.raises(TableError, match="it may be damaged: EOFError"), guards.reading(Path("x.npy")):
        raise EOFError


def test_importing_tables_loads_numpy_alone():
    heavy = ["pyarrow", "anndata", "zarr", "torch", "safetensors", "pandas", "h5py", "scipy"]
    code = f"import sys, congruence.tables; print([m for m in {heavy} if m in sys.modules])"
    source = str(Path(access.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.stdout.strip() == "[]"
