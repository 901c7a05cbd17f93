"""Broken and hostile files at the command line: exit code 2, one line that names the file, and no output."""

import gzip
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from congruence.cli import main
from congruence.tables import Table, write_table

X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)


class Payload:
    def __reduce__(self):
        return Path.touch, (Path("mark"),)


def absurd_npy(path):
    np.save(path, X)
    absurd = b"(1000000000000, 4), }"
    path.write_bytes(path.read_bytes().replace(b"(300, 4), }".ljust(len(absurd)), absurd))


def npz_bomb(path):
    np.savez_compressed(path, values=np.zeros((2**20, 8)))


def npz_of_objects(path):
    np.savez(path, values=np.array([[Payload()]]))


def pt_of_objects(path):
    torch.save({"values": Payload()}, path)


def truncated(path):
    write_table(Table(X, "x"), path)
    os.truncate(path, 2 * path.stat().st_size // 3)


def csv_bomb(path):
    path.write_bytes(gzip.compress(b"x,y\n" + b"1,2\n" * 2**21))


def absurd_safetensors(path):
    header = json.dumps({"v": {"dtype": "F32", "shape": [10**12, 4], "data_offsets": [0, 4800]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + X.tobytes())


def absurd_zarr(path):
    path.mkdir()
    about = {"zarr_format": 2, "shape": [10**12, 4], "chunks": [10**6, 4], "dtype": "<f4", "order": "C"}
    (path / ".zarray").write_text(json.dumps(about | {"compressor": None, "filters": None, "fill_value": 0}))


def looping_h5ad(path):
    write_table(Table(X, "x"), path)
    data = bytearray(path.read_bytes())
    heap = data.index(b"GCOL")
    data[heap + 16 : heap + 64] = bytes(48)
    path.write_bytes(data)


def letter(path):
    path.write_text("Dear reader,\nthis is no table.\n" * 20)


BAD = {
    "absurd.npy": absurd_npy,
    "bomb.npz": npz_bomb,
    "objects.npz": npz_of_objects,
    "objects.pt": pt_of_objects,
    "truncated.parquet": truncated,
    "truncated.arrow": truncated,
    "bomb.csv.gz": csv_bomb,
    "absurd.safetensors": absurd_safetensors,
    "absurd.zarr": absurd_zarr,
    "looping.h5ad": looping_h5ad,
    "letter.feather": letter,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONGRUENCE_MAX_BYTES", str(2**24))
    np.save("good.npy", X)
    return tmp_path


def check(code, printed, errors, name):
    assert code == 2
    assert printed == ""
    assert errors.count("\n") == 1
    assert errors.startswith("congruence: ")
    assert name in errors
    assert not Path("mark").exists()
    assert sorted(os.listdir()) == sorted(["good.npy", name])


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_sentence_and_no_output(folder, name, capsys, monkeypatch):
    monkeypatch.setattr("congruence.tables._hdf5.CPU_SECONDS", 1)
    BAD[name](folder / name)
    sys.argv = ["congruence", "compare", name, "good.npy", "--json", "out.json"]
    with pytest.raises(SystemExit) as stopped:
        main()
    check(stopped.value.code, *capsys.readouterr(), name)


@pytest.mark.parametrize("name", ["objects.pt", "absurd.zarr"])
def test_nothing_else_is_printed_by_a_process_of_its_own(folder, name):
    BAD[name](folder / name)
    command = [sys.executable, "-m", "congruence", "compare", "good.npy", name, "--json", "out.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    check(done.returncode, done.stdout, done.stderr, name)


def test_an_output_that_is_a_link_is_refused_before_any_work(folder, capsys):
    Path("precious").write_text("precious")
    Path("out.json").symlink_to("precious")
    sys.argv = ["congruence", "compare", "good.npy", "good.npy", "--json", "out.json"]
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "cannot write to out.json: it is a symbolic link to precious" in capsys.readouterr().err
    assert Path("precious").read_text() == "precious"


def test_pickles_that_pandas_would_read_are_never_opened(folder, capsys):
    Path("x.pkl").write_bytes(pickle.dumps(Payload()))
    sys.argv = ["congruence", "compare", "x.pkl", "good.npy", "--json", "out.json"]
    with pytest.raises(SystemExit) as stopped:
        main()
    check(stopped.value.code, *capsys.readouterr(), "x.pkl")
