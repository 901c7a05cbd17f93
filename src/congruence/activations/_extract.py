"""`extract`: the outputs of layers of a model as embedding tables, one batch at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.activations._options import ExtractOptions
from congruence.activations._parts import PartFolder, fingerprint
from congruence.activations.inputs import Inputs, as_inputs
from congruence.activations.layers import activations, autocast, evaluating, find_layers, for_model, prepare_rows
from congruence.activations.pooling import Pooled, Pooling
from congruence.activations.pretrained import Pieces, Pretrained, Tokenizer, as_pretrained
from congruence.arrays import finite_rows, listing
from congruence.checks import check_integer, require
from congruence.errors import CongruenceWarning, InputError, warn_caller
from congruence.files import alone
from congruence.guards import suffix_of
from congruence.options import takes
from congruence.progress import Progress
from congruence.rows.devices import full_precision, kernels, training_device
from congruence.tables import Table, check_table_path, read_table
from congruence.tables.columns import PREFIX
from congruence.tables.table import concatenate

STREAMED = (".parquet", ".arrow", ".feather", ".zarr", ".csv", ".csv.gz")  # written chunk by chunk, with ids
PART_BYTES, PART_SECONDS = 2**26, 60.0  # of activations in memory, and since the last part, before they are written


@dataclass(frozen=True)
class Extracted:
    """The file with the table of one layer."""

    layer: str
    path: Path
    n: int
    d: int
    not_finite: int  # rows with NaN or infinity, which other commands refuse

    def table(self) -> Table:
        """Read the table."""
        return read_table(self.path, name=self.layer)


@dataclass(frozen=True, eq=False)
class Job:
    """A model, its inputs, and the function that converts rows to the input of the model."""

    model: Any
    inputs: Inputs
    prepare: Callable[[Any], Any] | None
    about: Mapping[str, str]

    def first_batch(self) -> Any:
        """The first rows as tensors for the model."""
        return for_model(self.model, prepare_rows(self.prepare, self.inputs.read(0, min(2, self.inputs.n))), "cpu")


@takes(ExtractOptions)
def extract(
    model: Any,
    inputs: Any,
    layers: str | Sequence[str] | None = None,
    out: str | Path | None = None,
    *,
    options: ExtractOptions,
    prepare: Callable[[Any], Any] | None = None,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Any:
    """Return the outputs of layers of a model for all inputs, as embedding tables with ids.

    The model runs in evaluation mode, one pass for all layers. The same call on the same machine returns the same bits.
    With `out`, activations are written in parts next to the output and joined at the end, so memory does not grow with
    the rows; after an interruption, the same call with the same weights, inputs and settings resumes after the last
    part.

    Parameters
    ----------
    model : torch.nn.Module, (module, prepare), Pretrained, or path or name of a transformers model
        A folder written by `save_pretrained`, or ``owner/name`` of a hub (see `load_pretrained`). A module is moved to
        the device, and stays there.
    inputs : array, table, frame, AnnData, list of texts, path or Inputs
        Arrays have rows as their first axis. A path is a folder of images, a text file (one row per line), or a file
        with an array; see `array_inputs`, `image_inputs` and `text_inputs`.
    layers : str or sequence of str
        Dotted names; see `list_layers`. May be left out for a folder of sentence-transformers: then ``embedding``.
    out : path, optional
        .parquet, .arrow, .feather, .csv or .zarr. With several layers it contains ``{layer}``.
    prepare : callable, optional
        Converts a batch (array, or list of texts) to the input of the model: a tensor, or a mapping by keyword, as a
        tokenizer returns. By default that of the model.
    about : mapping of str to str, optional
        Metadata columns that are the same in all rows, such as the name of the model.
    progress : callable, optional
        Called as progress(what, done, total).

    Returns
    -------
    Table, or dict of Table by layer
        For one layer (a str), or for several. With `out`, `Extracted`, or a dict of these.
    """
    torch = require("torch", "extraction", "torch")
    pooling = Pooling(options.pool, options.skip, options.seed)
    pretrained = as_pretrained(model, options.revision)
    layers = pretrained.default_layer if layers is None else layers
    names = (layers,) if isinstance(layers, str) else tuple(layers or ())
    if not isinstance(pretrained.model, torch.nn.Module):
        raise InputError(f"model must be a torch module; got a {type(pretrained.model).__name__}")
    find_layers(pretrained.model, names)
    paths = [] if out is None else output_paths(out, names)
    check_integer("batch", options.batch)
    device = training_device(options.device)
    autocast(device, options.precision)  # check the precision before any work
    job = make_job(pretrained, inputs, options, prepare, about)
    if job.inputs.repeated:
        warn_caller(job.inputs.repeated, CongruenceWarning)
    check_integer("context", options.context, 0)
    run = _Run(job, names, pooling, options.batch, device, options.precision, options.context)
    with _ready(job.model, device, options.precision, not options.fast):
        written: dict[str, Any] = run.write(paths, progress) if paths else run.tables(progress)
    for name, one in written.items():
        not_finite = one.not_finite if isinstance(one, Extracted) else int((~finite_rows(one.values)).sum())
        if not_finite:
            note = f"{not_finite} of {one.n} rows of {name} contain NaN or infinity; compare refuses them"
            warn_caller(note, CongruenceWarning)
    return written[names[0]] if isinstance(layers, str) else written


def make_job(
    pretrained: Pretrained,
    inputs: Any,
    options: ExtractOptions,
    prepare: Callable[[Any], Any] | None = None,
    about: Mapping[str, str] | None = None,
) -> Job:
    """Open the inputs and choose the function that prepares them for the model."""
    opened = as_inputs(inputs, options, pretrained.images, pretrained.processor)
    if prepare is None:
        prepare = pretrained.tokenize if opened.texts else pretrained.prepare
    if opened.texts and prepare is None:
        raise InputError(f"texts must be tokenized, but {pretrained.without_tokenizer}")
    origin = {} if pretrained.hub is None else {f"{PREFIX}model": pretrained.hub.title}
    return Job(pretrained.model, opened, prepare, origin | dict(about or {}))


def output_paths(out: str | Path, layers: Sequence[str]) -> list[Path]:
    """Return the file of every layer, and refuse those that cannot be written."""
    if len(layers) > 1 and "{layer}" not in Path(out).name:
        raise InputError(
            f"out must contain {{layer}} for {len(layers)} layers, such as run.{{layer}}.parquet; got {out}"
        )
    slashed = [layer for layer in layers if "/" in layer and "{layer}" in Path(out).name]
    if slashed:
        raise InputError(f"the layer {slashed[0]!r} cannot be part of a file name; give out without {{layer}} for it")
    paths = [Path(out).with_name(Path(out).name.replace("{layer}", layer)) for layer in layers]
    for path in paths:
        if suffix_of(path) not in STREAMED:
            raise InputError(f"out must end in one of {listing(STREAMED, 9)}, which store ids; got {path}")
        check_table_path(path)
    return paths


@dataclass(frozen=True, eq=False)
class _Run:
    """One extraction: its settings and the loop over batches."""

    job: Job
    layers: tuple[str, ...]
    pooling: Pooling
    batch: int
    device: str
    precision: str
    context: int  # characters kept to both sides of a token

    def tables(self, progress: Progress | None) -> dict[str, Table]:
        """The tables of all layers, in memory."""
        held = [tables for _, tables in self._parts(0, progress)]
        return {layer: _joined(tables) for layer, tables in zip(self.layers, zip(*held, strict=True), strict=True)}

    def write(self, paths: Sequence[Path], progress: Progress | None) -> dict[str, Extracted]:
        """Write the tables of all layers in parts, then join the parts."""
        settings = {"model": fingerprint(self.job.model), "inputs": self.job.inputs.identity, "n": self.job.inputs.n}
        settings |= {name: getattr(self, name) for name in ("layers", "batch", "device", "precision", "context")}
        settings |= {"pooling": asdict(self.pooling), "about": dict(self.job.about)}
        parts = PartFolder(paths[0].parent / f".{paths[0].name}.parts", self.layers)
        with contextlib.ExitStack() as locks:
            for path in paths:
                locks.enter_context(alone(path))
            first = parts.open(settings)
            if first and not parts.begin_with(self._tables(0)):  # another tokenizer, other code: start again
                parts.remove()
                first = parts.open(settings)
            with parts.removed_if_empty():
                for end, tables in self._parts(first, progress):
                    parts.put(end, tables)
            extracted = {
                layer: Extracted(layer, path, *parts.join(layer, path))
                for layer, path in zip(self.layers, paths, strict=True)
            }
            parts.remove()
        return extracted

    def _parts(self, first: int, progress: Progress | None) -> Iterator[tuple[int, list[Table]]]:
        """Yield one table per layer for several batches, and the batch at which they end; check the inputs at last."""
        held: list[list[Table]] = []
        written = time.monotonic()
        n = self.job.inputs.n
        count = -(-n // self.batch)
        for number in range(first, count):
            held.append(self._tables(number * self.batch))
            if progress is not None:
                progress("extracting", min(n, (number + 1) * self.batch), n)
            full = sum(t.values.nbytes for tables in held for t in tables) >= PART_BYTES
            if full or number + 1 == count or time.monotonic() - written >= PART_SECONDS:
                yield number + 1, [_joined(tables) for tables in zip(*held, strict=True)]
                held, written = [], time.monotonic()
        for file in self.job.inputs.files:
            file.check()

    def _tables(self, start: int) -> list[Table]:
        job = self.job
        stop = min(job.inputs.n, start + self.batch)
        given = job.inputs.read(start, stop)
        rows = prepare_rows(job.prepare, given)
        pieces = None  # the text of every token and around it, where tokens become rows and their places are known
        if job.inputs.texts and self.pooling.kind == "none" and isinstance(job.prepare, Tokenizer):
            pieces = job.prepare.pieces(given, self.context)
        settings: dict[str, Any] = {"start": start, "device": self.device, "precision": self.precision}
        outputs = activations(job.model, rows, self.layers, self.pooling, **settings)
        ids, name = job.inputs.ids[start:stop], job.inputs.id_name
        tables = [_table(layer, outputs[layer], ids, name, pieces) for layer in self.layers]
        constant = [{name: np.full(table.n, value) for name, value in job.about.items()} for table in tables]
        return [replace(t, metadata={**t.metadata, **more}) for t, more in zip(tables, constant, strict=True)]


def _table(layer: str, pooled: Pooled, ids: Any, id_name: str | None, pieces: Pieces | None) -> Table:
    count = len(pooled.values) if pooled.rows is None else pooled.inputs
    if count != len(ids):  # such as windows of images, or positions as the first axis
        raise InputError(
            f"the layer {layer!r} returns {count} rows for {len(ids)} inputs; name one that returns one for each"
        )
    if pooled.rows is None or pooled.positions is None:
        return Table(pooled.values, layer, ids, id_name=id_name)
    own = ids[pooled.rows]
    named = np.array([f"{id}:{position}" for id, position in zip(own, pooled.positions, strict=True)])
    metadata = {f"{PREFIX}input": own, f"{PREFIX}position": pooled.positions}
    if pieces is not None:
        found = [pieces[row][position] for row, position in zip(pooled.rows, pooled.positions, strict=True)]
        metadata |= {f"{PREFIX}{name}": np.array([piece[name] for piece in found], dtype=object) for name in found[0]}
    return Table(pooled.values, layer, named, metadata)


def _joined(tables: Sequence[Table]) -> Table:
    first = tables[0]
    if len({table.d for table in tables}) > 1:
        raise InputError(f"the layer {first.name!r} returns rows of different widths; pool them (mean, cls, last)")
    return concatenate(tables)


@contextlib.contextmanager
def _ready(model: Any, device: str, precision: str, deterministic: bool) -> Iterator[None]:
    """Put a model on a device and in evaluation mode; restore the mode of every module afterwards."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(evaluating(model.to(device)))
        if device != "cpu":  # on a CPU results are reproducible without the single thread of `kernels`
            stack.enter_context(kernels(device, deterministic=deterministic))
            stack.enter_context(full_precision() if precision == "float32" else contextlib.nullcontext())
        yield
