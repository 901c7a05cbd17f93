"""Hostile .zarr stores: absurd sizes, bombs, code, and chunks that are no files."""

import json
import os
import pickle
import struct

import numcodecs
import numpy as np
import pyarrow as pa
import pytest
import zarr

from congruence.tables import Table, read_table, write_table

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
ABSURD = 10**12  # rows


def zarr_array(path, chunk, *, shape=(2, 2), dtype="<f4", compressor=None, filters=None):
    path.mkdir()
    about = {"zarr_format": 2, "shape": shape, "chunks": [2, 2][: len(shape)], "dtype": dtype, "order": "C"}
    about |= {"compressor": compressor, "filters": filters, "fill_value": "" if dtype == "|O" else 0}
    (path / ".zarray").write_text(json.dumps(about))
    if chunk is not None:
        (path / ".".join("0" * len(shape))).write_bytes(chunk)
    return path


@pytest.mark.parametrize("shape", [(ABSURD, 2), (10**400, 2)])
def test_a_zarr_array_without_chunks_of_absurd_size_is_refused(tmp_path, refused, shape):
    refused(zarr_array(tmp_path / "x.zarr", None, shape=shape), "does not fit in memory")


@pytest.mark.parametrize("dtype", ["<f4", "|O"])
@pytest.mark.parametrize("place", ["filters", "compressor"])
def test_a_pickle_in_zarr_is_refused_and_not_run(tmp_path, refused, payload, mark, dtype, place):
    codec = {"id": "pickle", "protocol": 5}
    codecs = {"filters": [{"id": "vlen-utf8"}, codec]} if place == "filters" else {"compressor": codec}
    if place == "compressor" and dtype == "|O":
        codecs["filters"] = [{"id": "vlen-utf8"}]
    refused(zarr_array(tmp_path / "x.zarr", pickle.dumps(payload), dtype=dtype, **codecs))


def test_a_zarr_codec_that_is_not_known_to_be_safe_is_refused(tmp_path, refused):
    path = zarr_array(tmp_path / "x.zarr", b"", compressor={"id": "bz2", "level": 1})
    refused(path, "an array is coded in a way that is not known to be safe (bz2); save it again")
    path = zarr_array(tmp_path / "y.zarr", b"", compressor={"id": "zlib"}, filters=[{"id": "gzip"}])
    refused(path, "an array is coded in a way that is not known to be safe (gzip, zlib)")


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("codec", ["zlib", "gzip", "zstd", "lz4", "blosc"])
def test_a_zarr_chunk_that_is_a_bomb_is_refused(tmp_path, refused, codec):
    chunk = numcodecs.get_codec({"id": codec}).encode(bytes(2**24))
    refused(zarr_array(tmp_path / "x.zarr", chunk, compressor={"id": codec}), "is damaged: a chunk unpacks to")


def test_a_blosc_chunk_that_is_longer_than_it_is_is_refused(tmp_path, refused):
    chunk = numcodecs.Blosc().encode(bytes(16))
    chunk = chunk[:12] + struct.pack("<I", 10**9) + chunk[16:]
    message = f"is damaged: a chunk of {len(chunk)} bytes declares another length"
    refused(zarr_array(tmp_path / "x.zarr", chunk, compressor={"id": "blosc"}), message)


@pytest.mark.usefixtures("small_memory")
def test_a_zstd_chunk_that_does_not_say_its_size_is_counted(tmp_path, refused):
    def stream(data):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as packed:
            packed.write(data)
        return sink.getvalue().to_pybytes()

    values = np.arange(4, dtype=np.float32).reshape(2, 2)
    good = zarr_array(tmp_path / "good.zarr", stream(values.tobytes()), compressor={"id": "zstd"})
    np.testing.assert_array_equal(read_table(good).values, values)
    bomb = zarr_array(tmp_path / "bomb.zarr", stream(bytes(2**24)), compressor={"id": "zstd"})
    refused(bomb, "is damaged: a chunk unpacks to")


def test_a_zarr_chunk_that_counts_more_texts_than_it_has_is_refused(tmp_path, refused):
    path = tmp_path / "x.zarr"
    write_table(Table(X[:2], "x"), path)
    count = numcodecs.get_codec({"id": "zstd"}).encode(struct.pack("<I", 2**32 - 1))
    options = {"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "compressor": {"id": "zstd"}}
    zarr_array(path / "ids", count, shape=(2,), **options)
    refused(path, "is damaged: a chunk of 2 texts declares 4294967295")


@pytest.mark.parametrize("place", ["start", "end"])
def test_the_chunks_inside_of_shards_are_looked_at(tmp_path, refused, monkeypatch, place):
    values = np.arange(40, dtype=np.float32).reshape(20, 2)
    group = zarr.create_group(tmp_path / "x.zarr", zarr_format=3)
    shards = {"shape": (8, 2), "index_location": place}
    array = group.create_array("v", shape=values.shape, dtype="f4", chunks=(4, 2), shards=shards)
    array[:] = values
    np.testing.assert_array_equal(read_table(tmp_path / "x.zarr").values, values)
    shard = tmp_path / "x.zarr" / "v" / "c" / "0" / "0"
    shard.write_bytes(shard.read_bytes()[:20])
    refused(tmp_path / "x.zarr", "is damaged: a shard is shorter than its index")


def test_shards_that_are_compressed_as_a_whole_are_refused(tmp_path, refused):
    group = zarr.create_group(tmp_path / "x.zarr", zarr_format=3)
    group.create_array("v", data=np.zeros((20, 2)), chunks=(4, 2), shards=(8, 2))
    about = json.loads((tmp_path / "x.zarr" / "v" / "zarr.json").read_text())
    about["codecs"].append({"name": "gzip", "configuration": {"level": 1}})
    (tmp_path / "x.zarr" / "v" / "zarr.json").write_text(json.dumps(about))
    refused(tmp_path / "x.zarr", "an array is coded in a way that is not known to be safe (sharding_indexed, gzip")


@pytest.mark.parametrize("odd", ["device", "pipe"])
def test_a_zarr_chunk_that_is_no_file_is_refused(tmp_path, refused, odd):
    path = zarr_array(tmp_path / "x.zarr", None)
    (path / "0.0").symlink_to("/dev/zero") if odd == "device" else os.mkfifo(path / "0.0")
    refused(path, "x.zarr/0.0 is not a regular file, but a pipe or a device")


@pytest.mark.usefixtures("small_memory")
def test_a_zstd_bomb_behind_a_small_frame_is_refused(tmp_path, refused):
    values = np.arange(4, dtype=np.float32).reshape(2, 2)
    small, bomb = (numcodecs.Zstd().encode(data) for data in (values.tobytes(), bytes(2**24)))
    good = zarr_array(tmp_path / "good.zarr", small, compressor={"id": "zstd"})
    np.testing.assert_array_equal(read_table(good).values, values)
    skipped = struct.pack("<II", 0x184D2A50, 4) + b"1234"  # a frame without content
    endless = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**62) + bytes(64)  # no block is the last one
    for name, chunk in {"frames": small + bomb, "skipped": skipped + bomb, "endless": endless}.items():
        path = zarr_array(tmp_path / f"{name}.zarr", chunk, compressor={"id": "zstd"})
        refused(path, "Frame requires too much memory" if name == "endless" else "is damaged: a chunk unpacks to")


def test_a_zarr_array_whose_chunks_are_missing_is_refused(tmp_path, refused):
    path = zarr_array(tmp_path / "x.zarr", None, shape=(60_000, 2))  # 30,000 chunks of two rows
    refused(path, "lacks 30000 chunks of the array 'inside', and at most 10000 may be missing")


def test_settings_of_a_zarr_store_that_are_too_large_are_refused(tmp_path, refused):
    path = zarr_array(tmp_path / "x.zarr", bytes(16))
    (path / ".zattrs").write_text('{"x": [' + "[]," * 2**23 + "[]]}")
    refused(path, ".zattrs has more than 16777216 bytes, too many for settings")
