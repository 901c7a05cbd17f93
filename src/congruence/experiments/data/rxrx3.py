"""RxRx3-core: 222,601 wells of gene knockouts and compounds in HUVEC, with OpenPhenom embeddings (Kraus et al. 2025).

Two files of the published data set are read: `metadata_rxrx3_core.csv`, one line for each well, and
`OpenPhenom_rxrx3_core_embeddings.parquet`, a column `well_id` and 384 columns of numbers. The columns of the metadata
are those that its description lists. The names of the columns of numbers are not described, so every column beside
`well_id` is taken for one. We had descriptions of these files and not the files: nothing here was tried on them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from congruence.arrays import listing
from congruence.errors import InputError
from congruence.experiments.data.paths import VARIABLE, find_files
from congruence.tables import RowColumns, Table, join_tables, read_row_columns, read_table

METADATA, EMBEDDINGS = "metadata_rxrx3_core.csv", "OpenPhenom_rxrx3_core_embeddings.parquet"
COLUMNS = ("experiment_name", "plate", "address", "gene", "treatment", "perturbation_type")  # without which it is none
CONTROL = "EMPTY_control"  # wells to which nothing was done; compounds have CRISPR_control besides
KINDS = ("CRISPR", "COMPOUND")
HOW = (
    f"Get {METADATA} and {EMBEDDINGS} of the data set recursionpharma/rxrx3-core from Hugging Face, whose licence is "
    f"non-commercial, and put them into the folder rxrx3-core of the one that {VARIABLE} names"
)


def rxrx3_core(
    *,
    kind: str | None = "CRISPR",
    embeddings: str | Path | None = None,
    metadata: str | Path | None = None,
) -> Table:
    """Read RxRx3-core as an embedding table with what `deconfound` needs beside the published metadata.

    Parameters
    ----------
    kind : {"CRISPR", "COMPOUND"} or None
        Wells of gene knockouts, of compounds, or all.
    embeddings, metadata : path, optional
        The two files; looked for in the folder ``rxrx3-core`` where data sets are, unless given. Any file that
        `read_table` knows, with a column ``well_id``, will do as embeddings: other models can be compared.

    Returns
    -------
    Table
        One row for each well that both files have, in the order of the embeddings; ids are ``well_id``. Beside the
        published columns the metadata have ``perturbation`` (the gene, or the compound), ``guide`` (the published
        ``treatment``), ``batch`` (experiment and plate, since plates are numbered anew in each experiment) and
        ``is_control`` (nothing was done to the well).
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"kind must be 'CRISPR', 'COMPOUND' or None, not {kind!r}")
    if embeddings is None or metadata is None:
        wanted = [name for name, given in ((METADATA, metadata), (EMBEDDINGS, embeddings)) if given is None]
        found = dict(zip(wanted, find_files("rxrx3-core", [(name,) for name in wanted], HOW), strict=True))
        embeddings, metadata = embeddings or found[EMBEDDINGS], metadata or found[METADATA]
    described = read_row_columns(metadata, id="well_id")
    _check_columns(described, Path(metadata))
    wells = _beside(read_table(embeddings, id="well_id"), described, Path(metadata))
    return _only(wells, kind)


def _check_columns(described: RowColumns, path: Path) -> None:
    lost = [name for name in COLUMNS if name not in described.columns]
    if lost:
        there = listing(list(described.columns), 12)
        raise InputError(
            f"{path} has no column {listing(lost, 6)}, so it is not the metadata of RxRx3-core; it has {there}"
        )
    strange = set(described.columns["perturbation_type"].tolist()) - set(KINDS)
    if strange:
        told = listing(sorted(map(str, strange)))
        raise InputError(f"{path} has the perturbation_type {told}; known are CRISPR and COMPOUND")


def _beside(table: Table, described: RowColumns, path: Path) -> Table:
    """The rows of the embeddings that the metadata describe, with all columns."""
    rows = np.arange(described.n)[:, None]  # joined by id, its values tell which line of the metadata goes where
    joined = join_tables([table, Table(rows, "metadata", described.ids, path=path)])
    at = joined.values[1][:, 0].astype(int)
    columns = {name: column[at] for name, column in described.columns.items()}
    crispr = columns["perturbation_type"] == "CRISPR"
    done = np.where(crispr, columns["gene"], columns["treatment"])
    columns |= {
        "perturbation": done,
        "guide": columns["treatment"],
        "batch": np.array(
            [f"{e}_{p}" for e, p in zip(columns["experiment_name"], columns["plate"], strict=True)], object
        ),
        "is_control": done == CONTROL,
    }
    return Table(joined.values[0], "rxrx3-core", joined.ids, columns, table.features, table.path)


def _only(wells: Table, kind: str | None) -> Table:
    if kind is None:
        return wells
    rows = np.flatnonzero(wells.metadata["perturbation_type"] == kind)
    if not rows.size:
        raise InputError(f"there are no {kind} wells in {wells.path}; kind None takes all")
    columns = {name: column[rows] for name, column in wells.metadata.items()}
    ids = None if wells.ids is None else wells.ids[rows]
    return Table(wells.values[rows], wells.name, ids, columns, wells.features, wells.path)
