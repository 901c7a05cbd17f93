"""Hostile .npy, .npz, .safetensors and .pt files: absurd sizes, bombs and code."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
import torch

from congruence import memory
from congruence.errors import InputError, TableError
from congruence.tables import Table, read_table, write_table
from congruence.tables.access import read_npz_arrays

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
ABSURD = 10**12  # rows


def npy_header(shape, dtype="<f4"):
    start = io.BytesIO()
    np.lib.format.write_array_header_1_0(start, {"descr": dtype, "fortran_order": False, "shape": shape})
    return start.getvalue()


def test_the_limit_is_a_share_of_the_memory_of_the_machine(monkeypatch):
    monkeypatch.delenv("CONGRUENCE_MAX_BYTES", raising=False)
    assert 2**28 < memory.max_bytes() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr(memory.os, "sysconf", lambda name: (_ for _ in ()).throw(ValueError(name)))
    assert memory.max_bytes() == memory.UNKNOWN
    for odd in ("lots", "9" * 5000, "1e9", "²"):
        monkeypatch.setenv("CONGRUENCE_MAX_BYTES", odd)
        with pytest.raises(InputError, match=f"CONGRUENCE_MAX_BYTES must be a number of bytes; got '{odd[:9]}"):
            memory.max_bytes()


def test_a_number_of_bytes_with_more_digits_than_a_float_is_refused_in_a_sentence():
    with pytest.raises(TableError, match=r"x.zarr does not fit in memory: it would take 9.313e\+20 GB, more than"):
        memory.check_fits("x.zarr", 10**500)


@pytest.mark.parametrize("shape", [(ABSURD, 3), (-1, 3), (2**63, 2**63)])
def test_an_npy_that_promises_more_than_follows_is_refused(tmp_path, refused, shape):
    (tmp_path / "x.npy").write_bytes(npy_header(shape) + X.tobytes())
    refused(tmp_path / "x.npy", f"is damaged: an array of shape {shape} and dtype float32 takes", "but 480 follow")


def test_an_npy_whose_header_claims_gigabytes_is_refused(tmp_path, refused):
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b" " * 20_000)
    refused(tmp_path / "x.npy", "could not be read as .npy, it may be damaged: EOF: reading array header")


def test_an_npz_that_promises_more_than_it_holds_is_refused(tmp_path, refused):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("values.npy", npy_header((ABSURD, 3)) + X.tobytes())
    refused(tmp_path / "x.npz", "takes 12000000000000 bytes, but 480 follow")


@pytest.mark.usefixtures("small_memory")
def test_a_zip_bomb_is_refused_before_it_goes_off(tmp_path, refused):
    np.savez_compressed(tmp_path / "x.npz", values=np.zeros((2**18, 3)))
    assert (tmp_path / "x.npz").stat().st_size < 10_000
    refused(tmp_path / "x.npz", "does not fit in memory: it would take 0.005859 GB, more than the 0.0009766 GB allowed")


@pytest.mark.usefixtures("small_memory")
def test_many_columns_count_together(tmp_path, refused):
    columns = {f"c{i}": np.zeros(2**14) for i in range(10)}
    np.savez_compressed(tmp_path / "x.npz", values=np.zeros((2**14, 1)), **columns)
    refused(tmp_path / "x.npz", "does not fit in memory")


def test_an_npz_may_be_compressed_only_as_numpy_does(tmp_path, refused):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("values.npy", npy_header(X.shape) + X.tobytes())
    refused(tmp_path / "x.npz", "values.npy is compressed in a way that np.savez does not use")


def test_text_of_characters_that_do_not_exist_is_refused(tmp_path, refused):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("values.npy", npy_header(X.shape) + X.tobytes())
        archive.writestr("ids.npy", npy_header((40,), "<U1") + b"\xff" * 160)
    refused(tmp_path / "x.npz", "is damaged: the text array 'ids' holds characters that do not exist")


@pytest.mark.usefixtures("small_memory")
def test_what_is_mapped_takes_no_memory(tmp_path, refused):
    values = np.zeros((2**15, 16))
    np.save(tmp_path / "x.npy", values)
    write_table(Table(values, "x"), tmp_path / "x.safetensors")
    torch.save(torch.from_numpy(values), tmp_path / "x.pt")
    flat = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 16)
    pyarrow.feather.write_feather(pa.table({"x": flat}), tmp_path / "x.arrow", compression="uncompressed")
    for suffix in (".npy", ".safetensors", ".pt", ".arrow"):
        assert read_table(tmp_path / f"x{suffix}").values.shape == values.shape
    np.save(tmp_path / "swapped.npy", values.astype(">f8"))
    refused(tmp_path / "swapped.npy", "does not fit in memory")
    torch.save(torch.from_numpy(values).bfloat16(), tmp_path / "narrow.pt")
    refused(tmp_path / "narrow.pt", "does not fit in memory")


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".parquet", ".h5ad", ".pt"])
def test_a_pipe_or_a_device_is_refused(tmp_path, refused, suffix):
    os.mkfifo(tmp_path / f"x{suffix}")
    refused(tmp_path / f"x{suffix}", "is not a regular file, but a pipe or a device")
    (tmp_path / f"y{suffix}").symlink_to("/dev/zero")
    refused(tmp_path / f"y{suffix}", "is not a regular file, but a pipe or a device")


def save_pickle(path, opcodes, *, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x/data.pkl", opcodes)
        archive.writestr("x/version", "3\n")


class Reduced:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pt_that_calls_for_anything_but_tensors_is_refused(tmp_path, refused, payload, mark, protocol):
    for call in (Reduced(Path.touch, mark), Reduced(bytearray, 10**12), Reduced(torch.Tensor, 10**12)):
        save_pickle(tmp_path / "x.pt", pickle.dumps(call, protocol))
        refused(tmp_path / "x.pt", "is damaged or holds Python objects other than tensors, which are never unpickled")
    torch.save(payload, tmp_path / "y.pt", _use_new_zipfile_serialization=False)
    refused(tmp_path / "y.pt", "is damaged or holds Python objects other than tensors")


def test_a_pt_bomb_is_refused(tmp_path, refused):
    save_pickle(tmp_path / "x.pt", bytes(2**20), method=zipfile.ZIP_DEFLATED)
    refused(tmp_path / "x.pt", "is compressed, which torch.save does not do")
    torch.save(torch.zeros(1, 1).expand(ABSURD, 3), tmp_path / "y.pt")
    refused(tmp_path / "y.pt", "does not fit in memory: it would take 1.118e+04 GB")


@pytest.mark.parametrize(
    "header",
    [
        {"values": {"dtype": "F32", "shape": [ABSURD, 3], "data_offsets": [0, 480]}},
        {"values": {"dtype": "F32", "shape": [2**63, 2**63], "data_offsets": [0, 480]}},
        {"values": {"dtype": "F32", "shape": [40, 3], "data_offsets": [0, 480 * ABSURD]}},
        {"values": {"dtype": "F32", "shape": [40, 3]}},
        {"__metadata__": {"congruence.text": "[1]"}, "v": {"dtype": "F32", "shape": [40, 3], "data_offsets": [0, 480]}},
        {"__metadata__": {"congruence.text": "{"}, "v": {"dtype": "F32", "shape": [40, 3], "data_offsets": [0, 480]}},
    ],
)
def test_an_absurd_safetensors_header_is_refused(tmp_path, refused, header):
    start = json.dumps(header).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(start)) + start + X.tobytes())
    refused(tmp_path / "x.safetensors", "could not be read as .safetensors")
    (tmp_path / "y.safetensors").write_bytes(struct.pack("<Q", ABSURD) + start + X.tobytes())
    refused(tmp_path / "y.safetensors", "could not be read as .safetensors")


@pytest.mark.parametrize("column", [[1] * 40, "x" * 40, ["\ud800"] * 40])
def test_safetensors_text_that_is_no_text_is_refused(tmp_path, refused, column):
    about = {"congruence.text": json.dumps({"ids": column})}
    start = json.dumps({"__metadata__": about, "v": {"dtype": "F32", "shape": [40, 3], "data_offsets": [0, 480]}})
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(start)) + start.encode() + X.tobytes())
    refused(tmp_path / "x.safetensors", "damaged")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are not listed on this system")
def test_an_archive_is_closed_when_a_member_is_refused(tmp_path):
    path = tmp_path / "objects.npz"
    np.savez(path, first=np.array([print], dtype=object), second=np.zeros(3))
    with pytest.raises(InputError) as refused:
        read_npz_arrays(path)
    opened = {os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()}
    assert str(path) not in opened, refused  # the exception is still alive, and with it the frames of the reader


@pytest.mark.usefixtures("small_memory")
def test_text_of_safetensors_that_expands_is_refused(tmp_path, refused):
    values = {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}
    text = {"congruence.text": "[" + "[]," * 2**15 + "[]]"}
    header = json.dumps({"values": values, "__metadata__": text}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    refused(tmp_path / "x.safetensors", "does not fit in memory: its text would take")
