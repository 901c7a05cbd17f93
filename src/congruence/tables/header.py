"""The names of the columns of a file, without its rows."""

from __future__ import annotations

from pathlib import Path

from congruence.tables.access import check_readable, reading, suffix_of
from congruence.tables.read_columns import check_distinct, open_arrow
from congruence.tables.read_csv import header_of_csv


def column_names(path: str | Path) -> tuple[str, ...] | None:
    """Return the names of all columns of a csv, parquet or arrow file; None for formats that keep metadata apart."""
    path = Path(path)
    suffix = suffix_of(path)
    if suffix not in (".csv", ".csv.gz", ".parquet", ".arrow", ".feather"):
        return None
    check_readable(path, folder=False)
    if suffix in (".csv", ".csv.gz"):
        names = header_of_csv(path)
    elif suffix == ".parquet":
        import pyarrow.parquet as pq

        with reading(path):
            names = list(pq.read_schema(path).names)
    else:
        names = list(open_arrow(path).schema.names)
    check_distinct(names, path)
    return tuple(names)
