"""Put a matrix into an AnnData file beside what it holds already."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from congruence.arrays import to_numpy
from congruence.errors import TableError
from congruence.files import replacing
from congruence.tables.access import require, suffix_of
from congruence.tables.inspect_h5ad import inspection
from congruence.tables.write import writing


def check_obsm_path(path: str | Path) -> Path:
    """Refuse, before any work, a file that a matrix cannot be put into."""
    path = Path(path)
    if suffix_of(path) != ".h5ad":
        raise TableError(f"{path} is not AnnData (.h5ad), so no embedding can be written back into it; use --out")
    return path


def write_obsm(path: str | Path, key: str, values: Any) -> None:
    """Put `values` (n, k) into obsm under `key`, replacing what is there; the file is changed whole or not at all."""
    path = check_obsm_path(path)
    with inspection(path, ["obs"], 2):
        require("anndata", "h5ad", path)
    import h5py

    try:
        from anndata.io import write_elem
    except ImportError:  # anndata 0.10
        from anndata.experimental import write_elem
    with writing(path), replacing(path) as temporary:
        shutil.copyfile(path, temporary)
        with h5py.File(temporary, "r+") as store:
            write_elem(store.require_group("obsm"), key, to_numpy(values))
