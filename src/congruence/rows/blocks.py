"""Rows in a dask array: blocks stay on their threads or machines, and only sums are transferred.

Every block is summed by the code that sums rows on one machine, and the sums are merged in the order of the blocks, so
that the same blocks lead to the same result wherever they are computed. A block whose worker died is computed again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, as_matrix, single_threaded, to_numpy
from congruence.errors import CongruenceError, InputError, MissingDependencyError
from congruence.memory import max_bytes, room_for

PARTITION = 2**25  # bytes of rows that make a task long compared with the overhead of dask
_TOGETHER = 8  # sums merged by one task
KEPT = 0.4  # share of the memory of all workers that rows may take; their whitened copy may take as much again

_LOST = "the dask scheduler was lost, and with it the results so far; check its log and start again"
_FAILURES = {  # by name, since distributed need not be installed
    "KilledWorker": "several dask workers died while computing a block of rows, perhaps from too little "
    "memory; give workers more memory, or make the blocks smaller",
    "CancelledError": _LOST,
    "CommClosedError": _LOST,
}


@dataclass(frozen=True, eq=False)
class Partition:
    """The rows of one task."""

    first: int  # the number of its first row among all
    index: Array | None = None  # (m,) those to use, counted from the first; all by default


class DaskRows:
    """The rows (n, d) of a dask array, in partitions that each make one task.

    Small blocks are merged, and a block is never split. Rows are kept on the workers between passes if they fit, and
    are computed again in every pass if they do not. The blocks of `array` must be whole rows. With `kept`, they are the
    partitions and need not be computed again.
    """

    def __init__(self, array: Any, *, kept: bool | None = None):
        if kept is None:
            (array,), kept = _align_and_keep([array])
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
        aligned: Sequence[DaskRows | Array] = (),
    ) -> list[Any]:
        """Return one task work(rows, partition, *aligned, *shared) per partition, not computed yet.

        With `index`, each partition lists its rows to use, and those without any are left out. The arrays in `aligned`
        have as many rows, in the same partitions or in memory; each task gets the part that belongs to its rows.
        """
        import dask

        sent = [dask.delayed(one, traverse=False) for one in shared]
        task = dask.delayed(work)
        return [
            task(self._blocks[i], part, *(self._part(i, other) for other in aligned), *sent)
            for i, part in self._partitions(index)
        ]

    def take(self, index: Array) -> Array:
        """Return the rows at some positions, which may repeat but must not decrease."""
        return np.concatenate(compute(self.each(_take, index=index)))

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


def _take(rows: Any, part: Partition) -> Array:
    return np.asarray(to_numpy(rows)[part.index])


def merged(parts: list[Any], merge: Callable[[list[Any]], Any]) -> Any:
    """Compute tasks and merge their results on the workers, a few neighbours at a time; return the last."""
    import dask

    while len(parts) > 1:
        groups = [parts[i : i + _TOGETHER] for i in range(0, len(parts), _TOGETHER)]
        parts = [dask.delayed(merge)(group) for group in groups]
    return compute(parts)[0]


def compute(tasks: list[Any]) -> tuple[Any, ...]:
    """Compute tasks on the connected cluster, or on threads."""
    import dask

    with _working():
        results: tuple[Any, ...] = dask.compute(*tasks)
    return results


def persist(tasks: list[Any]) -> list[Any]:
    """Compute tasks, and leave their results on the workers."""
    import dask

    with _working():
        kept = list(dask.persist(*tasks))
        if connected() is not None:
            from distributed import wait

            wait(kept)  # a task submitted before its rows exist may go to another worker
    return kept


@contextlib.contextmanager
def _working() -> Iterator[None]:
    # Each task has one thread; limits set by concurrent tasks would undo each other.
    with single_threaded(), warnings.catch_warnings(), cluster_failures():
        # A k x k matrix that is sent with the graph survives the death of a worker.
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        yield


@contextlib.contextmanager
def cluster_failures() -> Iterator[None]:
    """Turn the errors of a failed cluster inside the block into one sentence."""
    try:
        yield
    except Exception as error:
        names = [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _FAILURES]
        if not names:
            raise
        raise CongruenceError(_FAILURES[names[0]]) from error


def as_dask(rows: Any, sizes: int | tuple[int, ...]) -> Any:
    """Return rows as a dask array with blocks of the given numbers of rows."""
    import dask.array as da

    return da.from_array(rows, chunks=(sizes, rows.shape[1]), name=False, meta=np.empty((0, 0), rows.dtype))


def whole_rows(X: Any, name: str = "X") -> Any:
    """Return a dask array with blocks of whole rows; it is computed once to count the rows if necessary."""
    if X.ndim != 2:
        raise InputError(f"{name} must be a matrix (rows, dimensions), but has shape {X.shape}")
    if any(np.isnan(size) for size in X.chunks[0]):
        X = X.copy().compute_chunk_sizes()
    return X.rechunk({1: -1})


def align_partitions(arrays: Sequence[Any]) -> list[DaskRows]:
    """Rechunk dask arrays of equal length into the same partitions, and keep all or none on the workers."""
    arrays, kept = _align_and_keep(arrays)
    return [DaskRows(array, kept=kept) for array in arrays]


def _align_and_keep(arrays: Sequence[Any]) -> tuple[list[Any], bool]:
    """Return arrays in the same partitions, and whether they are kept on the workers because all of them fit."""
    sizes = partition_sizes(arrays)
    arrays = [array.rechunk({0: sizes, 1: -1}) for array in arrays]
    kept = bool(sum(array.nbytes for array in arrays) <= KEPT * _memory())
    return _persist_arrays(arrays) if kept else arrays, kept  # workers drop blocks without a reference


def _persist_arrays(arrays: list[Any]) -> list[Any]:
    """Compute the blocks of arrays once; those of the same rows stay on one worker, so that none is transferred."""
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
    """Return the number of rows of each partition: those of the blocks of the first array.

    Neighbouring blocks that are too small for a task, by the longest rows of all arrays, are merged, and empty ones
    are dropped.
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
    """Return the memory of all workers together in bytes, or of this machine without a cluster."""
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
    """Return the dask cluster that computations go to, or None if they stay in this process."""
    if "distributed" not in sys.modules:  # then nothing is connected, and dask may not be installed
        return None
    import dask

    if dask.config.get("scheduler", None) not in (None, "dask.distributed", "distributed"):
        return None  # threads were chosen, even if a cluster is connected
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None


def computed_blocks(array: Any) -> Iterator[tuple[slice, Array]]:
    """Yield the blocks of rows of a dask array in order, computing as many at a time as there are threads."""
    blocks = array.to_delayed().ravel()
    client = connected()
    many = sum(client.nthreads().values()) if client else os.cpu_count()
    start = 0
    for at in range(0, len(blocks), max(1, many or 1)):
        for rows in compute(list(blocks[at : at + max(1, many or 1)])):
            yield slice(start, start + len(rows)), rows
            start += len(rows)


def fetch_rows(arrays: Mapping[str, Any]) -> dict[str, tuple[Array, DaskRows | None]]:
    """Fetch the rows of dask arrays, by name, and return them with their blocks to be summed on the workers.

    Arrays with different numbers of rows have no blocks. Without a cluster the blocks refer to the fetched rows, so
    that none is stored or computed twice.
    """
    whole = {name: whole_rows(as_matrix(array, name, finite=False), name) for name, array in arrays.items()}
    lazy = {name: as_matrix(array, name, finite=False) for name, array in whole.items()}
    if len({len(array) for array in lazy.values()}) != 1:
        return {name: (_fetch(array, name), None) for name, array in lazy.items()}
    if connected() is not None:
        there = dict(zip(lazy, align_partitions(list(lazy.values())), strict=True))
        return {name: (_fetch(rows.array, name), rows) for name, rows in there.items()}
    sizes = partition_sizes(list(lazy.values()))
    here = {name: _fetch(array, name) for name, array in lazy.items()}
    return {name: (rows, DaskRows(as_dask(_Slices(rows), sizes), kept=True)) for name, rows in here.items()}


class _Slices:
    """Rows in this process, of which dask takes slices; it would copy an object that it recognises as an array."""

    ndim = 2

    def __init__(self, rows: Array):
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __getitem__(self, index: Any) -> Array:
        return np.asarray(self.rows[index])


def _fetch(array: Any, name: str) -> Array:
    """Fetch all rows of a dask array block by block: into memory, or into a temporary file if they are many."""
    rows = room_for(array.shape, array.dtype.newbyteorder("="), name)
    for part, block in computed_blocks(array):
        rows[part] = to_numpy(block)
    return rows
