"""Write data with known factors to files that other programs read, and list what there is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import to_numpy
from congruence.errors import InputError
from congruence.experiments.data.images import FactorImages
from congruence.experiments.data.registry import IMAGE_SETS
from congruence.experiments.data.row_sets import ROW_SETS
from congruence.experiments.data.rows import FactorRows
from congruence.files import replacing
from congruence.tables import Table, check_table_path, write_table

GENERATED = "generated, no download"


@dataclass(frozen=True)
class DataSet:
    """One data set that `load_data` knows by name; `where` says whether it is generated or where its files are."""

    name: str
    sentence: str
    contents: str
    factors: dict[str, int | None]  # number of levels; None for continuous values
    where: str


def list_data() -> list[DataSet]:
    """All data sets, and which of their files were found under `CONGRUENCE_DATA` or in the cache folder."""
    found = []
    for one in IMAGE_SETS.values():
        try:
            where = GENERATED if one.find is None else f"found: {one.find()[0]}"
        except InputError as error:
            where = str(error)
        contents = f"{one.count:,} images of {' x '.join(map(str, one.shape))}"
        factors: dict[str, int | None] = dict(zip(one.grid.names, one.grid.sizes, strict=True))
        found.append(DataSet(one.name, one.sentence, contents, factors, where))
    for rows in ROW_SETS.values():
        drawn = rows.make(1, rows.clusters, 0)
        factors = dict(zip(drawn.factor_names, drawn.sizes, strict=True))
        found.append(DataSet(rows.name, rows.sentence, f"rows of {rows.observed} numbers", factors, GENERATED))
    return found


def check_data_paths(path: str | Path, factors: str | Path | None = None) -> None:
    """Refuse, before any data is loaded, paths that `write_data` could not write to."""
    path = Path(path)
    if path.suffix != ".npz":
        raise InputError(f"{path}: data is written as .npz")
    check_table_path(path)
    if factors is not None:
        check_table_path(factors)
        if Path(factors).resolve() == path.resolve():
            raise InputError(f"the factors would overwrite the data in {path}")


def write_data(data: FactorImages | FactorRows, path: str | Path, factors: str | Path | None = None) -> None:
    """Write images or rows with their factors as one .npz file and, if asked for, the factors as a table.

    The .npz file holds images (n, channels, height, width) or rows (n, p), factors (n, k), factor_names, kinds and a
    note about the data.
    """
    check_data_paths(path, factors)
    with replacing(path) as temporary, temporary.open("wb") as handle:
        inputs: dict[str, Any]
        inputs = {"images": to_numpy(data.images)} if isinstance(data, FactorImages) else {"rows": data.rows}
        np.savez_compressed(
            handle,
            **inputs,
            factors=data.factors,
            factor_names=np.array(data.factor_names),
            kinds=np.array(data.kinds),
            note=np.array(data.note),
        )
    if factors is not None:
        write_table(Table(data.factors, "factors", features=data.factor_names), factors)
