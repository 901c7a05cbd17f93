"""A decoder and its blocks as a whole: verdicts and theorems, where each block acts, and what it would support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.errors import InputError
from congruence.mechanism.blocks import Blocks, write_blocks
from congruence.mechanism.checking import check
from congruence.mechanism.decomposable import Disentanglement, disentangled
from congruence.mechanism.discovery import Discovery, discover
from congruence.mechanism.domains import LatentDomain
from congruence.mechanism.outcome import Mechanism
from congruence.mechanism.portrait import Portrait, portray
from congruence.mechanism.sparsity_gap import BUDGET
from congruence.result import json_text

POINTS = 64  # looked at where there are more rows
ORIGINS = {
    "given": "The blocks were given.",
    "D": "The blocks were found: the finest along the coordinates that act on disjoint outputs (Type D).",
    "S": "The blocks were found: the finest along the coordinates that make the Jacobian sparsest (Type S).",
    "H2": "The blocks were found: the finest along the coordinates whose curvatures do not mix (Type H2).",
    "none": "No blocks were given and none lie along the coordinates, so each latent is a block.",
}


@dataclass(frozen=True, eq=False)
class Examination:
    """What `examine` found of a decoder."""

    check: Mechanism
    portrait: Portrait
    discovery: Discovery | None  # None where blocks were given
    blocks_from: str  # "given", the type that was discovered, or "none"
    settings: Mapping[str, Any] = field(default_factory=dict)
    disentanglement: Disentanglement | None = None  # of a model, where one was given

    @property
    def verdict(self) -> str:
        """What was found, and what follows: of the parts where no blocks were given, then of the blocks."""
        told = [] if self.discovery is None else [self.discovery.verdict]
        model = [] if self.disentanglement is None else [self.disentanglement.verdict]
        return " ".join([*told, self.check.verdict, *model])

    @property
    def blocks_text(self) -> str:
        """The blocks as `read_blocks` takes them."""
        return write_blocks(self.portrait.blocks)

    @property
    def blocks_origin(self) -> str:
        """Where the blocks come from."""
        return ORIGINS[self.blocks_from]

    @property
    def notes(self) -> tuple[str, ...]:
        """What to bear in mind."""
        told = () if self.discovery is None else self.discovery.notes
        model = () if self.disentanglement is None else self.disentanglement.notes
        return (*told, *self.check.notes, *model)

    def to_dict(self) -> dict[str, Any]:
        """All but single points, as in the JSON contract."""
        return {
            "verdict": self.verdict,
            "blocks": [list(block) for block in self.portrait.blocks],
            "blocks_from": self.blocks_from,
            "check": self.check.to_dict(),
            "portrait": self.portrait.to_dict(),
            "discovery": None if self.discovery is None else self.discovery.to_dict(),
            "disentanglement": None if self.disentanglement is None else self.disentanglement.to_dict(),
            "settings": dict(self.settings),
        }

    def to_json(self) -> str:
        """The same as text."""
        return json_text(self.to_dict())


def examine(
    decoder: Any,
    z: Any,
    blocks: Any = None,
    *,
    model: Any = None,
    codes: Any = None,
    types: Sequence[str] = ("D", "S", "H2"),
    points: int | None = POINTS,
    rtol: float | None = None,
    atol: float = 0.0,
    scale: str = "global",
    orders: Sequence[int] = (2, 3),
    budget: float = BUDGET,
    chunk: int | None = None,
    device: str = "auto",
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> Examination:
    """Check blocks of latents against every criterion, or find blocks first where none are given.

    Parameters
    ----------
    decoder, z, chunk, device
        As in `jacobians`.
    blocks : as in `read_blocks`, optional
        Found by `discover` unless given: the first type of `types` with more than one block along the coordinates.
    model : torch module or function, optional
        The decoder of a model, where `decoder` is the generator of its data: are its codes disentangled? The rows of z
        stand for the domain.
    codes : (n, k), optional
        The model's codes of the rows of z; searched for unless given.
    types
        As in `discover`; used where no blocks are given.
    points : int, optional
        How many rows of z to look at, drawn with `seed`; None for all.
    rtol, atol, scale, orders, budget, seed
        As in `check`. Blocks are found by `rtol` alone.
    settings : mapping, optional
        What to write beside the result.
    """
    every = to_numpy(z)
    chosen = _some(len(every), points, seed)
    rows = every[chosen]
    discovery = None
    origin = "given"
    if blocks is None:
        discovery = discover(
            decoder, rows, types=types, rtol=rtol, budget=budget, chunk=chunk, device=device, seed=seed
        )
        blocks, origin = _chosen(discovery)
    found = check(
        decoder,
        rows,
        blocks,
        rtol=rtol,
        atol=atol,
        scale=scale,
        orders=tuple(orders),
        budget=budget,
        chunk=chunk,
        device=device,
        seed=seed,
    )
    portrait = portray(decoder, rows, found.blocks, rtol=found.tolerance.rtol, chunk=chunk, device=device)
    model_found = None
    if model is not None:
        model_found = disentangled(
            decoder,
            model,
            rows,
            found.blocks,
            codes=None if codes is None else _paired(codes, len(every))[chosen],
            domain=LatentDomain.sample(every.reshape(len(every), -1)),
            device=device,
            seed=seed,
        )
    return Examination(found, portrait, discovery, origin, settings or {}, model_found)


def _some(n: int, points: int | None, seed: int) -> Array:
    """The numbers of at most `points` of n rows, in their order."""
    if points is None or n <= points:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).permutation(n)[:points])


def _paired(codes: Any, n: int) -> Array:
    rows = to_numpy(codes)
    if len(rows) != n:
        raise InputError(f"codes must have a row for each of {n} rows of latents, not {len(rows)}")
    return rows


def _chosen(discovery: Discovery) -> tuple[Blocks, str]:
    """The partition of the first type that has more than one block, or single latents."""
    for found in discovery.found:
        if found.partition is not None and found.dims and len(found.partition) > 1:
            return found.partition, found.type
    return tuple((a,) for a in range(discovery.dimension)), "none"
