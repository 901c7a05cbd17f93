"""Rotations of latents that lower the compositional contrast: two slots at a time, from several starts.

Training moves latents between slots slowly, and often gets stuck half way: a decoder has to be relearned for it. But a
rotation of all latents costs the reconstruction nothing, since encoder and decoder can take it in. So the best rotation
is looked for on its own, with the Jacobian at a few points fixed; what remains for the training is to bend.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

from congruence.mechanism.losses import lengths


@dataclass(frozen=True)
class Turns:
    """How rotations are looked for: by Adam on Cayley's map, for each pair of slots."""

    points: int = 32  # at which the Jacobian is taken
    starts: int = 4  # the rotation as it is, and random ones
    steps: int = 60
    sweeps: int = 4  # over all pairs of slots
    rate: float = 0.08


def best_turns(columns: Any, slots: int, how: Turns, seed: int) -> Any:
    """The rotation R (members, d, d) for which latents z R have the least contrast that was found.

    Parameters
    ----------
    columns : (members, n, d, m) tensor
        The transposed Jacobian of each member's decoder at n points, by whitened latents.
    slots : int
        The latents are in so many slots of the same width, one after the other.
    seed : int
        Of the random starts, which are the same for all members.
    """
    import torch

    members, _, d, _ = columns.shape
    width = d // slots
    draw = torch.Generator(device="cpu").manual_seed(seed)
    total = torch.eye(d, device=columns.device).repeat(members, 1, 1)
    columns = columns.clone()
    for _ in range(how.sweeps):
        for i, j in combinations(range(slots), 2):
            pair = [*range(i * width, (i + 1) * width), *range(j * width, (j + 1) * width)]
            norms = lengths(columns.unflatten(2, (slots, width)), 3)  # (members, n, K, m)
            others = norms.sum(2) - norms[:, :, i] - norms[:, :, j]
            starts = torch.linalg.qr(torch.randn(how.starts, 2 * width, 2 * width, generator=draw))[0]
            starts[0] = torch.eye(2 * width)
            found = _best_of_pair(columns[:, :, pair], others, starts.to(columns.device), how)
            columns[:, :, pair] = found.mT[:, None] @ columns[:, :, pair]
            total[:, :, pair] = total[:, :, pair] @ found
    return total


def _best_of_pair(columns: Any, others: Any, starts: Any, how: Turns) -> Any:
    """The best rotation of two slots (members, 2 q, 2 q), while the others, whose norms add up to `others`, stay."""
    import torch

    members, half = len(columns), columns.shape[2] // 2
    unit = torch.eye(2 * half, device=columns.device)
    bend = torch.zeros(members, len(starts), half, half, device=columns.device, requires_grad=True)
    optimiser = torch.optim.Adam([bend], lr=how.rate)

    def rotation() -> Any:
        above = torch.nn.functional.pad(bend, (half, 0, 0, half))  # rotations inside a slot change nothing
        skew = above - above.mT
        cayley = torch.linalg.solve_ex(unit + skew, unit - skew).result  # always there, so it need not be checked
        return starts @ cayley  # (members, starts, 2 q, 2 q)

    flat, rest = columns.movedim(1, 2).flatten(2)[:, None], others.flatten(1)[:, None]  # (members, 1, 2 q, n m)

    def contrast(turned: Any) -> Any:
        norms = lengths((turned.mT @ flat).unflatten(2, (2, half)), 3)  # (members, starts, 2, n m)
        return (norms[:, :, 0] * norms[:, :, 1] + norms.sum(2) * rest).sum(-1)  # (members, starts)

    with torch.enable_grad():
        for step in range(how.steps):
            optimiser.param_groups[0]["lr"] = how.rate * (1 - step / how.steps)
            optimiser.zero_grad()
            contrast(rotation()).sum().backward()
            optimiser.step()
    with torch.no_grad():
        found = rotation()
        best = contrast(found).argmin(1)
        return found[torch.arange(members, device=best.device), best]
