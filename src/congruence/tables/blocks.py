"""Rows that are a dask array: its blocks stay where they are, on threads or on other machines, and only sums travel.

Every block is summed by the code that sums rows on one machine, and the sums are merged in the order of the blocks, so
that the same blocks give the same result wherever they are computed. A block whose worker died is computed again.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, single_threaded, to_numpy
from congruence.errors import CongruenceError, InputError, MissingDependencyError
from congruence.tables.lazy import as_dask
from congruence.tables.memory import max_bytes
from congruence.tables.spill import room_for

PARTITION = 2**25  # bytes of rows that make a task long beside what dask takes to hand it out
TOGETHER = 8  # sums merged by one task
KEPT = 0.4  # share of the memory of all workers that rows may take; their whitened copy may take as much again

LOST = "the dask scheduler was lost, and with it what was computed; look at its log, and start again"
FAILURES = {  # by name, since distributed need not be there
    "KilledWorker": "dask gave a block of rows up after several workers had died over it, perhaps of too little "
    "memory; give workers more, or make the blocks smaller",
    "FutureCancelledError": LOST,
    "CancelledError": LOST,
}


@dataclass(frozen=True, eq=False)
class Partition:
    """Which rows a task is about."""

    first: int  # the number of its first row among all
    index: Array | None = None  # (m,) those to use, counted from the first; all by default


class DaskRows:
    """The rows (n, d) of a dask array, in partitions that each make one task.

    Small blocks are merged, and a block is never split. Rows are kept on the workers from the first pass to the last
    where they fit, and are computed anew in every pass where they do not.

    Parameters
    ----------
    array : dask array of shape (n, d)
        Whose blocks are whole rows.
    kept : bool, optional
        Whether its blocks, which then are the partitions, can be had again without being computed anew. By default
        they are merged, and kept if they fit.
    """

    def __init__(self, array: Any, *, kept: bool | None = None):
        if kept is None:
            (array,), kept = _settled([array])
        self.array, self.kept = array, kept
        self.shape: tuple[int, int] = (int(array.shape[0]), int(array.shape[1]))
        self.dtype = array.dtype
        self._blocks = list(array.to_delayed().ravel())
        self._edges = np.cumsum([0, *array.chunks[0]])

    def __len__(self) -> int:
        return self.shape[0]

    def each(
        self,
        work: Callable[..., Any],
        *shared: Any,
        index: Array | None = None,
        beside: Sequence[DaskRows | Array] = (),
    ) -> list[Any]:
        """One task work(rows, partition, *beside, *shared) per partition, not computed yet.

        With `index`, partitions know which of their rows are meant, and those without any are left out. Of what is
        `beside`, which has as many rows and is in the same partitions or here, each task gets what belongs to its rows.
        """
        import dask

        sent = [dask.delayed(one, traverse=False) for one in shared]
        task = dask.delayed(work)
        return [
            task(self._blocks[i], part, *(self._part(i, other) for other in beside), *sent)
            for i, part in self._partitions(index)
        ]

    def merged(self, work: Callable[..., Any], merge: Callable[[list[Any]], Any], *shared: Any, **options: Any) -> Any:
        """What the tasks of `each` return, merged in the order of the blocks."""
        return merged(self.each(work, *shared, **options), merge)

    def take(self, index: Array) -> Array:
        """The rows at some positions, which may repeat but must not fall, brought here."""
        return np.concatenate(compute(self.each(_taken, index=index)))

    def _part(self, i: int, other: DaskRows | Array) -> Any:
        return other._blocks[i] if isinstance(other, DaskRows) else other[self._edges[i] : self._edges[i + 1]]

    def _partitions(self, index: Array | None) -> Iterator[tuple[int, Partition]]:
        starts = self._edges[:-1].tolist()
        if index is None:
            yield from enumerate(map(Partition, starts))
            return
        cuts = np.searchsorted(index, self._edges)
        for i, first in enumerate(starts):
            if cuts[i] < cuts[i + 1]:
                yield i, Partition(first, index[cuts[i] : cuts[i + 1]] - first)


def _taken(rows: Any, part: Partition) -> Array:
    return np.asarray(to_numpy(rows)[part.index])


def merged(parts: list[Any], merge: Callable[[list[Any]], Any]) -> Any:
    """Compute tasks and merge what they return, a few neighbours at a time, where they are; the last comes here."""
    import dask

    while len(parts) > 1:
        groups = [parts[i : i + TOGETHER] for i in range(0, len(parts), TOGETHER)]
        parts = [dask.delayed(merge)(group) for group in groups]
    return compute(parts)[0]


def compute(tasks: list[Any]) -> tuple[Any, ...]:
    """Compute tasks on the cluster that is connected, or on threads."""
    import dask

    with _working():
        found: tuple[Any, ...] = dask.compute(*tasks)
    return found


def persist(tasks: list[Any]) -> list[Any]:
    """Compute tasks, and leave what they return where it is."""
    import dask

    with _working():
        kept = list(dask.persist(*tasks))
        if connected() is not None:
            from distributed import wait

            wait(kept)  # tasks that come before their rows are there may go to another worker, and the rows after them
    return kept


@contextlib.contextmanager
def _working() -> Iterator[None]:
    """Inside, dask computes; what it raises where the cluster failed becomes one sentence."""
    # On threads, each task has one; limits that tasks set at the same time would undo each other's.
    with single_threaded(), warnings.catch_warnings():
        # A k x k matrix that is sent with the graph, and not beforehand, outlives a worker that dies.
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        try:
            yield
        except Exception as error:
            if type(error).__name__ not in FAILURES:
                raise
            raise CongruenceError(FAILURES[type(error).__name__]) from error


def whole_rows(X: Any, name: str = "X") -> Any:
    """A dask array whose blocks are whole rows, of known number; it is computed once to count them, if need be."""
    if X.ndim != 2:
        raise InputError(f"{name} must be a matrix (rows, dimensions), but has shape {X.shape}")
    if any(np.isnan(size) for size in X.chunks[0]):
        X = X.copy().compute_chunk_sizes()
    return X.rechunk({1: -1})


def side_by_side(arrays: Sequence[Any]) -> list[DaskRows]:
    """Dask arrays with as many rows as each other, in the same partitions, and kept either all or none."""
    arrays, kept = _settled(arrays)
    return [DaskRows(array, kept=kept) for array in arrays]


def _settled(arrays: Sequence[Any]) -> tuple[list[Any], bool]:
    """Arrays in the same partitions, and whether they are kept where they are, since all of them fit."""
    sizes = partition_sizes(arrays)
    arrays = [array.rechunk({0: sizes, 1: -1}) for array in arrays]
    kept = bool(sum(array.nbytes for array in arrays) <= KEPT * _memory())
    return _persisted(arrays) if kept else arrays, kept  # workers forget blocks that nobody holds


def _persisted(arrays: list[Any]) -> list[Any]:
    """Arrays whose blocks are computed once; those of the same rows lie on one worker, so that none need travel."""
    import dask
    import dask.array as da

    if len(arrays) == 1:
        return persist(arrays)
    blocks = zip(*(array.to_delayed().ravel() for array in arrays), strict=True)
    held = persist([dask.delayed(list)(some) for some in blocks])
    return [
        da.concatenate(
            [
                da.from_delayed(some[k], (size, array.shape[1]), meta=np.empty((0, 0), array.dtype))
                for some, size in zip(held, array.chunks[0], strict=True)
            ]
        )
        for k, array in enumerate(arrays)
    ]


def partition_sizes(arrays: Sequence[Any]) -> tuple[int, ...]:
    """The rows of each partition: those of the blocks of the first array, where they are worth a task of their own.

    Neighbouring blocks that are too small are merged, which the array with the longest rows decides, and empty ones are
    dropped.
    """
    width = max(1, *(array.dtype.itemsize * array.shape[1] for array in arrays))
    sizes: list[int] = []
    for size in map(int, arrays[0].chunks[0]):
        if sizes and (sizes[-1] * width < PARTITION or size == 0):
            sizes[-1] += size
        else:
            sizes.append(size)
    return tuple(sizes)


def _memory() -> float:
    """The bytes of memory of all workers together, or of this machine where there is no cluster."""
    client = connected()
    if client is None:
        return max_bytes()
    try:
        return float(sum(client.run(_limit_of).values()))
    except ImportError as error:
        raise MissingDependencyError(
            f"the workers cannot load congruence ({error}); install the same version on every worker"
        ) from error


def _limit_of(dask_worker: Any) -> float:
    return float(dask_worker.memory_manager.memory_limit or np.inf)


def connected() -> Any:
    """The dask cluster that computations go to, or None where they stay in this process."""
    import dask

    if dask.config.get("scheduler", None) not in (None, "dask.distributed", "distributed"):
        return None  # threads were asked for, though there may be a cluster as well
    try:
        from distributed import get_client

        return get_client()
    except (ImportError, ValueError):
        return None


def computed_blocks(array: Any) -> Iterator[tuple[slice, Array]]:
    """The blocks of rows of a dask array one after the other, as many computed at a time as there are threads."""
    blocks = array.to_delayed().ravel()
    client = connected()
    many = sum(client.nthreads().values()) if client else os.cpu_count()
    start = 0
    for at in range(0, len(blocks), max(1, many or 1)):
        for rows in compute(list(blocks[at : at + max(1, many or 1)])):
            yield slice(start, start + len(rows)), rows
            start += len(rows)


def brought(arrays: Mapping[str, Any]) -> dict[str, tuple[Array, DaskRows | None]]:
    """The rows of dask arrays, by name, brought here, and beside them as blocks to be summed where they are.

    Arrays that differ in their numbers of rows have no blocks. Without a cluster the blocks are of the rows brought
    here, so that none is held or computed twice.
    """
    lazy = {name: _checked(array, name) for name, array in arrays.items()}
    if len({len(array) for array in lazy.values()}) != 1:
        return {name: (_spilled(array, name), None) for name, array in lazy.items()}
    if connected() is not None:
        there = dict(zip(lazy, side_by_side(list(lazy.values())), strict=True))
        return {name: (_spilled(rows.array, name), rows) for name, rows in there.items()}
    sizes = partition_sizes(list(lazy.values()))
    here = {name: _spilled(array, name) for name, array in lazy.items()}
    return {name: (rows, DaskRows(as_dask(_Held(rows), sizes), kept=True)) for name, rows in here.items()}


class _Held:
    """Rows in this process, of which dask takes slices; of an array that it knows as one it would make a copy."""

    ndim = 2

    def __init__(self, rows: Array):
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __getitem__(self, index: Any) -> Array:
        return np.asarray(self.rows[index])


def _checked(array: Any, name: str) -> Any:
    return as_matrix(whole_rows(as_matrix(array, name, finite=False), name), name, finite=False)


def _spilled(array: Any, name: str) -> Array:
    """All rows of a dask array brought here block by block: into memory, or into a temporary file where they are many.

    Blocks are computed where they are, as many at a time as there are threads, and are let go once they are copied.
    """
    rows = room_for(array.shape, array.dtype.newbyteorder("="), name)
    for part, block in computed_blocks(array):
        rows[part] = to_numpy(block)
    return rows
