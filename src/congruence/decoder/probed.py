"""A decoder that was tested on its latents: it returns one finite tensor, the same each time.

Whatever would make a Jacobian meaningless (dropout, batch statistics, NaN, no gradient) is refused here, with the
reason, before anything is computed.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from congruence.arrays import is_tensor, listing, resolve_device, to_numpy
from congruence.errors import CongruenceError, InputError, MissingDependencyError

TRIED = 3  # rows that are decoded twice, together and alone, to test whether the output stays the same
ALIKE = 1e-3  # of the largest output: rows decoded together and alone differ by rounding only


@dataclass(frozen=True, eq=False)
class Probed:
    """A decoder with its latents, ready to be differentiated: `one` maps (d,) to (p,), without a batch."""

    decode: Callable[[Any], Any]  # (rows, *latent shape) -> (rows, *output shape)
    z: Any  # (n, d) tensor, flattened
    latent_shape: tuple[int, ...]  # of one row
    output_shape: tuple[int, ...]

    @property
    def dimension(self) -> int:
        """The number of latents d."""
        return int(self.z.shape[1])

    @property
    def outputs(self) -> int:
        """The number of outputs p."""
        return int(np.prod(self.output_shape))

    def one(self, z: Any) -> Any:
        """Decode one row of latents, (d,), to one row of outputs, (p,)."""
        return self.decode(z.reshape(1, *self.latent_shape).clone()).reshape(-1)  # layers may work in place


def probe(decoder: Any, z: Any, device: str = "auto") -> Probed:
    """Check a decoder and its latents, bring both to one device and dtype, and try the decoder on a few rows.

    A module is not changed: where it has to move to another device, a copy of it does.
    """
    torch = import_torch()
    if not callable(decoder):
        raise InputError(f"decoder must be a torch module or a function, not {type(decoder).__name__}")
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
    output = _try(decoder, latents)
    flat = latents.reshape(len(latents), -1)
    return Probed(_sealed(decoder), flat, shape, tuple(output.shape[1:]))


def import_torch() -> Any:
    """Return torch, ready for forward-mode differentiation, or raise with how to install it."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("examining a decoder needs torch: pip install 'congruence[torch]'") from error
    if "torch._decomp.decompositions_for_jvp" not in sys.modules:
        with (
            warnings.catch_warnings()
        ):  # torch warns about its own deprecated parts when it first differentiates forwards
            warnings.simplefilter("ignore", DeprecationWarning)
            with contextlib.suppress(ImportError):
                import_module("torch._decomp.decompositions_for_jvp")
    return torch


def _check_mode(module: Any) -> None:
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.modules.dropout import _DropoutNd

    for name, part in module.named_modules():
        if part.training and isinstance(part, _DropoutNd) and part.p > 0:
            raise InputError(
                f"the decoder has dropout in training mode ({name or type(part).__name__}), so its output is random; "
                "call decoder.eval() first"
            )
        if part.training and isinstance(part, _BatchNorm):
            raise InputError(
                f"the decoder has batch norm in training mode ({name or type(part).__name__}), so the output for a "
                "row depends on the other rows; call decoder.eval() first"
            )


def _latents(z: Any) -> Any:
    torch = import_torch()
    if not is_tensor(z):
        array = to_numpy(z)
        if array.dtype.kind not in "fiub":
            raise InputError(f"z must hold real numbers, but its dtype is {array.dtype}")
        z = torch.from_numpy(np.array(array))  # a copy: the array may be read-only
    if not z.is_floating_point():
        raise InputError(
            f"z must hold floating-point latents, but its dtype is {z.dtype}: nothing can be differentiated by "
            "integers; if they are coordinates, pass z.astype(float)"
        )
    if z.ndim < 2:
        raise InputError(f"z must have rows of latents (n, d), but has shape {tuple(z.shape)}")
    if 0 in z.shape:
        raise InputError(f"z is empty: its shape is {tuple(z.shape)}")
    bad = np.flatnonzero(~to_numpy(torch.isfinite(z).flatten(1).all(1)))
    if bad.size:
        raise InputError(f"z has NaN or infinite values (row {listing(bad)})")
    return z.detach() if z.dtype in (torch.float32, torch.float64) else z.detach().float()


def _try(decoder: Callable[[Any], Any], z: Any) -> Any:
    """Decode a few rows twice, with others and alone; refuse what makes a Jacobian meaningless."""
    torch = import_torch()
    rows = z[:TRIED].clone().requires_grad_()
    with torch.enable_grad():
        output = _call(decoder, rows.clone())  # a copy, so that layers may work in place
    _check_output(output, len(rows))
    if not _leads_to(output.grad_fn, rows):
        raise InputError(
            "the output of the decoder carries no gradient of the latents; it must not detach, round, take an argmax, "
            "use no_grad or leave torch"
        )
    output, again, alone = (
        one.detach() for one in (output, _call(decoder, rows.clone()), _call(decoder, rows[:1].clone()))
    )
    limit = ALIKE * (float(output.abs().max()) or 1.0)
    if float((output - again).abs().max()) > limit:
        raise InputError("the decoder is random: it gave two outputs for the same latents; call decoder.eval() first")
    if alone.shape != output[:1].shape or float((output[:1] - alone).abs().max()) > limit:
        raise InputError(
            "the output for a row depends on the other rows; switch off batch statistics in the decoder "
            "(decoder.eval())"
        )
    return output


def _leads_to(node: Any, leaf: Any) -> bool:
    """Whether the graph of an output reaches the latents: weights alone make it carry a gradient, too."""
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
    try:
        return decoder(z)
    except CongruenceError:
        raise
    except Exception as error:
        raise InputError(
            f"the decoder fails on latents of shape {tuple(z.shape)} and dtype {z.dtype}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _check_output(output: Any, rows: int) -> None:
    if not is_tensor(output):
        raise InputError(
            f"the decoder must return one tensor, not {type(output).__name__}; wrap it, as in lambda z: model(z)[0]"
        )
    if output.ndim < 1 or len(output) != rows:
        raise InputError(
            f"the decoder must return a row for each row of latents, but {rows} rows gave shape {tuple(output.shape)}"
        )
    if not output.is_floating_point():
        raise InputError(f"the decoder must return floating-point numbers, not {output.dtype}")
    if output.ndim == 1:
        raise InputError(
            f"the decoder must return rows of outputs, but gave shape {tuple(output.shape)}; a single output is (n, 1)"
        )
    bad = np.flatnonzero(~np.isfinite(to_numpy(output).reshape(rows, -1)).all(axis=1))
    if bad.size:
        raise InputError(f"the decoder returns NaN or infinite values (row {listing(bad)})")


def _sealed(decoder: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The decoder with its parameters out of the graph: only latents are differentiated by."""
    torch = import_torch()
    if not isinstance(decoder, torch.nn.Module):
        return decoder
    tensors = {name: p.detach() for name, p in (*decoder.named_parameters(), *decoder.named_buffers())}

    def decode(z: Any) -> Any:
        return torch.func.functional_call(decoder, tensors, (z,))

    return decode
