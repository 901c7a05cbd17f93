"""Check a decoder on its latents: it must return one finite tensor, the same each time.

Anything that would make a Jacobian meaningless (dropout, batch statistics, NaN, no gradient) raises an error before
anything is computed.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from congruence.arrays import is_tensor, listing, resolve_device, to_numpy
from congruence.checks import check_integer, require
from congruence.errors import InputError, one_sentence
from congruence.progress import Progress

CPU_BYTES, GPU_BYTES = 64 * 2**20, 1024 * 2**20  # of derivatives in memory at a time
_TEST_ROWS = 3  # rows that are decoded twice, together and alone
_ROUNDING = 1e-3  # relative to the largest output: smaller differences between the two are rounding


@dataclass(frozen=True, eq=False)
class PreparedDecoder:
    """A decoder and its latents, checked, on one device and in one dtype; it can be differentiated."""

    decode: Callable[[Any], Any]  # (rows, *latent shape) -> (rows, *output shape)
    z: Any  # (n, d) tensor, flattened
    latent_shape: tuple[int, ...]  # of one row
    output_shape: tuple[int, ...]
    progress: Progress | None = None  # called after every batch of points

    @property
    def dimension(self) -> int:
        """The number of latents d."""
        return int(self.z.shape[1])

    @property
    def outputs(self) -> int:
        """The number of outputs p."""
        return int(np.prod(self.output_shape))

    def decode_one(self, z: Any) -> Any:
        """Decode one row of latents, (d,), to one row of outputs, (p,)."""
        return self.decode(z.reshape(1, *self.latent_shape).clone()).reshape(-1)  # layers may work in place


def prepare_decoder(decoder: Any, z: Any, device: str = "auto") -> PreparedDecoder:
    """Check a decoder and its latents, move both to one device and dtype, and decode a few rows as a test.

    A module is not changed: if it has to move to another device, a copy is moved.
    """
    torch = import_torch()
    if not callable(decoder):
        raise InputError(f"decoder must be a torch module or a function; got {type(decoder).__name__}")
    module = decoder if isinstance(decoder, torch.nn.Module) else None
    if module is not None:
        _check_mode(module)
    latents = _latents(z)
    weights = [p for p in module.parameters() if p.is_floating_point()] if module is not None else []
    where = resolve_device(device, *(weights or [latents]))
    latents = latents.to(device=where, dtype=weights[0].dtype if weights else latents.dtype)
    if module is not None and any(str(p.device) != str(latents.device) for p in weights):
        decoder = copy.deepcopy(module).to(latents.device)
    shape = tuple(latents.shape[1:])
    output = _decode_test_rows(decoder, latents)
    flat = latents.reshape(len(latents), -1)
    if module is None:
        decode = decoder
    else:  # with detached parameters, so that only derivatives by latents are computed
        tensors = {name: p.detach() for name, p in (*decoder.named_parameters(), *decoder.named_buffers())}

        def decode(z: Any) -> Any:
            return torch.func.functional_call(decoder, tensors, (z,))

    return PreparedDecoder(decode, flat, shape, tuple(output.shape[1:]))


def import_torch() -> Any:
    """Import torch for forward-mode differentiation; if it is missing, the error explains how to install it."""
    torch = require("torch", "examining a decoder", "torch")
    if "torch._decomp.decompositions_for_jvp" not in sys.modules:
        # torch warns about its own deprecated parts in the first forward-mode differentiation
        with warnings.catch_warnings(), contextlib.suppress(ImportError):
            warnings.simplefilter("ignore", DeprecationWarning)
            import_module("torch._decomp.decompositions_for_jvp")
    return torch


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """Use the plain form of attention, which has all derivatives, and suppress warnings about slow batches."""
    from torch.backends import mha
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fused = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
            warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
            yield
    finally:
        mha.set_fastpath_enabled(fused)


def memory_limit(prepared: PreparedDecoder) -> int:
    """Return how many bytes of derivatives may be in memory at a time."""
    return GPU_BYTES if prepared.z.is_cuda else CPU_BYTES


def point_slices(prepared: PreparedDecoder, chunk: int | None, *, columns: int, vectors: int = 0) -> Iterator[slice]:
    """Yield slices of `chunk` points; by default as many as fit into memory.

    A point needs `columns` rows of outputs and of latents, and `vectors` further rows of latents.
    """
    numbers = columns * (prepared.outputs + prepared.dimension) + vectors * prepared.dimension
    step = max(1, memory_limit(prepared) // (8 * numbers)) if chunk is None else check_integer("chunk", chunk)
    n = len(prepared.z)
    for first in range(0, n, step):
        yield slice(first, min(n, first + step))
        if prepared.progress is not None:
            prepared.progress("differentiating", min(n, first + step), n)


def check_finite(values: Any, rows: slice, what: str) -> None:
    """Raise an error if the derivatives at some of these points are not finite."""
    finite = np.isfinite(to_numpy(values).reshape(rows.stop - rows.start, -1)).all(axis=1)
    if not finite.all():
        bad = rows.start + np.flatnonzero(~finite)
        raise InputError(f"the {what} of the decoder must be finite; got NaN or infinity in row {listing(bad)}")


def _check_mode(module: Any) -> None:
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.modules.dropout import _DropoutNd

    for name, part in module.named_modules():
        what = ""
        if part.training and isinstance(part, _DropoutNd) and part.p > 0:
            what, why = "dropout", "its output is random"
        elif part.training and isinstance(part, _BatchNorm):
            what, why = "batch norm", "the output for a row depends on the other rows"
        if what:
            where = f"{what} in training mode ({name or type(part).__name__})"
            raise InputError(f"the decoder has {where}, so {why}; call decoder.eval() first")


def _latents(z: Any) -> Any:
    torch = import_torch()
    if not is_tensor(z):
        array = to_numpy(z)
        if array.dtype.kind not in "fiub":
            raise InputError(f"z must hold real numbers; got dtype {array.dtype}")
        z = torch.from_numpy(np.array(array))  # a copy: the array may be read-only
    if not z.is_floating_point():
        raise InputError(
            f"z must hold floating-point latents, since integers have no derivatives; got dtype {z.dtype}; pass "
            "z.astype(float) if they are coordinates"
        )
    if z.ndim < 2:
        raise InputError(f"z must have shape (n, d) or (n, ...); got {tuple(z.shape)}")
    if 0 in z.shape:
        raise InputError(f"z must not be empty; got shape {tuple(z.shape)}")
    bad = np.flatnonzero(~to_numpy(torch.isfinite(z).flatten(1).all(1)))
    if bad.size:
        raise InputError(f"z must be finite; got NaN or infinite values in row {listing(bad)}")
    return z.detach() if z.dtype in (torch.float32, torch.float64) else z.detach().float()


def _decode_test_rows(decoder: Callable[[Any], Any], z: Any) -> Any:
    """Decode a few rows twice, together and alone; raise an error if a Jacobian would be meaningless."""
    torch = import_torch()
    rows = z[:_TEST_ROWS].clone().requires_grad_()
    with torch.enable_grad():
        output = _call(decoder, rows.clone())  # a copy, so that layers may work in place
    _check_output(output, len(rows))
    if not _depends_on(output.grad_fn, rows):
        raise InputError(
            "the output of the decoder has no gradient with respect to the latents; it must not detach, round, take an "
            "argmax, use no_grad or leave torch"
        )
    output, again, alone = (
        one.detach() for one in (output, _call(decoder, rows.clone()), _call(decoder, rows[:1].clone()))
    )
    limit = _ROUNDING * (float(output.abs().max()) or 1.0)
    if float((output - again).abs().max()) > limit:
        raise InputError("the decoder is random: the same latents have two outputs; call decoder.eval() first")
    if alone.shape != output[:1].shape or float((output[:1] - alone).abs().max()) > limit:
        raise InputError(
            "the output for a row depends on the other rows; disable batch statistics in the decoder (decoder.eval())"
        )
    return output


def _depends_on(node: Any, leaf: Any) -> bool:
    """Whether the graph of an output contains the latents; an output may have a gradient from weights alone."""
    seen, ahead = set(), [node]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        if getattr(node, "variable", None) is leaf:
            return True
        seen.add(node)
        ahead += [one for one, _ in node.next_functions]
    return False


def _call(decoder: Callable[[Any], Any], z: Any) -> Any:
    with one_sentence(f"the decoder fails on latents of shape {tuple(z.shape)} and dtype {z.dtype}"):
        return decoder(z)


def _check_output(output: Any, rows: int) -> None:
    if not is_tensor(output):
        kind = type(output).__name__
        raise InputError(f"the decoder must return one tensor; got {kind}; wrap it, as in lambda z: model(z)[0]")
    shape = tuple(output.shape)
    if output.ndim < 1 or len(output) != rows:
        raise InputError(f"the decoder must return a row for each row of latents; got shape {shape} for {rows} rows")
    if not output.is_floating_point():
        raise InputError(f"the decoder must return floating-point numbers; got {output.dtype}")
    if output.ndim == 1 or 0 in shape:
        raise InputError(f"the decoder must return rows of outputs; got shape {shape}; a single output is (n, 1)")
    if str(output.layout) != "torch.strided":
        raise InputError(f"the decoder must return a dense tensor; got layout {output.layout}")
    bad = np.flatnonzero(~np.isfinite(to_numpy(output).reshape(rows, -1)).all(axis=1))
    if bad.size:
        raise InputError(f"the decoder must return finite values; got NaN or infinity in row {listing(bad)}")
