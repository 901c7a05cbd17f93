"""One small valid file of every format that can be read, in the variants that take different paths through a reader."""

import gzip
import json
import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from congruence.tables import Table, write_table

N, D = 24, 3  # small, so that much of the file is structure, where a wrong byte hurts
VALUES = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
IDS = [f"row{i}" for i in range(N)]
PLATE = ["p", "q", "r"] * (N // 3)
TABLE = Table(VALUES, "run", IDS, {"Metadata_plate": PLATE, "Metadata_dose": np.arange(N) / 8})


def _lists(width: int) -> Any:
    """Return vectors as lists of a fixed width, or of any (-1)."""
    import pyarrow as pa

    inner = pa.list_(pa.float32(), width)
    return pa.table({"id": IDS, "emb": pa.array(VALUES.tolist(), inner), "plate": pa.array(PLATE).dictionary_encode()})


def _parquet_lists(path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(_lists(-1), path, compression="zstd", row_group_size=10)


def _parquet_pandas(path: Path) -> None:
    import pandas as pd

    pd.DataFrame(VALUES, index=IDS, columns=["x", "y", "z"]).assign(Metadata_p=PLATE).to_parquet(path)


def _arrow_stream(path: Path) -> None:
    import pyarrow as pa

    table = _lists(D)
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)


def _feather_compressed(path: Path) -> None:
    from pyarrow import feather

    feather.write_feather(_lists(-1), path, compression="zstd")


def _anndata() -> Any:
    import anndata
    import pandas as pd
    import scipy.sparse

    obs = pd.DataFrame({"plate": pd.Categorical(PLATE), "dose": np.arange(N) / 8, "word": PLATE}, index=IDS)
    var = pd.DataFrame(index=["g0", "g1", "g2"])
    return anndata.AnnData(scipy.sparse.csr_matrix(VALUES), obs, var)


def _pt(path: Path, **options: bool) -> None:
    import torch

    torch.save({"values": torch.from_numpy(VALUES), "ids": IDS, "dose": torch.arange(N)}, path, **options)


def _npz_compressed(path: Path) -> None:
    np.savez_compressed(path, values=VALUES, ids=np.array(IDS), plate=np.array(PLATE))


def _npy_fortran(path: Path) -> None:
    np.save(path, np.asfortranarray(VALUES.astype(">f8")))


def _csv_quoted(path: Path) -> None:
    rows = [f'"row, {i}","two\nlines",{x},{y},{z}' for i, (x, y, z) in enumerate(VALUES.tolist())]
    path.write_bytes(gzip.compress("\n".join(["id,Metadata_p,x,y,z", *rows]).encode(), mtime=0))


def _zarr_3(path: Path) -> None:
    import zarr

    group = zarr.create_group(path, zarr_format=3)
    group.create_array("values", data=VALUES, chunks=(10, D))
    group.create_array("dose", data=np.arange(N), chunks=(4,), shards=(12,), compressors=zarr.codecs.GzipCodec())


def _jsonl(path: Path, *, lists: bool = True) -> None:
    rows = VALUES.tolist()
    objects = [{"emb": row} if lists else dict(zip("xyz", row, strict=True)) for row in rows]
    lines = [json.dumps({"id": id, "p": p, **one}) for id, p, one in zip(IDS, PLATE, objects, strict=True)]
    text = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def _csv_semicolons(path: Path) -> None:
    path.write_text("\n".join(";".join(f"{x}".replace(".", ",") for x in row) for row in VALUES.tolist()))


def _parquet_tensors(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": IDS, "emb": pa.FixedShapeTensorArray.from_numpy_ndarray(VALUES)}), path)


def _lance(path: Path) -> None:
    os.environ.setdefault("LANCE_LOG", "error")  # as the reader does before it imports lance
    import lance

    lance.write_dataset(_lists(D), path)


def _h5(path: Path, **options: str) -> None:
    import h5py

    with h5py.File(path, "w") as store:
        store.create_dataset("values", data=VALUES, **options)
        store["ids"], store["group/dose"] = IDS, np.arange(N)


def _mat(path: Path, *, do_compression: bool) -> None:
    import scipy.io

    arrays = {"values": VALUES, "ids": np.array(IDS), "dose": np.arange(N), "cell": np.array(PLATE, dtype=object)}
    scipy.io.savemat(path, arrays, do_compression=do_compression)


def _bin(path: Path, dtype: str) -> None:
    path.write_bytes(np.array(VALUES.shape, "<u4").tobytes() + VALUES.astype(dtype).tobytes())


def _vecs(path: Path, dtype: str) -> None:
    length = np.array([D], "<i4").tobytes()
    path.write_bytes(b"".join(length + row.tobytes() for row in VALUES.astype(dtype)))


def _faiss(path: Path, *, lists: bool) -> None:
    import faiss

    flat = faiss.IndexFlatL2(D)
    if lists:
        index = faiss.IndexIVFFlat(flat, D, 2)
        index.cp.min_points_per_centroid = 1
        index.train(VALUES)
        index.add(VALUES)
        index.make_direct_map()
    else:
        index = faiss.IndexIDMap2(flat)
        index.add_with_ids(VALUES, np.arange(N) + 5)
    faiss.write_index(index, str(path))


def _by_write_table(path: Path) -> None:
    write_table(TABLE, path)


SAMPLES: dict[str, Callable[[Path], object]] = {
    "plain.npy": lambda path: np.save(path, VALUES),
    "fortran.npy": _npy_fortran,
    "stored.npz": _by_write_table,
    "deflated.npz": _npz_compressed,
    "table.csv": _by_write_table,
    "table.csv.gz": _by_write_table,
    "quoted.csv.gz": _csv_quoted,
    "table.parquet": _by_write_table,
    "lists.parquet": _parquet_lists,
    "pandas.parquet": _parquet_pandas,
    "table.arrow": _by_write_table,
    "stream.arrow": _arrow_stream,
    "compressed.feather": _feather_compressed,
    "table.h5ad": _by_write_table,
    "sparse.h5ad": lambda path: _anndata().write_h5ad(path, compression="gzip"),
    "table.zarr": _by_write_table,
    "version3.zarr": _zarr_3,
    "cells.zarr": lambda path: _anndata().write_zarr(path),
    "table.safetensors": _by_write_table,
    "zipped.pt": _pt,
    "legacy.pth": lambda path: _pt(path, _use_new_zipfile_serialization=False),
    "semicolons.csv": _csv_semicolons,
    "table.tsv": _by_write_table,
    "table.tsv.gz": _by_write_table,
    "lists.jsonl": _jsonl,
    "lists.jsonl.gz": _jsonl,
    "fields.ndjson": lambda path: _jsonl(path, lists=False),
    "tensors.parquet": _parquet_tensors,
    "plain.h5": _h5,
    "gzip.hdf5": lambda path: _h5(path, compression="gzip"),
    "plain.mat": lambda path: _mat(path, do_compression=False),
    "deflated.mat": lambda path: _mat(path, do_compression=True),
    "plain.fbin": lambda path: _bin(path, "<f4"),
    "plain.ibin": lambda path: _bin(path, "<i4"),
    "plain.u8bin": lambda path: _bin(path, "u1"),
    "plain.i8bin": lambda path: _bin(path, "i1"),
    "plain.fvecs": lambda path: _vecs(path, "<f4"),
    "plain.ivecs": lambda path: _vecs(path, "<i4"),
    "plain.bvecs": lambda path: _vecs(path, "u1"),
}
if find_spec("lance"):
    SAMPLES["lists.lance"] = _lance
if find_spec("faiss"):
    SAMPLES["map.faiss"] = lambda path: _faiss(path, lists=False)
    SAMPLES["lists.index"] = lambda path: _faiss(path, lists=True)


def make_sample(name: str, folder: Path) -> Path:
    """Write the sample of that name into the folder."""
    with warnings.catch_warnings():  # what the libraries say about the formats they write is theirs
        warnings.simplefilter("ignore")
        SAMPLES[name](folder / name)
    return folder / name
