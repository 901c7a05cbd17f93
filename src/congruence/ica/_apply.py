"""Components of a table from a fitted `ICA`, and embeddings from components, written a chunk of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import finite_rows, is_dask, listing
from congruence.errors import InputError, naming
from congruence.ica.estimator import ICA
from congruence.progress import Progress
from congruence.rows.blocks import computed_blocks
from congruence.rows.engine import map_rows, unit_chunk
from congruence.tables import Stream, Table, check_table_path, finite_table, slices, write_stream


def write_components(
    rows: Table | Stream,
    ica: ICA,
    path: str | Path,
    *,
    inverse: bool = False,
    id: str | None = None,
    drop_missing: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write the components of a table, or the embeddings of a table of components, and return the number of rows.

    Ids and metadata are kept. Columns are matched by name where both the table and the model have names.

    Parameters
    ----------
    rows : Table or Stream
        A table in memory, on disk or with a dask array for its values (which workers compute block by block), or a
        stream of chunks (`congruence.tables.stream_table`).
    ica : ICA
        Fitted, or from `load_ica`.
    path : str or Path
        The table to write, in any format that keeps its ids and metadata.
    inverse : bool
        Map components back to embeddings.
    id : str, optional
        The name of the id column written; by default the one it was read from, or "id".
    drop_missing : bool
        Leave out rows with NaN or infinity instead of refusing them; only for tables in memory or on disk.
    progress : callable, optional
        Called as progress(what, done, total) while writing.
    """
    path = Path(path)
    if isinstance(rows, Table) and is_dask(rows.values):
        check_table_path(path, rows)
        chunks = _map_blocks(rows, ica, inverse)
    elif isinstance(rows, Table):
        rows = finite_table(rows, drop_missing=drop_missing)
        chunks = _map_chunks(slices(rows), ica, inverse)
    else:
        chunks = _map_chunks(rows.chunks, ica, inverse)
    n = rows.n

    def counted() -> Iterator[Table]:
        done = 0
        for chunk in chunks:
            yield chunk
            done += chunk.n
            if progress is not None:
                progress(f"writing {path.name}", done, n)

    write_stream(Stream(n, counted()), path, id=id)
    return n


def _map_blocks(table: Table, ica: ICA, inverse: bool) -> Iterator[Table]:
    """The mapped blocks of a dask array, as workers compute them."""
    with naming(table.name):
        _check_columns(table, ica, inverse)
        mapped = ica.inverse_transform(table.values) if inverse else ica.transform(_in_order(table, ica))
        for part, rows in computed_blocks(mapped):
            ids = None if table.ids is None else table.ids[part]
            metadata = {name: column[part] for name, column in table.metadata.items()}
            yield replace(table, values=rows, ids=ids, metadata=metadata, features=_written(ica, inverse))


def _map_chunks(chunks: Iterator[Table], ica: ICA, inverse: bool) -> Iterator[Table]:
    k, d = ica.components_.shape
    done, path, before = 0, None, 0
    for chunk in (part for whole in chunks for part in slices(whole, max(k, d))):
        _check_columns(chunk, ica, inverse)
        if chunk.path != path:  # the next of several files; messages count rows from its start
            path, before = chunk.path, done
        bad = np.flatnonzero(~finite_rows(chunk.values)) + done - before
        if bad.size:
            raise InputError(
                f"{chunk.path} has NaN or infinite values (row {listing(bad)}); leave such rows out "
                "with drop_missing=True (--drop-missing)"
            )
        if inverse:
            values = map_rows(chunk.values, np.zeros(k), ica.mixing_.T, ica.mean_)
        else:
            rows = _in_order(chunk, ica)
            if ica.normalize is not None:
                unit_chunk(rows, done - before, str(chunk.path or chunk.name))  # names the file of rows of zeros
            values = map_rows(rows, ica.mean_, ica.components_.T, np.zeros(k), scale_rows=ica.normalize is not None)
        yield replace(chunk, values=values, features=_written(ica, inverse))
        done += chunk.n


def _written(ica: ICA, inverse: bool) -> tuple[str, ...] | None:
    """The names of the columns written."""
    names = getattr(ica, "feature_names_in_", None) if inverse else ica.get_feature_names_out()
    return None if names is None else tuple(names)


def _check_columns(chunk: Table, ica: ICA, inverse: bool) -> None:
    """Refuse a table with other columns than those the model was fitted on."""
    known, names, where = getattr(ica, "feature_names_in_", None), chunk.features, chunk.path or chunk.name
    k, d = ica.components_.shape
    if known is not None and names is not None and not inverse:
        lacking = [name for name in known if name not in set(names)]
        if lacking:
            raise InputError(f"{where} lacks columns that the model was fitted on: {listing(lacking)}")
        unknown = [name for name in names if name not in set(known)]
        if unknown:
            raise InputError(
                f"{where} has columns that the model was not fitted on: {listing(unknown)}; "
                "name those to use with features (--features), or those to set aside with metadata (--metadata)"
            )
    if inverse and chunk.d != k:
        raise InputError(
            f"{where} has {chunk.d} columns, but the model has {k} components; "
            "inverse (--inverse) takes a table of components"
        )
    if not inverse and chunk.d != d:
        raise InputError(f"{where} has {chunk.d} columns, but the model has {d} columns")
    if inverse and known is not None and names is not None and list(names) == list(known):
        raise InputError(
            f"{where} has the columns that the model was fitted on, not components; leave out inverse (--inverse)"
        )


def _in_order(chunk: Table, ica: ICA) -> Any:
    """The columns in the order of the fit, where both have names."""
    known = getattr(ica, "feature_names_in_", None)
    if known is None or chunk.features is None or list(chunk.features) == list(known):
        return chunk.values
    place = {name: i for i, name in enumerate(chunk.features)}
    return chunk.values[:, [place[name] for name in known]]
