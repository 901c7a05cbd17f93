"""RxRx3-core: 222,601 wells of gene knockouts and compounds in HUVEC, with OpenPhenom embeddings (Kraus et al. 2025).

Two files of the published data set are read: `metadata_rxrx3_core.csv`, one line for each well, and
`OpenPhenom_rxrx3_core_embeddings.parquet`, a column `well_id` and 384 columns of numbers. The columns of the metadata
are those that its description lists. The names of the numeric columns are not described, so every column except
`well_id` is used. We had descriptions of these files and not the files: this code was never run on them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from congruence.arrays import listing
from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.experiments.data._readers import VARIABLE, find_files
from congruence.tables import RowColumns, Table, join_tables, read_row_columns, read_table

METADATA, EMBEDDINGS = "metadata_rxrx3_core.csv", "OpenPhenom_rxrx3_core_embeddings.parquet"
COLUMNS = ("experiment_name", "plate", "address", "gene", "treatment", "perturbation_type")  # required
CONTROL = "EMPTY_control"  # untreated wells; plates of compounds also have CRISPR_control
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
    """Read RxRx3-core as an embedding table, with the metadata columns that `deconfound` needs.

    Parameters
    ----------
    kind : {"CRISPR", "COMPOUND"} or None
        Wells of gene knockouts, of compounds, or all.
    embeddings : path, optional
        A file for `read_table` with a column ``well_id``, so that other models can be compared; by default the
        published one, in the folder ``rxrx3-core`` of the data folder.
    metadata : path, optional
        The published metadata, by default in the same folder.

    Returns
    -------
    Table
        One row for each well in both files, in the order of the embeddings; ids are ``well_id``. Metadata are the
        published columns, ``perturbation`` (the gene, or the compound), ``guide`` (the published ``treatment``),
        ``batch`` (experiment and plate, since plate numbers restart in each experiment) and ``is_control`` (untreated).
    """
    check_choice("kind", kind, (*KINDS, None))
    if embeddings is None or metadata is None:
        wanted = [name for name, given in ((METADATA, metadata), (EMBEDDINGS, embeddings)) if given is None]
        found = dict(zip(wanted, find_files("rxrx3-core", [(name,) for name in wanted], HOW), strict=True))
        embeddings, metadata = embeddings or found[EMBEDDINGS], metadata or found[METADATA]
    described = read_row_columns(metadata, id="well_id")
    _check_columns(described, Path(metadata))
    wells = _join(read_table(embeddings, id="well_id"), described, Path(metadata))
    if kind is None:
        return wells
    rows = np.flatnonzero(wells.metadata["perturbation_type"] == kind)
    if not rows.size:
        raise InputError(f"{wells.path} has no {kind} wells; kind=None takes all")
    columns = {name: column[rows] for name, column in wells.metadata.items()}
    ids = None if wells.ids is None else wells.ids[rows]
    return Table(wells.values[rows], wells.name, ids, columns, wells.features, wells.path)


def _check_columns(described: RowColumns, path: Path) -> None:
    lost = [name for name in COLUMNS if name not in described.columns]
    if lost:
        there = listing(list(described.columns), 12)
        raise InputError(
            f"{path} has no column {listing(lost, 6)}, so it is not the metadata of RxRx3-core; it has {there}"
        )
    strange = set(described.columns["perturbation_type"].tolist()) - set(KINDS)
    if strange:
        names = listing(sorted(map(str, strange)))
        raise InputError(f"perturbation_type in {path} must be CRISPR or COMPOUND; got {names}")


def _join(table: Table, described: RowColumns, path: Path) -> Table:
    """The rows of the embeddings that have metadata, with all columns."""
    rows = np.arange(described.n)[:, None]  # joined by id: the line of the metadata of each row
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
