"""From a model and its inputs to embedding tables, a batch at a time; a run that was interrupted goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.activations.activations import Activations, activations, autocast, prepare_rows
from congruence.activations.inputs import Inputs
from congruence.activations.layers import find_layers
from congruence.activations.parts import Parts, fingerprint
from congruence.activations.pooling import Pooling
from congruence.arrays import listing
from congruence.errors import InputError
from congruence.models.devices import full_precision, kernels, load_torch, training_device
from congruence.tables import Table, check_table_path
from congruence.tables.access import suffix_of

STREAMED = (".parquet", ".arrow", ".feather", ".zarr", ".csv", ".csv.gz")  # written as rows come, with ids
PART_BYTES = 2**26  # of activations in memory before they are written


@dataclass(frozen=True)
class Extracted:
    """The table that a layer became."""

    layer: str
    path: Path
    n: int
    d: int
    not_finite: int  # rows with NaN or infinity, which other commands refuse


def extract(
    model: Any,
    inputs: Inputs,
    layers: str | Sequence[str],
    out: str | Path,
    *,
    pool: str = "none",
    skip: int = 0,
    prepare: Callable[[Any], Any] | None = None,
    batch: int = 64,
    device: str = "auto",
    precision: str = "float32",
    seed: int = 0,
    deterministic: bool = True,
    about: Mapping[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Extracted]:
    """Write what layers of a model give for all inputs as embedding tables.

    The model runs in evaluation mode, one pass for all layers. Activations are written in parts beside the output
    and joined in the end, so memory does not grow with the rows; called again after an interruption, with the same
    weights, inputs and settings, it goes on after the last part. The same call on the same machine gives the same
    bits.

    Parameters
    ----------
    model : torch.nn.Module
        Moved to the device, and left there.
    inputs : Inputs
        From `array_inputs`, `image_inputs` or `text_inputs`.
    layers : str or sequence of str
        Dotted names; see `list_layers`.
    out : path
        .parquet, .arrow, .feather, .csv or .zarr. With several layers it holds ``{layer}``.
    pool, skip, seed
        What to keep of tokens, patches or pixels; see `Pooling`. With "none" every one is a row of its own: its id
        is that of the input, a colon and the position, which are columns beside it.
    prepare : callable, optional
        Makes of a batch as it is read (array, or list of texts) what the model takes: a tensor, or a mapping by
        keyword such as a tokenizer gives.
    batch : int
        Inputs at a time.
    device : str
        "auto" is a GPU where there is one.
    precision : {"float32", "bfloat16", "float16"}
        Other than float32 runs the model under autocast; what is written is float32 (or float64 if the layer is).
    deterministic : bool
        On a GPU, choose kernels that give the same bits again; a model with an operation that has none fails. On a
        CPU the same number of threads gives the same bits anyway.
    about : mapping of str to str, optional
        Metadata columns that are the same in all rows: which model this was, say.
    progress : callable, optional
        Told (what, inputs done, inputs in all).

    Returns
    -------
    list of Extracted
        One for each layer, in the order given.
    """
    torch = load_torch("extraction")
    layers = (layers,) if isinstance(layers, str) else tuple(layers)
    pooling = Pooling(pool, skip, seed)
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"model must be a torch module, whose layers have names, not a {type(model).__name__}")
    find_layers(model, layers)
    paths = output_paths(out, layers)
    if batch < 1:
        raise InputError(f"batch must be at least 1, not {batch}")
    if isinstance(inputs.read(0, 1), list) and prepare is None:
        raise InputError("texts need prepare, a function that makes tokens of a list of texts")
    device = training_device(device)
    autocast(device, precision)  # refuses a precision that there is not
    settings = {"model": fingerprint(model), "inputs": inputs.name, "n": inputs.n, "layers": layers, "batch": batch}
    settings |= {"pooling": asdict(pooling), "device": device, "precision": precision, "about": dict(about or {})}
    parts = Parts(paths[0].parent / f".{paths[0].name}.parts", layers)
    first = parts.open(settings)
    run = _Run(model, inputs, layers, pooling, prepare, batch, device, precision, dict(about or {}))
    with parts.left_only_with_rows(), _ready(model, device, precision, deterministic):
        for end, tables in run.parts(first, progress):
            parts.put(end, tables)
    written = [Extracted(layer, path, *parts.join(layer, path)) for layer, path in zip(layers, paths, strict=True)]
    parts.remove()
    return written


def output_paths(out: str | Path, layers: Sequence[str]) -> list[Path]:
    """Return the file of every layer, and refuse those that cannot be written."""
    if len(layers) > 1 and "{layer}" not in Path(out).name:
        raise InputError(f"out must hold {{layer}} for {len(layers)} layers, such as run.{{layer}}.parquet, not {out}")
    slashed = [layer for layer in layers if "/" in layer and "{layer}" in Path(out).name]
    if slashed:
        raise InputError(f"the layer {slashed[0]!r} cannot be in the name of a file; give out without {{layer}} for it")
    paths = [Path(out).with_name(Path(out).name.replace("{layer}", layer)) for layer in layers]
    for path in paths:
        if suffix_of(path) not in STREAMED:
            raise InputError(f"out must end in one of {listing(STREAMED, 9)}, which hold ids, but is {path}")
        check_table_path(path)
    return paths


@dataclass(frozen=True, eq=False)
class _Run:
    """The settings of one extraction, and the walk over its batches."""

    model: Any
    inputs: Inputs
    layers: tuple[str, ...]
    pooling: Pooling
    prepare: Callable[[Any], Any] | None
    batch: int
    device: str
    precision: str
    about: dict[str, str]

    def parts(self, first: int, progress: Any) -> Iterator[tuple[int, list[Table]]]:
        """Yield tables of some batches each, one for every layer, and the batch at which they end."""
        held: list[list[Table]] = []
        count = -(-self.inputs.n // self.batch)
        for number in range(first, count):
            held.append(self._tables(number * self.batch))
            if progress is not None:
                progress("extracting", min(self.inputs.n, (number + 1) * self.batch), self.inputs.n)
            if number + 1 == count or sum(t.values.nbytes for tables in held for t in tables) >= PART_BYTES:
                yield number + 1, [_joined(tables) for tables in zip(*held, strict=True)]
                held = []

    def _tables(self, start: int) -> list[Table]:
        stop = min(self.inputs.n, start + self.batch)
        rows = prepare_rows(self.prepare, self.inputs.read(start, stop))
        how: dict[str, Any] = {"start": start, "device": self.device, "precision": self.precision}
        found = activations(self.model, rows, self.layers, self.pooling, **how)
        ids = self.inputs.ids[start:stop]
        return [_with(self.about, _table(layer, found[layer], ids)) for layer in self.layers]


def _with(about: Mapping[str, str], table: Table) -> Table:
    return replace(table, metadata={**table.metadata, **{name: np.full(table.n, said) for name, said in about.items()}})


def _table(layer: str, found: Activations, ids: Any) -> Table:
    given = len(found.values) if found.rows is None else found.given
    if given != len(ids):  # such as positions before rows, or windows of images
        raise InputError(
            f"the layer {layer!r} gives {given} rows for {len(ids)} inputs; name one that gives one for each"
        )
    if found.rows is None or found.positions is None:
        return Table(found.values, layer, ids)
    own = ids[found.rows]
    named = np.array([f"{id}:{position}" for id, position in zip(own, found.positions, strict=True)])
    return Table(found.values, layer, named, {"input": own, "position": found.positions})


def _joined(tables: Sequence[Table]) -> Table:
    first = tables[0]
    if len({table.d for table in tables}) > 1:
        raise InputError(f"the layer {first.name!r} gives rows of different widths; pool them (mean, cls, last)")
    return Table(
        np.concatenate([table.values for table in tables]),
        first.name,
        np.concatenate([np.asarray(table.ids) for table in tables]),
        {name: np.concatenate([table.metadata[name] for table in tables]) for name in first.metadata},
    )


@contextlib.contextmanager
def _ready(model: Any, device: str, precision: str, deterministic: bool) -> Iterator[None]:
    """Put a model on a device and into evaluation mode, and every module back into its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.to(device).eval()
    try:
        with contextlib.ExitStack() as stack:
            if device != "cpu":  # where one thread, which `kernels` would take, is not needed for the same bits
                stack.enter_context(kernels(device, deterministic=deterministic))
                stack.enter_context(full_precision() if precision == "float32" else contextlib.nullcontext())
            yield
    finally:
        for module, mode in modes:
            module.training = mode
