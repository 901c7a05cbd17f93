"""Components of a table from a model that was saved, and the way back, a chunk of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from congruence.cli import options as given
from congruence.cli.screen import progress_bar, say
from congruence.errors import InputError
from congruence.progress import Progress

if TYPE_CHECKING:
    from congruence.ica.estimator import ICA
    from congruence.tables import Stream, Table


def apply_components(
    paths: list[str],
    model: Path,
    out: Path | None,
    *,
    inverse: bool,
    drop_missing: bool,
    quiet: bool,
    wishes: dict[str, str | None],
    lazily: bool = False,
) -> None:
    """Write the components of the rows of files, or with `inverse` the rows of which they hold the components.

    With `lazily`, blocks of rows are read and mapped by dask workers.
    """
    from congruence.ica.estimator import load_ica

    if out is None:
        raise InputError("--apply needs --out, the file that the components go to")
    given.check_outputs({}, [*paths, model], tables={"out": out})
    ica = load_ica(model)
    with progress_bar(shown=not quiet) as progress:
        options: dict[str, Any] = {"inverse": inverse, "id": wishes["id"], "progress": progress}
        if lazily:
            n = write_computed(given.read_as_one(paths, True, **wishes), ica, out, **options)
        else:
            n = write_mapped(_stream(paths, drop_missing, wishes), ica, out, **options)
    if not quiet:
        say(f"{n} rows {'led back to embeddings' if inverse else 'resolved'}: {out}")


def _stream(paths: list[str], drop_missing: bool, wishes: dict[str, str | None]) -> Stream:
    from congruence.tables import Stream, finite_table, slices, stream_parts

    if drop_missing:  # how many rows are left must be known before the first is written
        table = finite_table(given.read_as_one(paths, **wishes), drop_missing=True)
        return Stream(table.n, slices(table))
    asked = {name: value for name, value in wishes.items() if value is not None}
    given.check_honoured(paths, [name for name in asked if name != "id"])
    return stream_parts(paths, **asked)


def write_mapped(
    stream: Stream, ica: ICA, out: Path, *, inverse: bool = False, id: str | None, progress: Progress
) -> int:
    """Write the components of all chunks, or their way back, and return how many rows there were."""
    from congruence.tables import Stream, write_stream

    def tick(done: int) -> None:
        progress(f"writing {out.name}", done, stream.n)

    write_stream(Stream(stream.n, _mapped(stream.chunks, ica, inverse, tick)), out, id=id or "id")
    return stream.n


def write_computed(
    table: Table, ica: ICA, out: Path, *, inverse: bool = False, id: str | None, progress: Progress
) -> int:
    """The same for a table whose values are a dask array, block by block as workers have computed them."""
    from congruence.maps.blocks import computed_blocks
    from congruence.tables import Stream, check_table_path, write_stream

    known, k = getattr(ica, "feature_names_in_", None), len(ica.components_)
    _check_columns(table, known, k if inverse else ica.n_features_in_, inverse)
    check_table_path(out, table)
    mapped = ica.inverse_transform(table.values) if inverse else ica.transform(_in_order(table, known))
    given_names = known if inverse else [f"ica{i}" for i in range(k)]
    names = None if given_names is None else tuple(given_names)

    def chunks() -> Iterator[Table]:
        for part, rows in computed_blocks(mapped):
            progress(f"writing {out.name}", part.stop, table.n)
            ids = None if table.ids is None else table.ids[part]
            beside = {name: column[part] for name, column in table.metadata.items()}
            yield replace(table, values=rows, ids=ids, metadata=beside, features=names)

    write_stream(Stream(table.n, chunks()), out, id=id or "id")
    return table.n


def _mapped(chunks: Iterator[Table], ica: ICA, inverse: bool, tick: Any) -> Iterator[Table]:
    import numpy as np

    from congruence.arrays import finite_rows, listing
    from congruence.ica.opening import affine
    from congruence.tables import slices

    k, d = ica.components_.shape
    known = getattr(ica, "feature_names_in_", None)
    names = known if inverse else [f"ica{i}" for i in range(k)]
    done, path, before = 0, None, 0
    for chunk in (part for whole in chunks for part in slices(whole, max(k, d))):
        _check_columns(chunk, known, k if inverse else d, inverse)
        if chunk.path != path:  # the next of several files, whose rows are counted anew in messages
            path, before = chunk.path, done
        bad = np.flatnonzero(~finite_rows(chunk.values)) + done - before
        if bad.size:
            raise InputError(
                f"{chunk.path} has NaN or infinite values (row {listing(bad)}); leave such rows out with --drop-missing"
            )
        if inverse:
            values = affine(chunk.values, np.zeros(k), ica.mixing_.T, ica.mean_)
        else:
            values = affine(_in_order(chunk, known), ica.mean_, ica.components_.T, np.zeros(k))
        yield replace(chunk, values=values, features=None if names is None else tuple(names))
        done += chunk.n
        tick(done)


def _check_columns(chunk: Table, known: Any, width: int, inverse: bool) -> None:
    """Refuse a table that the model was not made for."""
    from congruence.arrays import listing

    names, where = chunk.features, chunk.path or chunk.name
    if known is not None and names is not None and not inverse:
        lacking = [name for name in known if name not in set(names)]
        if lacking:
            raise InputError(f"{where} lacks columns that the model was fitted on: {listing(lacking)}")
        unknown = [name for name in names if name not in set(known)]
        if unknown:
            raise InputError(
                f"{where} has columns that the model was not fitted on: {listing(unknown)}; "
                "name those to use with --features, or those to set aside with --metadata"
            )
    if chunk.d != width:
        whose = "components" if inverse else "columns"
        hint = "; --inverse takes a table of components" if inverse else ""
        raise InputError(f"{where} has {chunk.d} columns, but the model has {width} {whose}{hint}")
    if inverse and known is not None and names is not None and list(names) == list(known):
        raise InputError(f"{where} has the columns that the model was fitted on, not components; leave out --inverse")


def _in_order(chunk: Table, known: Any) -> Any:
    """The columns in the order that the model knows them by, where both have names."""
    if known is None or chunk.features is None or list(chunk.features) == list(known):
        return chunk.values
    place = {name: i for i, name in enumerate(chunk.features)}
    return chunk.values[:, [place[name] for name in known]]
