"""Losses that ask a decoder to let its blocks of latents act on separate parts of the output; torch, differentiable.

Most are functions of the Jacobian J, shape (..., m, d), of which any number of leading axes (points, members of an
ensemble) may be given: one value for each point, or their mean. `decoder_jacobian` gives J of a decoder, in closed form
where it is a stack of linear layers and pointwise functions; a loss given points z takes the decoder itself. No loss
changes with the order of the blocks; sums of |J| do with a rotation inside a block, lengths do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from congruence.arrays import is_tensor
from congruence.decoder.probed import import_torch
from congruence.errors import InputError
from congruence.mechanism.blocks import read_blocks

KINDS = ("raw", "weighted", "scale_safe")
REDUCTIONS = ("mean", "none")
LEAST = 1e-12  # the length of a block that does nothing, so that it can be divided by; the reference adds as much


def compositional_contrast(
    jacobian: Any, blocks: Any, *, z: Any = None, kind: str = "raw", scales: Any = None, reduction: str = "mean"
) -> Any:
    """How much outputs depend on two blocks at once; at least 0, and 0 where blocks act on disjoint outputs.

    With a_ni the length of row n of J in the columns of block i:

    - "raw": the sum over outputs n and pairs i < j of a_ni a_nj. Shrinking J, that is growing the latents, lowers it:
      hold the latents to unit variance, or pass their standard deviations as `scales`.
    - "weighted": a_ni is divided by its mean over blocks, and outputs count by that mean over its maximum. Does not
      change when J is multiplied by a number.
    - "scale_safe": the raw contrast over its largest value for a J of that size, (K - 1) / 2 times the sum of all
      squares: between 0 and 1 (all blocks act alike on each output), unchanged when J is multiplied by a number. A
      training can lower it by growing single rows of J where there is no overlap.

    Parameters
    ----------
    jacobian : (..., m, d) tensor, or a decoder
        Of a decoder, the Jacobian at z is taken, by `decoder_jacobian`.
    blocks : list of lists of columns, or text
        See `congruence.mechanism.blocks.read_blocks`.
    z : (n, d) tensor, optional
        The points, where a decoder is given.
    kind : {"raw", "weighted", "scale_safe"}
    scales : (d,) tensor, optional
        Multiplies the columns of J. With the standard deviation of each latent, units of latents do not matter.
    reduction : {"mean", "none"}
        The mean over all points, or one value for each, shape (...).

    References
    ----------
    Brady et al. 2023, equation of the compositional contrast (raw), and the weighted one of their code for images.
    """
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    found = _jacobian(jacobian, z)
    norms = block_norms(found if scales is None else found * scales, blocks)
    if kind == "raw":
        return _reduced(pair_products(norms).sum(-1), reduction)
    if kind == "weighted":
        mean = norms.mean(-1, keepdim=True)  # (..., m, 1)
        most = mean[..., 0].amax(-1, keepdim=True)
        weight = (mean[..., 0] / most) * (most > 2 * LEAST)  # where no output moves at all, none has two blocks
        return _reduced((pair_products(norms / mean) * weight).sum(-1), reduction)
    most = (norms.shape[-1] - 1) / 2 * norms.square().sum((-2, -1))
    return _reduced(pair_products(norms).sum(-1) / (most + LEAST), reduction)


def ima_contrast(jacobian: Any, blocks: Any = None, *, z: Any = None, reduction: str = "mean") -> Any:
    """How far the blocks of columns of J are from orthogonal; at least 0, and 0 where they are.

    The sum over blocks of log det(J_k^T J_k) / 2, minus log det(J^T J) / 2; infinite where J loses rank. Unchanged by
    any linear map inside a block. By default each latent is a block.

    References
    ----------
    Gresele et al. 2021 (one latent each and square J); blocks are our extension.
    """
    torch = import_torch()
    jacobian = _jacobian(jacobian, z)
    parts = read_blocks(blocks, jacobian.shape[-1])
    length = torch.linalg.vector_norm(jacobian, dim=-2, keepdim=True)
    unit = jacobian / torch.where(length > 0, length, 1.0)  # columns of length 1 only change the rounding
    gram = unit.mT @ unit  # (..., d, d)
    apart = sum(torch.linalg.slogdet(gram[..., _grid(part)[0], _grid(part)[1]])[1] for part in parts)
    return _reduced((apart - torch.linalg.slogdet(gram)[1]) / 2, reduction)


def jacobian_l1(jacobian: Any, *, z: Any = None, reduction: str = "mean") -> Any:
    """The sum of |J|, which prefers latents that act on few outputs each; depends on the basis inside a block.

    References
    ----------
    Rhodes and Lee 2021.
    """
    return _reduced(_jacobian(jacobian, z).abs().sum((-2, -1)), reduction)


def cross_hessian_penalty(
    decoder: Any, z: Any, blocks: Any, *, directions: int | None = None, seed: int = 0, reduction: str = "mean"
) -> Any:
    """The sum of squares of second derivatives that mix two blocks, each pair of latents once; 0 where blocks add up.

    Exact by default, which takes d^2 derivatives. With `directions`, so many pairs of random signs u, v in each pair
    of blocks are tried: the mean of |D2 g(u, v)|^2 is the same sum, unbiased. Second derivatives of piecewise linear
    decoders (ReLU) are 0 almost everywhere, so this is uninformative for them.

    Parameters
    ----------
    decoder : torch module or function
        Maps (n, d) to (n, ...).
    z : (n, d) tensor
        Points.
    blocks : see `compositional_contrast`
    directions : int, optional
        Random pairs for each pair of blocks.
    seed : int
        Of the random pairs.

    References
    ----------
    Lachapelle et al. 2023, for what it means that it vanishes: an additive decoder.
    """
    torch = import_torch()
    parts = read_blocks(blocks, z.shape[-1])
    one = _single(decoder)
    pairs = [(a, b) for k, a in enumerate(parts) for b in parts[k + 1 :]]
    if not pairs:
        return _reduced(torch.zeros(len(z), dtype=z.dtype, device=z.device), reduction)
    if directions is None:
        hessian = torch.func.vmap(torch.func.jacfwd(torch.func.jacfwd(one)))(z)  # (n, m, d, d)
        squares = hessian.square().sum(1)
        mixed = [squares[:, _grid(a, b)[0], _grid(a, b)[1]].sum((1, 2)) for a, b in pairs]
        return _reduced(torch.stack(mixed).sum(0), reduction)
    signs = torch.Generator(device="cpu").manual_seed(seed)
    found = torch.zeros(len(z), dtype=z.dtype, device=z.device)
    for a, b in pairs:
        for _ in range(directions):
            u, v = (_random_signs(part, z, signs) for part in (a, b))
            found = found + _bent(torch, one, z, u, v).square().sum(-1) / directions
    return _reduced(found, reduction)


def interaction_asymmetry(jacobian: Any, blocks: Any, *, z: Any = None, reduction: str = "mean") -> Any:
    """How far each output belongs to one block: 1 where every output depends on one block alone, 0 where on all alike.

    The share of a block in an output is its sum of |J| over that of all blocks; the largest share is averaged over the
    outputs that depend on anything, and mapped from [1/K, 1] to [0, 1]. Higher is better: as a loss, take its negative.

    References
    ----------
    The score of Jacobians in the code of Brady et al. 2024.
    """
    torch = import_torch()
    jacobian = _jacobian(jacobian, z)
    parts = read_blocks(blocks, jacobian.shape[-1])
    if len(parts) < 2:
        raise InputError("blocks must be at least two: the share of a single block is always 1")
    sizes = torch.stack([jacobian[..., list(part)].abs().sum(-1) for part in parts], -1)  # (..., m, K)
    total = sizes.sum(-1)
    used = total > 0
    share = sizes.amax(-1) / torch.where(used, total, 1.0)
    mean = (share * used).sum(-1) / used.sum(-1).clamp(min=1)
    lowest = 1 / len(parts)
    return _reduced((mean - lowest) / (1 - lowest), reduction)


def block_norms(jacobian: Any, blocks: Any) -> Any:
    """The length of each row of J (..., m, d) in the columns of each block, (..., m, K)."""
    torch = import_torch()
    parts = read_blocks(blocks, jacobian.shape[-1])
    return torch.stack([lengths(jacobian[..., list(part)], -1) for part in parts], -1)


def lengths(values: Any, axis: int) -> Any:
    """Euclidean lengths along an axis of few entries, with slope 0 where all are 0.

    Over so few entries torch's own norm takes ten times as long on a CPU, forwards and backwards.
    """
    return (values.square().sum(axis) + LEAST**2).sqrt()


def pair_products(values: Any) -> Any:
    """The sum of products of all pairs of values (..., K), each pair once, with no difference of large numbers."""
    total, *rest = values.unbind(-1)  # a loop over few blocks is faster on a GPU than a cumulative sum
    found = 0 * total
    for value in rest:
        found, total = found + total * value, total + value
    return found


def decoder_jacobian(decoder: Any, z: Any) -> Any:
    """The Jacobian of a decoder at points z, (n, m, d), which can be differentiated by weights and by z.

    For a `torch.nn.Sequential` of linear layers and pointwise functions the columns of J go through the layers
    together with the values, which takes one product for each layer; anything else goes through `torch.func.jacfwd`.
    """
    torch = import_torch()
    layers = _stack(decoder)
    if layers is None:
        return torch.func.vmap(torch.func.jacfwd(_single(decoder)))(z)
    values = z
    columns = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device).expand(len(z), -1, -1)  # (n, d, width), J^T
    for layer in layers:
        if isinstance(layer, torch.nn.Linear):
            values, columns = layer(values), columns @ layer.weight.mT
        else:
            values, slope = _with_slope(layer, values)
            columns = columns * slope[:, None]
    return columns.mT


def _stack(decoder: Any) -> list[Any] | None:
    """The layers of a stack of linear layers and pointwise functions, None where it is something else."""
    from torch import nn

    pointwise = (nn.LeakyReLU, nn.ReLU, nn.ELU, nn.SiLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Identity)
    if isinstance(decoder, nn.Linear):
        return [decoder]
    if type(decoder) is not nn.Sequential:
        return None
    layers = list(decoder)
    if any(type(layer) not in (*pointwise, nn.Linear) for layer in layers):
        return None
    if any(getattr(layer, "inplace", False) for layer in layers):
        return None
    return layers


def _with_slope(layer: Any, values: Any) -> tuple[Any, Any]:
    """A pointwise function and its derivative."""
    torch = import_torch()
    if isinstance(layer, torch.nn.Identity):
        return values, torch.ones_like(values)
    if isinstance(layer, torch.nn.LeakyReLU | torch.nn.ReLU):
        slope = torch.ones_like(values).masked_fill(values <= 0, getattr(layer, "negative_slope", 0.0))
        return slope * values, slope
    found: tuple[Any, Any] = torch.func.jvp(layer, (values,), (torch.ones_like(values),))
    return found


def _bent(torch: Any, one: Any, z: Any, u: Any, v: Any) -> Any:
    """The second derivative of a decoder along u and v, (n, m)."""

    def at(point: Any) -> Any:
        def pushed(where: Any) -> Any:
            return torch.func.jvp(one, (where,), (u,))[1]

        return torch.func.jvp(pushed, (point,), (v,))[1]

    return torch.func.vmap(at)(z)


def _random_signs(part: Sequence[int], z: Any, generator: Any) -> Any:
    torch = import_torch()
    signs = 2 * torch.randint(0, 2, (len(part),), generator=generator) - 1
    found = torch.zeros(z.shape[-1], dtype=z.dtype, device=z.device)
    found[list(part)] = signs.to(found)
    return found


def _single(decoder: Any) -> Any:
    """The decoder of one point, (d,) to (m,)."""
    return lambda point: decoder(point[None]).reshape(-1)


def _jacobian(given: Any, z: Any) -> Any:
    """The Jacobian that was given, or that of the decoder that was given, at z."""
    if z is not None:
        return decoder_jacobian(given, z)
    if not is_tensor(given) or given.ndim < 2:
        raise InputError(
            f"jacobian must be a tensor (..., m, d), not {type(given).__name__}; of a decoder, pass the points as z"
        )
    return given


def _grid(rows: Sequence[int], columns: Sequence[int] | None = None) -> tuple[list[list[int]], list[int]]:
    """Indices of a block of a matrix."""
    return [[row] for row in rows], list(rows if columns is None else columns)


def _reduced(values: Any, reduction: str) -> Any:
    if reduction not in REDUCTIONS:
        raise InputError(f"reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}")
    return values.mean() if reduction == "mean" else values
