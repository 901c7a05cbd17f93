"""One small valid file of every format that can be read, in the variants that take different paths through a reader."""

import gzip
import warnings
from collections.abc import Callable
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
}


def make_sample(name: str, folder: Path) -> Path:
    """Write the sample of that name into the folder."""
    with warnings.catch_warnings():  # what the libraries say about the formats they write is theirs
        warnings.simplefilter("ignore")
        SAMPLES[name](folder / name)
    return folder / name
