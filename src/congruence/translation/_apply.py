"""Translate one file, or every part of a table in many files into a part of its own.

A part is written under a temporary name and renamed when it is complete; then a line in the record of the output
folder, with a checksum, says so. Whenever the process is killed, a part is absent, complete, or complete and recorded,
and the same call translates those that are not recorded or were changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, finite_rows, listing, to_numpy
from congruence.errors import CongruenceError, InputError
from congruence.files import alone, describe_file, real_path
from congruence.guards import suffix_of
from congruence.options import reading, takes
from congruence.parts import Manifest
from congruence.progress import Progress
from congruence.rows.blocks import connected
from congruence.tables import SUFFIXES, Stream, Table, check_table_path, stream_table, write_stream
from congruence.tables.address import as_path
from congruence.tables.columns import Selection
from congruence.tables.formats import COLUMNAR
from congruence.tables.names import match_columns, numbering
from congruence.tables.parts import fix_columns, part_files
from congruence.tables.read import column_names
from congruence.tables.rewrite import number_columns, rewrite_values
from congruence.translation._options import ApplyOptions
from congruence.translation.translator import Translator, load_translator


@dataclass(frozen=True)
class Applied:
    """What `apply_files` has written."""

    rows: int
    parts: int  # 0 for a single file
    before: int = 0  # parts that an earlier call had finished
    far: int = 0
    flag: str = ""  # the name of the column of far rows
    left: tuple[str, ...] = ()  # parts in the output folder whose input no longer exists


@dataclass(frozen=True, eq=False)
class _Job:
    """How to translate a part; it is sent to workers."""

    translator: Translator
    select: Selection
    options: ApplyOptions
    flag: str

    @property
    def width(self) -> int:
        return self.translator.d_new if self.options.inverse else self.translator.d_old

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the translated columns in the fit; those that only count up do not replace others."""
        names = self.translator.columns(inverse=not self.options.inverse)
        return None if names is None or numbering(names) else names

    def __call__(self, source: Path, target: Path, tick: Callable[[int], None] | None = None) -> dict[str, int]:
        """Translate a file and return its number of rows and of far rows."""
        far = 0

        def work(values: Array, first: int) -> tuple[Array, Mapping[str, Array]]:
            nonlocal far
            bad = np.flatnonzero(~finite_rows(values)) + first
            if bad.size:
                raise InputError(
                    f"{source} has NaN or infinite values (row {listing(bad)}), which cannot be translated"
                )
            flags = {self.flag: to_numpy(self.translator.far(values))} if self.flag else {}
            far += int(sum(column.sum() for column in flags.values()))
            moved = (self.translator.inverse if self.options.inverse else self.translator)(values)
            if tick is not None:
                tick(first + len(values))
            return to_numpy(moved), flags

        if suffix_of(source) in COLUMNAR and suffix_of(target) in COLUMNAR:
            rows = rewrite_values(source, target, self.select, work, width=self.width, names=self.names, flag=self.flag)
        else:
            stream = stream_table(source, **reading(self.options))
            write_stream(Stream(stream.n, self._mapped(stream.chunks, work, source)), target)
            rows = stream.n
        return {"rows": rows, "far": far}

    def _mapped(
        self, chunks: Iterator[Table], work: Callable[[Array, int], tuple[Array, Mapping[str, Array]]], source: Path
    ) -> Iterator[Table]:
        columns, first = self.translator.columns(inverse=self.options.inverse), 0
        for chunk in chunks:
            order = match_columns(chunk.features, columns, source)
            given = to_numpy(chunk.values)
            values, flags = work(given if order is None else given[:, order], first)
            own = chunk.features if order is None else columns
            names = None if own is None else tuple(self.names or number_columns(own, values.shape[1]))
            yield replace(chunk, values=values, features=names, metadata={**chunk.metadata, **flags})
            first += chunk.n


@takes(ApplyOptions)
def apply_files(
    map: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    options: ApplyOptions,
    progress: Progress | None = None,
) -> Applied:
    """Translate a file into a file, or the files of a pattern or folder into a folder of the same names.

    All columns but the values stay as they are. If the process was killed, the same call translates the parts that are
    missing. With a dask client, workers translate whole parts; they must have the files at the same paths.

    Parameters
    ----------
    map : str or Path
        What `Translation.save` or ``congruence translate fit --map`` wrote.
    source : str or Path
        A file, a pattern (``export/*.parquet``) or a folder of parts.
    out : str or Path
        A file for a file, else a folder.
    progress : callable, optional
        Called as progress(what, done, total) while working.

    Returns
    -------
    Applied
        How many rows were translated, and how many of them are far from those of the fit.
    """
    translator = load_translator(map)
    if options.flag_far and options.inverse:
        raise InputError(
            "flag_far (--flag-far) judges rows of the new space, so it cannot be used with inverse (--inverse)"
        )
    if options.flag_far and translator.region is None:
        raise InputError(
            f"flag_far (--flag-far): {map} does not know the rows of its fit (it was saved by version 0.1.0, "
            "or fitted without pairs or on fewer than 50 rows); fit it again"
        )
    many = is_many(source)
    files = [file for file in (as_path(one) for one in part_files(source)) if real_path(file) != real_path(Path(map))]
    if not files:
        raise InputError(f"{source} holds no embedding files besides the map")
    job = _make_job(translator, files, options)
    if many:
        return _apply_parts(job, source, files, Path(out), str(describe_file(map).sha256), progress)
    return _apply_one(job, files[0], Path(out), progress)


def is_many(source: str | Path) -> bool:
    """Whether a path is a pattern or a folder of parts rather than one table."""
    return part_files(source) != [os.fspath(source)]


def _make_job(translator: Translator, files: Sequence[Path], options: ApplyOptions) -> _Job:
    select = Selection(**reading(options))
    columnar = next((file for file in files if suffix_of(file) in COLUMNAR), None)
    if columnar is not None:
        select = _in_order(fix_columns(columnar, select), translator.columns(inverse=options.inverse), columnar)
    flag = ""
    if options.flag_far:
        taken = set(column_names(files[0], select) or next(stream_table(files[0], **reading(options)).chunks).metadata)
        flag = next(name for name in ("far", *(f"far_{i}" for i in range(2, len(taken) + 3))) if name not in taken)
    return _Job(translator, select, options, flag)


def _in_order(select: Selection, columns: tuple[str, ...] | None, path: Path) -> Selection:
    """The chosen columns of values in the order of the fit."""
    like = select.like
    if like is None or columns is None:
        return select
    names = [f"{like.values[0]}_{i}" for i in range(len(columns))] if like.lists else like.values
    order = match_columns(names, columns, path)
    return select if order is None else replace(select, like=replace(like, values=columns))


def _apply_one(job: _Job, source: Path, out: Path, progress: Progress | None) -> Applied:
    client = connected()
    n = 0 if progress is None or suffix_of(source) != ".parquet" else stream_table(source, **reading(job.options)).n

    def tick(rows: int) -> None:
        if progress is not None and n:
            progress(f"translating {source.name}", rows, n)

    with alone(out):
        if client is not None:
            done = client.submit(job, source.resolve(), out.resolve(), pure=False).result()
        else:
            done = job(source, out, tick)
    return Applied(done["rows"], 0, far=done["far"], flag=job.flag)


def _apply_parts(
    job: _Job, source: str | Path, files: Sequence[Path], out: Path, digest: str, progress: Progress | None
) -> Applied:
    parts = _plan(source, files, out)
    header = {"map": digest, "flag": job.flag, **asdict(job.options)}
    with alone(out, folder=True):
        record = _open_record(out, header)
        for folder in {target.parent for target in parts.values()}:
            folder.mkdir(parents=True, exist_ok=True)
        names = {target: target.relative_to(out).as_posix() for target in parts.values()}
        known = {name: one["input"] for name, one in record.parts.items()}
        now = {source: _identity(source) for source in parts}  # before they are read: they may change meanwhile
        left = {s: t for s, t in parts.items() if known.get(names[t]) != now[s] or not record.holds(names[t])}
        for target in left.values():
            check_table_path(target)
        done = len(parts) - len(left)
        try:
            for part, counts in _translated(job, left):
                record.add(names[left[part]], input=now[part], **counts)
                done += 1
                if progress is not None:
                    progress("translating parts", done, len(parts))
        except CongruenceError as error:
            rest = f"{done} of {len(parts)} parts are finished, and the same command translates the rest"
            raise type(error)(f"{error}; {rest}") from error
    mine = [record.parts[name] for name in names.values()]
    gone = tuple(name for name in record.parts if name not in names.values() and (out / name).exists())
    rows, far = (sum(one[key] for one in mine) for key in ("rows", "far"))
    return Applied(rows, len(parts), len(parts) - len(left), far, job.flag, gone)


def _translated(job: _Job, parts: Mapping[Path, Path]) -> Iterator[tuple[Path, dict[str, int]]]:
    """Translate parts here or on workers, and yield each with its counts as soon as it is written."""
    client = connected()
    if client is None or not parts:
        for source, target in parts.items():
            yield source, job(source, target)
        return
    from distributed import as_completed

    shared = client.scatter(job, broadcast=True, hash=False)
    tasks = {
        client.submit(_call, shared, source.resolve(), target.resolve(), pure=False): source
        for source, target in parts.items()
    }
    for task in as_completed(tasks):
        yield tasks[task], task.result()


def _call(job: _Job, source: Path, target: Path) -> dict[str, int]:
    return job(source, target)


def _plan(source: str | Path, files: Sequence[Path], out: Path) -> dict[Path, Path]:
    """Where each part is written: under its path below the folder, or below the first wildcard of a pattern."""
    if suffix_of(out) in SUFFIXES or out.is_file():
        raise InputError(
            f"out {out} (--out) must be a folder: {source} is {len(files)} parts, and each is written on its own"
        )
    root = Path(source)
    if not root.is_dir():
        fixed = [part for part in root.parts if not set("*?[") & set(part)]
        root = Path(*root.parts[: next(i for i, part in enumerate(root.parts) if part not in fixed)])
    parts = {file: out / file.relative_to(root) for file in files}
    inputs = {real_path(file) for file in files}
    for target in parts.values():
        if real_path(target) in inputs:
            raise InputError(f"out {out} (--out) would overwrite the input {target}; give another folder")
    return parts


def _open_record(folder: Path, settings: Mapping[str, Any]) -> Manifest:
    """The record of a folder of parts of the same map and options; other folders must be empty."""
    record = Manifest.read(folder, input=list, rows=int, far=int)
    if record is None:
        if [entry.name for entry in folder.iterdir() if entry.name[0] != "."]:
            raise InputError(f"{folder} is not empty, but was not written by translate apply; give another folder")
        record = Manifest(folder, settings)
    if record.settings != json.loads(json.dumps(settings)):
        raise InputError(f"{folder} holds parts of another map or of other options; give another folder, or remove it")
    record.save()  # without a line that was truncated
    return record


def _identity(path: Path) -> list[int]:
    """The size of a file, or of the files of a store, and when they were changed: by their own account, and truly."""
    stats = [file.stat() for file in (path.rglob("*") if path.is_dir() else [path])]
    times = [max((getattr(one, time) for one in stats), default=0) for time in ("st_mtime_ns", "st_ctime_ns")]
    return [sum(one.st_size for one in stats), *times]
