"""Losses that make the blocks of latents of a decoder act on separate parts of the output; torch, differentiable.

Most are functions of the Jacobian J, shape (..., m, d), with any number of leading axes (points, members of an
ensemble): one value for each point, or their mean. `decoder_jacobian` computes J of a decoder, in closed form if it is
a stack of linear layers and pointwise functions; with points z, a loss accepts the decoder itself. No loss depends on
the order of the blocks; sums of |J| change with a rotation inside a block, lengths do not.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from congruence.arrays import is_tensor
from congruence.checks import check_choice
from congruence.decoder.prepared_decoder import import_torch
from congruence.errors import InputError
from congruence.mechanism._blocks import read_blocks

KINDS = ("raw", "weighted", "scale_safe")
_LEAST = 1e-12  # added to lengths to avoid a division by 0, as in the reference implementation


def compositional_contrast(
    jacobian: Any, blocks: Any, *, z: Any = None, kind: str = "raw", scales: Any = None, reduction: str = "mean"
) -> Any:
    """Measure how much outputs depend on two blocks at once; at least 0, and 0 if blocks act on disjoint outputs.

    With a_ni the length of row n of J in the columns of block i:

    - "raw": the sum over outputs n and pairs i < j of a_ni a_nj. Shrinking J, that is growing the latents, lowers it:
      hold the latents to unit variance, or pass their standard deviations as `scales`.
    - "weighted": a_ni is divided by its mean over blocks, and outputs count by that mean over its maximum. Does not
      change when J is multiplied by a number.
    - "scale_safe": the raw contrast over its largest value for a J of that size, (K - 1) / 2 times the sum of all
      squares: between 0 and 1 (all blocks act equally on each output), unchanged when J is multiplied by a number. A
      training can lower it by growing single rows of J without overlap.

    Parameters
    ----------
    jacobian : (..., m, d) tensor, or a decoder
        For a decoder, its Jacobian at z is computed by `decoder_jacobian`.
    blocks : list of lists of columns, or text
        Such as [[0, 1], [2]] or "0-1,2".
    z : (n, d) tensor, optional
        The points at which a decoder is differentiated.
    kind : {"raw", "weighted", "scale_safe"}
        Which of the contrasts above.
    scales : (d,) tensor, optional
        Multiplies the columns of J. With the standard deviation of each latent, units of latents do not matter.
    reduction : {"mean", "none"}
        The mean over all points, or one value for each, shape (...).

    References
    ----------
    Brady et al. 2023, equation of the compositional contrast (raw), and the weighted one of their code for images.
    """
    check_choice("kind", kind, KINDS)
    jacobian = _as_jacobian(jacobian, z)
    jacobian = jacobian if scales is None else jacobian * scales
    parts = read_blocks(blocks, jacobian.shape[-1])
    norms = import_torch().stack([lengths(jacobian[..., list(part)], -1) for part in parts], -1)  # (..., m, K)
    if kind == "weighted":
        mean = norms.mean(-1, keepdim=True)  # (..., m, 1)
        most = mean[..., 0].amax(-1, keepdim=True)
        weight = (mean[..., 0] / most) * (most > 2 * _LEAST)  # 0 if no output moves at all
        return _reduce((pair_products(norms / mean) * weight).sum(-1), reduction)
    raw = pair_products(norms).sum(-1)
    if kind == "raw":
        return _reduce(raw, reduction)
    most = (norms.shape[-1] - 1) / 2 * norms.square().sum((-2, -1))
    return _reduce(raw / (most + _LEAST), reduction)


def ima_contrast(jacobian: Any, blocks: Any = None, *, z: Any = None, reduction: str = "mean") -> Any:
    """Measure how far the blocks of columns of J are from orthogonal; at least 0, and 0 if they are.

    The sum over blocks of log det(J_k^T J_k) / 2, minus log det(J^T J) / 2; infinite if J loses rank. Unchanged by any
    linear map inside a block.

    Parameters
    ----------
    jacobian : as in `compositional_contrast`
    blocks : as there; each latent is a block if it is None
    z : as there
    reduction : as there

    References
    ----------
    Gresele et al. 2021 (one latent each and square J); blocks are our extension.
    """
    torch = import_torch()
    jacobian = _as_jacobian(jacobian, z)
    length = torch.linalg.vector_norm(jacobian, dim=-2, keepdim=True)
    unit = jacobian / torch.where(length > 0, length, 1.0)  # columns of length 1 only change the rounding
    gram = unit.mT @ unit  # (..., d, d)
    parts = map(list, read_blocks(blocks, jacobian.shape[-1]))
    apart = sum(torch.linalg.slogdet(gram[..., part, :][..., part])[1] for part in parts)
    return _reduce((apart - torch.linalg.slogdet(gram)[1]) / 2, reduction)


def jacobian_l1(jacobian: Any, *, z: Any = None, reduction: str = "mean") -> Any:
    """Sum |J|, which favours latents that act on few outputs each; depends on the basis inside a block.

    The parameters are those of `compositional_contrast` (Rhodes and Lee 2021).
    """
    return _reduce(_as_jacobian(jacobian, z).abs().sum((-2, -1)), reduction)


def cross_hessian_penalty(
    decoder: Any, z: Any, blocks: Any, *, directions: int | None = None, seed: int = 0, reduction: str = "mean"
) -> Any:
    """Sum the squares of second derivatives that mix two blocks, each pair of latents once; 0 for additive decoders.

    Exact by default, which takes d^2 derivatives. With `directions`, that many pairs of random signs u, v in each pair
    of blocks are drawn: the mean of |D2 g(u, v)|^2 is the same sum, unbiased. Second derivatives of piecewise linear
    decoders (ReLU) are 0 almost everywhere, so this is uninformative for them.

    Parameters
    ----------
    decoder : torch module or function
        Maps (n, d) to (n, ...).
    z : (n, d) tensor
        Points.
    blocks : list of lists of columns, or text
        Such as [[0, 1], [2]] or "0-1,2".
    directions : int, optional
        Random pairs for each pair of blocks.
    seed : int
        Seed of the random pairs.
    reduction : {"mean", "none"}
        The mean over all points, or one value for each, shape (n,).

    References
    ----------
    Lachapelle et al. 2023, on additive decoders, for which it vanishes.
    """
    torch = import_torch()
    one = _decode_one(decoder)
    pairs = list(combinations(map(list, read_blocks(blocks, z.shape[-1])), 2))
    total = torch.zeros(len(z), dtype=z.dtype, device=z.device)
    if directions is None and pairs:
        hessian = torch.func.vmap(torch.func.jacfwd(torch.func.jacfwd(one)))(z)  # (n, m, d, d)
        squares = hessian.square().sum(1)
        return _reduce(torch.stack([squares[:, a][:, :, b].sum((1, 2)) for a, b in pairs]).sum(0), reduction)
    signs = torch.Generator(device="cpu").manual_seed(seed)

    def draw(part: list[int]) -> Any:
        vector = torch.zeros(z.shape[-1], dtype=z.dtype, device=z.device)
        vector[part] = (2 * torch.randint(0, 2, (len(part),), generator=signs) - 1).to(vector)
        return vector

    def second(point: Any, u: Any, v: Any) -> Any:  # derivative along u and v, (m,)
        return func.jvp(lambda s: func.jvp(one, (s,), (u,))[1], (point,), (v,))[1]

    func = torch.func
    for a, b in pairs:
        for _ in range(directions or 0):
            along = func.vmap(second, in_dims=(0, None, None))(z, draw(a), draw(b))
            total = total + along.square().sum(-1) / directions
    return _reduce(total, reduction)


def interaction_asymmetry(jacobian: Any, blocks: Any, *, z: Any = None, reduction: str = "mean") -> Any:
    """Measure how far each output belongs to one block: 1 if to one block alone, 0 if to all blocks equally.

    The share of a block in an output is its sum of |J| over that of all blocks; the largest share is averaged over the
    outputs that depend on anything, and mapped from [1/K, 1] to [0, 1]. Higher is better: as a loss, take its negative.

    Parameters
    ----------
    jacobian : as in `compositional_contrast`
    blocks : as there; at least two
    z : as there
    reduction : as there

    References
    ----------
    The score of Jacobians in the code of Brady et al. 2024.
    """
    torch = import_torch()
    jacobian = _as_jacobian(jacobian, z)
    parts = read_blocks(blocks, jacobian.shape[-1])
    if len(parts) < 2:
        raise InputError("blocks must be at least two, since the share of a single block is always 1; got 1")
    sizes = torch.stack([jacobian[..., list(part)].abs().sum(-1) for part in parts], -1)  # (..., m, K)
    total = sizes.sum(-1)
    used = total > 0
    share = sizes.amax(-1) / torch.where(used, total, 1.0)
    mean = (share * used).sum(-1) / used.sum(-1).clamp(min=1)
    lowest = 1 / len(parts)
    return _reduce((mean - lowest) / (1 - lowest), reduction)


def lengths(values: Any, axis: int) -> Any:
    """Return Euclidean lengths along an axis of few entries, with slope 0 where all entries are 0.

    For few entries torch's norm is ten times slower on a CPU, forwards and backwards.
    """
    return (values.square().sum(axis) + _LEAST**2).sqrt()


def pair_products(values: Any) -> Any:
    """Sum the products of all pairs of values (..., K), each pair once, without a difference of large numbers."""
    total, *rest = values.unbind(-1)  # a loop over few blocks is faster on a GPU than a cumulative sum
    products = 0 * total
    for value in rest:
        products, total = products + total * value, total + value
    return products


def decoder_jacobian(decoder: Any, z: Any) -> Any:
    """Return the Jacobian of a decoder (n, d) -> (n, ...) at points z, (n, m, d), differentiable by weights and z.

    For a `torch.nn.Sequential` of linear layers and pointwise functions the columns of J are propagated through the
    layers together with the values, with one product per layer; other decoders use `torch.func.jacfwd`.
    """
    torch = import_torch()
    nn = torch.nn
    known = (nn.LeakyReLU, nn.ReLU, nn.ELU, nn.SiLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Identity, nn.Linear)
    layers = (
        [decoder] if isinstance(decoder, nn.Linear) else list(decoder) if type(decoder) is nn.Sequential else [None]
    )
    if not all(type(layer) in known and not getattr(layer, "inplace", False) for layer in layers):
        return torch.func.vmap(torch.func.jacfwd(_decode_one(decoder)))(z)
    values = z
    columns = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device).expand(len(z), -1, -1)  # (n, d, width), J^T
    for layer in layers:
        if isinstance(layer, nn.Linear):
            values, columns = layer(values), columns @ layer.weight.mT
            continue
        if isinstance(layer, nn.LeakyReLU | nn.ReLU):
            slope = torch.ones_like(values).masked_fill(values <= 0, getattr(layer, "negative_slope", 0.0))
            values = slope * values
        else:
            values, slope = torch.func.jvp(layer, (values,), (torch.ones_like(values),))
        columns = columns * slope[:, None]
    return columns.mT


def _decode_one(decoder: Any) -> Any:
    """The decoder of one point, (d,) to (m,)."""
    return lambda point: decoder(point[None]).reshape(-1)


def _as_jacobian(jacobian: Any, z: Any) -> Any:
    """Return a Jacobian unchanged, or compute that of a decoder at z."""
    if z is not None:
        return decoder_jacobian(jacobian, z)
    if not is_tensor(jacobian) or jacobian.ndim < 2:
        kind = type(jacobian).__name__
        raise InputError(f"jacobian must be a tensor (..., m, d), or a decoder with its points z; got {kind}")
    return jacobian


def _reduce(values: Any, reduction: str) -> Any:
    return values.mean() if check_choice("reduction", reduction, ("mean", "none")) == "mean" else values
